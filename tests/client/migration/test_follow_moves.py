"""An enclave that moves: a client follows it with proof, and rejects claims without."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.client import ForeignSequencer, Forgery, Fork, LostRange, SplitBrain, check_evidence
from enc.client.verify.pins import FilePins, Pin
from enc.core.errors import EnclaveMigrated
from enc.core.trees.state_key import identity_key
from enc.core.trees.tree_head import sign_head
from enc.testing.lying_node import Json, LyingNode
from tests.client.migration.moving import AT_B, AT_C, OWNS, SAID, B, C, Moving, texts
from tests.client.stage import URL, drain
from tests.core.world import person, pub


@pytest.fixture
def moving(stage: Any) -> Moving:
    return Moving(stage)


MOVES = {"peaceful": Moving.depart, "forced": Moving.taken_over}
moves = pytest.mark.parametrize("how", MOVES)


# Following


@moves
def test_a_commit_follows_and_becomes_one_event(moving: Moving, how: str) -> None:
    enclave = moving.follower()
    assert enclave.head().ts == 2
    new = moving.stage.others["b.test"] = MOVES[how](moving)
    if how == "forced":
        moving.node.take(moving.node.migrate(moving.enclave.id, person("alice"), B))
    commit = enclave.prepare("message", "five")
    receipt = enclave.send(commit)
    assert receipt.sequencer == B.public
    assert (enclave.send(commit), enclave.sequencer(), enclave.url) == (receipt, B.public, AT_B)
    assert [*texts(enclave)] == [*SAID, "five"]
    assert moving.pinned().sequencer == B.public
    assert [event.hash for event in new.store.events(enclave.id, 0, 99)].count(commit.hash) == 1


@moves
def test_everything_reads_the_same_at_the_new_node(moving: Moving, how: str) -> None:
    moving.stage.others["b.test"] = MOVES[how](moving)
    reader = moving.stranger(AT_B)
    assert texts(reader) == SAID
    assert [item.seq for item in reader.complete()] == list(range(9))
    assert reader.proof(moving.id("one")).anchor.head.ts == (3 if how == "peaceful" else 4)
    assert reader.read_shared("topic").value == "games"
    assert reader.overview().sequencer == B.public
    assert [term.sequencer for term in reader.sequencers().terms()] == [moving.node.key.public, B.public]
    assert reader.sequencers().at(8 if how == "forced" else 9) == B.public
    assert drain(reader.query(proof=True))[-1].fact is not None


def test_a_subscription_goes_on_at_the_new_node(moving: Moving) -> None:
    enclave = moving.follower("bob")
    feed = enclave.subscribe(type="message", after=3)
    assert [next(feed).content for _ in range(2)] == ["three", "four"]
    new = moving.stage.others["b.test"] = moving.depart()
    moving.write(new, "five")
    assert next(feed).content == "five"
    moving.write(new, "six")
    assert next(feed).content == "six"
    assert moving.stage.connected[-1][0] == "ws://b.test/"
    feed.close()


def test_a_reader_follows_when_told_to(moving: Moving) -> None:
    """The old node still shows the log up to the Migrate: a client that has seen it may switch."""
    enclave = moving.follower("bob")
    enclave.follow()
    assert enclave.url == URL
    new = moving.stage.others["b.test"] = moving.depart()
    moving.write(new, "five")
    assert drain(enclave.query(type="Migrate"))
    assert "five" not in texts(enclave)
    enclave.follow()
    assert enclave.url == AT_B
    assert texts(enclave)[-1] == "five"


class Late(dict[str, LyingNode]):
    """The new node gets the enclave only after some pauses."""

    def __init__(self, new: LyingNode, naps: list[float]) -> None:
        super().__init__({"b.test": LyingNode(new.clock, new.key)})
        self._new, self._naps, self._until = new, naps, len(naps) + 4

    def __getitem__(self, host: str) -> LyingNode:
        return self._new if len(self._naps) >= self._until else super().__getitem__(host)


@pytest.mark.parametrize("what", ["commit", "subscription"])
def test_the_end_of_a_move_is_waited_for(moving: Moving, what: str) -> None:
    enclave = moving.follower("bob", patience=30.0)
    feed = enclave.subscribe(type="message", after=6)
    assert next(feed).content == "four"
    new = moving.depart()
    moving.stage.others = Late(new, moving.stage.naps)
    if what == "subscription":
        moving.write(new, "five")
        assert next(feed).content == "five"
    else:
        assert enclave.commit("message", "five").sequencer == B.public
    feed.close()
    assert moving.stage.naps[-4:] == [0.1, 0.2, 0.4, 0.8]


def test_the_end_of_a_move_is_waited_for_as_long_as_patience_lasts(moving: Moving) -> None:
    enclave = moving.follower("bob", patience=3.0)
    moving.stage.others = Late(moving.depart(), [0.0] * 99)
    with pytest.raises(EnclaveMigrated):
        enclave.commit("message", "five")
    assert 1 < sum(moving.stage.naps) < 3


def test_a_subscription_turns_where_its_client_has_turned(moving: Moving) -> None:
    """The old node was left by force and does not say so."""
    enclave = moving.follower("bob", patience=1.0)
    feed = enclave.subscribe(type="message", after=6)
    assert next(feed).content == "four"
    new = moving.stage.others["b.test"] = moving.taken_over()
    moving.stranger(AT_B).head()
    assert enclave.commit("message", "five").sequencer == B.public
    assert next(feed).content == "five"
    assert moving.stage.connected[-1][0] == "ws://b.test/"
    assert new.sockets
    feed.close()


def test_a_subscription_learns_of_moves_before_its_time(moving: Moving) -> None:
    moving.stage.others["c.test"] = moving.depart(C, node=moving.depart())
    reader = moving.stranger(AT_C, pins=None)
    feed = reader.subscribe(after=-1)
    assert [next(feed).seq for _ in range(9)] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    feed.close()


def test_without_another_node_a_migrate_is_told(moving: Moving) -> None:
    moving.depart()
    with pytest.raises(EnclaveMigrated) as refused:
        moving.enclave.commit("message", "five")
    assert refused.value.context["new_sequencer"] == B.public.hex()
    assert texts(moving.other()) == SAID


def test_a_move_through_three_nodes_is_followed_in_one_go(moving: Moving) -> None:
    enclave = moving.follower()
    enclave.head()
    b = moving.stage.others["b.test"] = moving.depart()
    moving.write(b, "at b")
    c = moving.stage.others["c.test"] = moving.depart(C, node=b)
    receipt = enclave.commit("message", "at c")
    assert (receipt.sequencer, enclave.url) == (C.public, AT_C)
    assert texts(enclave) == [*SAID, "at b", "at c"]
    assert [move.size for move in moving.pinned().moves] == [3, 4]
    assert c.store.events(enclave.id, receipt.seq, 1)[0].id == receipt.id


def test_there_and_back_again(moving: Moving) -> None:
    enclave = moving.follower()
    enclave.head()
    b = moving.stage.others["b.test"] = moving.depart()
    enclave.commit("message", "at b")
    moving.stage.node = moving.depart(moving.node.key, node=b)
    with pytest.raises(EnclaveMigrated):
        enclave.commit("message", "nobody is found: the first node is not among those that were named")
    home = moving.stage.client(nodes=[AT_B]).enclave(enclave.id)
    assert home.commit("message", "home").sequencer == moving.node.key.public
    assert texts(home) == [*SAID, "at b", "home"]
    assert [move.size for move in moving.pinned().moves] == [3, 4]


def test_a_receipt_of_the_node_before_counts_at_the_next(moving: Moving) -> None:
    """The answer was lost: the commit was accepted and moved with the log."""
    enclave = moving.follower("bob")
    enclave.head()
    commit = enclave.prepare("message", "five")
    first = moving.node.take(commit)
    moving.stage.others["b.test"] = moving.taken_over()
    reader = moving.stranger(AT_B)
    assert reader.send(commit) == first
    assert texts(reader).count("five") == 1


# Claims


def test_a_node_that_claims_a_migration_that_did_not_happen(moving: Moving) -> None:
    moving.stage.others["b.test"] = moving.node.successor(moving.enclave.id, B)
    for work in (Moving.read, Moving.see_head, Moving.say):
        moving.caught(ForeignSequencer, lambda work=work: work(moving, moving.stranger(AT_B)))  # type: ignore[misc]


def test_a_migrate_by_who_is_not_the_owner(moving: Moving) -> None:
    moving.stage.others["b.test"] = moving.taken_over(by="bob")
    found = moving.caught(Forgery, lambda: texts(moving.stranger(AT_B)))
    assert "is not proved to be the owner" in found.message


@pytest.mark.parametrize("since", ["pinned", "unpinned"])
def test_a_former_owner_takes_nothing_over(moving: Moving, since: str) -> None:
    moving.enclave.transfer(pub("bob"), "owner")
    moving.stage.close_bundle()
    if since == "pinned":
        moving.enclave.head()
    moving.stage.others["b.test"] = moving.taken_over(by="alice")
    assert "is not proved" in moving.caught(Forgery, lambda: texts(moving.stranger(AT_B))).message
    moving.stage.others["b.test"] = moving.taken_over(by="bob")
    assert texts(moving.stranger(AT_B)) == SAID


def test_an_owner_of_long_ago_who_was_given_it_back_once(moving: Moving) -> None:
    """Alice gave it to bob, bob to alice, alice to bob: what bob signed before makes nobody an owner now."""
    moving.enclave.transfer(pub("bob"), "owner")
    moving.other().transfer(pub("alice"), "owner")
    moving.enclave.transfer(pub("bob"), "owner")
    moving.stage.close_bundle()
    moving.enclave.head()
    twin = moving.node.copy()
    twin.doctor(moving.enclave.id, {identity_key(person("alice").public): OWNS})
    moving.write(twin, "in a bundle that says so")
    moving.stage.others["b.test"] = moving.taken_over(by="alice", node=twin)  # only that node claims that she owns it
    moving.caught(Forgery, lambda: texts(moving.stranger(AT_B)))


def test_without_a_head_the_manifest_says_who_owns(moving: Moving) -> None:
    pins = FilePins(moving.stage.pins)
    pins.remove(moving.enclave.id)
    pins.store(moving.enclave.id, Pin(moving.node.key.public, None))
    moving.stage.others["b.test"] = moving.taken_over(by="bob")
    moving.caught(Forgery, lambda: texts(moving.stranger(AT_B)))
    moving.enclave.transfer(pub("bob"), "owner")
    moving.stage.others["b.test"] = moving.taken_over(by="bob")
    pins.remove(moving.enclave.id)
    pins.store(moving.enclave.id, Pin(moving.node.key.public, None))
    assert texts(moving.stranger(AT_B)) == SAID


def test_a_second_migrate_needs_an_owner_too(moving: Moving) -> None:
    """A valid Migrate to another node is followed by a forged one."""
    b = moving.depart()
    moving.stage.others["c.test"] = moving.taken_over(C, by="bob", node=b)
    moving.caught(Forgery, lambda: texts(moving.stranger(AT_C)))


def test_a_forced_migrate_that_names_another_root(moving: Moving) -> None:
    moving.stage.others["b.test"] = moving.taken_over(ct_root="ab" * 32)
    moving.caught(Forgery, lambda: texts(moving.stranger(AT_B)))


def test_a_migrate_that_names_another_place(moving: Moving) -> None:
    moving.stage.others["b.test"] = moving.taken_over(prev_seq=3)
    assert "prev_seq" in moving.caught(Forgery, lambda: texts(moving.stranger(AT_B))).message


def test_a_migrate_in_the_middle_of_a_bundle(moving: Moving) -> None:
    """The node inserted an event before it that the sequencer never signed."""
    early = moving.node.successor(moving.enclave.id, B)
    kept = early.store._all[moving.enclave.id]
    kept.state = replace(kept.state, sequencer=B.public)
    moving.write(early, "before")
    moving.stage.others["b.test"] = moving.taken_over(node=early)
    assert "border" in moving.caught(Forgery, lambda: texts(moving.stranger(AT_B))).message


def test_a_migrate_to_somebody_else(moving: Moving) -> None:
    """The log names another successor; this node has the log and continues too."""
    moving.depart(C)
    thief = moving.node.successor(moving.enclave.id, B)
    moving.stage.others["b.test"] = thief
    moving.caught(ForeignSequencer, lambda: texts(moving.stranger(AT_B)))


@pytest.mark.parametrize("field", ["sig", "seq_sig", "content"])
def test_a_migrate_whose_words_are_altered(moving: Moving, field: str) -> None:
    new = moving.stage.others["b.test"] = moving.depart()

    def lie(answer: Json) -> None:
        for item in answer["events"]:
            if item["event"]["type"] == "Migrate":
                word = item["event"][field]
                item["event"][field] = (
                    word.replace(B.public.hex(), C.public.hex()) if field == "content" else word[::-1]
                )

    new.lie("Query", lie)
    moving.caught(Forgery, lambda: texts(moving.stranger(AT_B)))


def test_another_log_than_the_one_that_was_seen(moving: Moving) -> None:
    twin = moving.node.copy()
    moving.grow(moving.node, "to you")
    moving.enclave.head()
    moving.grow(twin, "to others")
    moving.grow(twin, "and more")
    moving.stage.others["b.test"] = moving.depart(node=twin)
    found = moving.caught(Fork, lambda: texts(moving.stranger(AT_B)))
    assert not check_evidence(found.evidence).convicts


def test_another_log_of_the_same_size(moving: Moving) -> None:
    """The pinned head is of the whole log, with the Migrate in it."""
    twin = moving.node.copy()
    other = moving.depart(node=twin)
    moving.write(moving.node, "to you")
    moving.stage.close_bundle()
    assert moving.enclave.head().ts == 3
    moving.stage.others["b.test"] = other
    found = moving.caught(Fork, lambda: texts(moving.stranger(AT_B)))
    assert not check_evidence(found.evidence).convicts


def test_migrates_that_may_not_be_read(moving: Moving) -> None:
    """Without any Migrate there is no reason to trust the node."""
    new = moving.stage.others["b.test"] = moving.depart()
    new.lie("Query", lambda answer: {**answer, "events": []})
    moving.caught(ForeignSequencer, lambda: texts(moving.stranger(AT_B)))


# Loss


@pytest.mark.parametrize(("grown", "bundles"), [(1, [2, 3]), (3, [2, 5])])
def test_what_was_seen_and_is_lost_is_named_and_going_on_is_a_choice(
    moving: Moving, grown: int, bundles: list[int]
) -> None:
    twin = moving.node.copy()
    for n in range(grown):
        moving.grow(moving.node, f"message {n}")
    assert moving.enclave.head().ts == bundles[1]
    moving.stage.others["b.test"] = moving.taken_over(node=twin)
    before = moving.stage.pin(moving.enclave)
    with pytest.raises(LostRange) as lost:
        texts(moving.stranger(AT_B))
    assert lost.value.context == {"first_seq": 8, "bundles": bundles}
    assert moving.stage.pin(moving.enclave) == before
    assert texts(moving.stranger(AT_B, accept_loss=True)) == SAID
    assert (moving.pinned().sequencer, len(moving.pinned().moves)) == (B.public, 1)
    assert texts(moving.stranger(AT_B)) == SAID


def test_a_takeover_of_all_that_was_seen_loses_nothing(moving: Moving) -> None:
    moving.stage.close_bundle()
    assert moving.enclave.head().ts == 3
    moving.stage.others["b.test"] = moving.taken_over()
    assert texts(moving.stranger(AT_B)) == SAID
    assert [move.size for move in moving.pinned().moves] == [3]


def test_what_is_lost_may_be_a_whole_term(moving: Moving) -> None:
    """The enclave was at B; then somebody took over a copy from before that."""
    twin = moving.node.copy()
    b = moving.stage.others["b.test"] = moving.depart()
    moving.grow(b, "at b")
    moving.stranger(AT_B).head()
    moving.stage.others["c.test"] = moving.taken_over(C, node=twin)
    with pytest.raises(LostRange):
        texts(moving.stranger(AT_C))
    assert texts(moving.stranger(AT_C, accept_loss=True)) == SAID
    assert moving.pinned().sequencer == C.public


def test_accepting_a_loss_accepts_no_thief(moving: Moving) -> None:
    twin = moving.node.copy()
    for text in ("five", "six"):
        moving.grow(moving.node, text)
    moving.enclave.head()
    moving.stage.others["b.test"] = moving.taken_over(node=twin, by="bob")
    moving.caught(Forgery, lambda: texts(moving.stranger(AT_B, accept_loss=True)))


# Split brain


def test_what_the_old_node_signs_after_a_takeover_is_refused(moving: Moving) -> None:
    moving.stage.others["b.test"] = moving.taken_over()
    moving.stranger(AT_B).head()
    moving.write(moving.node, "still here")
    found = moving.caught(SplitBrain, lambda: texts(moving.remaining()))
    verdict = check_evidence(found.evidence)
    assert not verdict.convicts
    assert any("signed event 8, of type message, where it was not the sequencer" in line for line in verdict.proved)
    moving.grow(moving.node, "and here")
    moving.grow(moving.node, "and there")
    found = moving.caught(SplitBrain, lambda: moving.remaining().head())
    assert "signed a head of" in check_evidence(found.evidence).proved[1]


def test_what_a_node_signs_after_its_own_migrate_convicts_it(moving: Moving) -> None:
    twin = moving.node.copy()
    moving.stage.others["b.test"] = moving.depart()
    moving.stranger(AT_B).head()
    moving.write(twin, "in the place of the Migrate")
    after = moving.write(twin, "after it")
    moving.stage.node = twin
    found = moving.caught(SplitBrain, lambda: list(moving.remaining().query(seq=after.seq)))
    verdict = check_evidence(found.evidence)
    assert verdict.convicts
    assert "its own signature handed the enclave over" in verdict.proved


def test_a_migrate_that_was_seen_is_enough(moving: Moving) -> None:
    """The node showed its Migrate once; later events that it signs do not count."""
    twin = moving.node.copy()
    moving.depart()
    assert [item.type for item in moving.enclave.query(seq=8)] == ["Migrate"]
    moving.write(twin, "in the place of the Migrate")
    after = moving.write(twin, "after it")
    moving.stage.node = twin
    moving.caught(SplitBrain, lambda: list(moving.other().query(seq=after.seq)))


def test_the_old_node_is_still_read_from_but_not_written_to(moving: Moving) -> None:
    moving.stage.others["b.test"] = moving.depart()
    moving.stranger(AT_B).head()
    assert texts(moving.remaining()) == SAID
    for work in (Moving.see_head, Moving.say):
        with pytest.raises(EnclaveMigrated) as told:
            work(moving, moving.remaining())
        assert told.value.context["new_sequencer"] == B.public.hex()
    assert "/" in moving.node.calls


def test_nothing_is_written_to_a_node_that_was_left_by_force(moving: Moving) -> None:
    """The node would accept the commit."""
    moving.stage.others["b.test"] = moving.taken_over()
    moving.stranger(AT_B).head()
    before = len(moving.node.store.events(moving.enclave.id, 0, 99))
    with pytest.raises(EnclaveMigrated):
        moving.remaining().commit("message", "five")
    assert len(moving.node.store.events(moving.enclave.id, 0, 99)) == before


def test_who_asks_the_old_node_is_led_to_the_new(moving: Moving) -> None:
    moving.stage.others["b.test"] = moving.depart()
    moving.stranger(AT_B).head()
    enclave = moving.follower("bob")
    assert enclave.commit("message", "five").sequencer == B.public
    assert enclave.url == AT_B


def test_a_head_extends_what_somebody_else_believed_meanwhile(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients that share pins, or two tasks of a witness: neither accepts a log inconsistent with the other's."""
    reader, pins, id_ = moving.stage.reader(moving.enclave), FilePins(moving.stage.pins), moving.enclave.id
    moving.grow(moving.node, "five")
    moving.grow(moving.node, "six")
    ask = reader.session.consistency
    forked = sign_head(moving.node.key, id_, 1, 3, bytes(32))

    def meanwhile(first: Any, then: Any, signer: bytes | None = None) -> Any:
        proof = yield from ask(first, then, signer)
        if first.ts == 2:
            pins.store(id_, Pin(moving.node.key.public, forked))
        return proof

    monkeypatch.setattr(reader.session, "consistency", meanwhile)
    with pytest.raises(Fork):
        moving.enclave.head()
    assert moving.pinned().head == forked
