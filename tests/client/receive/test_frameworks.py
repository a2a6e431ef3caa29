"""The recipes of docs/frameworks.md, with the real frameworks."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import django
import httpx
import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.test import override_settings
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from enc.client import PushReceiver
from tests.client.pushing import Post, push
from tests.client.serving_app import served
from tests.core.world import person
from tests.documents import blocks

JSON = {"content-type": "application/json"}
SALES = "https://shop.example/sales"
FASTAPI, *DJANGO = [block.text for block in blocks("docs/frameworks.md", "python")]


@pytest.fixture(scope="module", autouse=True)
def configured() -> None:
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="test", DATA_UPLOAD_MAX_MEMORY_SIZE=16 << 20)
        django.setup()


@pytest.fixture
def receiver(post: Post, monkeypatch: pytest.MonkeyPatch) -> PushReceiver:
    """The receiver of the module `shop`, as in the document."""
    receiver = post.receiver(url=SALES)
    shop = module(monkeypatch, "shop")
    shop.receiver = receiver  # type: ignore[attr-defined]
    return receiver


@pytest.fixture
def wsgi(receiver: PushReceiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Django's application with the document's view, URLs and wsgi.py."""
    for code in DJANGO[:2]:
        module(monkeypatch, code.split(".py")[0].removeprefix("# ").replace("/", "."), code)
    with override_settings(ROOT_URLCONF="shop.urls"):
        yield module(monkeypatch, "shop.wsgi", DJANGO[2]).application  # type: ignore[attr-defined]


def module(patch: pytest.MonkeyPatch, name: str, code: str = "") -> ModuleType:
    made = ModuleType(name)
    patch.setitem(sys.modules, name, made)
    exec(compile(code, name, "exec"), made.__dict__)  # noqa: S102
    return made


def test_fastapi(post: Post, receiver: PushReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    app = module(monkeypatch, "main", FASTAPI).app  # type: ignore[attr-defined]
    events = post.enclave(["one"])
    with served(app) as http:
        answer = http.post("/sales", content=push(1, *events, url=SALES), headers=JSON)
        assert (answer.status_code, answer.json()) == (200, {"type": "Taken"})
        assert receiver._is_started
        assert post.seqs(receiver) == [0, 1]
        assert http.get("/sales").status_code == 405
        assert http.get("/openapi.json").status_code == 200
    assert receiver._is_closed


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/sales", lambda app: Route("/sales", app)),
        ("/sales/", lambda app: Mount("/sales", app)),
        ("/hooks/sales", lambda app: Mount("/hooks", app)),
        ("/a/b/sales", lambda app: Mount("/a", routes=[Mount("/b", app)])),
    ],
)
def test_routes_and_mounts_answer_without_a_redirect(post: Post, path: str, route: Any) -> None:
    url = f"https://shop.example{path}"
    receiver = post.receiver(url=url)
    app = Starlette(routes=[route(receiver.app)], lifespan=receiver.app.lifespan)
    with served(app) as http:
        assert http.post(path, content=push(1, *post.enclave(), url=url), headers=JSON).status_code == 200
        assert post.seqs(receiver) == [0]


def test_a_mount_at_exactly_the_path_redirects_as_the_document_says(receiver: PushReceiver) -> None:
    with served(Starlette(routes=[Mount("/sales", receiver.app)])) as http:
        assert http.post("/sales", content=b"{}", headers=JSON).status_code == 307


def check_django(post: Post, receiver: PushReceiver, request: Callable[..., httpx.Response]) -> None:
    answer = request("POST", "/sales", content=push(1, *post.enclave(["one"]), url=SALES), headers=JSON)
    assert (answer.status_code, answer.json()) == (200, {"type": "Taken"})
    assert post.seqs(receiver) == [0, 1]
    answer = request("POST", "/sales", content=push(2, key=person("node2"), url=SALES), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (403, "UNAUTHORIZED")
    answer = request("POST", "/sales", content=b" " * (3 << 20), headers=JSON)
    assert answer.json()["type"] == "Error", "Django itself rejects bodies of this size"
    assert request("GET", "/sales").status_code == 405


def test_django_under_wsgi(post: Post, receiver: PushReceiver, wsgi: Any) -> None:
    with httpx.Client(transport=httpx.WSGITransport(wsgi), base_url="http://shop.example") as http:
        check_django(post, receiver, http.request)


def test_django_under_asgi(post: Post, receiver: PushReceiver, wsgi: Any) -> None:
    def request(*what: Any, **more: Any) -> httpx.Response:
        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(get_asgi_application())
            async with httpx.AsyncClient(transport=transport, base_url="http://shop.example") as http:
                return await http.request(*what, **more)

        return asyncio.run(run())

    check_django(post, receiver, request)
