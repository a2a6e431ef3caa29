"""HTTP helpers: a bounded body, numbers in a query, an ETag, an error as JSON."""

import asyncio
from collections.abc import Mapping
from hashlib import sha256

from msgspec.json import encode
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from enc.core.errors import BodyTooLarge, EncError, EnclaveNotFound, InvalidQuery, InvalidRange
from enc.core.primitives.encoding import MAX_INT, unhex

MAX_BODY = 16 << 10
"""Bytes of a submitted head."""
BODY_S = 10.0
"""Seconds to wait for a body."""
MAX_LIMIT = 1000
"""Lines per page."""
JSON = "application/json"


async def body(request: Request) -> bytes:
    found = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > MAX_BODY:
                    raise BodyTooLarge(f"body: larger than {MAX_BODY} bytes")
    except TimeoutError:
        raise InvalidQuery(f"body: not received within {BODY_S:g} s") from None
    except ClientDisconnect:
        raise InvalidQuery("body: the request was cut off") from None
    return found


def enclave_id(text: str) -> bytes:
    return unhex(text, 32, "enclave", EnclaveNotFound)


def number(request: Request, name: str) -> int | None:
    texts = request.query_params.getlist(name)
    if not texts:
        return None
    text = texts[0]
    if len(texts) > 1 or not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= MAX_INT):
        raise InvalidRange(f"{name}: expected one number")
    return int(text)


def page(request: Request) -> tuple[int, int]:
    limit = number(request, "limit")
    return number(request, "after") or 0, MAX_LIMIT if limit is None else min(limit, MAX_LIMIT)


def tagged(request: Request, media_type: str, body: bytes) -> Response:
    """Return the body with an ETag; 304 if the client has it already."""
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def error_response(error: EncError, status: int | None = None, headers: Mapping[str, str] | None = None) -> Response:
    found = dict(headers or {})
    if error.status in (429, 503):
        found["retry-after"] = str(-(-error.context.get("retry_after_ms", 1000) // 1000))
    if error.status == 413:
        found["connection"] = "close"
    return Response(encode(error.to_wire()), status or error.status, found, JSON)
