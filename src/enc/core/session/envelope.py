"""Sealed requests, answers and pushes (docs/protocol.md, section 17.4): plain fields for routing,
sealed content.

    request  {"type", "enclave", "from", "session", "content"}   content: {"session", "type", …} under `enc:query`
    answer   {"type": "Response", "content"}                      under `enc:response`
    push     {"type": "Push", "from", "to", "url", "content"}     under `enc:push`
    challenge  a push of type Challenge; content: {"url", "challenge"} under `enc:challenge`

The token is not encrypted, because the node cannot derive the key without it. The sealed content
repeats it, and the two must be equal, so that nobody can put someone else's token on a sealed
request.
"""

from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, field
from msgspec.json import Decoder

from enc.core.errors import DecryptFailed, InvalidQuery, InvalidSession, MisuseError
from enc.core.primitives.encoding import decode_json, unhex
from enc.core.primitives.sealing import challenge_key, open_text, push_key, seal_text
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_public_key
from enc.core.session.session import Session, Token, TransportKeys, check_token, client_keys, node_keys, parse_token

RequestType = Literal[
    "Query",
    "Pull",
    "Inclusion_Proof",
    "Bundle_Proof",
    "State_Proof",
    "State_Batch",
    "Checkpoint",
    "Export",
    "Deliveries",
]


MAX_BRACKETS = 16_384
"""Most opening brackets in the body of a request, also in its strings; the largest requests need
some 600. A parser takes over a quarter of a second for 1.5 MB of them, and nothing can interrupt it.
"""


class WireRequest(Struct, kw_only=True):
    type: RequestType
    enclave: str
    from_: str = field(name="from")
    session: str
    content: str


class WireAnswer(Struct):
    type: Literal["Response"]
    content: str


PushType = Literal["Push", "Challenge"]


class _WirePush(Struct, kw_only=True):
    type: PushType
    from_: str = field(name="from")
    to: str
    url: str
    content: str


_request, _answer, _push = Decoder(WireRequest), Decoder(WireAnswer), Decoder(_WirePush)
_body, _any = Decoder(dict[str, Any]), Decoder(Any)


class SealedRequest(Struct, frozen=True, kw_only=True):
    """A request that is not opened yet; its plain fields route it."""

    type: RequestType
    enclave: bytes
    from_: bytes
    token: Token
    content: str


class OpenedBody(Struct, frozen=True):
    """An opened request: its body, and the keys that seal the answer."""

    body: dict[str, Any]
    keys: TransportKeys


class OpenedPush(Struct, frozen=True, kw_only=True):
    """An opened delivery, or an opened challenge."""

    type: PushType
    from_: bytes
    to: bytes
    url: str
    body: dict[str, Any]


def _encode(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError) as e:
        raise MisuseError(f"not JSON: {e}") from None


def seal_request(
    session: Session, seq_pub: bytes, enclave: bytes, type_: RequestType, body: dict[str, Any], nonce: bytes
) -> dict[str, str]:
    """Return a client's sealed request to the node with key `seq_pub`."""
    if type_ not in get_args(RequestType):
        raise MisuseError(f"type: unknown request type {type_}")
    token = session.token.hex()
    keys = client_keys(session, seq_pub, enclave)
    plaintext = _encode({**body, "session": token, "type": type_})
    return {
        "type": type_,
        "enclave": enclave.hex(),
        "from": session.from_.hex(),
        "session": token,
        "content": seal_text(keys.query, plaintext, nonce),
    }


def parse_request(data: bytes | str) -> SealedRequest:
    """Parse a request's plain fields; raise InvalidQuery or InvalidSession, naming the field, if
    malformed."""
    wire = decode_json(data, _request, InvalidQuery)
    return SealedRequest(
        type=wire.type,
        enclave=unhex(wire.enclave, 32, "enclave", InvalidQuery),
        from_=unhex(wire.from_, 32, "from", InvalidQuery),
        token=parse_token(wire.session),
        content=wire.content,
    )


def open_request(request: SealedRequest, key: Signer, now: int) -> OpenedBody:
    """Open a request on the node's side. Checks that the token is `from`'s and valid at `now` (Unix
    seconds), and that the sealed token and type equal the plain ones."""
    check_token(request.token, request.from_, now)
    keys = node_keys(request.token, key, request.enclave)
    plain = open_text(keys.query, request.content)
    if plain.count(b"[") + plain.count(b"{") > MAX_BRACKETS:
        raise InvalidQuery(f"content: over {MAX_BRACKETS:,} opening brackets in the JSON of a request")
    body = decode_json(plain, _body, InvalidQuery)
    if body.pop("session", None) != request.token.hex():
        raise InvalidSession("session: the sealed token differs from the plain one")
    if body.pop("type", request.type) != request.type:
        raise InvalidQuery("type: the sealed type differs from the plain one")
    return OpenedBody(body, keys)


def seal_answer(keys: TransportKeys, body: Any, nonce: bytes) -> dict[str, str]:
    return {"type": "Response", "content": seal_text(keys.response, _encode(body), nonce)}


def open_answer(keys: TransportKeys, data: bytes | str) -> Any:
    """Return the node's answer: an object or, for a Pull, a list."""
    return decode_json(answer_text(keys, data), _any, DecryptFailed)


def answer_text(keys: TransportKeys, data: bytes | str) -> bytes:
    """Return the node's answer as JSON text."""
    return open_text(keys.response, decode_json(data, _answer, DecryptFailed).content)


def seal_push(key: Signer, to: bytes, url: str, body: dict[str, Any], nonce: bytes) -> dict[str, str]:
    """Return a node's sealed delivery to `to` at `url`."""
    content = seal_text(push_key(key, to), _encode(body), nonce)
    return {"type": "Push", "from": key.public.hex(), "to": to.hex(), "url": url, "content": content}


def seal_challenge(
    push_key: bytes, from_: bytes, to: bytes, url: str, challenge: bytes, nonce: bytes
) -> dict[str, str]:
    """Return a challenge that asks whether the holder of `to` receives pushes at `url`: only that
    holder can return the 32 bytes `challenge`.
    """
    content = seal_text(challenge_key(push_key), _encode({"url": url, "challenge": challenge.hex()}), nonce)
    return {"type": "Challenge", "from": from_.hex(), "to": to.hex(), "url": url, "content": content}


def challenge_answer(challenge: OpenedPush) -> dict[str, str]:
    """Return the body that answers a challenge; raise DecryptFailed if it is malformed.

    Callers compare `from_` and both urls with what they expect first.
    """
    asked = unhex(challenge.body.get("challenge"), 32, "challenge", DecryptFailed)
    return {"type": "Challenge_Answer", "challenge": asked.hex()}


def is_challenge_answer(challenge: bytes, data: bytes) -> bool:
    """Return whether the body of an answer proves that its sender opened the challenge."""
    try:
        found: Any = decode_json(data, _any, DecryptFailed)
    except DecryptFailed:
        return False
    return bool(found == {"type": "Challenge_Answer", "challenge": challenge.hex()})


def open_push(key: Signer, data: bytes | str) -> OpenedPush:
    """Open a delivery or a challenge on the recipient's side; raise DecryptFailed if it does not
    open.

    Only `from` and `to` can have sealed it. This does not prove which of them did, nor the url. So
    callers compare `from_` with the nodes that are expected to push. A push from oneself is
    rejected.
    """
    wire = decode_json(data, _push, DecryptFailed)
    from_, to = unhex(wire.from_, 32, "from", DecryptFailed), unhex(wire.to, 32, "to", DecryptFailed)
    check_public_key(from_, "from", DecryptFailed)
    if to != key.public or from_ == to:
        raise DecryptFailed("to: addressed to another identity")
    sealed_by = push_key(key, from_)
    sealed_by = challenge_key(sealed_by) if wire.type == "Challenge" else sealed_by
    body = decode_json(open_text(sealed_by, wire.content), _body, DecryptFailed)
    return OpenedPush(type=wire.type, from_=from_, to=to, url=wire.url, body=body)
