"""The registry's views against a real registry: they hold what its node answers to lookups."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from enc.core.registry.reg_entry import wire_identity
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.source.node_reader import Span, read_span
from enc.dataview.source.options import parse_options
from tests.core.registry_world import House, node_entry
from tests.core.world import person, pub
from tests.dataview.flow import Flow
from tests.dataview.served import real_clock
from tests.node.api.registry_scene import GONE, Scene, registry_id, serving
from tests.node.served import Served, about

VIEWS = ("registry_nodes", "registry_enclaves", "registry_identities")


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Served(serving(registry_id()), clock=real_clock()) as node:
        yield Scene(node)


class Life:
    """The events of a registry, in two parts."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.send = scene, scene.registry.send
        self.houses = [scene.house() for _ in range(3)]

    def first(self) -> None:
        self.send("node", "Reg_Node", {**node_entry("node"), "endpoints": [{"uri": f"https://{x}.x"} for x in "cab"]})
        self.node2 = self.send("node2", "Reg_Node", node_entry("node2", "https://two.example"))
        self.send("alice", "Reg_Identity", wire_identity(person("alice").public, {"personal": b"p" * 32}))
        self.alice = self.send("alice", "Reg_Identity", {"id_pub": pub("alice")})
        self.bob = self.send("bob", "Reg_Identity", wire_identity(person("bob").public, {}))
        self.send("alice", "note", "no entry")
        for n, house in enumerate(self.houses):
            self.entry = self.scene.register(house, app="chat", desc=f"house {n}", meta={"n": n})

    def second(self) -> None:
        """Entries superseded, moved, sold or deleted; deleted and restored; superseded and then
        deleted.
        """
        ends = [{"uri": "https://b.x", "priority": 7}, {"uri": "https://a.x", "priority": 2}]
        self.send("node", "Reg_Node", {**node_entry("node"), "endpoints": ends, "protocols": ["https"]})
        self.send("node2", "Delete", GONE, about(self.node2))
        self.send("alice", "Delete", GONE, about(self.alice))
        self.send("bob", "Delete", GONE, about(self.bob))
        self.send("bob", "Reg_Identity", wire_identity(person("bob").public, {"a": b"a" * 32}, person("carol").public))
        moved, plain, gone = self.houses
        self._move(moved)
        self.scene.register(plain, app="other")
        self.send("alice", "Delete", GONE, about(self.entry))
        assert gone

    def _move(self, house: House) -> None:
        link = house.move_to("node2")
        house.transfer("alice", "bob")
        self.scene.register(house, by="bob", owner_proof=house.proof("bob"), links=[link], app="moved")
        # Again, without the Migrate: the sequencer is its own claim.
        self.scene.register(house, by="bob", sequencer=person("node2").public, desc="moved")


def length(scene: Scene) -> int:
    state = scene.node.node.store.load(scene.registry.id)
    assert state is not None
    return int(state.seq) + 1


def pulled(spark: SparkSession, scene: Scene, span: range) -> Any:
    enclave = scene.registry.id.hex()
    options = parse_options({"node": scene.node.url, "enclave": enclave})
    batches = read_span(options, Span(enclave, span.start, span.stop, 2))
    return spark.createDataFrame(pa.Table.from_batches(list(batches)))


def answers(scene: Scene, houses: Iterable[House]) -> dict[str, dict[str, Any]]:
    """Return the node's answers for everyone who may be in the registry, by view and key; absent
    ones are left out.
    """
    names = ("node", "node2", "alice", "bob", "carol")
    asked = {
        "registry_nodes": [(pub(name), f"/nodes/{pub(name)}") for name in names],
        "registry_identities": [(pub(name), f"/identity/{pub(name)}") for name in names],
        "registry_enclaves": [(id_, f"/enclaves/{id_}") for id_ in (house.state.enclave.hex() for house in houses)],
    }
    found = {view: {key: scene.node.get(path) for key, path in paths} for view, paths in asked.items()}
    return {view: {k: r.json() for k, r in each.items() if r.status_code == 200} for view, each in found.items()}


def check(flow: Flow, scene: Scene, houses: Iterable[House], unknown: Collection[str] = ()) -> None:
    """Check the views. `unknown`: keys of entries whose deletion can no longer be known."""
    assert not [built.failures for built in flow.views.build(flow.spark, VIEWS) if built.failures]
    answer = answers(scene, houses)
    keys = {"registry_nodes": "seq_pub", "registry_identities": "id_pub", "registry_enclaves": "enclave_id"}
    for view, key in keys.items():
        rows = {row[key]: row for row in flow.rows(view) if row[key] not in unknown}
        assert rows.keys() == answer[view].keys(), view
        for id_, row in rows.items():
            assert _seen(view, row) == _expected_row(view, answer[view][id_]), view


def _expected_row(view: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Convert the node's answer to the view's columns."""
    entry = {"enclave": answer["entry"]["enclave"], "event": answer["entry"]["id"], "seq": answer["entry"]["seq"]}
    if view == "registry_nodes":
        more = {"endpoints": [each["uri"] for each in answer["endpoints"]], "protocols": answer["protocols"]}
        return {**entry, **more, "enc_v": answer["enc_v"]}
    if view == "registry_identities":
        return {**entry, "enclaves": answer["enclaves"], "sub_pub": answer.get("sub_pub")}
    names = {"app": "app", "desc": "description", "creator": "creator", "sequencer": "sequencer", "holder": "author"}
    return {**entry, **{here: answer[there] for there, here in names.items()}}


def _seen(view: str, row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row; fields that an entry lacks are null."""
    nothing: dict[str, Any] = {"protocols": [], "enclaves": {}, "app": "", "description": ""}
    names = {
        "registry_nodes": ("endpoints", "protocols", "enc_v"),
        "registry_identities": ("enclaves", "sub_pub"),
        "registry_enclaves": ("app", "description", "creator", "sequencer", "author"),
    }[view]
    return {name: nothing.get(name) if row[name] is None else row[name] for name in ("enclave", "event", "seq", *names)}


def test_what_the_node_says_is_what_stands_there(
    spark: SparkSession, flow: Flow, scene: Scene, empty_lake: Path, tmp_path: Path
) -> None:
    life = Life(scene)
    life.first()
    middle = length(scene)
    flow.feed(pulled(spark, scene, range(middle)))
    check(flow, scene, life.houses)
    life.second()
    end = length(scene)
    flow.feed(pulled(spark, scene, range(middle, end)))
    check(flow, scene, life.houses)
    # A late reader, with many more events than the driver collects.
    late = Flow.at(spark, empty_lake, tmp_path / "late", DriverLimits(max_rows=3, max_listed_values=1))
    late.feed(pulled(spark, scene, range(end)))
    # Deleted contents are not served: that alice's last entry replaced her first cannot be seen.
    check(late, scene, life.houses, [pub("alice")])
    assert pub("alice") in {row["id_pub"] for row in late.rows("registry_identities")}
