"""Lists of enclaves in a registry, and which registry a node serves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from enc.core.errors import MisuseError
from enc.core.log.commit import build_manifest
from enc.core.primitives.encoding import compact_json
from enc.node import main
from enc.node.api import registry as registry_api
from enc.node.config import RetentionSettings
from enc.node.fsck import check_store
from enc.node.read import registry_index
from enc.testing.memory_store import MemoryStore
from tests.core.registry.registry_schema_v1 import SCHEMA
from tests.core.registry_world import REGISTRY, House, identity_entry, node_entry
from tests.core.world import START, Json, person, pub
from tests.node.api.registry_scene import GONE, Scene, registry_id, rests_on, serving
from tests.node.moving import move
from tests.node.served import DEV, NODE, SMALL, Clock, Served, about, bad, good, sqlite

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
        node.create(SMALL)
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
    config = serving(registry_id(), retention=RetentionSettings(purge_after_s=10, sweep_interval_s=0.01))
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
    response = scene.node.get("/enclaves", headers={"Origin": "http://localhost:5173"})
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
