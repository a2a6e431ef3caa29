"""Harmful events stop no client; withholding one thing costs nothing else."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.apps.group import Group
from enc.apps.people.address_book import Place
from enc.client import Enclave, Forgery
from enc.client.link.enclave_session import EnclaveSession
from enc.core.errors import Unavailable
from enc.core.log.commit import build_commit
from enc.core.log.event import erase
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit
from enc.core.sealed_forms.group_tree import Inner, Tree
from enc.core.sealed_forms.personal import seal_handoff
from enc.testing.lying_node import Json
from tests.apps.group.circle import Circle, pubkey
from tests.apps.group.notices import forge, mail
from tests.apps.group.party import Party, cross
from tests.client.stage import Stage
from tests.core.world import LIFETIME, move, person


def leaves(tree: Tree) -> set[bytes]:
    return leaves(tree.left) | leaves(tree.right) if isinstance(tree, Inner) else {tree.key}


def under(tree: Tree, key: str) -> set[bytes]:
    """Return the members below the tree node with this key."""
    if tree.key is not None and tree.key.hex() == key:
        return leaves(tree)
    return under(tree.left, key) | under(tree.right, key) if isinstance(tree, Inner) else set()


def test_a_bad_path_costs_no_key_that_was_filled_rightly() -> None:
    """bob's path opens for nobody. Members below a node that he filled open the next epoch sealed
    to it.
    """
    people = [f"m{i}" for i in range(12)]
    circle = Circle(*people, "bob")
    circle.send("alice", "Grant", {"target": pubkey("bob").hex(), "trait": "admin"})
    leaver = next(name for name in people if circle.propose("bob", circle.members - {pubkey(name)})["fill"])
    circle.send(leaver, "Move", move(leaver, "MEMBER", "OUTSIDER"))
    epoch = circle.propose("bob", circle.members)
    for rung in epoch["path"]:
        rung["wrap"]["ct"] = "A" * 80
    circle.send("bob", "rotate", {"epoch": epoch})
    assert all(circle.fold(name).epochs.views[-1].trouble for name in people if name != leaver)
    circle.rotate("alice")
    envelope, tree = circle.public.epochs.counted[-1].envelope, circle.state.tree
    assert tree is not None
    sealed_to = {rung.wrap.to for rung in envelope.path} - {rung["pub"] for rung in epoch["path"]}
    assert sealed_to & {fill["pub"] for fill in epoch["fill"]}
    able = set().union(*(under(tree, key) for key in sealed_to))
    assert {name for name in people if circle.fold(name).can_seal} == {n for n in people if pubkey(n) in able}


def test_who_lies_about_one_group_hides_no_other_invitation(party: Party, personal: Enclave) -> None:
    trap = Group.create(party.stage.client("mallory"), topic="trap")
    trap.invite(pubkey("dave"), place=Place(personal.id))
    party.alice.invite(pubkey("dave"), place=Place(personal.id))

    def lie(answer: Json) -> None:
        if answer["events"] and answer["events"][0]["event"]["enclave"] == trap.hex:
            answer["events"] = [item for item in answer["events"] if item["event"]["seq"] != 2]

    party.stage.node.lie("Query", lie)
    caught, fine = mail(party, personal)
    assert "withholds" in caught.why
    assert fine.is_confirmed


def test_a_handoff_that_does_not_open_stops_nobody(party: Party, personal: Enclave) -> None:
    made = party.alice.invite(pubkey("dave"), notify=False)
    handoff = replace(seal_handoff(person("alice"), pubkey("dave"), bytes(32), bytes(24)), ciphertext="00" * 48)
    n = party.alice.epochs()[-1].n
    forge(party, personal, "alice", handoff=handoff, epoch_n=n, move_ref=made.receipt.id.hex())
    (found,) = mail(party, personal)
    dave = Group(personal._client, found.enclave)
    dave.accept(found)
    assert dave.status().can_seal


def test_who_is_removed_is_not_sealed_to_because_the_logs_end_is_withheld(party: Party) -> None:
    bob = party.device("bob")
    bob.sync()
    last = bob.status().seq
    party.alice.remove(pubkey("carol"))

    def lie(answer: Json) -> None:
        answer["events"] = [item for item in answer["events"] if item["event"]["seq"] <= last]

    party.stage.node.lie("Query", lie)
    with pytest.raises(Forgery, match="receipt"):
        bob.say("carol must not read this")


def test_nobody_gets_in_because_the_log_of_a_new_group_is_withheld(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node admits mallory before the Gate, and hides both events until the first epoch is
    made.
    """
    take, rotated = stage.node.take, list[bytes]()

    def taking(commit: Commit) -> Any:
        if commit.type == "Gate":
            content = compact_json(move("mallory", "OUTSIDER", "MEMBER"))
            take(build_commit(person("mallory"), commit.enclave, "Move", content, stage.clock.now + LIFETIME))
        if commit.type == "rotate":
            rotated.append(commit.hash)
            stage.node.be_honest()
        return take(commit)

    monkeypatch.setattr(stage.node, "take", taking)
    stage.node.lie("Query", lambda answer: answer.update(events=answer["events"][:1]))
    with pytest.raises(Forgery, match="receipt"):
        Group.create(stage.client("alice"))
    assert not rotated


def test_another_admins_epoch_is_enough(party: Party) -> None:
    party.alice.make_admin(pubkey("bob"))
    bob = party.device("bob")
    following = bob.follow()
    following._wait()
    party.device("carol").leave()
    (left,) = bob.enclave.query(seq={"start_at": bob.status().seq + 1})
    party.alice.sync()
    following._group.receive(left)  # the live event is older than the end of the log
    assert bob.epochs()[-1] == replace(party.alice.epochs()[-1], author=pubkey("alice"))
    assert bob.status().can_seal


def test_an_admin_reads_where_no_epoch_can_be_made(party: Party) -> None:
    party.device("bob").say("to be read")
    party.device("carol").leave()

    def refuse() -> None:
        raise Unavailable("full")

    alice = cross(party.device("alice"), refuse)
    assert "to be read" in [change.entry.text for change in alice.sync() if change.entry is not None]
    assert alice.status().is_stale
    cross(alice, refuse)
    with pytest.raises(Unavailable):
        alice.say("to nobody else")
    alice.say("to nobody else")
    assert not alice.status().is_stale


def test_who_listens_finds_words_that_are_withheld(party: Party) -> None:
    carol = party.device("carol")
    following = carol.follow()
    following._wait()
    said = party.device("bob").say("you will not hear this")
    (item,) = carol.enclave.query(seq={"start_at": said.seq})
    with pytest.raises(Forgery, match="withholds"):
        following._group.receive(replace(item, event=erase(item.event)))


def test_many_deleted_events_are_proved_by_few_questions(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = party.device("bob")
    for event in [bob.say(f"{i}").id for i in range(40)]:
        bob.delete(event)
    party.stage.close_bundle()
    asked, ask = list[str](), EnclaveSession.ask

    def noting(self: EnclaveSession, path: str, *more: Any, **options: Any) -> Any:
        asked.append(path)
        return ask(self, path, *more, **options)

    monkeypatch.setattr(EnclaveSession, "ask", noting)
    carol = party.device("carol")
    carol.sync()
    assert len(carol._proved) == 40
    assert len(asked) < 10
