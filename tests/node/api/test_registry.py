"""Lookups on a real node: current after the receipt, cacheable, with proofs that need no trust in the node."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from enc.core.errors import MisuseError
from enc.core.log.commit import build_manifest
from enc.core.log.event import check_event, parse_event
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event, Receipt
from enc.core.registry.reg_entry import wire_identity
from enc.core.trees.bundle import check_membership
from enc.core.trees.proof import (
    Leaf,
    check_leaf,
    check_state_proof,
    parse_bundle_proof,
    parse_inclusion,
    parse_state_proof,
)
from enc.core.trees.state_key import status_key
from enc.core.trees.tree_head import check_bound_head, parse_head
from enc.node import main
from enc.node.api import registry as registry_api
from enc.node.config import Config, Registry, Retention
from enc.node.fsck import check_store
from enc.node.read import registry_index
from tests.core.registry.test_entries_v1 import SCHEMA
from tests.core.registry_world import REGISTRY, TEAM, House, identity_entry, node_entry
from tests.core.world import START, Json, init, person, pub
from tests.node.memory_store import MemoryStore
from tests.node.moving import move
from tests.node.served import DEV, NODE, SMALL, Clock, Enclave, Served, about, bad, good, sqlite

GONE = {"reason": "author"}


def registry_id(manifest: Json = REGISTRY) -> bytes:
    """Return the id of olga's registry, which is known before it is created."""
    return build_manifest(person("olga"), compact_json(manifest), START, enc_v=manifest["enc_v"]).enclave


def serving(registry: bytes | None, **more: Any) -> Config:
    return Config(port=0, dev=True, registry=Registry(enclave=registry.hex() if registry else ""), **more)


class Scene:
    """A node with a registry on it."""

    def __init__(self, node: Served, manifest: Json = REGISTRY) -> None:
        self.node, self._numbers = node, count(1)
        commit = node.manifest(manifest, "olga")
        node.submit(commit)
        self.registry = Enclave(node, commit)

    def get(self, path: str, **more: Any) -> Any:
        return good(self.node.get(path, **more))

    def bad(self, path: str) -> tuple[int, str]:
        error = bad(self.node.get(path))
        return error.status, error.code

    def house(self, by: str = "alice", **changes: Any) -> House:
        """Return an enclave on the node `node`, which this registry never sees."""
        manifest = {**TEAM, "meta": {"n": next(self._numbers)}, "init": init(**{by: "OUTSIDER owner"}), **changes}
        house = House(manifest, by=by)
        house.talk()
        return house

    def register(self, house: House, by: str = "alice", **more: Any) -> Receipt:
        return self.registry.send(by, "Reg_Enclave", house.entry(**more))

    def close_bundle(self) -> None:
        self.node.clock.tick(2000)
        self.node.settle()


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    store = MemoryStore() if request.param == "memory" else sqlite(tmp_path)
    with Served(serving(registry_id()), store) as node:
        yield Scene(node)
    store.close()


# Lookups


def rests_on(scene: Scene, receipt: Receipt) -> Json:
    return {
        "enclave": scene.registry.id.hex(),
        "id": receipt.id.hex(),
        "seq": receipt.seq,
        "timestamp": receipt.timestamp,
    }


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
    now = Leaf(bytes.fromhex(proof["state"]["events_root"]), bytes.fromhex(proof["state"]["state_hash"]))
    assert newest.li == head.ts - 1
    check_leaf(now, newest, head)
    events = []
    for item in proof["events"]:
        event = parse_event(encode(item["event"]))
        check_event(event, 2)
        parts = item["proof"]
        inclusion = parts["inclusion"]
        leaf = Leaf(bytes.fromhex(inclusion["events_root"]), bytes.fromhex(inclusion["state_hash"]))
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


# Listing


class Town:
    """Enclaves of several creators and apps; `ids` are by rising id."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.houses: list[tuple[House, str, str]] = []
        for i, (by, app) in enumerate(
            [("alice", "chat"), ("bob", "chat"), ("alice", "blog"), ("bob", ""), ("alice", "chat")]
        ):
            house = scene.house(by)
            scene.register(house, by, app=app, desc=f"House {i}", meta={"name": f"Ärger {i % 2}"})
            self.houses.append((house, by, app))

    def ids(self, keep: Callable[[str, str], bool] = lambda by, app: True) -> list[str]:
        return sorted(house.state.enclave.hex() for house, by, app in self.houses if keep(by, app))

    def listed(self, query: str = "") -> list[str]:
        return [found["enclave_id"] for found in self.scene.get(f"/enclaves?{query}")["enclaves"]]


def test_listing_by_app_creator_and_words(scene: Scene) -> None:
    town = Town(scene)
    assert town.listed() == town.ids()
    assert town.listed("app=chat") == town.ids(lambda by, app: app == "chat")
    assert town.listed(f"creator={pub('alice')}") == town.ids(lambda by, app: by == "alice")
    both = town.ids(lambda by, app: (by, app) == ("alice", "chat"))
    assert town.listed(f"creator={pub('alice')}&app=chat") == both
    assert len(both) == 2
    assert town.listed("app=CHAT") == town.listed(f"creator={pub('mallory')}") == []
    assert town.listed("q=house%203") == [town.houses[3][0].state.enclave.hex()]
    assert len(town.listed("q=%C3%84RGER%201")) == 2
    assert town.listed("q=house&app=blog") == [town.houses[2][0].state.enclave.hex()]
    assert town.listed("q=nothing") == []
    one = scene.get("/enclaves?app=blog")["enclaves"][0]
    assert one == scene.get(f"/enclaves/{one['enclave_id']}")


def test_a_listing_is_of_what_entries_say_now(scene: Scene) -> None:
    town = Town(scene)
    house = town.houses[0][0]
    receipt = scene.register(house, app="blog")
    assert len(town.listed("app=chat")) == len(town.listed("app=blog")) == 2
    assert town.listed("q=house%200") == []
    scene.registry.send("alice", "Delete", GONE, about(receipt))
    assert house.state.enclave.hex() not in town.listed() + town.listed("app=blog") + town.listed(
        f"creator={pub('alice')}"
    )


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 100])
@pytest.mark.parametrize("query", ["", "app=chat", "q=house"])
def test_pages_join_to_the_whole(scene: Scene, limit: int, query: str) -> None:
    town = Town(scene)
    found, after, pages = list[str](), "", 0
    while True:
        page = scene.get(f"/enclaves?limit={limit}&{query}{after}")
        found += [each["enclave_id"] for each in page["enclaves"]]
        pages += 1
        if "next" not in page:
            break
        assert len(page["enclaves"]) == limit
        after = f"&after={page['next']}"
    whole = town.listed(query)
    assert found == whole
    assert pages == max(1, -(-len(whole) // limit))


def test_one_page_looks_at_a_bounded_number_of_records(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town(scene)
    monkeypatch.setattr(registry_api, "SCAN_STEP", 1)
    monkeypatch.setattr(registry_api, "MAX_SCANNED", 2)
    rare, pages, after = list[str](), 0, ""
    while True:
        page = scene.get(f"/enclaves?q=house%203{after}")
        rare += [each["enclave_id"] for each in page["enclaves"]]
        pages += 1
        if "next" not in page:
            break
        after = f"&after={page['next']}"
    assert rare == [town.houses[3][0].state.enclave.hex()]
    assert pages == 3


def test_one_page_reads_a_bounded_number_of_bytes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town(scene)
    monkeypatch.setattr(registry_api, "MAX_PAGE_BYTES", 1)
    page = scene.get("/enclaves")
    assert ([each["enclave_id"] for each in page["enclaves"]], page["next"]) == (town.ids()[:1], town.ids()[0])


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=101",
        "limit=x",
        "limit=-1",
        "limit=1000000000000",
        "limit=%C2%B2",
        "limit=1&limit=2",
        "after=xyz",
        f"after={'AB' * 32}",
        "creator=00",
        "app=",
        f"app={'a' * 65}",
        "q=",
        f"q={'a' * 65}",
        "q=a&q=b",
    ],
)
def test_what_a_listing_does_not_take(scene: Scene, query: str) -> None:
    assert scene.bad(f"/enclaves?{query}") == (400, "INVALID_QUERY")


# Which registry


def test_a_node_that_serves_none_says_so() -> None:
    with Served(DEV) as node:
        assert node.get("/info").json()["registry"] is None
        for path in ("/enclaves", f"/nodes/{pub('node')}", f"/resolve/{'00' * 32}"):
            error = bad(node.get(path))
            assert (error.status, error.code, error.message) == (
                404,
                "INVALID_QUERY",
                "this node does not serve a registry",
            )


def test_a_registry_that_is_not_there_yet() -> None:
    with Served(serving(registry_id())) as node:
        assert node.get("/info").json()["registry"] == registry_id().hex()
        error = bad(node.get("/enclaves"))
        assert (error.status, error.code) == (503, "UNAVAILABLE")
        assert error.message == f"the registry {registry_id().hex()} is not on this node yet"
        assert Scene(node).get("/enclaves") == {"enclaves": []}


def test_an_enclave_that_is_no_registry(tmp_path: Path) -> None:
    plain = {**SMALL, "meta": {"n": 1}}
    config = serving(build_manifest(person("alice"), compact_json(plain), START).enclave)
    store = MemoryStore()
    with Served(config, store) as node:
        node.found(SMALL)
        error = bad(node.get("/enclaves"))
        assert (error.status, error.code, error.message[-17:]) == (503, "UNAVAILABLE", "is not a registry")
    with pytest.raises(MisuseError, match="the enclave is not a registry"):
        main._check_registry(store, config)
    main._check_registry(store, serving(None))
    main._check_registry(store, serving(registry_id()))


def test_a_registry_that_moved_away_is_served_where_it_is() -> None:
    with Served(serving(registry_id())) as node:
        scene = Scene(node)
        checkpoint = scene.registry.ask("olga", "Checkpoint")
        scene.registry.send(
            "olga",
            "Migrate",
            {"new_sequencer": pub("node2"), "prev_seq": checkpoint["seq"], "ct_root": checkpoint["ct_root"]},
        )
        error = bad(node.get("/enclaves"))
        assert (error.status, error.code, error.context) == (410, "ENCLAVE_MIGRATED", {"new_sequencer": pub("node2")})


def test_a_registry_that_moved_here_knows_what_it_knew(tmp_path: Path) -> None:
    """Replaying the log alone rebuilds the records."""
    store = sqlite(tmp_path)
    with (
        Served(serving(registry_id())) as old,
        Served(serving(registry_id()), store, old.clock, key=person("node2")) as new,
    ):
        scene = Scene(old)
        house = scene.house()
        scene.register(house)
        scene.register(house, app="chat")
        entry = scene.registry.send("alice", "Reg_Identity", identity_entry("alice"))
        scene.registry.send("alice", "Delete", GONE, about(entry))
        scene.registry.send("node", "Reg_Node", node_entry("node"))
        paths = (f"/resolve/{house.state.enclave.hex()}", "/enclaves?app=chat")
        before = [scene.get(path) for path in paths]
        moved = move(scene.registry, new, "olga")
        assert [good(new.get(path)) for path in paths] == before
        assert bad(new.get(f"/identity/{pub('alice')}")).code == "IDENTITY_NOT_FOUND"
        assert moved.refused("mallory", "Reg_Enclave", house.entry()).code == "UNAUTHORIZED"
        moved.send("alice", "Reg_Enclave", house.entry(app="blog"))
        assert good(new.get("/enclaves?app=chat")) == {"enclaves": []}
    assert check_store(store, person("node2").public, None, lambda events: None).differences == []
    store.close()


@pytest.mark.parametrize("readers", [[], [{"type": "dataview", "reads": "*"}], [{"type": "Sender", "reads": "*"}]])
def test_who_may_not_read_a_registry_looks_nothing_up(readers: list[Json]) -> None:
    manifest = {**REGISTRY, "RBAC": {**REGISTRY["RBAC"], "readers": readers}}
    with Served(serving(registry_id(manifest))) as node:
        scene = Scene(node, manifest)
        house = scene.house()
        scene.register(house)
        scene.registry.send("node", "Reg_Node", node_entry("node"))
        for path in ("/enclaves", f"/enclaves/{house.state.enclave.hex()}", f"/nodes/{pub('node')}"):
            assert scene.bad(path) == (403, "UNAUTHORIZED")


def test_who_may_read_is_asked_again_when_something_has_happened() -> None:
    readers = [{"type": "Public", "reads": "*", "alias": "open", "gate": {"operator": ["owner"]}}]
    manifest = {**REGISTRY, "RBAC": {**REGISTRY["RBAC"], "readers": readers}}
    with Served(serving(registry_id(manifest))) as node:
        scene = Scene(node, manifest)
        scene.registry.send("node", "Reg_Node", node_entry("node"))
        path = f"/nodes/{pub('node')}"
        scene.get(path)
        scene.registry.send("olga", "Gate", {"alias": "open", "state": "closed"})
        assert scene.bad(path) == (403, "UNAUTHORIZED")
        scene.registry.send("olga", "Gate", {"alias": "open", "state": "open"})
        scene.get(path)


def test_what_is_kept_of_entries_is_bounded_and_never_old(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_index, "MAX_CACHED", 2)
    for name in ("node", "node2", "node3", "alice"):
        for uri in ("https://a.example", "https://b.example"):
            scene.registry.send(name, "Reg_Node", node_entry(name, uri))
            for _ in range(2):
                assert scene.get(f"/nodes/{pub(name)}")["endpoints"] == [{"uri": uri, "priority": 1}]
    assert len(scene.node.node.registry._index._cache) <= 2


def test_a_paused_registry_is_read_and_a_purged_one_is_gone() -> None:
    config = serving(registry_id(), retention=Retention(purge_after_s=10, sweep_interval_s=0.01))
    with Served(config) as node:
        scene = Scene(node)
        scene.registry.send("node", "Reg_Node", node_entry("node"))
        for type_ in ("Pause", "Terminate"):
            scene.registry.send("olga", type_)
            scene.get(f"/nodes/{pub('node')}")
        node.clock.tick(20_000)
        node.settle()
        assert scene.bad(f"/nodes/{pub('node')}") == (410, "ENCLAVE_TERMINATED")
        assert scene.bad("/enclaves") == (410, "ENCLAVE_TERMINATED")


def test_a_registry_after_a_restart(tmp_path: Path) -> None:
    clock, answers = Clock(), list[Json]()
    for _ in range(2):
        store = sqlite(tmp_path)
        with Served(serving(registry_id()), store, clock) as node:
            if not answers:
                scene = Scene(node)
                scene.register(scene.house(), app="chat")
                scene.registry.send("node", "Reg_Node", node_entry("node"))
            answers.append(good(node.get("/enclaves?app=chat")))
        store.close()
    assert answers[0] == answers[1]
    assert len(answers[0]["enclaves"]) == 1


def test_browsers_may_look_up(scene: Scene) -> None:
    response = scene.node.get("/enclaves", headers={"Origin": "https://app.example"})
    assert response.headers["access-control-allow-origin"] == "*"


def test_a_registry_of_version_1_is_served_alike(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    with Served(serving(registry_id(SCHEMA)), store) as node:
        scene = Scene(node, SCHEMA)
        house = scene.house()
        scene.registry.send("node", "Reg_Node", node_entry("node"))
        receipt = scene.register(house, app="chat")
        found = scene.get(f"/resolve/{house.state.enclave.hex()}")
        assert found["enclave"]["entry"] == rests_on(scene, receipt)
        assert found["node"]["seq_pub"] == pub("node")
        node.clock.tick(10_000)
        node.settle()
        (item,) = scene.get(f"/enclaves/{house.state.enclave.hex()}?proof=1")["proof"]["events"]
        assert item["event"]["id"] == receipt.id.hex()
        assert item["proof"] is not None
    assert check_store(store, NODE.public, None, lambda events: None).differences == []
    store.close()
