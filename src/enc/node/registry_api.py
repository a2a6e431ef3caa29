"""Lookups in the one registry that this node serves: nodes, enclaves, identities (docs/node-api.md, Registry lookups).

Every answer comes from the records that the sequencer keeps with each event, so that it is right at once after the
receipt; it names the entry that it rests on, and with `?proof=1` brings that entry with its proofs, as a Query does.
"""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Raw
from msgspec.json import encode
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from enc.core.enclave import EnclaveState
from enc.core.encoding import unhex
from enc.core.errors import (
    EnclaveNotFound,
    IdentityNotFound,
    InvalidQuery,
    NodeNotFound,
    PeerError,
)
from enc.core.hashing import sha256
from enc.core.reg_entry import MAX_LABEL
from enc.core.types import Record
from enc.node.answers import Answers
from enc.node.api_http import Asking
from enc.node.registered import Registered, Wire
from enc.node.store.base import Store, search_item

MAX_LISTED = 100
"""Enclaves of one page."""
DEFAULT_LISTED = 50
MAX_SEARCH = 64
"""Characters that a search may look for."""
MAX_SCANNED = 5_000
"""Records that one page looks at; a search that found little by then goes on with the next page."""
SLICE = 500
MAX_PAGE = 8 << 20
"""Bytes of entries that one page reads."""
CACHE_CONTROL = "public, no-cache"
"""Anyone may keep an answer, and asks whether it still holds before using it."""


class RegistryApi:
    """`routes` are for HttpApi; each runs on a thread of `asking`."""

    def __init__(self, store: Store, answers: Answers, seq_pub: bytes, registry: bytes | None) -> None:
        self._store, self._answers = store, answers
        self._registered = Registered(store, answers, seq_pub, registry)

    def routes(self, asking: Asking) -> list[Route]:
        works: Mapping[str, Callable[[HttpRequest], bytes]] = {
            "/nodes/{seq_pub}": self._proved(self._node),
            "/enclaves/{enclave_id}": self._proved(self._enclave),
            "/resolve/{enclave_id}": self._proved(self._resolve),
            "/identity/{id_pub}": self._proved(self._identity),
            "/enclaves": self._list,
        }
        return [Route(path, _cached(asking, work), methods=["GET"]) for path, work in works.items()]

    # Lookups

    def _proved(self, look: Callable[[EnclaveState, HttpRequest], Wire]) -> Callable[[HttpRequest], bytes]:
        def work(request: HttpRequest) -> bytes:
            with_proof = _word(request, "proof")
            if with_proof not in (None, "0", "1"):
                raise InvalidQuery("proof: expected 0 or 1")
            state = self._registered.state()
            wire = look(state, request)
            return encode({**wire, "proof": self._proof(state, wire)} if with_proof == "1" else wire)

        return work

    def _proof(self, state: EnclaveState, wire: Wire) -> Raw:
        """The entries that an answer rests on, with their proofs."""
        parts = [wire] if "entry" in wire else list(wire.values())
        events = [self._registered.event(state, bytes.fromhex(part["entry"]["id"])) for part in parts]
        return Raw(self._answers.evidence(state, [search_item(event) for event in events]))

    def _node(self, state: EnclaveState, request: HttpRequest) -> Wire:
        return self._node_of(state, _key(request, "seq_pub", NodeNotFound))

    def _node_of(self, state: EnclaveState, seq_pub: bytes) -> Wire:
        found = self._registered.entry(state, "node", seq_pub)
        if found is None:
            raise NodeNotFound("no such node is registered")
        return found

    def _enclave(self, state: EnclaveState, request: HttpRequest) -> Wire:
        found = self._registered.entry(state, "enclave", _key(request, "enclave_id", EnclaveNotFound))
        if found is None:
            raise EnclaveNotFound("no such enclave is registered")
        return found

    def _resolve(self, state: EnclaveState, request: HttpRequest) -> Wire:
        enclave = self._enclave(state, request)
        return {"enclave": enclave, "node": self._node_of(state, bytes.fromhex(enclave["sequencer"]))}

    def _identity(self, state: EnclaveState, request: HttpRequest) -> Wire:
        found = self._registered.entry(state, "identity", _key(request, "id_pub", IdentityNotFound))
        if found is None:
            raise IdentityNotFound("no such identity is registered")
        return found

    # Listing

    def _list(self, request: HttpRequest) -> bytes:
        """Enclaves by rising id. `next` is where to go on, though a page may hold none: it looks at so many only."""
        asked = _Listing(request)
        state = self._registered.state()
        after, scanned, size = asked.after, 0, 0
        page = list[Wire]()
        while scanned < MAX_SCANNED:
            records = self._store.listed(state.enclave, after, SLICE, app=asked.app, creator=asked.creator)
            for record in records:
                if asked.admits(record):
                    if len(page) >= asked.limit or size > MAX_PAGE:
                        return _page(page, after)
                    wire, read = self._registered.said(state, record)
                    size += read
                    page.append(wire)
                after = record.key
            scanned += len(records)
            if len(records) < SLICE:
                return _page(page, None)
        return _page(page, after)


class _Listing:
    """What a listing asks for."""

    def __init__(self, request: HttpRequest) -> None:
        self.app = _word(request, "app", MAX_LABEL)
        text = _word(request, "q", MAX_SEARCH)
        self._text = text.casefold() if text else None
        creator, after, limit = (_word(request, name) for name in ("creator", "after", "limit"))
        self.creator = unhex(creator, 32, "creator", InvalidQuery) if creator is not None else None
        self.after = unhex(after, 32, "after", InvalidQuery) if after is not None else b""
        if limit is None:
            limit = str(DEFAULT_LISTED)
        if not (limit.isascii() and limit.isdigit() and len(limit) <= 3 and 1 <= int(limit) <= MAX_LISTED):
            raise InvalidQuery(f"limit: expected 1 to {MAX_LISTED}")
        self.limit = int(limit)

    def admits(self, record: Record) -> bool:
        return self.app in (None, record.app) and (self._text is None or self._text in record.text)


def _page(enclaves: list[Wire], after: bytes | None) -> bytes:
    return encode({"enclaves": enclaves} if after is None else {"enclaves": enclaves, "next": after.hex()})


def _key(request: HttpRequest, name: str, error: type[PeerError]) -> bytes:
    return unhex(request.path_params[name], 32, name, error)


def _word(request: HttpRequest, name: str, most: int = 64) -> str | None:
    texts = request.query_params.getlist(name)
    if len(texts) > 1:
        raise InvalidQuery(f"{name}: expected once")
    if texts and not 1 <= len(texts[0]) <= most:
        raise InvalidQuery(f"{name}: expected 1 to {most} characters")
    return texts[0] if texts else None


def _cached(asking: Asking, work: Callable[[HttpRequest], bytes]) -> Callable[[HttpRequest], Awaitable[Response]]:
    """An answer with its ETag; to who has it already, 304."""

    async def handle(request: HttpRequest) -> Response:
        body = await asking.run(work, request)
        tag = f'"{sha256(body)[:16].hex()}"'
        headers = {"ETag": tag, "Cache-Control": CACHE_CONTROL}
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        if tag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    return handle
