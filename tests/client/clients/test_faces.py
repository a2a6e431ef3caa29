"""The blocking and the async client: same names, same parameters, `with`, and the configured patience."""

import ast
import asyncio
import inspect
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import enc
import enc.apps
from enc.client import (
    AsyncClient,
    AsyncCommitQueue,
    AsyncEnclave,
    AsyncTable,
    Client,
    CommitQueue,
    Enclave,
    Identity,
    Table,
    TimedOut,
    Unreachable,
)
from enc.client.enclave.writes import Writes
from enc.client.subscribe.subscription import CLOSE_S, MAX_MESSAGE, AsyncSubscription, Subscription
from enc.core.errors import MisuseError
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from tests.client.scene import Scene
from tests.client.stage import Stage
from tests.core.world import person
from tests.node.served import SMALL

PAIRS = [
    (Client, AsyncClient),
    (CommitQueue, AsyncCommitQueue),
    (Enclave, AsyncEnclave),
    (Subscription, AsyncSubscription),
    (Table, AsyncTable),
]
AS_ASYNC = {
    Client: AsyncClient,
    CommitQueue: AsyncCommitQueue,
    Enclave: AsyncEnclave,
    Subscription: AsyncSubscription,
    Table: AsyncTable,
    Iterator: AsyncIterator,
}
pairs = pytest.mark.parametrize(
    ("plain", "awaiting"), PAIRS, ids=["client", "queue", "enclave", "subscription", "table"]
)


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pairs
def test_the_faces_have_the_same_names(plain: type, awaiting: type) -> None:
    assert public(plain) == public(awaiting)


@pairs
def test_the_same_names_take_the_same_parameters(plain: type, awaiting: type) -> None:
    for name in public(plain) | ({"__init__"} if plain is Client else set()):
        one, other = getattr(plain, name), getattr(awaiting, name)
        if isinstance(one, property):
            assert get_type_hints(one.fget) == get_type_hints(other.fget), name
            continue
        assert parameters(one) == parameters(other), name
        assert inspect.getdoc(one) == inspect.getdoc(other), name


def parameters(call: Any) -> list[inspect.Parameter]:
    """Return the parameters in comparable form: of a default that is a function, only that there is one."""
    found = inspect.signature(call).parameters.values()
    return [each.replace(default=callable) if inspect.isfunction(each.default) else each for each in found]


@pairs
def test_what_one_returns_the_other_promises(plain: type, awaiting: type) -> None:
    """A method is a coroutine, an async iterator, or sends no request and returns the other client's object."""
    for name in public(plain):
        one, other = getattr(plain, name), getattr(awaiting, name)
        if isinstance(one, property) or getattr(Writes, name, None) is one:
            continue
        found, promised = get_type_hints(one)["return"], get_type_hints(other)["return"]
        assert promised == counterpart(found), name
        asks = name not in ("commit_queue", "enclave", "registry", "subscribe", "prepare", "query", "table")
        assert (inspect.iscoroutinefunction(other) or inspect.isasyncgenfunction(other)) == asks, name


def counterpart(type_: Any) -> Any:
    if get_origin(type_) is Iterator or get_origin(type_) in AS_ASYNC:
        return AsyncIterator[get_args(type_)]  # type: ignore[misc]
    return AS_ASYNC.get(type_, type_)


def test_writes_return_a_receipt_or_the_promise_of_one() -> None:
    assert Writes[Receipt] in Enclave.__orig_bases__  # type: ignore[attr-defined]
    assert Writes[Coroutine[Any, Any, Receipt]] in AsyncEnclave.__orig_bases__  # type: ignore[attr-defined]


def test_every_public_name_says_what_it_does() -> None:
    plain = {"close", "identity", "url", "id", "hex", "overview", "resume"}
    for kind in (Client, CommitQueue, Enclave, Subscription, Table):
        assert inspect.getdoc(kind)
        for name in public(kind) - plain:
            assert inspect.getdoc(getattr(kind, name)), name


def test_the_names_that_the_package_gives() -> None:
    assert (enc.Client, enc.AsyncClient, enc.Identity) == (Client, AsyncClient, Identity)
    with pytest.raises(AttributeError):
        enc.Server  # type: ignore[attr-defined]  # noqa: B018


LAZY = pytest.mark.parametrize("package", [enc, enc.apps, enc.client], ids=lambda package: package.__name__)


@LAZY
def test_a_lazy_package_lists_its_names(package: ModuleType) -> None:
    assert set(package.__all__) <= set(dir(package))
    space: dict[str, Any] = {}
    exec(f"from {package.__name__} import *", space)  # noqa: S102
    assert set(package.__all__) <= set(space)


@LAZY
def test_type_checkers_see_the_names_of_a_lazy_package_and_no_others(package: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(package))
    assert "__getattr__" not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert set(package.__all__) <= {alias.name for node in imports for alias in node.names}


# Who and where


def test_a_client_tells_who_and_where_it_is(stage: Stage) -> None:
    client = stage.client("bob")
    assert client.url == "http://node.test"
    assert client.identity == Identity(person("bob"))
    assert client.seq_pub() == stage.node.key.public


def test_without_an_identity_a_new_one_is_made() -> None:
    with Client("http://node.test", pins=None) as one, Client("http://node.test", pins=None) as other:
        assert one.identity != other.identity


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("url", ["", "node.test", "ftp://node.test", "http://", 5, None], ids=str)
def test_what_is_no_node_s_url(kind: Any, url: Any) -> None:
    with pytest.raises(MisuseError, match="URL"):
        kind(url, pins=None)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("wrong", "told"), [({"identity": "me.key"}, "identity"), ({"seq_pub": "ab"}, "seq_pub")], ids=["identity", "key"]
)
def test_what_a_client_is_not_made_from(kind: Any, wrong: Any, told: str) -> None:
    with pytest.raises(MisuseError, match=told):
        kind("http://node.test", pins=None, **wrong)


def test_an_enclave_tells_what_it_is(scene: Scene) -> None:
    e = scene.stage.client("bob").enclave(scene.enclave.hex)
    assert (e.id, e.hex) == (scene.enclave.id, scene.enclave.hex)
    shown = repr(e if scene.stage.face == "sync" else e._inner)
    assert shown == f"{scene.stage.kind.__name__}({e.hex} at http://node.test)"
    with pytest.raises(MisuseError, match="enclave"):
        scene.stage.client().enclave("ab")


def test_an_enclave_is_created_from_a_manifest_a_file_or_a_template(stage: Stage, tmp_path: Any) -> None:
    client = stage.client()
    path = tmp_path / "manifest.json"
    path.write_text(compact_json({**SMALL, "meta": {"from": "a file"}}))
    for manifest in (SMALL, path, "notes", "notes"):
        enclave = client.create(manifest, tags=[["k", "v"]])
        event = enclave.manifest()
        assert (event.from_, event.tags) == (client.identity.public, (("k", "v"),))
    with pytest.raises(MisuseError, match="manifest"):
        client.create({**SMALL, "states": 5})
    with pytest.raises(MisuseError, match=r"manifest .*none\.json"):
        client.create(tmp_path / "none.json")
    with pytest.raises(MisuseError, match="no template"):
        client.create("nonsense")


# Closing


def test_a_client_is_closed_by_with() -> None:
    with Client("http://node.test", pins=None) as client:
        inner = client._transport._client
        assert not inner.is_closed
    assert inner.is_closed
    client.close()


def test_an_awaiting_client_is_closed_by_with() -> None:
    async def use() -> None:
        async with AsyncClient("http://node.test", pins=None) as client:
            inner = client._transport._client
            assert not inner.is_closed
        assert inner.is_closed
        await client.close()

    asyncio.run(use())


# Time


@contextmanager
def silent() -> Iterator[str]:
    """Serve a node that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def unused_url() -> Iterator[str]:
    """Yield a URL without a node."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


def ask(url: str, timeout: float) -> None:
    with Client(url, pins=None, timeout=timeout, patience=0.0) as client:
        client.seq_pub()


def ask_async(url: str, timeout: float) -> None:
    async def use() -> None:
        async with AsyncClient(url, pins=None, timeout=timeout, patience=0.0) as client:
            await client.seq_pub()

    asyncio.run(use())


@pytest.mark.parametrize("ask", [ask, ask_async])
def test_a_node_that_says_nothing(ask: Any) -> None:
    with silent() as url, pytest.raises(TimedOut):
        ask(url, 0.05)


@pytest.mark.parametrize("ask", [ask, ask_async])
def test_where_no_node_is(ask: Any) -> None:
    with unused_url() as url, pytest.raises(Unreachable):
        ask(url, 10.0)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_the_timeout_is_what_was_asked_for(kind: Any) -> None:
    client = kind("http://node.test", pins=None, timeout=3.5)
    assert set(client._transport._client.timeout.as_dict().values()) == {3.5}
    assert not client._transport._client.follow_redirects
    closed = client.close()
    if closed is not None:
        asyncio.run(closed)


def test_a_subscription_waits_for_a_connection_no_longer_than_for_an_answer(scene: Scene) -> None:
    next(scene.stage.client("bob", timeout=3.5).enclave(scene.enclave.id).subscribe())
    ((url, options),) = scene.stage.connected
    assert url == "ws://node.test/"
    assert (options["open_timeout"], options["close_timeout"]) == (3.5, CLOSE_S)
    assert options["max_size"] == MAX_MESSAGE


@pytest.mark.parametrize("stage", ["sync"], indirect=True)
def test_a_blocking_client_serves_many_threads(scene: Scene) -> None:
    """Each sees the same events, and they share a pin."""
    found, e = list[int](), scene.enclave

    def read() -> None:
        found.append(len(list(e.query(proof=True))) + e.head().ts)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [10] * 8


def test_a_client_is_of_the_process_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client("http://127.0.0.1:1", pins=None, patience=0) as client:
        monkeypatch.setattr("os.getpid", lambda: -1)
        with pytest.raises(MisuseError, match="after a fork"):
            client.seq_pub()


@pytest.mark.parametrize("url", ["http://u:p@127.0.0.1/", "http://127.0.0.1/?x=1", "http://127.0.0.1/#f"])
def test_a_url_with_more_than_a_place_in_it(url: str) -> None:
    with pytest.raises(MisuseError) as caught:
        Client(url, pins=None)
    assert "u:p" not in caught.value.message


def test_nothing_is_asked_where_nothing_could_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    client = Client("http://127.0.0.1:1", pins=tmp_path / "file" / "pins", patience=0)
    with client, pytest.raises(MisuseError, match="cannot keep pins"):
        client.enclave(bytes(32)).head()


def test_a_client_that_is_closed_says_so() -> None:
    client = Client("http://127.0.0.1:1", pins=None, patience=0)
    client.close()
    with pytest.raises(MisuseError, match="this client is closed"):
        client.seq_pub()


def test_the_blocking_client_is_generated_from_the_async_one() -> None:
    script = Path(__file__).parents[3] / "scripts/blocking_client.py"
    check = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert check.returncode == 0, "client.py is stale: run scripts/blocking_client.py"
