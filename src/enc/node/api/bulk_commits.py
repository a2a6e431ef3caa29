"""`POST /commits`: several commits in one request, each judged and answered as if it came alone.

The body has one commit on each line. JSON has no line feeds inside strings, so a line ends where a
commit does, however malformed the commit is, and nothing is allocated for more lines than allowed.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder, encode
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from enc.core.errors import EncError, InvalidQuery, RateLimited
from enc.core.log.receipt import wire_receipt
from enc.core.primitives.types import Receipt
from enc.node.api.http_api import address_of, read_body
from enc.node.ops.request_log import current_id
from enc.node.sequence.commit_intake import CommitIntake, Result
from enc.runtime.rate_limit import RateLimiter

COMMITS_MEDIA_TYPE = "application/x-ndjson"
"""Media type of a body with one commit on each line."""


class _Author(Struct):
    from_: str = field(name="from")


_author = Decoder(_Author)


class BulkCommits:
    """The route for several commits in one request. Each commit takes a token of its address and one
    of its identity, and a place of its address among the commits that wait.

    What an address or an identity may not send now is refused from one commit on: none behind it
    is accepted because a token came back meanwhile.
    """

    def __init__(
        self, intake: CommitIntake, addresses: RateLimiter, identities: RateLimiter, max_body: int, max_commits: int
    ) -> None:
        self._intake, self._addresses, self._identities = intake, addresses, identities
        self._max_body, self._max_commits = max_body, max_commits

    def routes(self) -> list[Route]:
        return [Route("/commits", self._post, methods=["POST"])]

    async def _post(self, request: Request) -> Response:
        body = await read_body(request.scope, request.receive, self._max_body)
        results = await self._submit(split_lines(body, self._max_commits), address_of(request.scope))
        return Response(encode({"results": list(map(_wire, results))}), media_type="application/json")

    async def _submit(self, lines: Sequence[bytes], address: str) -> list[Result]:
        """Return the results in the order of the lines."""
        loop, sent = asyncio.get_running_loop(), Counter[bytes]()
        results: list[asyncio.Future[Result]] = [loop.create_future() for _ in lines]
        overload: EncError | None = None
        for number, (line, result) in enumerate(zip(lines, results, strict=True)):
            try:
                if overload is None:
                    self._pass_on(line, result, address, sent, is_first=number == 0)
            except _IdentityRefused as e:
                result.set_result(e.error)
            except EncError as e:
                overload = e
            if overload is not None:
                result.set_result(overload)
        return list(await asyncio.gather(*results))

    def _pass_on(
        self, line: bytes, result: "asyncio.Future[Result]", address: str, sent: Counter[bytes], *, is_first: bool
    ) -> None:
        """Queue a commit. Raises what refuses it and, unless it is _IdentityRefused, all behind it."""
        if not is_first:  # the request itself took a token
            self._addresses.take(address)
        author = _author_of(line)
        sent[author] += 1
        try:
            self._identities.check(author, sent[author])
        except RateLimited as e:
            raise _IdentityRefused(e) from None

        def reply(found: Result, _: object) -> None:
            if not result.done():
                result.set_result(found)

        self._intake.submit(line, reply, address, current_id())


class _IdentityRefused(Exception):
    """Refuses the commits of one identity only."""

    def __init__(self, error: RateLimited) -> None:
        self.error = error


def _author_of(line: bytes) -> bytes:
    """Return the identity that the commit names, whose rate it needs; empty if the commit is malformed."""
    try:
        return bytes.fromhex(_author.decode(line).from_)
    except (ValueError, RecursionError):
        return b""


def split_lines(body: bytes, most: int) -> list[bytes]:
    """Return the lines; raise InvalidQuery if there is none, or more than `most`."""
    lines = body.removesuffix(b"\n").split(b"\n", most)
    if len(lines) > most:
        raise InvalidQuery(f"body: more than {most} commits; send fewer in one request")
    if lines == [b""]:
        raise InvalidQuery("body: expected one commit on each line")
    return lines


def _wire(result: Result) -> dict[str, Any]:
    return wire_receipt(result) if isinstance(result, Receipt) else result.to_wire()
