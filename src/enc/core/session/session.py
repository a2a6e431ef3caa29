"""Sessions: a token that names an identity, and the keys that seal requests and answers
(docs/protocol.md, section 17).

    token = r(32) || session_pub(32) || expires(4, Unix seconds)

`r` and `s` are the halves of the identity's BIP-340 signature over sha256("enc:session:" ||
be32(expires)). `s`, made even, is the session's private key; session_pub = x(lift(r) +
e·lift(from)) is BIP-340's own equation. By choosing r, anyone can make a token that satisfies it
for any identity, but only the identity can have `s`. So a token alone proves nothing; a request
that opens under the keys derived from it does.
"""

from typing import Any

from msgspec import Struct

from enc.core.errors import InvalidSession, MisuseError, SessionExpired
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.encoding import unhex
from enc.core.primitives.hashing import sha256
from enc.core.primitives.sealing import QUERY, RESPONSE
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import CURVE_ORDER, PrivateKey, add_generator, add_multiple

MAX_DURATION = 7200
SKEW = 60
TOKEN_SIZE = 68

_CHALLENGE = sha256(b"BIP0340/challenge") * 2


def _message(expires: int) -> bytes:
    return sha256(b"enc:session:" + expires.to_bytes(4, "big"))


class Token(Struct, frozen=True):
    """The unencrypted field `session` of a request."""

    r: bytes
    session_pub: bytes
    expires: int

    def hex(self) -> str:
        return (self.r + self.session_pub + self.expires.to_bytes(4, "big")).hex()


class Session(Struct, frozen=True):
    """A client's side of a session."""

    from_: bytes
    token: Token
    key: PrivateKey

    def __repr__(self) -> str:
        return f"Session(from_={self.from_.hex()}, expires={self.token.expires})"


def open_session(identity: Signer, expires: int) -> Session:
    """Return a session until `expires` (Unix seconds). A node accepts at most two hours from
    now."""
    if not 0 <= expires < 1 << 32:
        raise MisuseError("expires: must be Unix seconds of at most 32 bits")
    sig = identity.sign("schnorr", _message(expires))
    key = PrivateKey(sig[32:])
    return Session(identity.public, Token(sig[:32], key.public, expires), key)


def parse_token(text: Any) -> Token:
    raw = unhex(text, TOKEN_SIZE, "session", InvalidSession)
    return Token(raw[:32], raw[32:64], int.from_bytes(raw[64:], "big"))


def check_token(token: Token, from_: bytes, now: int) -> None:
    """Check that the token names `from_` and is valid at `now` (Unix seconds), give or take a
    minute.

    It proves that its sender is `from_` only once something sealed under its keys opens.
    """
    if token.expires <= now - SKEW:
        raise SessionExpired("session: expired")
    if token.expires > now + MAX_DURATION + SKEW:
        raise InvalidSession("session: expires more than two hours ahead")
    challenge = sha256(_CHALLENGE + token.r + from_ + _message(token.expires))
    e = int.from_bytes(challenge, "big") % CURVE_ORDER
    point = add_multiple(token.r, e.to_bytes(32, "big"), from_)
    if point is None or point[1:] != token.session_pub:
        raise InvalidSession("session: not this identity's token")


def _tweak(session_pub: bytes, seq_pub: bytes, enclave: bytes) -> int:
    return int.from_bytes(sha256(session_pub + seq_pub + enclave), "big") % CURVE_ORDER


class TransportKeys:
    """The keys of requests to one node about one enclave in one session, and of the answers. Never
    printed."""

    __slots__ = ("query", "response")

    def __init__(self, query: bytes, response: bytes) -> None:
        self.query, self.response = query, response

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TransportKeys) and (self.query, self.response) == (other.query, other.response)

    def __hash__(self) -> int:
        return hash((self.query, self.response))

    def __reduce__(self) -> Any:
        raise MisuseError("TransportKeys cannot be pickled")


def _keys(shared: bytes) -> TransportKeys:
    return TransportKeys(hkdf(shared, QUERY), hkdf(shared, RESPONSE))


def client_keys(session: Session, seq_pub: bytes, enclave: bytes) -> TransportKeys:
    """Derive the keys on the client's side: ECDH of the signer's private key with the node's public
    key."""
    tweak = _tweak(session.token.session_pub, seq_pub, enclave)
    scalar = (int.from_bytes(session.key.secret, "big") + tweak) % CURVE_ORDER
    return _keys(PrivateKey(scalar.to_bytes(32, "big")).ecdh(seq_pub))


def node_keys(token: Token, key: Signer, enclave: bytes) -> TransportKeys:
    """Derive the keys on the node's side, from a checked token and the node's private key."""
    tweak = _tweak(token.session_pub, key.public, enclave)
    signer_pub = add_generator(token.session_pub, tweak.to_bytes(32, "big"))
    if signer_pub is None:
        raise InvalidSession("session: session_pub is not a point")
    return _keys(key.ecdh(signer_pub))
