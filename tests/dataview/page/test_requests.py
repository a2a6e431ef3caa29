"""The page's requests are exactly those that its benchmark measures."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from tests.dataview.page import filled
from tests.dataview.page.conftest import Visiting
from tests.dataview.page.filled import PUBLIC, PUBLISHED, key_of
from tests.dataview.serving.asking import serving

FOLDER = Path(__file__).parents[3] / "benchmarks"
WHICH = key_of("enclave 3")
PLACES = {
    "overview": "#/",
    "enclaves": "#/enclaves",
    "enclaves_by_id": f"#/enclaves?by=id&q={WHICH[:2]}",
    "enclaves_by_owner": f"#/enclaves?by=owner&q={key_of('person 7')[:1]}",
    "enclaves_by_app": "#/enclaves?by=app&q=chat",
    "enclave": f"#/enclaves/{WHICH}",
    "events": f"#/enclaves/{WHICH}?tab=events",
    "events_by_type": f"#/enclaves/{WHICH}?tab=events&type=message",
    "events_by_author": f"#/enclaves/{WHICH}?tab=events&author={WHICH}",
    "members": f"#/enclaves/{WHICH}?tab=members",
    "bundles": f"#/enclaves/{WHICH}?tab=bundles",
    "views": "#/views",
    "view": "#/views/events",
    "view_newest_first": "#/views/events?order=-timestamp",
    "view_by_type": "#/views/events?type=message",
    "registry": "#/registry",
    "registry_enclaves": "#/registry?of=enclaves",
    "registry_identities": "#/registry?of=identities",
}
NOT_HERE = {"proof_by_id"}
"""Pages whose requests are tested with the inspector."""


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("bench_page", FOLDER / "bench_page.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    place = str(tmp_path_factory.mktemp("requests") / "serving.db")
    filled.fill(place)
    with serving(place, dict.fromkeys((*PUBLISHED, "pipeline"), PUBLIC)) as client:
        yield client


def test_every_place_of_the_benchmark_is_one_of_the_page(bench: ModuleType) -> None:
    assert set(bench.NAMES) == {*PLACES, *NOT_HERE}


def test_a_place_asks_what_is_measured(bench: ModuleType, http: httpx.Client, visit: Visiting) -> None:
    names = [view["name"] for view in http.get("/views").json()["views"]]
    places = bench.Places(bench.Fleet(), names)
    with visit(str(http.base_url)) as tab:
        tab.go("#/nowhere")
        for name, address in PLACES.items():
            tab.asked.clear()
            tab.turn(address)
            asked = {_shape(url) for url in tab.asked if urlsplit(url).path.startswith("/views")}
            assert asked == {(path, frozenset(_plain(parameters))) for path, parameters in getattr(places, name)()}, (
                name
            )
        tab.check()


def _shape(url: str) -> tuple[str, frozenset[tuple[str, str]]]:
    parts = urlsplit(url)
    return parts.path, frozenset(_plain(dict(parse_qsl(parts.query))))


def _plain(parameters: dict[str, object]) -> list[tuple[str, str]]:
    """Return the parameters by name, with the values that the page chooses and not the reader."""
    own = ("order", "limit", "select", "kind")
    return [(name, str(value) if name in own else "") for name, value in parameters.items()]
