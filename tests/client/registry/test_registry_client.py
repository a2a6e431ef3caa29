"""A registry that lies: its entries are verified by its log, and the node that it names must prove itself."""

from typing import Any

import httpx
import pytest
from msgspec.json import decode

from enc.client import ForeignSequencer, Forgery, Registry, Rollback, Unreachable
from enc.client.registry.registry_client import CACHE_S, MAX_CACHED
from enc.core.errors import EnclaveNotFound, IdentityNotFound, MisuseError, NodeNotFound
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.core.registry.reg_entry import wire_node
from enc.node.store.events import search_item
from enc.testing.lying_node import Json
from tests.client.registry.office import AT, Office
from tests.client.stage import Stage
from tests.core.world import person
from tests.node.served import SMALL

B = person("node-b")


@pytest.fixture
def office(stage: Stage) -> Office:
    return Office(stage)


def test_an_enclave_is_found_by_its_id_alone(office: Office) -> None:
    found = office.client().resolve(office.enclave.id)
    assert (found.urls, found.sequencer) == (("http://node.test",), office.stage.node.key.public)
    assert found.record.is_proved
    enclave = office.client().enclave(office.enclave.id)
    assert enclave.commit("message", "hello").sequencer == office.stage.node.key.public
    assert [item.content for item in enclave.query(type="message")] == ["hello"]
    assert enclave.url == "http://node.test"


def test_an_entry_is_good_at_once_and_proved_later(office: Office) -> None:
    office.alice().enclave(office.enclave.id).register(app="other")
    found = office.client().resolve(office.enclave.id)
    assert (found.record.entry.app, found.record.is_proved) == ("other", False)
    office.close_bundle()
    assert office.client().resolve(office.enclave.id).record.is_proved


# Lies


def test_an_entry_that_was_superseded(office: Office) -> None:
    old = office.entry("resolve", office.enclave.id)
    office.alice().enclave(office.enclave.id).register(app="new")
    office.close_bundle()

    def lie(answer: Json) -> Json:
        """Return the old entry, with its old proof of status in place of the new head's."""
        return {**answer, "enclave": old["enclave"], "proof": {**answer["proof"], "events": old["proof"]["events"]}}

    office.node.lie("resolve", lie)
    office.refused(Forgery)
    office.client("carol").registry().head()
    office.node.lie("resolve", lambda answer: old)
    office.refused(Rollback)  # the old head with the old entry: older than what was seen since


def test_an_entry_with_the_status_that_it_has_but_shown_as_the_one_that_stands(office: Office) -> None:
    office.alice().enclave(office.enclave.id).register(app="new")
    office.close_bundle()
    first = next(event for event in office.node.store.events(office.id, 0, 99) if event.type == "Reg_Enclave")
    state = office.node.answers.state(office.id)

    def lie(answer: Json) -> Json:
        proof = decode(office.node.answers.items_with_proofs(state, [search_item(first)]))
        return {**answer, "proof": {**proof, "events": [*proof["events"], answer["proof"]["events"][1]]}}

    office.node.lie("resolve", lie)
    assert "an outdated status" in office.refused(Forgery).message


def test_an_entry_that_is_shown_as_superseded(office: Office) -> None:
    office.alice().enclave(office.enclave.id).register(app="new")
    office.close_bundle()
    first, last = (event for event in office.node.store.events(office.id, 0, 99) if event.type == "Reg_Enclave")
    state = office.node.answers.state(office.id)

    def lie(answer: Json) -> Json:
        proof = decode(office.node.answers.items_with_proofs(state, [search_item(first)]))
        proof["events"][0].update(status="updated", updated_by=last.id.hex())
        return {**answer, "proof": {**proof, "events": [*proof["events"], answer["proof"]["events"][1]]}}

    office.node.lie("resolve", lie)
    assert "the entry is superseded" in office.refused(Forgery).message


def test_another_enclave_s_entry(office: Office) -> None:
    other = office.alice().create({**SMALL, "meta": {"n": 2}})
    other.register()
    office.close_bundle()
    answer = office.entry("resolve", other.id)
    office.node.lie("resolve", lambda _: answer)
    assert "belongs to another enclave" in office.refused(Forgery).message


def test_another_node_than_the_sequencer(office: Office) -> None:
    twin = office.stage.others["b.test"] = office.stage.node.successor(office.enclave.id, B)
    office.enter_node(twin, "http://b.test")
    office.close_bundle()
    commit = office.alice().registry().prepare("Reg_Node", compact_json(wire_node(B.public, ["http://b.test"])))
    assert not isinstance(office.node.take(commit), Receipt)

    def lie(answer: Json) -> Json:
        return {**answer, "enclave": {**answer["enclave"], "sequencer": B.public.hex()}}

    office.node.lie("resolve", lie)
    assert "not the one that the entry" in office.refused(Forgery).message


@pytest.mark.parametrize("field", ["holder", "sequencer"])
def test_words_beside_the_entry(office: Office, field: str) -> None:
    office.node.lie("resolve", lambda answer: {**answer, "enclave": {**answer["enclave"], field: B.public.hex()}})
    office.refused(Forgery)


@pytest.mark.parametrize("what", ["events", "sth", "state"])
def test_an_answer_without_its_proof(office: Office, what: str) -> None:
    nothing: Any = [] if what == "events" else None
    office.node.lie("resolve", lambda answer: {**answer, "proof": {**answer["proof"], what: nothing}})
    office.refused(Forgery)


@pytest.mark.parametrize("part", ["bundle", "inclusion", "status"])
def test_a_forged_proof(office: Office, part: str) -> None:
    def lie(answer: Json) -> None:
        proof = answer["proof"]["events"][0]["proof"][part]
        field = {"bundle": "s", "inclusion": "p", "status": "s"}[part]
        proof[field] = ["ab" * 32] * max(len(proof[field]), 1)

    office.node.lie("resolve", lie)
    office.refused(Forgery)


def test_another_registry_s_key(office: Office) -> None:
    office.where = Registry(url=AT, enclave=office.id, seq_pub=B.public)
    office.refused(ForeignSequencer, pins=None)


def test_somebody_else_s_word_about_an_identity(office: Office) -> None:
    office.client("bob").register_identity({"personal": office.enclave.id})
    office.client("carol").register_identity({"personal": office.id})
    office.close_bundle()
    answer = office.entry("identity", person("carol").public)
    office.node.lie("identity", lambda _: answer)
    with pytest.raises(Forgery, match="belongs to another identity"):
        office.client("alice").lookup(person("bob").public)


def test_what_is_not_there(office: Office) -> None:
    with pytest.raises(EnclaveNotFound):
        office.client().resolve(bytes(32))
    with pytest.raises(IdentityNotFound):
        office.client().lookup(person("dave").public)
    with pytest.raises(EnclaveNotFound):
        list(office.client().enclave(bytes(32)).query())
    with pytest.raises(MisuseError, match="a node's URL is required"):
        office.client().create("team")


# Keeping


def test_an_answer_is_kept_for_a_while(office: Office) -> None:
    client = office.client()
    client.resolve(office.enclave.id)
    asked = office.node.calls.count(f"/resolve/{office.enclave.hex}")
    client.resolve(office.enclave.id)
    office.stage.clock.tick(round(CACHE_S * 1000) - 1)
    client.resolve(office.enclave.id)
    assert office.node.calls.count(f"/resolve/{office.enclave.hex}") == asked
    office.stage.clock.tick(1)
    client.resolve(office.enclave.id)
    client.resolve(office.enclave.id, fresh=True)
    assert office.node.calls.count(f"/resolve/{office.enclave.hex}") == asked + 2


def test_so_many_answers_are_kept(office: Office) -> None:
    client = office.client()
    inner = client if office.stage.face == "sync" else client._inner
    registry_client = inner._setup.registry_client
    registry_client._cache.update({("resolve", n.to_bytes(32)): (0.0, n) for n in range(MAX_CACHED)})
    client.resolve(office.enclave.id)
    assert len(registry_client._cache) == MAX_CACHED


def test_endpoints_are_tried_in_order(office: Office) -> None:
    office.enter_node(office.stage.node, "http://dead.test", "http://registry.test", "http://node.test")
    enclave = office.client(pins=None).enclave(office.enclave.id)
    enclave.head()
    assert enclave.url == "http://node.test"  # no server at the first, another key at the second


# Following by the registry


def test_a_commit_follows_by_the_registry(office: Office) -> None:
    enclave = office.client("bob", url="http://node.test").enclave(office.enclave.id)
    enclave.commit("message", "here")
    node = office.stage.node
    assert isinstance(node.take(node.migrate(office.enclave.id, person("alice"), B)), Receipt)
    new = office.stage.others["b.test"] = node.successor(office.enclave.id, B)
    office.enter_node(new, "http://b.test")
    office.client("alice", url="http://b.test").enclave(office.enclave.id).register()
    assert enclave.commit("message", "there").sequencer == B.public
    assert office.client(pins=None).enclave(office.enclave.id).sequencer() == B.public


def test_a_takeover_that_the_old_node_does_not_tell_is_seen_in_the_registry(office: Office) -> None:
    enclave = office.client("bob", url="http://node.test", pins=None).enclave(office.enclave.id)
    enclave.commit("message", "here")
    node = office.stage.node
    new = node.successor(office.enclave.id, B, node.migrate(office.enclave.id, person("alice"), B))
    office.stage.others["b.test"] = new
    office.enter_node(new, "http://b.test")
    office.client("alice", url="http://b.test").enclave(office.enclave.id).register()
    assert enclave.commit("message", "nobody has looked").sequencer == node.key.public
    office.stage.clock.tick(round(CACHE_S * 1000))
    assert enclave.commit("message", "there").sequencer == B.public


@pytest.mark.parametrize("is_known", [True, False])
def test_a_node_that_is_gone_is_looked_for_in_the_registry(office: Office, is_known: bool) -> None:
    """For the client that asked it, and for the next one with the same pins."""
    enclave = office.client("bob", url="http://node.test").enclave(office.enclave.id)
    enclave.commit("message", "here")
    node = office.stage.node
    node.arrives = gone
    with pytest.raises(Unreachable):
        enclave.commit("message", "nobody has taken over")
    new = node.successor(office.enclave.id, B, node.migrate(office.enclave.id, person("alice"), B))
    office.stage.others["b.test"] = new
    office.enter_node(new, "http://b.test")
    office.stage.client("alice", url="http://b.test", pins=None, registry=office.where).enclave(
        office.enclave.id
    ).register()
    if not is_known:
        enclave = office.client("bob", url="http://node.test").enclave(office.enclave.id)
    commit = enclave.prepare("message", "there")
    assert enclave.send(commit).sequencer == B.public
    assert [item.content for item in enclave.query(type="message")] == ["here", "there"]


def gone(request: httpx.Request) -> None:
    raise httpx.ConnectError("nobody is there")


def test_a_registry_that_is_down_holds_nobody_up(office: Office) -> None:
    enclave = office.client("bob", url="http://node.test", patience=30.0).enclave(office.enclave.id)
    del office.stage.others["registry.test"]
    assert enclave.commit("message", "here").sequencer == office.stage.node.key.public
    assert office.stage.naps == []


def test_a_registry_that_is_behind_leads_nobody_back(office: Office) -> None:
    """The enclave has moved, but its owner has not registered that yet."""
    node = office.stage.node
    assert isinstance(node.take(node.migrate(office.enclave.id, person("alice"), B)), Receipt)
    office.stage.others["b.test"] = node.successor(office.enclave.id, B)
    enclave = office.client("bob", url="http://b.test").enclave(office.enclave.id)
    office.stage.client("bob", url="http://b.test").enclave(office.enclave.id).head()
    assert enclave.commit("message", "there").sequencer == B.public


def test_a_node_that_is_not_registered(office: Office) -> None:
    office.node.lie("resolve", lambda _: (_ for _ in ()).throw(NodeNotFound("no")))
    office.refused(NodeNotFound)
