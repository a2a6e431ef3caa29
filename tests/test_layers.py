"""The sub-packages of each package form layers: no cycle between them, type-only imports included.

This test builds the import graph itself, from the syntax trees, so that it does not depend on import-linter and its
settings. Run it with `-s` to see the layers of each package, the highest first.
"""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGES = sorted(path.name for path in (SOURCE / "enc").iterdir() if (path / "__init__.py").is_file())


def module_of(path: Path) -> str:
    dotted = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    return dotted.removesuffix(".__init__")


MODULES = {module_of(path): path for path in (SOURCE / "enc").rglob("*.py")}


def imported_by(path: Path) -> set[str]:
    """Return the modules of `enc` that a file imports, at any depth and under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return found & set(MODULES)


def parts_below(container: str) -> dict[str, set[str]]:
    """Return, for each direct part of a package, the other parts of it that it imports."""
    depth = container.count(".") + 1
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if module.startswith(f"{container}."):
            part = module.split(".")[depth]
            others = {name.split(".")[depth] for name in imported_by(path) if name.startswith(f"{container}.")}
            graph.setdefault(part, set()).update(others - {part})
    return graph


@pytest.mark.parametrize("container", ["enc", *(f"enc.{name}" for name in PACKAGES)])
def test_a_package_has_layers_and_no_cycle(container: str) -> None:
    graph = parts_below(container)
    if container == "enc":
        graph["node"].discard("client")  # the node registers itself in a registry, as any client does
    sorter = TopologicalSorter(graph)
    sorter.prepare()  # raises CycleError
    layers: list[str] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        layers.insert(0, " | ".join(sorted(ready)))
        sorter.done(*ready)
    print(f"{container}: {' > '.join(layers)}")  # noqa: T201
    assert layers


ARCHITECTURE = (SOURCE.parent / "docs/architecture.md").read_text()


def test_the_architecture_names_only_modules_that_exist() -> None:
    named = set(re.findall(r"`(enc(?:\.\w+)+)`", ARCHITECTURE))
    assert named
    assert named <= set(MODULES)


@pytest.mark.parametrize("name", ["core", "node", "client", "apps", "dataview", "cli", "runtime"])
def test_the_architecture_lists_every_folder_in_layer_order(name: str) -> None:
    row = next(line for line in ARCHITECTURE.splitlines() if line.startswith(f"| `enc.{name}` |"))
    layers = [set(re.findall(r"`(\w+)`", layer)) for layer in row.split("|")[2].split(" > ")]
    rank = {part: number for number, layer in enumerate(layers) for part in layer}
    graph = parts_below(f"enc.{name}")
    assert set(graph) == set(rank)
    assert not [(part, other) for part, others in graph.items() for other in others if rank[part] >= rank[other]]
