"""All enclaves of an identity, wherever a registry says that they are."""

from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from enc.client import Client, Enclave, Identity, Registry
from enc.core.errors import MisuseError
from enc.dataview.options import parse_options
from enc.dataview.reading import Span, client_for, enclaves_of, read_span
from enc.dataview.stream import EncStreamReader
from tests.core.registry import REGISTRY
from tests.core.world import person
from tests.node.served import NODE, Served
from tests.node.test_registry_api import registry_id, serving

from .served import PUBLIC, real_clock, write


@pytest.fixture
def node() -> Iterator[Served]:
    """A node that has a registry, and is known in it."""
    with Served(serving(registry_id()), clock=real_clock()) as node:
        node.submit(node.manifest(REGISTRY, "olga"))
        with _client(node, Identity(NODE)) as client:
            client.register_node([node.url])
        yield node


def _client(node: Served, who: Identity) -> Client:
    registry = Registry(url=node.url, enclave=registry_id(), seq_pub=NODE.public)
    return Client(node.url, who, pins=None, registry=registry)


def _options(node: Served, who: Identity, **more: str) -> dict[str, str]:
    registry = {"registry": node.url, "registryEnclave": registry_id().hex(), "registryKey": NODE.public.hex()}
    return {**registry, "identity": who.hex, **more}


def _found(client: Client, name: str) -> Enclave:
    init = [{"identity": client.identity.hex, "state": "OWNER", "traits": []}]
    return client.create({**PUBLIC, "meta": {"description": name}, "init": init})


def test_what_an_identity_made_known_or_founded_is_read_and_what_it_founds_later_joins(node: Served) -> None:
    alice = Identity(person("alice"))
    options = parse_options(_options(node, alice))
    with _client(node, alice) as client:
        assert enclaves_of(options, client_for(options)) == ()
        one, two = _found(client, "one"), _found(client, "two")
        for each in (one, two):
            each.register()
        client.register_identity({"feed": one.id})
        reader = EncStreamReader(options)
        start = reader.latestOffset({}, ReadAllAvailable())
        assert start == {one.hex: 1, two.hex: 1}
        three = _found(client, "three")
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
