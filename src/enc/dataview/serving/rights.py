"""Who may read which view: everybody, whoever has a token, or whoever proves an identity with a session.

Nothing is public unless it is declared so. A caller is named by the header `Authorization`:

    Bearer TOKEN
    ENC-Session FROM.SESSION.CONTENT

FROM and SESSION are an identity and its token (docs/protocol.md, section 17), in hex. CONTENT is JSON that names this
very request, `{"session", "method", "target", "time"}`, sealed under the keys that the session gives with this server's
key, for enclave 00…00. A token alone proves nothing; that CONTENT opens does. `time` is in Unix milliseconds and may be
a minute off: a request that somebody overheard is worth nothing after that, and nothing for another target.
"""

import hmac
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from enc.core.encoding import decode_json, unhex
from enc.core.errors import InvalidSession, MisuseError, SessionExpired
from enc.core.hashing import sha256
from enc.core.sealing import open_text, seal_text
from enc.core.session import SKEW, Session, check_token, client_keys, node_keys, parse_token
from enc.core.signing import PrivateKey
from enc.dataview.serving.errors import Unauthenticated
from enc.runtime import private_file

NO_ENCLAVE = bytes(32)
MAX_TOKENS_FILE = 1 << 20
_TOKEN = re.compile(r"[!-~]{32,512}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


class ViewRights(Struct, frozen=True, forbid_unknown_fields=True):
    """What the configuration says of one view."""

    public: bool = False
    tokens: tuple[str, ...] = ()
    """Names of tokens."""
    identities: tuple[str, ...] = ()
    verify: bool = False
    """Whoever may read the view may also have the events that its rows rest on, whole."""


class Caller(Struct, frozen=True):
    kind: Literal["anybody", "token", "session"] = "anybody"
    name: str = ""
    """The token's name, or the identity in hex."""


ANYBODY = Caller()


class Rights:
    """`views`: by name. `"*"`: tokens and identities that hold for all views, beside those of their own."""

    def __init__(self, views: Mapping[str, ViewRights], tokens: Mapping[str, bytes], key: PrivateKey | None) -> None:
        self._views, self._tokens, self._key = dict(views), dict(tokens), key
        self._check()

    def _check(self) -> None:
        for name, rights in self._views.items():
            if name == "*" and (rights.public or rights.verify):
                raise MisuseError('views."*": public and verify are said of each view by its name')
            for token in rights.tokens:
                if token not in self._tokens:
                    raise MisuseError(f"views.{name}: there is no token {token} in the file of tokens")
            if rights.identities and self._key is None:
                raise MisuseError(f"views.{name}: identities need `key`, the file of the server's own key")
            for identity in rights.identities:
                _check_identity(identity, name)

    @property
    def session_pub(self) -> bytes | None:
        """The key for which sessions are made."""
        return None if self._key is None else self._key.public

    def may_read(self, caller: Caller, view: str) -> bool:
        own, all_ = self._views.get(view, _NONE), self._views.get("*", _NONE)
        if own.public:
            return True
        if caller.kind == "token":
            return caller.name in own.tokens or caller.name in all_.tokens
        return caller.kind == "session" and (caller.name in own.identities or caller.name in all_.identities)

    def may_verify(self, caller: Caller, view: str) -> bool:
        """The events behind a view may say more than the view: who may not read them may have them if it is said."""
        return self._views.get(view, _NONE).verify or self.may_read(caller, "events")

    def is_public(self, view: str) -> bool:
        return self._views.get(view, _NONE).public

    # Who it is

    def caller(self, authorization: str, method: str, target: str, now_ms: int) -> Caller:
        """Who asks. What is wrong with what they say of themselves is refused, also where a view is public."""
        if not authorization:
            return ANYBODY
        scheme, _, said = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self._by_token(said.strip())
        if scheme.lower() == "enc-session":
            return self._by_session(said.strip(), method, target, now_ms)
        raise Unauthenticated("authorization: expected Bearer TOKEN, or ENC-Session")

    def _by_token(self, token: str) -> Caller:
        """All tokens are compared, and always whole: how long it takes says nothing of any."""
        digest, found = sha256(token.encode(errors="replace")), ""
        for name, known in self._tokens.items():
            if hmac.compare_digest(digest, known):
                found = name
        if not found:
            raise Unauthenticated("authorization: no such token")
        return Caller("token", found)

    def _by_session(self, said: str, method: str, target: str, now_ms: int) -> Caller:
        if self._key is None:
            raise Unauthenticated("authorization: this server takes no sessions")
        from_hex, _, rest = said.partition(".")
        token_hex, _, content = rest.partition(".")
        from_ = unhex(from_hex, 32, "from", InvalidSession)
        token = parse_token(token_hex)
        check_token(token, from_, now_ms // 1000)
        inside = open_text(node_keys(token, self._key, NO_ENCLAVE).query, content)
        asked = decode_json(inside, _asked, InvalidSession)
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


class _Asked(Struct):
    session: str
    method: str
    target: str
    time: int


_asked = msgspec.json.Decoder(_Asked)
_NONE = ViewRights()


def authorization(session: Session, server: bytes, method: str, target: str, now_ms: int, nonce: bytes) -> str:
    """The header by which the holder of a session asks for `target`: a path, with its query."""
    token = session.token.hex()
    inside: dict[str, Any] = {"session": token, "method": method, "target": target, "time": now_ms}
    keys = client_keys(session, server, NO_ENCLAVE)
    return f"ENC-Session {session.from_.hex()}.{token}.{seal_text(keys.query, msgspec.json.encode(inside), nonce)}"


def load_tokens(path: Path) -> dict[str, bytes]:
    """The digests of tokens by name, from a file that its owner alone can read: a NAME and a TOKEN on each line."""
    raw = private_file.read(path, MAX_TOKENS_FILE)
    if raw is None:
        private_file.refuse(path, "there is no such file; give the path of one with a NAME and a TOKEN on each line")
    tokens = dict[str, bytes]()
    for number, line in enumerate(raw.decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, token = line.strip().partition(" ")
        if not _NAME.fullmatch(name) or not _TOKEN.fullmatch(token.strip()):
            private_file.refuse(path, f"line {number}: expected a name and a token of 32 to 512 printable characters")
        if name in tokens:
            private_file.refuse(path, f"line {number}: {name} is there already")
        tokens[name] = sha256(token.strip().encode())
    return tokens
