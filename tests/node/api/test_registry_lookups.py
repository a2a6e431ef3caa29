"""Registry lookups over HTTP: entries, caches and proofs."""

import pytest
from msgspec.json import encode

from enc.core.log.event import check_event, parse_event
from enc.core.primitives.types import Event
from enc.core.registry.reg_entry import wire_identity
from enc.core.trees.bundle import check_membership
from enc.core.trees.proof import (
    LogLeaf,
    check_leaf,
    check_state_proof,
    parse_bundle_proof,
    parse_inclusion,
    parse_state_proof,
)
from enc.core.trees.state_key import status_key
from enc.core.trees.tree_head import check_bound_head, parse_head
from tests.core.registry_world import House, identity_entry, node_entry
from tests.core.world import Json, person, pub
from tests.node.api.registry_scene import GONE, Scene, rests_on
from tests.node.served import NODE, about, good

# Lookups


def test_a_node_is_found_at_once_with_its_endpoints_in_order(scene: Scene) -> None:
    path = f"/nodes/{pub('node')}"
    assert scene.bad(path) == (404, "NODE_NOT_FOUND")
    endpoints = [{"uri": "https://b.example:443", "priority": 7}, {"uri": "https://a.example:443", "priority": 2}]
    receipt = scene.registry.send("node", "Reg_Node", {**node_entry("node"), "endpoints": endpoints})
    assert scene.get(path) == {
        "seq_pub": pub("node"),
        "endpoints": endpoints[::-1],
        "protocols": [],
        "enc_v": 2,
        "entry": rests_on(scene, receipt),
    }


def test_endpoints_without_a_priority_stand_as_they_are_listed(scene: Scene) -> None:
    endpoints = [{"uri": f"https://{name}.example"} for name in "cab"]
    scene.registry.send("node", "Reg_Node", {**node_entry("node"), "endpoints": endpoints, "protocols": ["https"]})
    found = scene.get(f"/nodes/{pub('node')}")
    assert found["endpoints"] == [{**endpoint, "priority": i} for i, endpoint in enumerate(endpoints)]
    assert found["protocols"] == ["https"]


def test_an_enclave_is_found_with_what_its_entry_says(scene: Scene) -> None:
    house = scene.house()
    path = f"/enclaves/{house.state.enclave.hex()}"
    assert scene.bad(path) == (404, "ENCLAVE_NOT_FOUND")
    receipt = scene.register(house, app="chat", desc="Team chat", meta={"x": 1.50, "deep": {"a": [1]}})
    assert scene.get(path) == {
        "enclave_id": house.state.enclave.hex(),
        "sequencer": pub("node"),
        "creator": pub("alice"),
        "created_at": house.manifest.timestamp,
        "app": "chat",
        "desc": "Team chat",
        "meta": {"x": 1.5, "deep": {"a": [1]}},
        "holder": pub("alice"),
        "proved_size": 0,
        "evidence": {"proved_at": 0, "proved_root": "", "moved_at": -1, "moved_time": 0, "forced_from": []},
        "entry": rests_on(scene, receipt),
    }
    again = scene.register(house)
    found = scene.get(path)
    assert (found["app"], found["desc"], found["meta"]) == ("", "", {})
    assert found["entry"] == rests_on(scene, again)


def test_an_enclave_that_moved_and_was_sold(scene: Scene) -> None:
    house = scene.house()
    scene.register(house)
    moved = house.move_to("node2")
    house.transfer("alice", "bob")
    scene.register(house, by="bob", owner_proof=house.proof("bob"), links=[moved])
    found = scene.get(f"/enclaves/{house.state.enclave.hex()}")
    assert (found["sequencer"], found["holder"], found["creator"]) == (pub("node2"), pub("bob"), pub("alice"))
    assert found["proved_size"] == house.state.log.size


def test_resolve_gives_the_enclave_and_its_node(scene: Scene) -> None:
    house = scene.house()
    path = f"/resolve/{house.state.enclave.hex()}"
    assert scene.bad(path) == (404, "ENCLAVE_NOT_FOUND")
    scene.register(house)
    assert scene.bad(path) == (404, "NODE_NOT_FOUND")
    scene.registry.send("node", "Reg_Node", node_entry("node"))
    assert scene.get(path) == {
        "enclave": scene.get(f"/enclaves/{house.state.enclave.hex()}"),
        "node": scene.get(f"/nodes/{pub('node')}"),
    }
    scene.register(house, links=[house.move_to("node2")])
    assert scene.bad(path) == (404, "NODE_NOT_FOUND")
    scene.registry.send("node2", "Reg_Node", node_entry("node2", "https://two.example"))
    assert scene.get(path)["node"]["endpoints"] == [{"uri": "https://two.example", "priority": 1}]


def test_an_identity_is_found_with_its_enclaves(scene: Scene) -> None:
    path = f"/identity/{pub('alice')}"
    assert scene.bad(path) == (404, "IDENTITY_NOT_FOUND")
    content = wire_identity(person("alice").public, {"personal": b"p" * 32}, person("bob").public)
    receipt = scene.registry.send("alice", "Reg_Identity", content)
    assert scene.get(path) == {**content, "entry": rests_on(scene, receipt)}
    receipt = scene.registry.send("alice", "Reg_Identity", {"id_pub": pub("alice")})
    assert scene.get(path) == {"id_pub": pub("alice"), "enclaves": {}, "entry": rests_on(scene, receipt)}


def test_what_is_deregistered_is_not_found(scene: Scene) -> None:
    house = scene.house()
    for path, receipt, by in (
        (f"/nodes/{pub('node')}", scene.registry.send("node", "Reg_Node", node_entry("node")), "node"),
        (f"/identity/{pub('alice')}", scene.registry.send("alice", "Reg_Identity", identity_entry("alice")), "alice"),
        (f"/enclaves/{house.state.enclave.hex()}", scene.register(house), "alice"),
    ):
        scene.get(path)
        scene.registry.send(by, "Delete", GONE, about(receipt))
        assert scene.bad(path)[0] == 404
    assert scene.get("/enclaves") == {"enclaves": []}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/nodes/xyz", "NODE_NOT_FOUND"),
        (f"/nodes/{pub('alice').upper()}", "NODE_NOT_FOUND"),
        ("/enclaves/00", "ENCLAVE_NOT_FOUND"),
        ("/resolve/00", "ENCLAVE_NOT_FOUND"),
        ("/identity/00", "IDENTITY_NOT_FOUND"),
    ],
)
def test_what_is_no_key_is_not_found(scene: Scene, path: str, code: str) -> None:
    assert scene.bad(path) == (404, code)


def test_the_kinds_are_kept_apart(scene: Scene) -> None:
    scene.registry.send("alice", "Reg_Node", node_entry("alice"))
    assert scene.bad(f"/identity/{pub('alice')}") == (404, "IDENTITY_NOT_FOUND")


def test_every_refusal_of_the_kernel_comes_over_the_wire(scene: Scene) -> None:
    house = scene.house()
    receipt = scene.register(house)
    assert scene.registry.refused("mallory", "Reg_Node", node_entry("alice")).code == "UNAUTHORIZED"
    assert scene.registry.refused("alice", "Update", "x", about(receipt)).code == "INVALID_TARGET"
    twin = House({**house.policy.manifest}, node="node2")
    error = scene.registry.refused("alice", "Reg_Enclave", twin.entry())
    assert (error.status, error.code) == (409, "REGISTRY_CONFLICT")


# Caches


def test_an_answer_is_asked_for_again_only_when_it_changed(scene: Scene) -> None:
    scene.registry.send("node", "Reg_Node", node_entry("node"))
    path = f"/nodes/{pub('node')}"
    response = scene.node.get(path)
    tag = response.headers["etag"]
    assert response.headers["cache-control"] == "public, no-cache"
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        unchanged = scene.node.get(path, headers={"If-None-Match": known})
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
        assert unchanged.headers["cache-control"] == "public, no-cache"
    assert scene.node.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    scene.registry.send("node", "Reg_Node", node_entry("node", "https://new.example"))
    changed = scene.node.get(path, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["endpoints"][0]["uri"]) == (200, "https://new.example")
    assert changed.headers["etag"] != tag
    head = scene.node.http.head(path)
    assert (head.status_code, head.headers["etag"], head.content) == (200, changed.headers["etag"], b"")


def test_resolve_changes_with_either_entry(scene: Scene) -> None:
    house = scene.house()
    path, tags = f"/resolve/{house.state.enclave.hex()}", set[str]()
    scene.register(house)
    for change in (
        lambda: scene.registry.send("node", "Reg_Node", node_entry("node")),
        lambda: scene.registry.send("node", "Reg_Node", node_entry("node")),
        lambda: scene.register(house),
    ):
        change()
        tags.add(scene.node.get(path).headers["etag"])
    assert len(tags) == 3


# Proofs


def checked(scene: Scene, proof: Json) -> list[Event]:
    """Return the events of a proof, verified with the registry's pinned key to be current."""
    head = parse_head(encode(proof["sth"]))
    check_bound_head(head, NODE.public, scene.registry.id)
    newest = parse_inclusion(encode(proof["state"]))
    now = LogLeaf(bytes.fromhex(proof["state"]["events_root"]), bytes.fromhex(proof["state"]["state_hash"]))
    assert newest.li == head.ts - 1
    check_leaf(now, newest, head)
    events = []
    for item in proof["events"]:
        event = parse_event(encode(item["event"]))
        check_event(event, 2)
        parts = item["proof"]
        inclusion = parts["inclusion"]
        leaf = LogLeaf(bytes.fromhex(inclusion["events_root"]), bytes.fromhex(inclusion["state_hash"]))
        check_membership(parse_bundle_proof(encode(parts["bundle"])), event.id, leaf.events_root)
        check_leaf(leaf, parse_inclusion(encode(inclusion)), head)
        status = parse_state_proof(encode(parts["status"]))
        check_state_proof(status_key(event.id), status, now, newest, head)
        assert (status.v, item["status"]) == (None, "active")
        events.append(event)
    return events


def test_a_proof_needs_no_trust_in_the_registry(scene: Scene) -> None:
    house = scene.house()
    scene.register(house)
    entries = [
        scene.register(house, app="chat"),
        scene.registry.send("node", "Reg_Node", node_entry("node")),
        scene.registry.send("alice", "Reg_Identity", identity_entry("alice")),
    ]
    scene.close_bundle()
    enclave = house.state.enclave.hex()
    for path, expected in {
        f"/enclaves/{enclave}": entries[:1],
        f"/nodes/{pub('node')}": entries[1:2],
        f"/identity/{pub('alice')}": entries[2:],
        f"/resolve/{enclave}": entries[:2],
    }.items():
        plain, proved = scene.get(path), scene.get(f"{path}?proof=1")
        events = checked(scene, proved.pop("proof"))
        assert proved == plain == scene.get(f"{path}?proof=0")
        assert [event.id for event in events] == [receipt.id for receipt in entries if receipt in expected]


def test_a_proof_waits_for_the_bundle_s_end(scene: Scene) -> None:
    scene.registry.send("node", "Reg_Node", node_entry("node"))
    path = f"/nodes/{pub('node')}?proof=1"
    first = scene.node.get(path)
    proof = good(first)["proof"]
    assert ([item["proof"] for item in proof["events"]], "state" in proof) == ([None], False)
    assert parse_head(encode(proof["sth"])).ts == 0
    scene.close_bundle()
    second = scene.node.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert len(checked(scene, good(second)["proof"])) == 1
    assert scene.node.get(path, headers={"If-None-Match": second.headers["etag"]}).status_code == 304


@pytest.mark.parametrize("query", ["proof=2", "proof=", "proof=true", "proof=1&proof=1"])
def test_what_is_no_proof_parameter(scene: Scene, query: str) -> None:
    assert scene.bad(f"/nodes/{pub('node')}?{query}") == (400, "INVALID_QUERY")
