"""What strangers can make the server of views do: foreign sites, idle connections, slow queries."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from enc.dataview.serving import api
from enc.dataview.serving.config import load
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.handlers import ViewHandlers
from tests.dataview.serving.asking import PUBLIC, refused, serving
from tests.dataview.serving.rows import PAIRS, pairs

PATIENCE_S = 30
EVIL = "https://evil.example"


@pytest.fixture
def place(tmp_path: Path) -> str:
    database = ServingDatabase(str(tmp_path / "serving.db"))
    database.upsert(PAIRS, pairs(2), {})
    database.close()
    return str(tmp_path / "serving.db")


def from_address(url: Any, address: str) -> httpx.Client:
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=url, transport=transport, timeout=PATIENCE_S)


def test_it_answers_no_foreign_host_and_no_foreign_page(place: str) -> None:
    for origins in ((), ("*",)):
        with serving(place, {"pairs": PUBLIC}, origins=origins) as http:
            path = "/views/pairs?limit=1"
            assert http.get(path).status_code == 200
            refused(http.get(path, headers={"host": "evil.example:7780"}), 421, "HOST_NOT_SERVED")
            refused(http.get(path, headers={"origin": EVIL}), 403, "ORIGIN_NOT_ALLOWED")
            own = str(http.base_url).rstrip("/")
            assert http.get(path, headers={"origin": own}).status_code == 200
            other = http.get(path, headers={"origin": "http://localhost:3000"})
            assert (other.status_code == 200) == (origins == ("*",))


def test_a_name_that_is_configured_makes_it_public(place: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('hosts = ["views.example"]\nconnections = 9\nconnections_per_address = 4\nrequest_timeout_s = 2\n')
    config = load(file, {})
    limits = config.limits
    assert (limits.connections, limits.connections_per_address, limits.request_timeout_s) == (9, 4, 2)
    with serving(place, {"pairs": PUBLIC}, hosts=config.hosts) as http:
        answer = http.get("/views/pairs?limit=1", headers={"host": "views.example", "origin": EVIL})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
        refused(http.get("/views", headers={"host": "evil.example"}), 421, "HOST_NOT_SERVED")


def test_idle_connections_of_one_address_keep_no_other_out(place: str) -> None:
    with serving(place, {"pairs": PUBLIC}, connections=6, connections_per_address=3) as http, ExitStack() as stack:
        url = http.base_url
        idle = [stack.enter_context(socket.create_connection((url.host, url.port or 0))) for _ in range(10)]
        for peer in idle[3:]:
            peer.settimeout(PATIENCE_S)
            assert peer.recv(1 << 12).startswith(b"HTTP/1.1 503 ")
        with from_address(url, "127.0.0.2") as other:
            assert other.get("/views").status_code == 200


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Views are listed when the event is set."""
    go_on, views = threading.Event(), ViewHandlers.views

    def slow(*args: Any) -> Any:
        assert go_on.wait(PATIENCE_S)
        return views(*args)

    monkeypatch.setattr(ViewHandlers, "views", slow)
    yield go_on
    go_on.set()


def test_slow_queries_of_one_address_leave_threads_to_others(place: str, go_on: threading.Event) -> None:
    count = 4 * api.THREADS
    with serving(place, {"pairs": PUBLIC}) as http, ThreadPoolExecutor(count) as pool:
        slow = [pool.submit(http.get, "/views") for _ in range(count)]
        with from_address(http.base_url, "127.0.0.2") as other:
            for _ in range(5):
                assert other.get("/views/pairs?limit=1").status_code == 200
        assert not any(each.done() for each in slow)
        go_on.set()
        assert {each.result(PATIENCE_S).status_code for each in slow} == {200}


def test_of_one_address_a_bounded_number_waits(
    place: str, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MAX_EACH", 2)
    with serving(place, {"pairs": PUBLIC}) as http, ThreadPoolExecutor(10) as pool:
        asked = [pool.submit(http.get, "/views") for _ in range(10)]
        for refusal in islice(as_completed(asked, PATIENCE_S), 6):  # two run and two wait
            assert refusal.result().status_code == 429
        go_on.set()
        answers = [each.result(PATIENCE_S) for each in asked]
    assert sorted(each.status_code for each in answers) == [200] * 4 + [429] * 6
    assert {each.headers.get("retry-after") for each in answers if each.status_code == 429} == {"1"}
