"""The web page: static files of this package, read once.

    /                  index.html
    /page/{path}       everything that it loads: styles, modules and their dependencies

Its headers tell the browser to load only from this server and to accept no injected code. It has no
rights of its own: it queries the API with the rights of its visitor.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from enc.core.errors import InvalidQuery, NoSuchPath
from enc.core.primitives.hashing import sha256

FOLDER = Path(__file__).parents[1] / "page"
INDEX = "index.html"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
PLAIN = "text/plain; charset=utf-8"
"""For files without a suffix: licences."""
POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


class File(Struct, frozen=True):
    body: bytes
    media: str
    etag: str


@cache
def files() -> Mapping[str, File]:
    """Return the files by path. Only these are served, whatever a request's path looks like."""
    found = sorted(path for path in FOLDER.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(FOLDER).as_posix(): _file(path) for path in found}


def _file(path: Path) -> File:
    body = path.read_bytes()
    return File(body, MEDIA.get(path.suffix, PLAIN), f'"{sha256(body)[:16].hex()}"')


async def index(request: Request) -> Response:
    if request.scope["query_string"]:
        raise InvalidQuery("the page takes no parameters; its state is in the fragment (#) of the URL")
    return _answer(request, INDEX)


async def file(request: Request) -> Response:
    return _answer(request, request.path_params["path"])


def _answer(request: Request, path: str) -> Response:
    found = files().get(path)
    if found is None:
        raise NoSuchPath("no such file; the page is at /")
    headers = {"content-type": found.media, "etag": found.etag, **HEADERS}
    known = (each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(","))
    if found.etag in known:
        return Response(b"", 304, headers)
    return Response(found.body, 200, headers)
