"""A server of views in this process, on a real socket."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from enc.client import Identity
from enc.dataview.serving.config import ServingConfig
from enc.dataview.serving.rights import ViewRights
from enc.dataview.serving.server import ServingServer

TOKEN, OTHER = "t0k3n" * 8, "0th3r" * 8
PUBLIC = ViewRights(public=True)


@contextmanager
def serving(place: str, views: Mapping[str, ViewRights], **more: Any) -> Iterator[httpx.Client]:
    """Serve the views of the database at `place` with these rights. Yields an anonymous client."""
    server = ServingServer(ServingConfig(database=place, listen="127.0.0.1:0", views=dict(views), **more))
    with server.running() as url, httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        yield client


def tokens(folder: Path) -> str:
    path = folder / "tokens"
    path.write_text(f"# who is who\nanalyst {TOKEN}\n\nother {OTHER}\n")
    path.chmod(0o600)
    return str(path)


def server_key(folder: Path) -> tuple[str, Identity]:
    path, identity = folder / "server.key", Identity.new()
    identity.save(path)
    return str(path), identity


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """Check the error's uniform form and return its message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    wire = answer.json()
    assert (wire["type"], wire["code"]) == ("Error", code)
    return str(wire["message"])
