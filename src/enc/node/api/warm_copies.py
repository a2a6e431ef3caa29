"""`POST /warm-copies`: another node orders copies ahead of moves; `POST /warm-copies/confirm`: an
owner who is about to move asks whether the copy is complete.
"""

from msgspec import Struct
from msgspec.json import Decoder, encode
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from enc.core.errors import BodyTooLarge, InvalidQuery
from enc.core.primitives.encoding import check_numbers, decode_json, unhex
from enc.core.primitives.signer import Signer
from enc.core.registry.warm_copy_order import parse_order
from enc.node.imports.context import ImportContext
from enc.node.imports.warm_copies import WarmCopies


class WireConfirmation(Struct, forbid_unknown_fields=True):
    enclave: str
    seq: int
    ct_root: str


_confirmation = Decoder(WireConfirmation)


class WarmCopyApi:
    """Routes of warm copies. They run on the event loop: nothing here takes long."""

    def __init__(self, copies: WarmCopies, context: ImportContext, max_body: int) -> None:
        self._copies, self._context, self._max_body = copies, context, max_body

    def routes(self) -> list[Route]:
        return [
            Route("/warm-copies", self._order, methods=["POST"]),
            Route("/warm-copies/confirm", self._confirm, methods=["POST"]),
        ]

    @property
    def _key(self) -> Signer:
        return self._context.key

    async def _order(self, request: Request) -> Response:
        order = parse_order(await self._body(request), self._key.public, self._context.clock())
        self._context.policy.rates.take(order.node)
        return _answer({"copies": self._copies.accept(order)})

    async def _confirm(self, request: Request) -> Response:
        asked = decode_json(await self._body(request), _confirmation, InvalidQuery)
        check_numbers(InvalidQuery, seq=asked.seq)
        enclave = unhex(asked.enclave, 32, "enclave", InvalidQuery)
        root = unhex(asked.ct_root, 32, "ct_root", InvalidQuery)
        return _answer({"confirmed": await self._copies.confirm(enclave, asked.seq, root)})

    async def _body(self, request: Request) -> bytes:
        data = b""
        try:
            async for chunk in request.stream():
                data += chunk
                if len(data) > self._max_body:
                    raise BodyTooLarge(f"the body is over {self._max_body} bytes")
        except ClientDisconnect:
            raise InvalidQuery("the request ended before its body was complete") from None
        return data


def _answer(found: dict[str, object]) -> Response:
    return Response(encode(found), media_type="application/json")
