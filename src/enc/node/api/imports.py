"""`POST /import` and `GET /import/{migrate}`: read the order, spool the archive, return the status.

An upload becomes an import only when it is complete: an unfinished upload does not block other imports.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import cast

from msgspec.json import encode
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from enc.core.errors import BodyTooLarge, EnclaveNotFound, InvalidQuery
from enc.core.primitives.encoding import unhex
from enc.node.api.http_api import address_of
from enc.node.api.read_pool import ReadPool
from enc.node.imports.fetches import Fetches
from enc.node.imports.jobs import Importer
from enc.node.imports.log_import import ImportJob
from enc.node.imports.orders import ImportStatus
from enc.node.imports.uploads import Upload, Uploads

ARCHIVE_MEDIA_TYPE = "application/x-enc-import"
"""Media type of a body whose first line is the order; the rest is the archive."""
WRITE_SIZE = 1 << 20
"""Bytes of an archive that are collected before each write to the file."""


class ImportApi:
    """Routes that start imports and report their status."""

    def __init__(
        self, importer: Importer, reads: ReadPool, uploads: Uploads, fetches: Fetches, max_order: int, max_archive: int
    ) -> None:
        self._importer, self._reads, self._uploads, self._fetches = importer, reads, uploads, fetches
        self._max_order, self._max_archive = max_order, max_archive

    def routes(self) -> list[Route]:
        return [
            Route("/import", self._post, methods=["POST"]),
            Route("/import/{migrate}", self._get, methods=["GET"]),
        ]

    async def _get(self, request: Request) -> Response:
        import_ = unhex(request.path_params["migrate"], 32, "migrate", EnclaveNotFound)
        status = self._importer.status(import_)
        if status is None:
            raise EnclaveNotFound("migrate: no import of this Migrate is running or has ended recently")
        return _status_response(status, 200)

    async def _post(self, request: Request) -> Response:
        has_archive = request.headers.get("content-type", "").partition(";")[0].strip().lower() == ARCHIVE_MEDIA_TYPE
        chunks, address = request.stream(), address_of(request.scope)
        try:
            order, rest = await self._order(chunks, has_archive)
            found: ImportJob | ImportStatus = await self._reads.run(address, self._importer.accept, order, has_archive)
            if isinstance(found, ImportStatus):
                return _status_response(found)
            if not has_archive:
                return _status_response(await self._fetches.start(found, address))
            archive = await self._archive(address, chunks, rest)
        except ClientDisconnect:
            raise InvalidQuery("the request ended before its body was complete") from None
        return _status_response(self._importer.start(found, archive, address))

    async def _order(self, chunks: AsyncIterator[bytes], has_archive: bool) -> tuple[bytes, bytes]:
        """Return the order, and the first bytes of the archive if some arrived with it."""
        data = b""
        async for chunk in chunks:
            data += chunk
            end = data.find(b"\n") if has_archive else -1
            if len(data if end < 0 else data[:end]) > self._max_order:
                raise BodyTooLarge(f"the import order is over {self._max_order} bytes")
            if end >= 0:
                return data[:end], data[end + 1 :]
        if has_archive:
            raise InvalidQuery("expected an archive after the first line")
        return data, b""

    async def _archive(self, address: str, chunks: AsyncIterator[bytes], first: bytes) -> Upload:
        """Receive the archive into a file and return it, positioned at its start."""
        task = cast("asyncio.Task[object]", asyncio.current_task())
        with ExitStack() as undo:
            upload = self._uploads.add(address, task.cancel)
            undo.callback(upload.close)
            try:
                await self._spool(upload, chunks, first)
            except asyncio.CancelledError:
                if upload.rejection is None:
                    raise
                task.uncancel()
                raise upload.rejection from None
            undo.pop_all()
        return upload

    async def _spool(self, upload: Upload, chunks: AsyncIterator[bytes], first: bytes) -> None:
        upload.add_bytes(len(first))
        waiting = [first]
        async for chunk in chunks:
            upload.add_bytes(len(chunk))
            if upload.size > self._max_archive:
                raise BodyTooLarge(f"the archive is over {self._max_archive} bytes")
            waiting.append(chunk)
            if sum(map(len, waiting)) >= WRITE_SIZE:
                await asyncio.to_thread(upload.write, b"".join(waiting))
                waiting = []
        await asyncio.to_thread(upload.write, b"".join(waiting))
        upload.rewind()


def _status_response(status: ImportStatus, code: int | None = None) -> Response:
    """Return the status as JSON: 202 while the import runs, else 200, unless `code` is given."""
    code = code or (202 if status.status == "running" else 200)
    return Response(encode(status), code, media_type="application/json")
