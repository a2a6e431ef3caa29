"""Read rights: none by default; tokens, and sessions that only the identity's holder can make."""

import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from enc.client import Identity
from enc.core.errors import MisuseError
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.session.session import Session, open_session
from enc.dataview.serving import rights as module
from enc.dataview.serving.config import load
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.rights import Rights, ViewRights, authorization, load_tokens
from enc.dataview.serving.session_auth import SessionAuth
from tests.core.world import person
from tests.dataview.serving.asking import OTHER, PUBLIC, TOKEN, refused, server_key, serving, tokens
from tests.dataview.serving.rows import PAIRS, pairs

ALICE, BOB, SERVER = person("alice"), person("bob"), person("node")
NOW = 1_800_000_000_000
NONCE = bytes(24)


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    place = str(tmp_path / "serving.db")
    database = ServingDatabase(place)
    for name in ("public", "tokens", "sessions", "unsaid"):
        database.upsert(PAIRS.__class__(name, PAIRS.columns, PAIRS.key), pairs(1), {})
    database.close()
    views = {
        "public": PUBLIC,
        "soon": PUBLIC,
        "tokens": ViewRights(tokens=("analyst",)),
        "sessions": ViewRights(identities=(ALICE.public.hex(),)),
    }
    key, _ = server_key(tmp_path)
    with serving(place, views, tokens=tokens(tmp_path), key=key) as client:
        yield client


def names(http: httpx.Client, **more: Any) -> list[str]:
    """Return the readable views, by the list and by requesting each."""
    listed = [view["name"] for view in http.get("/views", **more).json()["views"]]
    tried = [name for name in ("public", "sessions", "tokens", "unsaid") if _is_read(http, name, **more)]
    assert listed == tried
    return listed


def _is_read(http: httpx.Client, name: str, **more: Any) -> bool:
    answer = http.get(f"/views/{name}", **more)
    assert answer.status_code in (200, 401, 404)
    assert http.get(f"/views/{name}/progress", **more).status_code == answer.status_code
    return answer.status_code == 200


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_anybody_reads_what_is_declared_public_and_nothing_else(http: httpx.Client) -> None:
    assert names(http) == ["public"]


def test_who_may_read_a_view_is_told_that_it_is_not_published_yet(http: httpx.Client) -> None:
    assert refused(http.get("/views/soon"), 404, "VIEW_NOT_FOUND").startswith("this view is not published yet")


def test_a_token_reads_the_views_that_name_it(http: httpx.Client) -> None:
    assert names(http, headers=bearer(TOKEN)) == ["public", "tokens"]
    assert names(http, headers=bearer(OTHER)) == ["public"]
    refused(http.get("/views/tokens", headers=bearer(OTHER)), 404, "VIEW_NOT_FOUND")


def test_an_identity_reads_the_views_that_name_it(http: httpx.Client) -> None:
    assert names(http, auth=SessionAuth(Identity(ALICE))) == ["public", "sessions"]
    assert names(http, auth=SessionAuth(Identity(BOB))) == ["public"]
    key = http.get("/info").json()["session_pub"]
    answer = http.get("/views/sessions?order=-c&b=b0", auth=SessionAuth(Identity(ALICE), key))
    assert len(answer.json()["rows"]) == 1


def test_what_one_may_read_is_kept_by_nobody_else(http: httpx.Client) -> None:
    private = http.get("/views/tokens", headers=bearer(TOKEN)).headers
    assert private["cache-control"] == "private, no-cache"
    assert "authorization" in private["vary"]
    assert http.get("/views/public").headers["cache-control"] == "public, no-cache"
    known = {"if-none-match": private["etag"]}
    assert http.get("/views/tokens", headers=known).status_code == 401
    assert http.get("/views/tokens", headers=known | bearer(TOKEN)).status_code == 304


@pytest.mark.parametrize(
    "said", ["Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Basic eDp5", "Bearer \xe9", TOKEN]
)
def test_a_token_that_is_none_is_refused_even_for_what_is_public(http: httpx.Client, said: str) -> None:
    refused(http.get("/views/public", headers={b"authorization": said.encode("latin-1")}), 401, "UNAUTHENTICATED")


def test_tokens_are_compared_in_constant_time_and_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return hmac.compare_digest(a, b)

    monkeypatch.setattr(module, "hmac", type("H", (), {"compare_digest": staticmethod(compare)}))
    digests = {name: sha256(name.encode()) for name in ("a", "b", "c")}
    found = Rights({}, digests, None).caller("Bearer a", "GET", "/", NOW)
    assert found.name == "a"
    assert compared == [(32, 32)] * 3


# Sessions


def rights() -> Rights:
    return Rights({"sessions": ViewRights(identities=(ALICE.public.hex(),))}, {}, SERVER)


def session(key: PrivateKey = ALICE, expires: int = NOW // 1000 + 3600) -> Session:
    return open_session(key, expires)


def header(found: Session | None = None, target: str = "/views/sessions", **more: Any) -> str:
    given = {"server": SERVER.public, "method": "GET", "now_ms": NOW, "nonce": NONCE, **more}
    return authorization(found or session(), target=target, **given)


def caller(said: str, method: str = "GET", target: str = "/views/sessions", now_ms: int = NOW) -> str:
    return rights().caller(said, method, target, now_ms).name


def test_a_session_names_its_identity() -> None:
    assert caller(header()) == ALICE.public.hex()
    assert caller(header(), now_ms=NOW + 59_000) == ALICE.public.hex()


def code(said: str, **more: Any) -> str:
    with pytest.raises(Exception, match=r".") as caught:
        caller(said, **more)
    return str(getattr(caught.value, "code", caught.value))


def test_a_token_alone_proves_nothing() -> None:
    """Anyone can make a token that names alice, but cannot seal requests under it."""
    alice, bob = session(), session(BOB)
    mixed = Session(alice.from_, alice.token, bob.key)
    assert code(header(mixed)) == "DECRYPT_FAILED"
    stolen = header(bob).replace(bob.from_.hex(), alice.from_.hex())
    assert code(stolen) == "INVALID_SESSION"


def test_a_header_serves_one_request_for_a_minute() -> None:
    said = header()
    assert code(said, target="/views/sessions?x=1") == "INVALID_SESSION"
    assert code(said, method="HEAD") == "INVALID_SESSION"
    assert code(said, now_ms=NOW + 60_001) == "SESSION_EXPIRED"
    assert code(said, now_ms=NOW - 60_001) == "SESSION_EXPIRED"


def test_a_session_ends() -> None:
    assert code(header(session(expires=NOW // 1000 - 61))) == "SESSION_EXPIRED"
    assert code(header(session(expires=NOW // 1000 + 7261))) == "INVALID_SESSION"


def test_a_session_for_another_server_or_with_another_token_inside_is_refused() -> None:
    assert code(header(server=BOB.public)) == "DECRYPT_FAILED"
    one, two = session(), session(expires=NOW // 1000 + 1800)
    keys_of_one = Session(one.from_, two.token, one.key)
    assert code(header(keys_of_one).replace(two.token.hex(), one.token.hex(), 1)) in (
        "DECRYPT_FAILED",
        "INVALID_SESSION",
    )


@pytest.mark.parametrize("said", ["", ".", "..", "x.y.z", f"{ALICE.public.hex()}", f"{ALICE.public.hex()}.00.AA=="])
def test_what_is_no_session(said: str) -> None:
    assert code(f"ENC-Session {said}") == "INVALID_SESSION"


def test_a_server_without_a_key_takes_no_sessions() -> None:
    with pytest.raises(Exception, match="does not accept sessions"):
        Rights({}, {}, None).caller(header(), "GET", "/views/sessions", NOW)


def test_sessions_are_renewed() -> None:
    now = [1_800_000_000.0]
    auth = SessionAuth(Identity(ALICE), SERVER.public.hex(), clock=lambda: now[0])
    said = []
    for _ in range(3):
        request = httpx.Request("GET", "http://x/views/sessions?a=%20b")
        next(auth.auth_flow(request))
        said.append(request.headers["authorization"])
        found = rights().caller(said[-1], "GET", "/views/sessions?a=%20b", int(now[0] * 1000))
        assert found.name == ALICE.public.hex()
        now[0] += 3000
    assert len({each.split(".")[1] for each in said}) == 2


# Configuration


def test_star_gives_tokens_and_identities_but_nothing_to_the_public() -> None:
    all_ = Rights({"*": ViewRights(tokens=("t",), identities=(BOB.public.hex(),))}, {"t": bytes(32)}, SERVER)
    assert all_.may_read(module.Caller("token", "t"), "anything")
    assert all_.may_read(module.Caller("session", BOB.public.hex()), "anything")
    assert not all_.may_read(module.ANONYMOUS, "anything")
    assert not all_.may_read(module.Caller("token", BOB.public.hex()), "anything")
    for wrong in (ViewRights(public=True), ViewRights(verify=True)):
        with pytest.raises(MisuseError, match="must be set per view"):
            Rights({"*": wrong}, {}, None)


def test_a_view_called_star_is_not_read_by_a_trick() -> None:
    assert not rights().may_read(module.ANONYMOUS, "*")


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (ViewRights(tokens=("nobody",)), "token nobody is not in the token file"),
        (ViewRights(identities=("xyz",)), "expected 64 lower-case hex"),
    ],
)
def test_rights_that_name_nobody(view: ViewRights, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        Rights({"v": view}, {}, SERVER)
    with pytest.raises(MisuseError, match="identities need the setting `key`"):
        Rights({"v": ViewRights(identities=(ALICE.public.hex(),))}, {}, None)


def test_the_file_of_tokens_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = Path(tokens(tmp_path))
    assert set(load_tokens(path)) == {"analyst", "other"}
    assert TOKEN.encode() not in b"".join(load_tokens(path).values())
    path.chmod(0o644)
    with pytest.raises(MisuseError, match="users other than its owner"):
        load_tokens(path)
    with pytest.raises(MisuseError, match="no such file"):
        load_tokens(tmp_path / "none")


@pytest.mark.parametrize("line", ["short abc", f"a {TOKEN}\na {OTHER}", TOKEN, f"a b {TOKEN}", f"ä {TOKEN}"])
def test_a_line_of_tokens_that_is_wrong_is_named_and_not_shown(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(line)
    path.chmod(0o600)
    with pytest.raises(MisuseError, match=r"line [12]: ") as caught:
        load_tokens(path)
    assert TOKEN not in caught.value.message
    assert OTHER not in caught.value.message


def test_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text('database = "x.db"\ntokens = "t"\n[views.a]\npublic = true\n[views.b]\ntokens = ["analyst"]\n')
    found = load(path, {"listen": "127.0.0.1:1", "database": None}, ["b", "c"])
    assert (found.database, found.tokens, found.listen) == (str(tmp_path / "x.db"), str(tmp_path / "t"), "127.0.0.1:1")
    assert found.views == {
        "a": ViewRights(public=True),
        "b": ViewRights(public=True, tokens=("analyst",)),
        "c": ViewRights(public=True),
    }
    assert load(None, {}).views == {}
    path.write_text('database = "postgresql://x/y"')
    assert load(path, {}).database == "postgresql://x/y"


@pytest.mark.parametrize(
    "text", ["x = 1", "[views.a]\npublik = true", "[views.a]\npublic = 'yes'", "=", "\xff", "query_timeout_s = 0"]
)
def test_a_configuration_that_is_wrong(tmp_path: Path, text: str) -> None:
    path = tmp_path / "serve.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(MisuseError, match=r"serve.toml|query_timeout_s"):
        load(path, {})
    with pytest.raises(MisuseError, match="cannot be read"):
        load(tmp_path / "none.toml", {})
