"""All enclaves of an identity or of a registry, and those listed in a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from enc.client import Client, Enclave, Identity, Registry
from enc.core.errors import MisuseError, Unavailable
from enc.dataview.source.node_reader import Span, client_for, enclaves_of, read_span
from enc.dataview.source.options import parse_options
from enc.dataview.source.stream import EncStreamReader
from tests.core.registry_world import REGISTRY
from tests.core.world import person
from tests.dataview.served import PUBLIC, real_clock, write
from tests.node.api.registry_scene import registry_id, serving
from tests.node.served import NODE, Served


@pytest.fixture
def node() -> Iterator[Served]:
    """Return a node that has a registry and is registered in it."""
    with Served(serving(registry_id()), clock=real_clock()) as node:
        node.submit(node.manifest(REGISTRY, "olga"))
        with _client(node, Identity(NODE)) as client:
            client.register_node([node.url])
        yield node


def _client(node: Served, who: Identity) -> Client:
    registry = Registry(url=node.url, enclave=registry_id(), seq_pub=NODE.public)
    return Client(node.url, who, pins=None, registry=registry)


def _registry(node: Served) -> dict[str, str]:
    return {"registry": node.url, "registryEnclave": registry_id().hex(), "registryKey": NODE.public.hex()}


def _options(node: Served, who: Identity, **more: str) -> dict[str, str]:
    return {**_registry(node), "identity": who.hex, **more}


def _create(client: Client, name: str) -> Enclave:
    init = [{"identity": client.identity.hex, "state": "OWNER", "traits": []}]
    return client.create({**PUBLIC, "meta": {"description": name}, "init": init})


def test_what_an_identity_made_known_or_created_is_read_and_what_it_creates_later_joins(node: Served) -> None:
    alice = Identity(person("alice"))
    options = parse_options(_options(node, alice))
    with _client(node, alice) as client:
        assert enclaves_of(options, client_for(options)) == ()
        one, two = _create(client, "one"), _create(client, "two")
        for each in (one, two):
            each.register()
        client.register_identity({"feed": one.id})
        reader = EncStreamReader(options)
        start = reader.latestOffset({}, ReadAllAvailable())
        assert start == {one.hex: 1, two.hex: 1}
        three = _create(client, "three")
        write(three, 1)
        three.register()
        assert reader.latestOffset(start, ReadAllAvailable()) == {**start, three.hex: 2}
        reader.stop()
        rows = [row for batch in read_span(options, Span(three.hex, 0, 2)) for row in batch.to_pylist()]
        assert [(row["seq"], row["origin"]) for row in rows] == [
            (0, f"registry:{node.url}"),
            (1, f"registry:{node.url}"),
        ]


def test_an_identity_needs_a_registry(node: Served) -> None:
    with pytest.raises(MisuseError, match="registry"):
        parse_options({"node": node.url, "identity": "ab" * 32})


def test_all_that_a_registry_knows_of_is_read_with_itself_and_what_is_registered_later_joins(node: Served) -> None:
    alice, bob = Identity(person("alice")), Identity(person("bob"))
    options = parse_options({**_registry(node), "enclaves": "*"})
    with _client(node, alice) as hers, _client(node, bob) as his:
        one = _create(hers, "one")
        one.register()
        reader = EncStreamReader(options)
        start = reader.latestOffset({}, ReadAllAvailable())
        assert set(start) == {registry_id().hex(), one.hex}
        two, untold = _create(his, "two"), _create(his, "untold")
        two.register()
        later = reader.latestOffset(start, ReadAllAvailable())
        assert later[two.hex] == 1
        assert later[registry_id().hex()] > start[registry_id().hex()]
        rows = [row for batch in read_span(options, Span(registry_id().hex(), 0, 2)) for row in batch.to_pylist()]
        assert [row["seq"] for row in rows] == [0, 1]
        assert untold.hex not in later
        reader.stop()


def test_the_ids_in_a_file_are_read_again_each_time(node: Served, tmp_path: Path) -> None:
    file = tmp_path / "enclaves"
    options = parse_options({"node": node.url, "enclavesFile": str(file)})
    with _client(node, Identity(person("alice"))) as client:
        one, two = _create(client, "one"), _create(client, "two")
        reader = EncStreamReader(options)
        assert reader.latestOffset({}, ReadAllAvailable()) == {}
        file.write_text(f"{one.hex}\nno id\n\n")
        start = reader.latestOffset({}, ReadAllAvailable())
        assert start == {one.hex: 1}
        file.write_text(f"{one.hex}\n{two.hex}\n")
        assert reader.latestOffset(start, ReadAllAvailable()) == {one.hex: 1, two.hex: 1}
        reader.stop()
        both = parse_options({**_registry(node), "enclaves": "*", "enclavesFile": str(file)})
        assert set(enclaves_of(both, client_for(both))) == {registry_id().hex(), one.hex, two.hex}


def test_more_enclaves_than_a_source_may_read_are_an_error(node: Served, tmp_path: Path) -> None:
    """Also if they join a stream that runs: none is left out in silence."""
    file = tmp_path / "enclaves"
    with _client(node, Identity(person("alice"))) as client:
        made = [_create(client, name) for name in ("one", "two", "three")]
        for each in made[:2]:
            each.register()
        every = {**_registry(node), "enclaves": "*"}
        reader = EncStreamReader(parse_options({**every, "maxEnclaves": "3"}))
        assert len(reader.latestOffset({}, ReadAllAvailable())) == 3, "with the registry itself"
        made[2].register()
        says = r"enclaves: registry:\S+: more than 3 enclaves.*maxEnclaves"
        with pytest.raises(MisuseError, match=says):
            reader.latestOffset({}, ReadAllAvailable())
        reader.stop()
        options = parse_options({**every, "maxEnclaves": "3"})
        with pytest.raises(MisuseError, match=says):
            enclaves_of(options, client_for(options))
        file.write_text("".join(f"{each.hex}\n" for each in made) * 2)
        options = parse_options({"node": node.url, "enclavesFile": str(file), "maxEnclaves": "3"})
        assert len(enclaves_of(options, client_for(options))) == 3
        file.write_text(f"{file.read_text()}{'ab' * 32}\n")
        with pytest.raises(MisuseError, match=r"enclavesFile: \S+enclaves: more than 3 enclaves.*maxEnclaves"):
            enclaves_of(options, client_for(options))
    with pytest.raises(MisuseError, match="enclaves: more than 1 enclave"):
        parse_options({"node": node.url, "enclaves": f"{made[0].hex},{made[1].hex}", "maxEnclaves": "1"})


def test_a_source_may_read_very_many_enclaves(tmp_path: Path) -> None:
    file = tmp_path / "enclaves"
    file.write_text("".join(f"{number:064x}\n# a comment\n" for number in range(100_000)))
    options = parse_options({"node": "http://127.0.0.1:1", "enclavesFile": str(file)})
    assert len(enclaves_of(options, client_for(options))) == 100_000


def test_a_file_of_ids_that_cannot_be_read(tmp_path: Path) -> None:
    options = parse_options({"node": "http://127.0.0.1:1", "enclavesFile": str(tmp_path)})
    with pytest.raises(Unavailable, match="cannot be read"):
        enclaves_of(options, client_for(options))


def test_only_a_registry_knows_which_enclaves_there_are() -> None:
    with pytest.raises(MisuseError, match="only a registry knows which there are"):
        parse_options({"node": "http://127.0.0.1:1", "enclaves": "*"})
