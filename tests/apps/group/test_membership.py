"""Membership from the log alone: forbidden events stop the fold, and no seq stays empty without a
Delete.
"""

from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from enc.apps.group import GroupFold, Keys, NotAGroup, check_group, group_manifest
from enc.apps.group.manifest import RULES
from enc.core.errors import ReplayFailed
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize
from enc.core.machine.enclave import judge_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event
from tests.apps.group.circle import Circle, keys_of, pubkey
from tests.core.world import LIFETIME, START, World, give, init, move, person, pub, withheld


@pytest.fixture
def circle() -> Circle:
    return Circle("bob", "carol")


def slipped_in(circle: Circle, by: str, type_: str, content: Any, **more: Any) -> Event:
    """Return the event of a commit that the node should have rejected, signed as usual."""
    text = content if isinstance(content, str) else compact_json(content)
    at = circle.world.state.min_timestamp + 1
    commit = build_commit(person(by), circle.world.state.enclave, type_, text, at + LIFETIME, more.pop("tags", ()))
    return finalize(commit, person("node"), at, more.pop("seq", circle.world.state.seq + 1))


@pytest.mark.parametrize(
    ("by", "type_", "content"),
    [
        ("mallory", "Move", move("mallory", "OUTSIDER", "MEMBER")),
        ("bob", "Move", move("mallory", "OUTSIDER", "MEMBER")),
        ("bob", "Grant", give("bob", "admin")),
        ("bob", "Transfer", give("bob", "owner")),
        ("bob", "Gate", {"alias": "auto_join", "state": "open"}),
        ("bob", "rotate", {"epoch": {}}),
        ("bob", "Shared", {"key": "topic", "value": "x"}),
        ("mallory", "message", "x"),
        ("bob", "AC_Bundle", {"operations": [{"type": "Grant", **give("bob", "admin")}]}),
        ("alice", "Move", move("bob", "PENDING", "MEMBER")),
        ("alice", "Resume", ""),
        ("alice", "Manifest", "{}"),
    ],
)
def test_what_the_rules_refuse_stops_the_fold_and_changes_nothing(
    circle: Circle, by: str, type_: str, content: Any
) -> None:
    fold = circle.fold("alice")
    before = fold.status()
    with pytest.raises(ReplayFailed):
        fold.apply(slipped_in(circle, by, type_, content))
    assert fold.status() == before
    fold.apply(circle.say("bob", "honest again"))


@pytest.mark.parametrize(
    ("type_", "content"), [("Grant", give("bob", "muted")), ("Move", move("bob", "MEMBER", "OUTSIDER")), ("Pause", "")]
)
def test_what_was_allowed_is_judged_anew_once_the_state_has_changed(circle: Circle, type_: str, content: Any) -> None:
    circle.say("bob", "allowed")
    fold = circle.fold("alice")
    fold.apply(circle.say("bob", "and again"))
    circle.send("alice", type_, content)
    with pytest.raises(ReplayFailed):
        circle.fold("alice").apply(slipped_in(circle, "bob", "message", "no more"))


def test_order_time_place_and_repetition(circle: Circle) -> None:
    fold = circle.fold("alice")
    said = circle.say("bob", "x")
    with pytest.raises(ReplayFailed, match="expected"):
        fold.apply(replace(said, seq=said.seq + 1))
    with pytest.raises(ReplayFailed, match="timestamp"):
        fold.apply(replace(said, timestamp=START))
    with pytest.raises(ReplayFailed, match="another enclave"):
        fold.apply(replace(said, enclave=bytes(32)))
    fold.apply(said)
    with pytest.raises(ReplayFailed, match="already"):
        fold.apply(replace(said, seq=said.seq + 1))
    with pytest.raises(ReplayFailed, match="never erased"):
        fold.apply(erase(slipped_in(circle, "alice", "Grant", give("bob", "admin"))))


def test_another_sequencer_takes_over_by_a_migrate_alone(circle: Circle) -> None:
    fold = circle.fold("alice")
    foreign = finalize(circle.world.commit("bob", "message", "x"), person("node2"), START + 999, fold.seq + 1)
    with pytest.raises(ReplayFailed):
        fold.apply(foreign)
    circle.send("alice", "Migrate", circle.world.migrate("node2"))
    assert circle.fold("alice").membership.lifecycle == "migrated"
    circle.say("bob", "over there")
    assert circle.fold("alice").membership.lifecycle == "active"
    assert circle.events[-1].sequencer == person("node2").public


# Events that are not shown


def read_without(circle: Circle, *hidden: Event, name: str = "alice") -> GroupFold:
    fold = GroupFold(keys_of(name))
    for event in circle.events:
        if event in hidden:
            fold.skip(event.seq)
        else:
            fold.apply(event)
    return fold


def test_a_deleted_event_may_be_missing(circle: Circle) -> None:
    mine, yours = circle.say("bob", "mine"), circle.say("carol", "yours")
    circle.edit("bob", mine, "mine!")
    circle.delete("bob", mine)
    circle.delete("alice", yours)
    fold = read_without(circle, mine, yours)
    assert fold.membership.withheld() is None
    assert set(fold.membership.unseen) == {mine.id, yours.id}


def test_no_other_may(circle: Circle) -> None:
    said = circle.say("bob", "x")
    assert read_without(circle, said).membership.withheld() == said.seq
    circle.delete("bob", said)
    leaving = circle.send("carol", "Move", move("carol", "MEMBER", "OUTSIDER"))
    assert read_without(circle, said, leaving).membership.withheld() == leaving.seq
    assert read_without(circle, leaving).membership.withheld() == leaving.seq


def test_the_node_may_withhold_a_content_by_its_statement(circle: Circle) -> None:
    said = circle.say("bob", "x")
    circle.say("carol", "y")
    for shown, seq in ((erase(said), said.seq), (withheld(said, "bob"), said.seq), (withheld(said), None)):
        fold = GroupFold(keys_of("alice"))
        for event in circle.events:
            fold.apply(shown if event.id == said.id else event)
        assert fold.membership.withheld() == seq


def test_a_delete_accounts_for_no_later_place(circle: Circle) -> None:
    """A Delete of an event that was never shown, then an empty seq: the Delete is too early for
    it.
    """
    said = circle.say("bob", "x")
    fold = circle.fold("alice")
    with pytest.raises(ReplayFailed, match="not in this enclave"):
        fold.apply(slipped_in(circle, "bob", "Delete", {"reason": "author"}, tags=(("r", "07" * 32),)))
    assert said.id not in fold.membership.unseen


def test_one_place_takes_one_delete(circle: Circle) -> None:
    fold = circle.fold("alice")
    fold.skip(fold.seq + 1)
    for i, id_ in enumerate(("07" * 32, "08" * 32)):
        event = slipped_in(
            circle, "bob", "Delete", {"reason": "author"}, tags=(("r", id_),), seq=circle.world.state.seq + 2 + i
        )
        if i == 0:
            fold.apply(event)
        else:
            with pytest.raises(ReplayFailed):
                fold.apply(event)


def test_whoever_may_delete_nothing_accounts_for_nothing(circle: Circle) -> None:
    circle.send("alice", "Move", move("carol", "MEMBER", "BLOCKED"))
    fold = circle.fold("alice")
    fold.skip(fold.seq + 1)
    event = slipped_in(
        circle, "carol", "Delete", {"reason": "author"}, tags=(("r", "07" * 32),), seq=circle.world.state.seq + 2
    )
    assert fold.membership.person(pubkey("carol")).state == "BLOCKED"
    with pytest.raises(ReplayFailed):
        fold.apply(event)


def test_a_log_begins_with_its_manifest(circle: Circle) -> None:
    fold = GroupFold(Keys(bytes(32)))
    with pytest.raises(ReplayFailed):
        fold.apply(circle.events[1])


# The manifest


def test_the_manifest_is_a_groups_and_its_rules_are_accepted() -> None:
    manifest = group_manifest(pubkey("alice"), meta={"nonce": "1"})
    check_group(manifest)
    assert judge_manifest(World(manifest).events[0])[0].manifest["init"][0]["identity"] == pub("alice")


@pytest.mark.parametrize("section", sorted(RULES))
def test_any_other_rule_and_it_is_no_group(section: str) -> None:
    manifest = deepcopy(group_manifest(pubkey("alice")))
    manifest[section] = 3 if section == "enc_v" else [*manifest[section], manifest[section][0]]
    with pytest.raises(NotAGroup, match=section):
        check_group(manifest)
    del manifest[section]
    with pytest.raises(NotAGroup, match=section):
        check_group(manifest)


@pytest.mark.parametrize(
    "first",
    [
        init(alice="MEMBER owner admin", mallory="MEMBER"),
        init(alice="MEMBER owner"),
        init(alice="OUTSIDER owner admin"),
        [],
        None,
    ],
)
def test_it_starts_with_one_owner(first: Any) -> None:
    with pytest.raises(NotAGroup, match="one owner"):
        check_group({**group_manifest(pubkey("alice")), "init": first})


def test_a_fold_of_another_enclave_says_so() -> None:
    manifest = {**group_manifest(pubkey("alice")), "registry": True}
    with pytest.raises(NotAGroup, match="registry"):
        check_group(manifest)
    world = World({**group_manifest(pubkey("alice")), "init": init(alice="MEMBER owner admin", bob="MEMBER")})
    with pytest.raises(NotAGroup):
        GroupFold(Keys(bytes(32))).apply(world.events[0])


def test_a_commit_is_not_put_in_again_once_its_time_is_over(circle: Circle) -> None:
    """Otherwise a node could admit a removed member again, by the Move that admitted them first."""
    invited = circle.move("alice", "dave", "OUTSIDER", "MEMBER")
    circle.move("alice", "dave", "MEMBER", "OUTSIDER")
    circle.send("bob", "message", "much later", at=7_200_000)
    fold = circle.fold("alice")
    with pytest.raises(ReplayFailed, match="after exp"):
        fold.apply(finalize(invited, person("node"), START + 7_200_000, fold.seq + 1))


def test_a_migrate_stands_where_it_says_that_the_log_ended(circle: Circle) -> None:
    """Otherwise the new node could omit the events before it."""
    fold = circle.fold("alice")
    circle.say("bob", "not to be left out")
    migrate = circle.world.commit("alice", "Migrate", circle.world.migrate("node2"))
    early = finalize(migrate, person("node2"), circle.events[-1].timestamp, fold.seq + 1)
    with pytest.raises(ReplayFailed, match="prev_seq"):
        fold.apply(early)
