"""The fixtures that the package offers to tests of apps."""

import ast
from pathlib import Path

from enc.client import Registry
from enc.testing import Clock, Identities, Liar, LocalNetwork, LocalNode

PACKAGE = Path(__file__).parents[2] / "src/enc/testing"


def test_all_fixtures_share_one_clock_and_one_network(
    node: LocalNode, liar: Liar, network: LocalNetwork, clock: Clock
) -> None:
    assert node.network is liar.network is network
    assert network.clock is clock
    assert set(network.sites) == {"node.test", "liar.test"}


def test_the_registry_lists_the_node(node: LocalNode, registry: Registry, identities: Identities) -> None:
    with node.client(identities["ada"], registry=registry) as client:
        assert registry == node.registry
        assert client.registry().overview().manifest is not None
        enclaves, _ = client.listing()
        assert enclaves == []


def test_an_identity_has_the_same_key_each_time(identities: Identities) -> None:
    assert identities["ada"] == Identities()["ada"] != identities["bob"]


def test_only_the_plugin_imports_pytest() -> None:
    importing = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] in ("pytest", "_pytest", "tests") for name in names):
                importing.add(path.name)
    assert importing == {"plugin.py"}
