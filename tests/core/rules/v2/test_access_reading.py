"""Access control, version 2: reading, push and notify; properties of all rules."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enc.core.errors import (
    ACBundleFailed,
    Unauthorized,
)
from enc.core.machine.state import view
from enc.core.primitives.types import PREDEFINED, Target
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import EndpointChange, Subject
from tests.core.rules.v2.access_club import (
    ADMIN,
    BLOCKED,
    DATAVIEW,
    EDITABLE,
    EVERYTHING,
    GONE,
    KINDS,
    MEMBER,
    MODERATOR,
    MUTED,
    OWNER,
    PENDING,
    PEOPLE,
    STATES,
    club,
    event,
    is_,
    op,
    operations,
    ops,
    slot,
    turn,
)
from tests.core.world import Json, World, about, gated, give, grant, init, move, path, person, rule

# Reading, push and notify


def rights(world: World, name: str, subject: Subject, *, is_author: bool = False) -> str:
    found = world.policy.rights(subject, world.bitmask(name), is_author=is_author, closed=frozenset())
    return "".join(op for op in "RPN" if op in found)


def test_readers_read_what_they_name() -> None:
    readers = [{"type": "MEMBER", "reads": ["note", "Move"]}, {"type": ["admin", "PENDING"], "reads": "page"}]
    world = club(readers=readers)
    table = {"mark": ("note", "Move"), "adam": ("note", "Move", "page"), "pete": ("page",), "otto": ()}
    for name, types in table.items():
        for type_ in ("note", "Move", "page", "Manifest", "other"):
            assert rights(world, name, event(type_)) == ("R" if type_ in types else "")
            assert world.scope(name).of(type_) == ("all" if type_ in types else "none")
        assert bool(world.scope(name)) == bool(types)


def test_the_star_reads_everything_the_predefined_types_included() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": "*"}])
    for type_ in ("note", "Reg_Node", *PREDEFINED):
        assert rights(world, "mark", event(type_)) == "R"
        assert world.scope("mark").of(type_) == "all"
        assert world.scope("otto").of(type_) == "none"
    assert world.scope("mark").others == "all"
    assert world.scope("otto").others == "none"


def test_public_reads_for_everybody() -> None:
    world = club(readers=[{"type": "Public", "reads": "note"}])
    assert rights(world, "otto", event("note")) == "R"


@pytest.mark.parametrize("context", ["Sender", "Self"])
def test_authors_read_what_they_wrote(context: str) -> None:
    world = club(readers=[{"type": context, "reads": "note"}])
    assert rights(world, "otto", event("note"), is_author=True) == "R"
    assert rights(world, "otto", event("note")) == ""
    assert rights(world, "otto", event("page"), is_author=True) == ""
    assert (world.scope("otto").of("note"), world.scope("otto").of("page")) == ("own", "none")
    assert world.scope("otto")


def test_others_own_and_a_type_that_is_denied() -> None:
    world = club(readers=[{"type": "Sender", "reads": "*"}], customs=[rule("secret", "Public", "_R")])
    scope = world.scope("otto")
    assert (scope.others, scope.of("note"), scope.of("secret")) == ("own", "own", "none")


def test_a_denied_reader_reads_the_rest() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": "*"}], customs=[rule("note", "muted", "_R")])
    assert (rights(world, "mute", event("note")), rights(world, "mute", event("page"))) == ("", "R")
    assert (world.scope("mute").of("note"), world.scope("mute").of("page")) == ("none", "all")
    assert world.scope("mark").of("note") == "all"


def test_a_star_denial_takes_all_reading() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": ["*", "note"]}], customs=[rule("*", "muted", "_R")])
    assert rights(world, "mute", event("note")) == ""
    assert not world.scope("mute")
    assert world.scope("mark")


def test_a_denial_to_the_sender_hides_ones_own_events_only() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": "note"}], customs=[rule("note", "Sender", "_R")])
    assert rights(world, "mark", event("note"), is_author=True) == ""
    assert rights(world, "mark", event("note")) == "R"
    assert world.scope("mark").of("note") == "some"


def test_p_and_n_are_given_and_denied_like_r() -> None:
    customs = [
        rule("note", "dataview", "P N"),
        rule("note", "MEMBER", "N"),
        rule("note", "muted", "_N"),
        rule("*", "admin", "P"),
    ]
    world = club(customs=customs, readers=[{"type": "MEMBER", "reads": "*"}])
    assert [rights(world, name, event("note")) for name in ("dave", "mark", "mute", "adam", "otto")] == [
        "PN",
        "RN",
        "R",
        "RPN",
        "",
    ]
    assert rights(world, "adam", event("Manifest")) == "RP"


def test_p_and_n_are_not_reading() -> None:
    world = club(customs=[rule("note", "dataview", "P N")])
    assert world.scope("dave").of("note") == "none"
    assert not world.scope("dave")


SELECTIVE: Json = {
    "slots": [rule("Shared", "MEMBER", "C R", key="open"), rule("Shared", "admin", "C", key="closed")],
    "moves": [path("OUTSIDER", "PENDING", "Self", "C R"), path("OUTSIDER", "MEMBER", "Self", "C P")],
    "grants": [grant("Grant", ["owner"], "muted", ops=["C", "N"]), grant("Grant", ["owner"], "admin")],
}


@pytest.mark.parametrize(
    ("name", "subject", "expected"),
    [
        ("mark", event("Shared", key="open"), "R"),
        ("mark", event("Shared", key="closed"), ""),
        ("adam", event("Shared", key="closed"), ""),
        ("mark", event("Own", key="open"), ""),
        ("otto", event("Shared", key="open"), ""),
        ("olga", event("Grant", trait="muted"), "N"),
        ("olga", event("Grant", trait="admin"), ""),
        ("olga", event("Revoke", trait="muted"), ""),
    ],
)
def test_selectors_of_slots_and_grants_select_for_reading_too(name: str, subject: Subject, expected: str) -> None:
    assert rights(club(**SELECTIVE), name, subject) == expected


def test_selectors_of_moves_select_for_reading_too() -> None:
    world = club(**SELECTIVE)
    pending, member = (
        event("Move", from_state="OUTSIDER", to_state="PENDING"),
        event("Move", from_state="OUTSIDER", to_state="MEMBER"),
    )
    assert rights(world, "otto", pending, is_author=True) == "R"
    assert rights(world, "otto", pending) == ""
    assert rights(world, "otto", member, is_author=True) == "P"
    assert rights(world, "otto", event("Move", from_state="MEMBER", to_state="PENDING"), is_author=True) == ""


def test_a_type_of_which_only_some_events_are_readable() -> None:
    world = club(**SELECTIVE)
    assert world.scope("mark").of("Shared") == "some"
    assert world.scope("otto").of("Shared") == "none"
    assert world.scope("otto").of("Move") == "some"
    assert world.scope("olga").of("Grant") == "none"


def test_the_subject_of_an_event_carries_its_selectors() -> None:
    world = club(**EVERYTHING, customs=EDITABLE, slots=[rule("Own", "Self", "C", key="nick")])
    moved = world.send("olga", "Move", move("otto", "OUTSIDER", "MEMBER"))
    given = world.send("olga", "Grant", give("otto", "admin"))
    own = world.send("mark", "Own", slot("nick", "m"))
    bundle = world.send("adam", "AC_Bundle", {"operations": [op("Grant", give("mark", "muted"))]})
    closed = world.send("adam", "Gate", turn("closed", "mercy"))
    passed = world.send("olga", "Transfer", give("mark", "owner"))
    assert [world.policy.subject(e, None) for e in (moved, given, own, bundle, closed, passed, world.events[0])] == [
        Subject("Move", from_state="OUTSIDER", to_state="MEMBER"),
        Subject("Grant", trait="admin"),
        Subject("Own", key="nick"),
        Subject("AC_Bundle"),
        Subject("Gate"),
        Subject("Transfer", trait="owner"),
        Subject("Manifest"),
    ]


def test_an_update_or_delete_counts_as_its_targets_type() -> None:
    customs = [*EDITABLE, rule("note", "dataview", "P"), rule("note", "PENDING", "N"), rule("page", "BLOCKED", "R P N")]
    world = club(customs=customs, readers=[{"type": "MEMBER", "reads": "note"}])
    note = world.send("mark", "note")
    update = world.send("mark", "Update", "new", tags=about(note))
    delete = world.send("mark", "Delete", GONE, tags=about(note))
    for revision in (update, delete):
        assert world.policy.subject(revision, Target("note", b"")) == Subject("note")
        found = [world.rights(name, revision, note) for name in ("mary", "dave", "pete", "blake", "otto")]
        assert found == ["R", "P", "N", "", ""]


def test_an_entry_that_names_update_matches_nothing() -> None:
    customs = [*EDITABLE, rule("Update", "PENDING", "R P N"), rule("Delete", "PENDING", "R P N")]
    world = club(customs=customs)
    note = world.send("mark", "note")
    update = world.send("mark", "Update", "new", tags=about(note))
    assert world.rights("pete", update, note) == ""


def test_rights_are_those_of_the_present_bitmask() -> None:
    world = club(readers=[{"type": "MEMBER", "reads": "*", "retention": "snapshot"}], customs=EDITABLE, **EVERYTHING)
    note = world.send("mark", "note")
    assert (world.rights("mary", note), world.rights("otto", note)) == ("R", "")
    world.send("olga", "Move", move("mary", "MEMBER", "BLOCKED"))
    world.send("olga", "Move", move("otto", "OUTSIDER", "MEMBER"))
    assert (world.rights("mary", note), world.rights("otto", note)) == ("", "R")


def test_without_readers_nobody_reads_not_even_the_author() -> None:
    world = club(customs=[rule("note", "Public", "C U D P N")], **EVERYTHING)
    note = world.send("olga", "note")
    for name in ("olga", "mark", "otto"):
        assert "R" not in world.rights(name, note)
        assert not world.scope(name)


@pytest.mark.parametrize(
    ("sections", "closed"),
    [
        pytest.param({"slots": [rule("Shared", "MEMBER", "_R", key="k")]}, "", id="only a selective denial"),
        pytest.param(
            {"slots": [rule("Shared", "MEMBER", "R", key="k", **gated("g", "owner"))]}, "g", id="behind a closed gate"
        ),
        pytest.param(
            {"slots": [rule("Shared", "MEMBER", "R", key="k")], "customs": [rule("*", "MEMBER", "_R")]},
            "",
            id="a selective permission under a general denial",
        ),
        pytest.param({"readers": [{"type": "MEMBER", "reads": ["Update", "Delete"]}]}, "", id="only revisions as such"),
    ],
)
def test_whoever_can_read_no_event_at_all_has_an_empty_scope(sections: Json, closed: str) -> None:
    world = club(**sections)
    if closed:
        world.send("olga", "Gate", turn("closed", closed))
    assert not world.scope("mark")


# Properties


COLUMNS = ["OUTSIDER", *STATES, "owner", "admin", "moderator", "muted", "dataview", "Public", "Self", "Sender"]


EVERYBODY = [*PEOPLE, "otto"]


columns = st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4)


rules = st.lists(st.builds(rule, st.sampled_from(["note", "page"]), columns, ops), max_size=8)


@settings(deadline=None, max_examples=60)
@given(extra=st.dictionaries(st.sampled_from(list(PEOPLE)), st.sampled_from(COLUMNS[4:9])), data=st.data())
def test_a_policy_of_init_alone_allows_nothing_to_anybody(extra: dict[str, str], data: st.DataObject) -> None:
    texts = {
        name: text if extra.get(name, "x") in text else f"{text} {extra.get(name, '')}" for name, text in PEOPLE.items()
    }
    world = club(init=init(**texts))
    name, other = data.draw(st.sampled_from(EVERYBODY)), data.draw(st.sampled_from(EVERYBODY))
    state = ["OUTSIDER", *STATES][world.bitmask(other) & 0xFF]
    world.memory.targets[bytes(32)] = Target("note", person(name).public)
    tries: list[tuple[str, Any]] = [
        ("note", "text"),
        ("Move", move(other, state, data.draw(st.sampled_from(STATES)))),
        *((type_, give(other, trait)) for type_ in ("Grant", "Revoke", "Transfer") for trait in COLUMNS[4:9]),
        ("Gate", turn("closed")),
        ("Shared", slot("k", 1)),
        ("Own", slot("k", None)),
        ("Update", "x"),
        ("Delete", GONE),
        ("Pause", ""),
        ("Terminate", {}),
    ]
    for type_, content in tries:
        assert world.code(name, type_, content, tags=(("r", "00" * 32),)) == "UNAUTHORIZED"
    bundle = {"operations": [op(type_, content) for type_, content in tries[1:17]]}
    assert is_(world.refused(name, "AC_Bundle", bundle), ACBundleFailed, failed_index=0, reason="UNAUTHORIZED")
    if not world.bitmask(name) & OWNER:
        assert is_(world.refused(name, "Migrate", world.migrate("node2")), Unauthorized)
    assert not world.scope(name)
    assert world.rights(name, world.events[0]) == ""


def effective(world: World, name: str, *, is_author: bool) -> str:
    """Return all ops that someone has on notes."""
    world.memory.targets[bytes(32)] = Target("note", person(name if is_author else "nobody").public)
    tags = (("r", "00" * 32),)
    tries = {"C": ("note", ""), "U": ("Update", ""), "D": ("Delete", GONE)}
    found = {key for key, what in tries.items() if not world.code(name, *what, tags=tags)}
    return "".join(sorted(found | set(rights(world, name, event("note"), is_author=is_author))))


@settings(deadline=None, max_examples=120)
@given(
    entries=rules,
    name=st.sampled_from(EVERYBODY),
    is_author=st.booleans(),
    op_=st.sampled_from("CRUDPN"),
    data=st.data(),
)
def test_a_denial_to_one_column_takes_the_op_whatever_else_is_given(
    entries: list[Json], name: str, is_author: bool, op_: str, data: st.DataObject
) -> None:
    before = club(customs=entries)
    contexts = ["Sender", "Self"] if is_author and op_ != "C" else []
    column = data.draw(st.sampled_from(sorted(before.policy.columns_of(before.bitmask(name), contexts))))
    place = data.draw(st.integers(0, len(entries)))
    after = club(customs=[*entries[:place], rule("note", column, f"_{op_}"), *entries[place:]])
    had = effective(before, name, is_author=is_author)
    assert effective(after, name, is_author=is_author) == had.replace(op_, "")


@settings(deadline=None, max_examples=120)
@given(entries=rules, name=st.sampled_from(EVERYBODY), is_author=st.booleans())
def test_effective_is_what_some_entry_gives_less_what_any_denies(
    entries: list[Json], name: str, is_author: bool
) -> None:
    world = club(customs=entries)
    mask = world.bitmask(name)
    held = {STATES[(mask & 0xFF) - 1] if mask & 0xFF else "OUTSIDER", "Public"}
    held |= {trait for i, trait in enumerate(COLUMNS[4:9]) if mask >> 8 + i & 1}
    expected = set()
    for op_ in "CRUDPN":
        columns_ = held | ({"Sender", "Self"} if is_author and op_ != "C" else set())
        speaks = [set(e["ops"]) for e in entries if e["event"] == "note" and columns_ & set(e["operator"])]
        if any(op_ in e for e in speaks) and not any(f"_{op_}" in e for e in speaks):
            expected.add(op_)
    assert effective(world, name, is_author=is_author) == "".join(sorted(expected))


who = st.sampled_from(["MEMBER", "muted", "Public", "Self", "Sender"])


reading = st.sampled_from(["R", "_R", "P", "R _P"])


speaking = st.fixed_dictionaries(
    {
        "readers": st.builds(
            lambda column, type_: {"type": column, "reads": type_}, who, st.sampled_from(["*", "note", "Move"])
        ),
        "slots": st.builds(
            lambda type_, *to: rule(type_, *to, key="k"), st.sampled_from(["Shared", "Own"]), who, reading
        ),
        "moves": st.builds(lambda *to: path("OUTSIDER", "MEMBER", *to), who, reading),
        "grants": st.builds(lambda column, ops: grant("Grant", column, "muted", ops=ops.split()), who, reading),
        "customs": st.builds(rule, st.sampled_from(["*", "Shared", "Move"]), who, reading),
    }
).map(lambda entries: entries.items())
"""One entry for each section that gives or denies reading, of a whole type or of a part of it."""


@settings(deadline=None, max_examples=200)
@given(entries=speaking, chosen=st.lists(st.sampled_from(["", "plain", "open", "closed"]), min_size=5, max_size=5))
def test_the_scope_says_what_the_rights_say(entries: list[tuple[str, Json]], chosen: list[str]) -> None:
    sections = {
        section: [entry | (gated(f"{how}{i}", "owner") if how != "plain" else {})]
        for i, ((section, entry), how) in enumerate(zip(entries, chosen, strict=True))
        if how
    }
    world = club(**sections)

    closed = frozenset(alias for alias in world.policy.gates if alias.startswith("closed"))

    for name in ("mark", "mute", "otto"):
        mask = world.bitmask(name)
        scope = world.policy.read_scope(mask, closed)
        readable = {
            (subject, is_author): "R" in world.policy.rights(subject, mask, is_author=is_author, closed=closed)
            for subject in KINDS
            for is_author in (False, True)
        }
        for (subject, is_author), allowed in readable.items():
            reach = scope.of(subject.type)
            assert allowed in {"all": (True,), "none": (False,), "own": (is_author,), "some": (True, False)}[reach]
        assert bool(scope) == any(readable.values())


def one_by_one(world: World, actor: str, listed: list[Json]) -> tuple[int, str, list[EndpointChange]]:
    """Return how many operations succeed as single events, the first error's code, and the resulting rights."""
    endpoints: list[EndpointChange] = []
    for i, operation in enumerate(listed):
        if operation.get("from") == "as it is":
            mask = view(world.state, world.memory).bitmask(bytes.fromhex(operation["target"]))
            operation["from"] = world.policy.state_of(mask)
        if code := world.code(actor, operation["type"], operation):
            return i, code, endpoints
        world.send(actor, operation["type"], operation)
        endpoints += world.effects.endpoints
    return len(listed), "", endpoints


@settings(deadline=None, max_examples=200)
@given(actor=st.sampled_from(["olga", "adam"]), listed=st.lists(operations, min_size=1, max_size=6))
def test_an_ac_bundle_equals_its_operations_one_by_one_or_changes_nothing(actor: str, listed: list[Json]) -> None:
    everyone = init(**PEOPLE | {"olga": "MEMBER owner admin"})
    singly, together = club(init=everyone, **EVERYTHING), club(init=everyone, **EVERYTHING)
    done, code, endpoints = one_by_one(singly, actor, listed)
    before, leaves = together.state, dict(together.state.pending)
    if code:
        error = together.refused(actor, "AC_Bundle", {"operations": listed})
        assert is_(error, ACBundleFailed, failed_index=done, reason=code)
        assert together.state is before
        assert together.state.pending == leaves
    else:
        together.send(actor, "AC_Bundle", {"operations": listed})
        assert together.state_hash == singly.state_hash
        assert list(together.effects.endpoints) == endpoints
        assert [together.bitmask(name) for name in EVERYBODY] == [singly.bitmask(name) for name in EVERYBODY]


def test_the_bitmask_of_init_is_state_and_traits() -> None:
    world = club()
    expected = {
        "olga": MEMBER | OWNER, "adam": MEMBER | ADMIN, "mona": MEMBER | MODERATOR, "mute": MEMBER | MUTED,
        "mark": MEMBER, "pete": PENDING, "blake": BLOCKED, "dave": DATAVIEW, "otto": 0,
    }  # fmt: skip
    assert {name: world.bitmask(name) for name in expected} == expected


def test_the_author_of_the_manifest_gets_no_right_by_that() -> None:
    world = club(customs=[rule("note", STATES, "C")])
    assert world.bitmask("alice") == 0
    assert is_(world.refused("alice", "note"), Unauthorized)


def test_an_identity_of_bitmask_zero_has_no_leaf() -> None:
    policy = parse_manifest(club().events[0].content or "")
    assert policy.state_of(0) == "OUTSIDER"
    assert len(club(init=init(**PEOPLE, zoe="OUTSIDER")).effects.writes) == len(PEOPLE) + 1
    assert club(init=init(**PEOPLE, zoe="OUTSIDER")).state_hash == club().state_hash
