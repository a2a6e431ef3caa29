"""Clients register an enclave by themselves after its ownership has changed, and a former owner's old
evidence does not get past them."""

import logging
from typing import Any

import pytest

from enc.client.enclave.ownership_history import ownership_history
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.registry.due_registrations import FOLDER
from enc.client.registry.ownership_proofs import OwnershipProver
from enc.client.wire.flow import Flow
from enc.core.errors import MisuseError, PeerError, RateLimited
from enc.core.primitives.types import KeyRecord
from enc.core.registry.owner_proof import OwnerProof
from enc.core.registry.ownership import KnownOwnership
from enc.core.registry.reg_entry import wire_enclave
from enc.testing.lying_node import Json
from tests.client.registry.office import Office
from tests.client.stage import Stage
from tests.core.registry.thief import V1
from tests.core.registry_world import BY_STATE, TEAM
from tests.core.world import person
from tests.core.world_v1 import row

OPEN: Json = {"readers": [{"type": "Public", "reads": "*"}], "bundle": {"size": 1, "timeout": 1000}}
SHARED: Json = {**BY_STATE, **OPEN}
SLOW: Json = {**TEAM, **OPEN, "bundle": {"size": 50, "timeout": 5000}}
VERSIONS: dict[str, Json] = {
    "version 1": {**V1, "RBAC": {**V1["RBAC"], "schema": [*V1["RBAC"]["schema"], row("*", "Any", "R")]}},
    "version 2": {**TEAM, **OPEN},
}


@pytest.fixture
def office(stage: Stage) -> Office:
    return Office(stage)


class House:
    """An enclave of alice's, which is registered."""

    def __init__(self, office: Office, manifest: Json) -> None:
        self.office, self.enc_v = office, manifest["enc_v"]
        self.mine = office.alice().create({**manifest, "meta": {"n": 1}})
        self.mine.register(app="house")

    def client(self, name: str, **more: Any) -> Any:
        return self.office.client(name, url="http://node.test", **more)

    def of(self, name: str, **more: Any) -> Any:
        """Return the enclave through a new client of this person."""
        return self.client(name, **more).enclave(self.mine.id)

    def pass_on(self, from_: str, to: str, **more: Any) -> None:
        self.of(from_, **more).transfer(person(to).public, "Owner" if self.enc_v == 1 else "owner")

    @property
    def record(self) -> KeyRecord:
        found = self.office.node.store.record(self.office.id, "enclave", self.mine.id)
        assert found is not None
        return found

    @property
    def holder(self) -> str:
        return next(name for name in ("alice", "bob", "carol") if person(name).public == self.record.holder)

    def kept(self, name: str) -> OwnerProof:
        """Return what an owner can keep: a proof under the head of the time."""
        client = self.client(name, registry=None)
        reader = self.office.stage.reader(client.enclave(self.mine.id))
        found: OwnerProof = client._run(_kept(reader))
        return found

    def attack(self, name: str, proof: OwnerProof) -> None:
        """Register with a proof that was kept."""
        content = wire_enclave(self.of(name, registry=None).manifest(), owner_proof=proof)
        self.office.client(name).registry().commit("Reg_Enclave", content)


def _kept(reader: EnclaveReader) -> Flow[OwnerProof]:
    yield from reader.session.head()
    rules, events = yield from ownership_history(reader)
    prover = OwnershipProver(reader, events, (yield from fetch_history(reader.session)), ())
    return (yield from prover.current(KnownOwnership.of(events[0], rules, None), is_patient=False))


@pytest.fixture(params=sorted(VERSIONS))
def house(request: pytest.FixtureRequest, office: Office) -> House:
    return House(office, VERSIONS[request.param])


def read(enclave: Any) -> None:
    list(enclave.query())


def test_the_new_owner_registers_once_it_sees_the_transfer(house: House) -> None:
    house.pass_on("alice", "bob")
    assert house.holder == "alice"
    his = house.of("bob")
    read(his)
    assert (house.holder, house.record.app, his.unregistered) == ("bob", "house", "")
    entry = house.record.entry
    read(his)
    read(house.of("bob"))
    assert his.register() is None
    assert house.record.entry == entry  # once is enough


def test_a_subscriber_registers_too(house: House) -> None:
    his = house.of("bob").subscribe()
    house.pass_on("alice", "bob")
    assert "Transfer" in [next(his).type for _ in range(2)][1]
    his._disconnect()
    house.of("alice", registry=None).commit("message", "hello")
    assert next(his).type == "message"  # after it has asked whether the enclave has moved
    assert house.holder == "bob"


def test_the_giver_proves_the_ownership_before_giving_it_away(office: Office) -> None:
    house = House(office, SLOW)
    assert not house.record.proved_root
    office.stage.close_bundle()
    house.pass_on("alice", "bob")
    assert house.record.proved_root
    assert house.holder == "alice"


def test_an_enclave_that_is_not_registered_stays_so_until_it_has_a_new_owner(house: House) -> None:
    other = house.office.alice().create({**VERSIONS[f"version {house.enc_v}"], "meta": {"n": 2}})
    other.transfer(person("bob").public, "Owner" if house.enc_v == 1 else "owner")
    assert house.office.node.store.record(house.office.id, "enclave", other.id) is None
    read(house.client("bob").enclave(other.id))
    found = house.office.node.store.record(house.office.id, "enclave", other.id)
    assert found is not None
    assert found.holder == person("bob").public


def test_a_former_owner_s_old_proof_is_refused(house: House) -> None:
    """Alice sold it to bob, who gave it back; none of them thought of the registry."""
    house.pass_on("alice", "bob", registry=None)
    bobs = house.kept("bob")
    house.pass_on("bob", "alice", registry=None)
    read(house.of("alice"))
    assert house.record.proved_size > bobs.sth.ts
    with pytest.raises(PeerError, match=r"sth\.ts: must be above"):
        house.attack("bob", bobs)
    assert house.holder == "alice"


def test_the_owner_gets_it_back_from_a_former_owner_who_was_faster(house: House) -> None:
    house.pass_on("alice", "bob", registry=None)
    bobs = house.kept("bob")
    house.pass_on("bob", "alice", registry=None)
    house.attack("bob", bobs)
    assert house.holder == "bob"
    assert house.of("alice").register() is not None
    assert house.holder == "alice"
    with pytest.raises(PeerError):
        house.attack("bob", bobs)


def test_a_co_owner_gets_it_back_by_the_root_that_the_thief_has_proved(office: Office) -> None:
    """No event leads from bob to alice, who was an owner all the time."""
    house = House(office, SHARED)
    quiet = house.of("alice", registry=None)
    quiet.move(person("bob").public, "OUTSIDER", "OWNER")
    bobs = house.kept("bob")
    quiet.move(person("bob").public, "OWNER", "OUTSIDER")
    house.attack("bob", bobs)
    assert house.holder == "bob"
    assert house.of("alice").register() is not None
    assert house.holder == "alice"


def test_whoever_puts_a_co_owner_out_proves_it_at_once(office: Office) -> None:
    house = House(office, SHARED)
    hers = house.of("alice")
    hers.move(person("bob").public, "OUTSIDER", "OWNER")
    bobs = house.kept("bob")
    hers.move(person("bob").public, "OWNER", "OUTSIDER")
    assert house.record.proved_size > bobs.sth.ts
    with pytest.raises(PeerError, match=r"sth\.ts: must be above"):
        house.attack("bob", bobs)


def test_who_does_not_want_it_registers_by_hand(house: House) -> None:
    house.pass_on("alice", "bob")
    his = house.of("bob", auto_register=False)
    read(his)
    assert (house.holder, his.unregistered) == ("alice", "")
    assert his.register() is not None
    assert house.holder == "bob"


# A registry that does not answer


def test_a_registry_that_is_down_fails_no_transfer_and_is_asked_again(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    stage = house.office.stage
    node = stage.others.pop("registry.test")
    with caplog.at_level(logging.WARNING, "enc.client.registration"):
        house.pass_on("alice", "bob")
        his = house.of("bob")
        read(his)
    assert "no node at registry.test" in his.unregistered
    assert "has no recent proof that you own it" in caplog.messages[0]
    assert "is not registered as yours yet" in caplog.messages[1]
    read(his)
    assert len(caplog.records) == 2  # not at once, and not with the same words
    stage.others["registry.test"] = node
    read(his)
    assert house.holder == "alice"  # a second has not passed
    stage.sleep(2)
    read(his)
    assert (house.holder, his.unregistered) == ("bob", "")


def test_another_process_tries_again_though_it_reads_nothing(house: House) -> None:
    stage = house.office.stage
    node = stage.others.pop("registry.test")
    house.pass_on("alice", "bob")
    read(house.of("bob"))
    kept = stage.pins / FOLDER
    assert [path.name for path in kept.iterdir()] == [f"{person('bob').public.hex()}-{house.mine.hex}"]
    stage.others["registry.test"] = node
    house.of("bob").head()
    assert house.holder == "bob"
    assert not list(kept.iterdir())


def test_a_bundle_that_is_still_open_shows_nothing_yet(office: Office) -> None:
    house = House(office, SLOW)
    house.pass_on("alice", "bob")
    his = house.of("bob")
    read(his)
    assert (house.holder, bool(his.unregistered)) == ("alice", True)
    office.stage.close_bundle()
    read(his)
    assert (house.holder, his.unregistered) == ("bob", "")


def test_who_has_given_it_away_again_registers_nothing(house: House) -> None:
    house.pass_on("alice", "bob", registry=None)
    house.pass_on("bob", "carol", registry=None)
    his = house.of("bob")
    read(his)
    assert (house.holder, his.unregistered) == ("alice", "")
    with pytest.raises(MisuseError, match="you do not own the enclave"):
        his.register()
    read(house.of("carol"))
    assert house.holder == "carol"


def test_the_holder_s_entry_does_not_wait_for_a_proof(office: Office) -> None:
    """There is no newer head, so none is awaited; but the client reports a node that refuses to
    answer.
    """
    house = House(office, SLOW)
    hers = house.of("alice")
    assert hers.register(desc="words") is not None
    assert (house.record.text, house.record.proved_root) == ("words", b"")
    office.stage.close_bundle()

    def refuse(answer: Json) -> None:
        raise RateLimited("not now", retry_after_ms=1000)

    office.stage.node.lie("State_Proof", refuse)
    with pytest.raises(RateLimited):
        hers.register(desc="other words")
    office.stage.node.be_honest()
    assert hers.register(desc="other words") is not None
    assert house.record.proved_size == 1
