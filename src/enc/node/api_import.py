"""`POST /import` and `GET /import/{migrate}`: an order is read, its archive spooled, and its status told.

The archive goes into a file without a name, which is gone with the process, however that ends. Only when all of it is
there does it become an import: one that is still coming keeps no other out.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import cast

from msgspec.json import encode
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from enc.core.encoding import unhex
from enc.core.errors import BodyTooLarge, EnclaveNotFound, InvalidQuery
from enc.node.api_http import Asking
from enc.node.importing import Importer, Job, Status
from enc.node.uploads import Upload, Uploads
from enc.runtime.rate_limit import address_key

WITH_ARCHIVE = "application/x-enc-import"
"""The media type of a body whose first line is the order and whose rest is the archive."""
BLOCK = 1 << 20
"""Bytes of an archive that are written at once."""


class ImportApi:
    """The routes of imports."""

    def __init__(
        self, importer: Importer, asking: Asking, uploads: Uploads, max_order: int, max_archive: int, folder: Path
    ) -> None:
        self._importer, self._asking, self._uploads, self._folder = importer, asking, uploads, folder
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
            raise EnclaveNotFound("no such import is under way, or was of late")
        return _told(status, 200)

    async def _post(self, request: Request) -> Response:
        has_archive = request.headers.get("content-type", "").partition(";")[0].strip().lower() == WITH_ARCHIVE
        pieces = request.stream()
        try:
            order, rest = await self._order(pieces, has_archive)
            found: Job | Status = await self._asking.run(self._importer.accept, order, has_archive)
            if isinstance(found, Status):
                return _told(found)
            address = address_key(request.client.host if request.client else "")
            archive = await self._archive(address, pieces, rest) if has_archive else None
        except ClientDisconnect:
            raise InvalidQuery("the request was cut off") from None
        return _told(self._importer.start(found, archive))

    async def _order(self, pieces: AsyncIterator[bytes], has_archive: bool) -> tuple[bytes, bytes]:
        """The order, and what came with it of the archive."""
        data = b""
        async for piece in pieces:
            data += piece
            end = data.find(b"\n") if has_archive else -1
            if len(data if end < 0 else data[:end]) > self._max_order:
                raise BodyTooLarge(f"the order is over {self._max_order} bytes")
            if end >= 0:
                return data[:end], data[end + 1 :]
        if has_archive:
            raise InvalidQuery("expected an archive after the first line")
        return data, b""

    async def _archive(self, address: str, pieces: AsyncIterator[bytes], first: bytes) -> Upload:
        """The archive in a file, read from its start."""
        task = cast("asyncio.Task[object]", asyncio.current_task())
        with ExitStack() as undo:
            file = undo.enter_context(TemporaryFile(dir=self._folder if self._folder.is_dir() else None))
            upload = self._uploads.add(address, file, task.cancel)
            undo.callback(upload.close)
            try:
                await self._spool(upload, pieces, first)
            except asyncio.CancelledError:
                if upload.refusal is None:
                    raise
                task.uncancel()
                raise upload.refusal from None
            undo.pop_all()
        return upload

    async def _spool(self, upload: Upload, pieces: AsyncIterator[bytes], first: bytes) -> None:
        upload.grow(len(first))
        waiting = [first]
        async for piece in pieces:
            upload.grow(len(piece))
            if upload.size > self._max_archive:
                raise BodyTooLarge(f"the archive is over {self._max_archive} bytes")
            waiting.append(piece)
            if sum(map(len, waiting)) >= BLOCK:
                await asyncio.to_thread(upload.file.write, b"".join(waiting))
                waiting = []
        await asyncio.to_thread(upload.file.write, b"".join(waiting))
        upload.rewind()


def _told(status: Status, code: int | None = None) -> Response:
    """202 while there is something to wait for."""
    code = code or (202 if status.status == "running" else 200)
    return Response(encode(status.to_wire()), code, media_type="application/json")
