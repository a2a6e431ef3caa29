"""Read rights on views: public, by token, or by an identity that proves itself with a session.

Nothing is public unless it is declared so. The header `Authorization` identifies a caller:

    Bearer TOKEN
    ENC-Session FROM.SESSION.CONTENT

FROM and SESSION are an identity and its token (docs/protocol.md, section 17), in hex. CONTENT is
JSON that names this very request, `{"session", "method", "target", "time"}`, sealed under the keys
that the session derives with this server's key, for enclave 00…00. A token alone proves nothing;
that CONTENT opens does. `time` is in Unix milliseconds and may differ by a minute: an intercepted
request is useless after that, and for any other target.
"""

import hmac
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from enc.core.errors import InvalidSession, MisuseError, SessionExpired
from enc.core.primitives.encoding import decode_json, unhex
from enc.core.primitives.hashing import sha256
from enc.core.primitives.sealing import open_text, seal_text
from enc.core.primitives.signer import Signer
from enc.core.session.session import SKEW, Session, check_token, client_keys, node_keys, parse_token
from enc.dataview.serving.errors import Unauthenticated
from enc.runtime import private_file

NO_ENCLAVE = bytes(32)
MAX_TOKENS_FILE = 1 << 20
_TOKEN = re.compile(r"[!-~]{32,512}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class ViewRights(Struct, frozen=True, forbid_unknown_fields=True):
    """The configured rights on one view."""

    public: bool = False
    tokens: tuple[str, ...] = ()
    """Names of tokens."""
    identities: tuple[str, ...] = ()
    verify: bool = False
    """Readers of the view may also get the complete events of its rows."""


class Caller(Struct, frozen=True):
    kind: Literal["anybody", "token", "session"] = "anybody"
    name: str = ""
    """The token's name, or the identity in hex."""


ANONYMOUS = Caller()


class Rights:
    """Rights by view. `"*"`: tokens and identities that may read all views, in addition to each
    view's own.
    """

    def __init__(self, views: Mapping[str, ViewRights], tokens: Mapping[str, bytes], key: Signer | None) -> None:
        self._views, self._tokens, self._key = dict(views), dict(tokens), key
        self._check()

    def _check(self) -> None:
        for name, rights in self._views.items():
            if name == "*" and (rights.public or rights.verify):
                raise MisuseError('views."*": public and verify must be set per view')
            for token in rights.tokens:
                if token not in self._tokens:
                    raise MisuseError(f"views.{name}: token {token} is not in the token file")
            if rights.identities and self._key is None:
                raise MisuseError(f"views.{name}: identities need the setting `key`, the server's own key file")
            for identity in rights.identities:
                _check_identity(identity, name)

    @property
    def session_pub(self) -> bytes | None:
        """The server's public key, with which sessions are made."""
        return None if self._key is None else self._key.public

    def may_read(self, caller: Caller, view: str) -> bool:
        own, all_ = self._views.get(view, _NONE), self._views.get("*", _NONE)
        if own.public:
            return True
        if caller.kind == "token":
            return caller.name in own.tokens or caller.name in all_.tokens
        return caller.kind == "session" and (caller.name in own.identities or caller.name in all_.identities)

    def may_verify(self, caller: Caller, view: str) -> bool:
        """Return True if the caller may get the view's events, which may contain more than the
        view.
        """
        return self._views.get(view, _NONE).verify or self.may_read(caller, "events")

    def is_public(self, view: str) -> bool:
        return self._views.get(view, _NONE).public

    # Authentication

    def caller(self, authorization: str, method: str, target: str, now_ms: int) -> Caller:
        """Authenticate the caller. Invalid credentials are rejected even if the view is public."""
        if not authorization:
            return ANONYMOUS
        scheme, _, said = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self._by_token(said.strip())
        if scheme.lower() == "enc-session":
            return self._by_session(said.strip(), method, target, now_ms)
        raise Unauthenticated("authorization: expected Bearer TOKEN, or ENC-Session")

    def _by_token(self, token: str) -> Caller:
        """Find the token. All are compared, in constant time, so that timing reveals nothing."""
        digest, found = sha256(token.encode(errors="replace")), ""
        for name, known in self._tokens.items():
            if hmac.compare_digest(digest, known):
                found = name
        if not found:
            raise Unauthenticated("authorization: unknown token")
        return Caller("token", found)

    def _by_session(self, said: str, method: str, target: str, now_ms: int) -> Caller:
        if self._key is None:
            raise Unauthenticated("authorization: this server does not accept sessions")
        from_hex, _, rest = said.partition(".")
        token_hex, _, content = rest.partition(".")
        from_ = unhex(from_hex, 32, "from", InvalidSession)
        token = parse_token(token_hex)
        check_token(token, from_, now_ms // 1000)
        inside = open_text(node_keys(token, self._key, NO_ENCLAVE).query, content)
        asked = decode_json(inside, _sealed_request, InvalidSession)
        if (asked.session, asked.method, asked.target) != (token_hex, method, target):
            raise InvalidSession("session: sealed for another request")
        if abs(asked.time - now_ms) > SKEW * 1000:
            raise SessionExpired("session: the request's time is more than a minute off")
        return Caller("session", from_hex)


def _check_identity(identity: str, view: str) -> None:
    try:
        unhex(identity, 32, f"views.{view}.identities", InvalidSession)
    except InvalidSession as e:
        raise MisuseError(e.message) from None


class _SealedRequest(Struct):
    session: str
    method: str
    target: str
    time: int


_sealed_request = msgspec.json.Decoder(_SealedRequest)
_NONE = ViewRights()


def authorization(session: Session, server: bytes, method: str, target: str, now_ms: int, nonce: bytes) -> str:
    """Return the Authorization header for `target`, a path with its query, under a session."""
    token = session.token.hex()
    inside: dict[str, Any] = {"session": token, "method": method, "target": target, "time": now_ms}
    keys = client_keys(session, server, NO_ENCLAVE)
    return f"ENC-Session {session.from_.hex()}.{token}.{seal_text(keys.query, msgspec.json.encode(inside), nonce)}"


def load_tokens(path: Path) -> dict[str, bytes]:
    """Load token digests by name, from a file that only its owner can read, with a NAME and a TOKEN
    on each line.
    """
    raw = private_file.read(path, MAX_TOKENS_FILE)
    if raw is None:
        private_file.refuse(path, "no such file; expected a file with a NAME and a TOKEN on each line")
    tokens = dict[str, bytes]()
    for number, line in enumerate(raw.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, token = line.strip().partition(" ")
        if not _NAME.fullmatch(name) or not _TOKEN.fullmatch(token.strip()):
            private_file.refuse(path, f"line {number}: expected a name and a token of 32 to 512 printable characters")
        if name in tokens:
            private_file.refuse(path, f"line {number}: {name} is given twice")
        tokens[name] = sha256(token.strip().encode())
    return tokens
