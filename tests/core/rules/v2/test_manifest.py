"""Manifests: every validation rule broken alone, and values just inside each limit."""

import json
import re
from copy import deepcopy
from typing import Any

import pytest

from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import PREDEFINED
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.v2.access import PolicyV2
from enc.core.rules.v2.manifest import SECTIONS
from enc.core.trees.bundle import BundleConfig
from tests.core.strategies import anything
from tests.core.world import DM, GROUP, NO_POINT, PERSONAL, Json, gated, grant, init, path, pub, rule

VALID: Json = {
    "enc_v": 2,
    "states": ["MEMBER", "GUEST"],
    "traits": ["owner(0)", "admin(1)"],
    "readers": [{"type": "MEMBER", "reads": "*"}, {"type": ["GUEST", "Public"], "reads": ["note", "Manifest"]}],
    "moves": [path("OUTSIDER", "MEMBER", "Self", **gated("door", "owner")), path("MEMBER", "GUEST", "admin")],
    "grants": [grant("Grant", "owner", "admin"), grant("Revoke", ["owner", "Self"], "admin", ops=["C"])],
    "transfers": [{"trait": "owner", "scope": ["MEMBER"]}],
    "slots": [rule("Shared", "admin", "C U D", key="topic"), rule("Own", "MEMBER", "C U D", key="nick")],
    "lifecycle": [rule("Pause", "owner", "C"), rule("Migrate", "owner", "C")],
    "customs": [
        rule("note", "MEMBER", "C"),
        rule("note", ["Sender", "admin"], "U D _P", **gated("edits", "admin", "Public")),
        rule("*", "admin", "R"),
        rule("Move", "OUTSIDER", "N _R"),
    ],
    "init": init(alice="MEMBER owner admin", bob="OUTSIDER"),
    "meta": {"description": "a test"},
    "bundle": {"size": 4, "timeout": 5000},
}

GONE = object()


def with_(where: str, value: Any, manifest: Json = VALID) -> Json:
    """Return the manifest with another value at a path such as `moves[1].operator`; GONE removes it."""
    changed = deepcopy(manifest)
    *above, last = [int(word) if word.isdigit() else word for word in re.findall(r"\w+", where)]
    place: Any = changed
    for step in above:
        place = place[step]
    if value is GONE:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return changed


def nested(manifest: Json) -> Json:
    """Return the same manifest with its ten sections under RBAC."""
    rest = {key: value for key, value in manifest.items() if key not in SECTIONS}
    return {**rest, "RBAC": {key: value for key, value in manifest.items() if key in SECTIONS}}


def parse(manifest: Json) -> PolicyV2:
    policy = parse_manifest(compact_json(manifest))
    assert isinstance(policy, PolicyV2)
    return policy


def refusal(content: str) -> str:
    with pytest.raises(InvalidCommit) as caught:
        parse_manifest(content)
    return caught.value.message


def test_the_manifest_that_the_others_break_is_valid() -> None:
    assert parse(VALID).enc_v == 2
    assert parse(nested(VALID)).enc_v == 2


IN_SECTIONS: list[tuple[str, Any, str]] = [
    # (what changes, to what, the path that the message names)
    *((section, wrong, section) for section in SECTIONS for wrong in anything({}, "MEMBER", None)),
    *(
        (f"{section}[0]", wrong, f"{section}[0]")
        for section in SECTIONS
        if section not in ("states", "traits")
        for wrong in ("MEMBER", ["MEMBER"], None)
    ),
    # States
    *(("states[0]", wrong, "states[0]") for wrong in ("Member", "_A", "1A", "A-B", "A B", "A\n", "É", "", 7, None)),
    ("states[2]", "MEMBER", "states[2]"),
    ("states[2]", "OUTSIDER", "states[2]"),
    ("states", ["MEMBER", *(f"S{i}" for i in range(255))], "states"),
    ("states[2]", "NOWHERE", "states[2]"),
    ("moves[1].from", "GUEST", "states[1]"),
    ("moves[1].ops", ["_C"], "states[1]"),
    ("moves[1].ops", ["R"], "states[1]"),
    # Traits
    *(
        ("traits[0]", wrong, "traits[0]")
        for wrong in (
            "owner",
            "Owner(0)",
            "_a(0)",
            "1a(0)",
            "a-b(0)",
            "owner()",
            "owner(-1)",
            "owner(01)",
            "owner(1.0)",
            "owner(x)",
            "owner(0) ",
            "owner(0)\n",
            "(0)",
            "",
            7,
            None,
        )
    ),
    ("traits[2]", "owner(0)", "traits[2]"),
    ("traits[2]", "owner(5)", "traits[2]"),
    ("traits", ["owner(0)", "admin(1)", *(f"t{i}(2)" for i in range(247))], "traits"),
    # Readers
    *(("readers[0].type", wrong, "readers[0].type") for wrong in ("STRANGER", "nobody", "Node", "*", [], 7, GONE)),
    ("readers[1].type", ["MEMBER", "STRANGER"], "readers[1].type"),
    *(("readers[0].reads", wrong, "readers[0].reads") for wrong in ("1note", "no te", "", [], ["*", 7], 7, GONE)),
    # Moves
    *(("moves[0].event", wrong, "moves[0].event") for wrong in ("Grant", "move", "*", ["Move"], None, GONE)),
    *(("moves[1].from", wrong, "moves[1].from") for wrong in ("STRANGER", "owner", "Self", ["MEMBER"], 7, GONE)),
    *(("moves[1].to", wrong, "moves[1].to") for wrong in ("STRANGER", "owner", "Public", ["GUEST"], 7, GONE)),
    *(("moves[1].preserve", wrong, "moves[1].preserve") for wrong in anything("true", 1, 0, None, [])),
    # Grants
    *(("grants[0].event", wrong, "grants[0].event") for wrong in ("Move", "Transfer", "note", None, GONE)),
    *(("grants[0].scope", wrong, "grants[0].scope") for wrong in ("STRANGER", ["MEMBER", "admin"], [], 7, GONE)),
    *(("grants[1].trait", wrong, "grants[1].trait") for wrong in ("muted", ["admin", "MEMBER"], [], 7, GONE)),
    ("grants[1].ops", [], "grants[1].ops"),
    ("grants[1].ops", ["X"], "grants[1].ops"),
    # Transfers
    *(("transfers[0].trait", wrong, "transfers[0].trait") for wrong in ("muted", "MEMBER", "owner(0)", [], 7, GONE)),
    *(("transfers[0].scope", wrong, "transfers[0].scope") for wrong in ("STRANGER", "owner", [], None, GONE)),
    # Slots
    *(("slots[0].event", wrong, "slots[0].event") for wrong in ("Move", "shared", "note", None, GONE)),
    *(("slots[0].key", wrong, "slots[0].key") for wrong in ("1st", "a b", "", "*", "lifecycle", ["topic"], 7, GONE)),
    ("slots[1].key", "lifecycle", "slots[1].key"),
    # Lifecycle
    *(("lifecycle[0].event", wrong, "lifecycle[0].event") for wrong in ("Stop", "Manifest", "note", None, GONE)),
    *(
        ("lifecycle[1].operator", wrong, "lifecycle[1].operator")
        for wrong in ("admin", "MEMBER", "Public", ["owner", "admin"], ["owner", "Public"])
    ),
    # Customs
    *(("customs[0].event", wrong, "customs[0].event") for wrong in ("1note", "no te", "", "nöte", ["note"], 7, GONE)),
    *(("customs[3].ops", [op], "customs[3].ops") for op in ("C", "U", "D", "_C", "_U", "_D")),
    *(("customs[2].ops", ["R", op], "customs[2].ops") for op in ("C", "U", "D", "_C", "_U", "_D")),
    *(("customs[0].event", type_, "customs[0].ops") for type_ in sorted(PREDEFINED)),
    # Operators and ops, in any section
    *(
        (f"{where}.operator", wrong, f"{where}.operator")
        for where in ("moves[1]", "grants[0]", "slots[0]", "lifecycle[0]", "customs[0]")
        for wrong in ("STRANGER", "nobody", "Node", "public", "*", "", ["admin", "Node"], [], [7], 7, None, GONE)
    ),
    *(
        (f"{where}.ops", wrong, f"{where}.ops")
        for where in ("moves[1]", "slots[0]", "lifecycle[0]", "customs[0]")
        for wrong in ("X", "c", "CR", "__C", "_", "", ["C", "-U"], [], [7], 7, None, GONE)
    ),
    # Gates
    *(
        ("moves[0].gate.operator", wrong, "moves[0].gate.operator")
        for wrong in ("STRANGER", "Node", ["owner", "nobody"], [], 7, GONE)
    ),
    *(("moves[0].gate", wrong, "moves[0].gate") for wrong in ("owner", ["owner"], True)),
    *(("moves[0].alias", wrong, "moves[0].alias") for wrong in ("1door", "", 7, None, GONE)),
    ("customs[1].alias", "door", "customs[1].alias"),
    # Init
    ("init", [], "init"),
    ("init", GONE, "init"),
    *(
        ("init[1].identity", wrong, "init[1].identity")
        for wrong in (pub("alice"), NO_POINT, "00" * 32, pub("bob").upper(), pub("bob")[2:], "0x", "", 7, None, GONE)
    ),
    *(("init[1].state", wrong, "init[1].state") for wrong in ("STRANGER", "owner", "", ["MEMBER"], 7, None, GONE)),
    *(("init[1].traits", wrong, "init[1].traits") for wrong in (["muted"], ["MEMBER"], [7], "owner", None, GONE)),
]


@pytest.mark.parametrize(("where", "value", "named"), IN_SECTIONS)
@pytest.mark.parametrize("form", ["flat", "under RBAC"])
def test_a_broken_rule_is_refused_with_the_path_of_its_entry(form: str, where: str, value: Any, named: str) -> None:
    manifest = with_(where, value)
    if form == "flat":
        assert refusal(compact_json(manifest)).startswith(f"{named}: ")
    else:
        assert refusal(compact_json(nested(manifest))).startswith(f"RBAC.{named}: ")


AT_TOP: list[tuple[str, Any, str]] = [
    *(("enc_v", wrong, "enc_v") for wrong in (0, 3, -2, "2", 2.0, True, None, [2], GONE)),
    *(("use_temp", wrong, "use_temp") for wrong in anything("group", "", "None", None, {}, False)),
    *(("meta", wrong, "meta") for wrong in anything(None, "text", [], 7)),
    ("meta", {"d": "x" * 4089}, "meta"),
    ("meta", {"d": "é" * 2044 + "x"}, "meta"),
    *(("bundle", wrong, "bundle") for wrong in anything(None, [], 4, "4")),
    *(("bundle.size", wrong, "bundle.size") for wrong in (0, -1, 65_537, 4.0, "4", True, None)),
    *(("bundle.timeout", wrong, "bundle.timeout") for wrong in (0, -1, 3_600_001, 5000.0, "5000", True, None)),
    *(("RBAC", wrong, "RBAC") for wrong in anything(None, [], "x")),
]


@pytest.mark.parametrize(("where", "value", "named"), AT_TOP)
def test_a_broken_rule_outside_the_sections_is_refused_with_its_path(where: str, value: Any, named: str) -> None:
    assert refusal(compact_json(with_(where, value))).startswith(f"{named}: ")


def test_use_temp_is_refused_beside_rbac_and_under_it() -> None:
    beside, under = {**nested(VALID), "use_temp": "group"}, nested(VALID)
    under["RBAC"]["use_temp"] = "group"
    for manifest in (beside, under):
        assert "use_temp" in refusal(compact_json(manifest)).partition(":")[0]


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_in_both_places_are_refused(section: str) -> None:
    manifest = {**nested(VALID), section: []}
    assert refusal(compact_json(manifest)).startswith(f"{section}: ")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(compact_json(VALID)[:-1] + ',"enc_v":2}', id="a key twice"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":{"a":1,"\\u0061":2}}', id="a key twice, deep and escaped"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":"\\ud800"}', id="half a surrogate pair"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":"\ud800"}', id="half a surrogate pair, unescaped"),
        pytest.param(compact_json(VALID)[:-1] + ',"\\udfff":0}', id="half a surrogate pair in a key"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":9007199254740992}', id="2^53"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":-9007199254740992}', id="-2^53"),
        pytest.param(compact_json(VALID)[:-1] + f',"x":[{10**400}]}}', id="10^400"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":NaN}', id="NaN"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":Infinity}', id="Infinity"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":-Infinity}', id="-Infinity"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":1e999}', id="beyond a double"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":' + "[" * 65 + "]" * 65 + "}", id="too deep"),
        pytest.param(compact_json(VALID)[:-1] + ',"x":' + "[" * 10**5 + "]" * 10**5 + "}", id="far too deep"),
        pytest.param(compact_json(VALID) + "x", id="more than one value"),
        pytest.param(compact_json(VALID)[:-1], id="cut off"),
        pytest.param("", id="empty"),
        pytest.param("[]", id="an array"),
        pytest.param("2", id="a number"),
        pytest.param("null", id="null"),
    ],
)
def test_content_that_two_readers_could_read_differently_is_refused(content: str) -> None:
    assert refusal(content).startswith("content: ")


# Just inside


def test_255_states() -> None:
    states = [f"S{i}" for i in range(255)]
    moves = [path(a, b, "Self") for a, b in zip(["OUTSIDER", *states], states, strict=False)]
    policy = parse({"enc_v": 2, "states": states, "moves": moves, "init": init(alice="S254")})
    assert policy.states == tuple(states)
    assert policy.state_of(255) == "S254"


def test_a_chain_of_moves_in_any_order_reaches_a_state() -> None:
    moves = [path("B", "C", "Self"), path("A", "B", "Self"), path("OUTSIDER", "A", "Self")]
    manifest = {"enc_v": 2, "states": ["A", "B", "C"], "moves": moves, "init": init(alice="OUTSIDER")}
    assert parse(manifest).states == ("A", "B", "C")


def test_a_circle_of_moves_that_nobody_enters_reaches_nothing() -> None:
    moves = [path("A", "B", "Self"), path("B", "A", "Self")]
    manifest = {"enc_v": 2, "states": ["A", "B"], "moves": moves, "init": init(alice="OUTSIDER")}
    assert refusal(compact_json(manifest)).startswith("states[0]: ")


@pytest.mark.parametrize(("rank", "fits"), [(2**53 - 1, True), (2**53, False), (10**16, False)])
def test_a_rank_is_an_integer_that_every_reader_holds(rank: int, fits: bool) -> None:
    manifest = {**VALID, "traits": [*VALID["traits"], f"last({rank})"]}
    if fits:
        parse(manifest)
    else:
        assert refusal(compact_json(manifest)).startswith(f"traits[{len(VALID['traits'])}]")


def test_248_traits_whose_last_is_the_highest_bit() -> None:
    policy = parse({"enc_v": 2, "traits": [f"t{i}({i})" for i in range(248)], "init": init(alice="OUTSIDER t247")})
    assert len(policy.traits) == 248
    assert policy.traits_of(1 << 255) == ["t247"]


def test_ranks_may_repeat_and_be_of_any_order() -> None:
    policy = parse({"enc_v": 2, "traits": ["a(9)", "b(0)", "c(9)"], "init": init(alice="OUTSIDER a")})
    assert {name: (trait.bit, trait.rank) for name, trait in policy.traits.items()} == {
        "a": (8, 9),
        "b": (9, 0),
        "c": (10, 9),
    }


def test_empty_states_when_every_init_is_outsider() -> None:
    policy = parse({"enc_v": 2, "init": init(alice="OUTSIDER", bob="OUTSIDER")})
    assert (policy.states, policy.entries) == ((), ())


@pytest.mark.parametrize("meta", [{"d": "x" * 4088}, {"d": "é" * 2044}, {}])
def test_meta_of_4096_bytes(meta: Json) -> None:
    assert len(compact_json(meta).encode()) in (2, 4096)
    assert parse({**VALID, "meta": meta}).manifest["meta"] == meta


def test_meta_is_measured_compact_however_it_is_spelled() -> None:
    spaced = json.dumps({**VALID, "meta": {"d": "é" * 2044}}, indent=4)
    assert parse_manifest(spaced).bundle == BundleConfig(4, 5000)


@pytest.mark.parametrize("spelling", ["1e5", "1.0", "-0.5E-3", "123456.789e-10"])
def test_numbers_in_meta_count_as_they_are_spelled(spelling: str) -> None:
    room = 4096 - len('{"a":[],"b":""}')
    numbers = ",".join([spelling] * 100)
    for extra, fits in ((0, True), (1, False)):
        meta = f'{{"a":[{numbers}],"b":"{"x" * (room - len(numbers) + extra)}"}}'
        content = compact_json({k: v for k, v in VALID.items() if k != "meta"})[:-1] + f',"meta":{meta}}}'
        if fits:
            parse_manifest(content)
        else:
            assert refusal(content).startswith("meta")


def test_a_null_gate_is_refused() -> None:
    manifest = {**VALID, "customs": [{"event": "e", "operator": "Public", "ops": ["C"], "gate": None}]}
    assert refusal(compact_json(manifest)).startswith("customs[0].gate")


@pytest.mark.parametrize("size", [1, 65_536])
@pytest.mark.parametrize("timeout", [1, 3_600_000])
def test_bundle_limits(size: int, timeout: int) -> None:
    policy = parse({**VALID, "bundle": {"size": size, "timeout": timeout}})
    assert policy.bundle == BundleConfig(size, timeout)


@pytest.mark.parametrize(("bundle", "size", "timeout"), [({"size": 9}, 9, 5000), ({"timeout": 9}, 256, 9)])
def test_bundle_defaults(bundle: Json, size: int, timeout: int) -> None:
    assert parse({**VALID, "bundle": bundle}).bundle == BundleConfig(size, timeout)
    assert parse(with_("bundle", GONE)).bundle == BundleConfig(256, 5000)


def test_integers_up_to_2_53_less_1_and_fractions_are_kept_in_extra_keys() -> None:
    extra = {"most": 2**53 - 1, "least": 1 - 2**53, "half": 0.5}
    assert parse({**VALID, "meta": extra}).manifest["meta"] == extra


def test_nesting_of_64_levels() -> None:
    content = compact_json(VALID)[:-1] + ',"x":' + "[" * 63 + "]" * 63 + "}"
    assert parse_manifest(content).enc_v == 2


def test_use_temp_none() -> None:
    assert parse({**VALID, "use_temp": "none"}).enc_v == 2


def test_both_forms_give_the_same_policy() -> None:
    flat, under = parse(VALID), parse(nested(VALID))
    for field in ("states", "traits", "entries", "gates", "init", "bundle", "registry"):
        assert getattr(flat, field) == getattr(under, field)


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ("readers[0].type", "MEMBER"),
        ("readers[0].reads", "*"),
        ("readers[0].reads", "note"),
        ("moves[1].operator", "admin"),
        ("moves[1].ops", "C"),
        ("moves[0].gate.operator", "owner"),
        ("grants[0].operator", "owner"),
        ("grants[0].scope", "MEMBER"),
        ("grants[0].trait", "admin"),
        ("transfers[0].trait", "owner"),
        ("transfers[0].scope", "MEMBER"),
        ("slots[0].operator", "admin"),
        ("slots[0].ops", "C"),
        ("lifecycle[1].operator", "owner"),
        ("lifecycle[1].ops", "C"),
        ("customs[0].operator", "MEMBER"),
        ("customs[0].ops", "C"),
    ],
)
def test_a_string_is_a_list_of_one(where: str, word: str) -> None:
    text, listed = parse(with_(where, word)), parse(with_(where, [word]))
    assert (text.entries, text.gates) == (listed.entries, listed.gates)


@pytest.mark.parametrize("column", ["MEMBER", "GUEST", "OUTSIDER", "owner", "admin", "Public", "Self", "Sender"])
def test_every_state_trait_and_context_is_a_column(column: str) -> None:
    assert parse(with_("customs[0].operator", column)).entries


@pytest.mark.parametrize("op", [*"CRUDPN", *(f"_{op}" for op in "CRUDPN")])
def test_the_twelve_ops(op: str) -> None:
    assert parse(with_("customs[0].ops", [op])).entries


@pytest.mark.parametrize("type_", ["*", *sorted(PREDEFINED)])
@pytest.mark.parametrize("op", ["R", "P", "N", "_R", "_P", "_N"])
def test_predefined_types_and_the_star_take_r_p_n_in_customs(type_: str, op: str) -> None:
    assert parse(with_("customs[0]", rule(type_, "MEMBER", op))).entries


@pytest.mark.parametrize("name", ["a", "Z", "a.b-c_9", "Reg_Node", "note"])
def test_names_of_types_slots_and_gates(name: str) -> None:
    assert parse(with_("customs[0].event", name)).entries
    assert parse(with_("slots[0].key", name)).entries
    assert list(parse(with_("moves[0].alias", name)).gates) == [name, "edits"]


def test_unknown_extra_keys_are_kept() -> None:
    manifest = with_("customs[0].colour", {"a": [1, None]}, with_("init[0].nick", "al", {**VALID, "app": "test"}))
    policy = parse(manifest)
    assert policy.manifest == manifest
    assert (policy.entries, policy.init) == (parse(VALID).entries, parse(VALID).init)


def test_extra_keys_in_rbac_bundle_meta_and_gate_are_kept() -> None:
    manifest = nested(with_("moves[0].gate.why", "x", with_("bundle.why", "x", with_("meta.why", "x"))))
    manifest["RBAC"]["why"] = "x"
    assert parse(manifest).manifest == manifest


def test_an_alias_without_a_gate_names_nothing() -> None:
    manifest = with_("moves[1].alias", "door", with_("customs[0].alias", "door"))
    assert parse(manifest).gates == parse(VALID).gates


@pytest.mark.parametrize("section", [name for name in SECTIONS if name != "init"])
def test_an_absent_section_is_empty(section: str) -> None:
    base: Json = {"enc_v": 2, **{name: [] for name in SECTIONS}, "init": init(alice="OUTSIDER")}
    assert parse(with_(section, GONE, base)).entries == parse(base).entries == ()


@pytest.mark.parametrize(
    ("traits", "states", "operator", "valid"),
    [
        (["owner(0)"], ["OWNER"], "owner", True),
        (["owner(0)"], ["OWNER"], "OWNER", False),
        (["chief(0)"], ["OWNER"], "OWNER", True),
        (["chief(0)"], ["OWNER"], "chief", False),
        (["chief(0)"], ["BOSS"], "chief", False),
        (["chief(0)"], ["BOSS"], "BOSS", False),
        ([], ["OWNER"], ["OWNER", "OUTSIDER"], False),
    ],
)
def test_a_migrate_entry_names_the_owner_alone(traits: list, states: list, operator: Any, valid: bool) -> None:
    lifecycle = [rule("Migrate", operator, "C")]
    manifest = {"enc_v": 2, "traits": traits, "states": states, "lifecycle": lifecycle, "init": init(alice=states[0])}
    if valid:
        assert parse(manifest).entries
    else:
        assert refusal(compact_json(manifest)).startswith("lifecycle[0].operator: ")


@pytest.mark.parametrize(("value", "is_registry"), [(True, True), (False, False), ("true", False), (1, False)])
def test_registry_is_true_at_the_top_and_nothing_else(value: Any, is_registry: bool) -> None:
    assert parse({**VALID, "registry": value}).registry is is_registry
    assert parse({**nested(VALID), "registry": value}).registry is is_registry
    under = nested(VALID)
    under["RBAC"]["registry"] = True
    assert parse(under).registry is False


@pytest.mark.parametrize("manifest", [DM, PERSONAL, GROUP])
def test_the_manifests_of_the_applications_are_valid(manifest: Json) -> None:
    assert parse(manifest).manifest == manifest
