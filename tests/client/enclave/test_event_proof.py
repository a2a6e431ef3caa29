"""Saved proofs of events: they hold at every node of an enclave, and show the Update that replaced a content."""

from pathlib import Path
from typing import Any

import pytest

from enc.client import EventProof, Proof, check_proof, load_proof
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.facts import EventFact
from enc.client.wire.flow import Flow
from enc.core.errors import EnclaveMigrated, InvalidProof
from tests.client.migration.moving import AT_B, AT_C, B, C, Moving
from tests.client.scene import Scene
from tests.core.world import person, pub


@pytest.fixture
def moving(stage: Any) -> Moving:
    return Moving(stage)


def saved(proof: EventProof, path: Path) -> Proof:
    statement = proof.save(path)
    found = load_proof(path.read_bytes())
    assert statement == check_proof(found, proof.sequencer) or statement.not_proved
    return found


def test_a_proof_is_saved_with_the_update_that_replaced_the_content(scene: Scene, tmp_path: Path) -> None:
    found = saved(scene.enclave.proof(scene.id("two")), tmp_path / "two.json")
    assert (found.sequencer, found.moves) == (scene.node.key.public, ())
    shown = check_proof(found).proved
    assert any(line.startswith(f"{pub('alice')} replaced it with Update 5 ") for line in shown)
    assert any(line.endswith("whose content is: more") for line in shown)


def test_an_event_without_an_update_needs_none(scene: Scene) -> None:
    for text in ("one", "more"):
        assert scene.enclave.proof(scene.id(text)).update is None


def test_an_update_of_the_open_bundle_is_not_part_of_the_proof(scene: Scene, tmp_path: Path) -> None:
    """The node has erased the content of the first Update, but proves its place."""
    scene.enclave.update(scene.id("two"), "even more")
    found = saved(scene.enclave.proof(scene.id("two")), tmp_path / "two.json")
    assert any("with Update 5 " in line and line.endswith("was erased") for line in check_proof(found).proved)
    scene.stage.close_bundle()
    found = saved(scene.enclave.proof(scene.id("two")), tmp_path / "two.json")
    assert any(line.endswith("whose content is: even more") for line in check_proof(found).proved)


@pytest.mark.parametrize("how", [Moving.depart, Moving.taken_over])
def test_a_proof_is_valid_after_a_move(moving: Moving, tmp_path: Path, how: Any) -> None:
    client = moving.stage.client(nodes=[AT_B])
    enclave = client.enclave(moving.enclave.id)
    moving.stage.others["b.test"] = how(moving)
    if how is Moving.taken_over:
        moving.node.take(moving.node.migrate(moving.enclave.id, person("alice"), B))
    enclave.commit("message", "at the new node")
    found = saved(enclave.proof(moving.id("one")), tmp_path / "one.json")
    assert found.sequencer == B.public
    assert [move.new_sequencer for move in found.moves] == [B.public]
    assert client.seq_pub() == moving.node.key.public
    other = Proof(enclave.id, client.seq_pub(), enclave.proof(moving.id("one")))
    with pytest.raises(InvalidProof):
        other.save(tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


def test_a_proof_of_the_old_node_is_valid_after_a_move(moving: Moving, tmp_path: Path) -> None:
    """The log there ends with a Migrate to another key."""
    proof = moving.remaining().proof(moving.id("one"))
    moving.stage.others["b.test"] = moving.depart()
    found = saved(proof, tmp_path / "before.json")
    assert (found.sequencer, found.moves) == (moving.node.key.public, ())


def test_a_migrate_that_the_old_node_shows_is_not_in_its_proof(moving: Moving, tmp_path: Path) -> None:
    moving.stage.others["b.test"] = moving.depart()
    enclave = moving.remaining()
    assert [move.new_sequencer for move in enclave.sequencers().moves] == [B.public]
    found = saved(moving.remaining().proof(moving.id("one")), tmp_path / "one.json")
    assert (found.sequencer, found.moves) == (moving.node.key.public, ())


def test_a_proof_that_a_move_interrupts_is_read_again(
    moving: Moving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enclave, seen = moving.follower(), list[bytes]()
    enclave.head()

    def move_first(reader: EnclaveReader, fact: EventFact) -> Flow[None]:
        seen.append(reader.session.known_verifier().sequencer)
        if len(seen) == 1:
            moving.stage.others["b.test"] = moving.depart()
            yield from reader.follow(EnclaveMigrated("moved", new_sequencer=B.public.hex()))

    monkeypatch.setattr("enc.client.enclave.event_proof._update", move_first)
    assert saved(enclave.proof(moving.id("one")), tmp_path / "one.json").sequencer == B.public
    assert seen == [moving.node.key.public, B.public]


def test_a_proof_names_all_moves_up_to_its_sequencer(moving: Moving, tmp_path: Path) -> None:
    first = moving.stage.others["b.test"] = moving.depart()
    moving.stage.others["c.test"] = moving.depart(C, node=first)
    enclave = moving.stranger(AT_C)
    found = saved(enclave.proof(moving.id("one")), tmp_path / "one.json")
    assert [move.new_sequencer for move in found.moves] == [B.public, C.public]
    assert enclave.sequencers().moves_to(B.public) == found.moves[:1]
    assert enclave.sequencers().moves_to(moving.node.key.public) == ()
