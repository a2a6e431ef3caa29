"""Sealed requests, answers and pushes."""

import json
from runpy import run_path
from typing import Any

import pytest

from enc.core.errors import DecryptFailed, InvalidQuery, InvalidSession, MisuseError, SessionExpired
from enc.core.primitives.sealing import challenge_key, push_key, seal_text
from enc.core.session.envelope import (
    MAX_BRACKETS,
    OpenedPush,
    challenge_answer,
    is_challenge_answer,
    open_answer,
    open_push,
    open_request,
    parse_request,
    seal_answer,
    seal_challenge,
    seal_push,
    seal_request,
)
from enc.core.session.session import client_keys, open_session
from tests.core.vectors import FOLDER, KEYS

ALICE, BOB, NODE = KEYS["alice"], KEYS["bob"], KEYS["node"]
NOW = 1_790_000_000
ENCLAVE, NONCE = b"\x07" * 32, b"\x09" * 24
SESSION = open_session(ALICE, NOW + 3600)


def request(**changes: object) -> dict[str, object]:
    return {**seal_request(SESSION, NODE.public, ENCLAVE, "Query", {"filter": {"limit": 1}}, NONCE), **changes}


def sealed_inside(body: dict[str, object]) -> dict[str, object]:
    keys = client_keys(SESSION, NODE.public, ENCLAVE)
    return request(content=seal_text(keys.query, json.dumps(body).encode(), NONCE))


def opened(wire: dict[str, object], now: int = NOW) -> dict[str, object]:
    return open_request(parse_request(json.dumps(wire)), NODE, now).body


def test_a_request_opens_to_what_was_asked_and_its_answer_opens_again() -> None:
    parsed = parse_request(json.dumps(request()))
    assert (parsed.type, parsed.enclave, parsed.from_) == ("Query", ENCLAVE, ALICE.public)
    answered = open_request(parsed, NODE, NOW)
    assert answered.body == {"filter": {"limit": 1}}
    answer = seal_answer(answered.keys, {"events": []}, NONCE)
    assert answer["type"] == "Response"
    assert open_answer(client_keys(SESSION, NODE.public, ENCLAVE), json.dumps(answer)) == {"events": []}


def test_a_request_has_a_bounded_number_of_brackets() -> None:
    body: dict[str, object] = {"session": SESSION.token.hex(), "filter": {"id": [[] for _ in range(MAX_BRACKETS - 3)]}}
    assert opened(sealed_inside(body))
    body["more"] = {}
    with pytest.raises(InvalidQuery, match=r"^content: over 16,384 opening brackets"):
        opened(sealed_inside(body))


def test_an_answer_may_be_a_list() -> None:
    keys = client_keys(SESSION, NODE.public, ENCLAVE)
    assert open_answer(keys, json.dumps(seal_answer(keys, [{"push_seq": 1}], NONCE))) == [{"push_seq": 1}]


def test_the_inner_type_may_be_absent() -> None:
    assert opened(sealed_inside({"session": SESSION.token.hex(), "a": 1})) == {"a": 1}


@pytest.mark.parametrize(
    ("inside", "error"),
    [
        ({"type": "Query"}, InvalidSession),
        ({"session": open_session(ALICE, NOW + 3601).token.hex()}, InvalidSession),
        ({"session": SESSION.token.hex(), "type": "Pull"}, InvalidQuery),
        ([1], InvalidQuery),
    ],
)
def test_an_inside_that_contradicts_the_outside_is_refused(inside, error) -> None:
    with pytest.raises(error):
        opened(sealed_inside(inside))


@pytest.mark.parametrize("name", ["type", "enclave", "from", "session", "content"])
@pytest.mark.parametrize("value", [None, 5, "zz", ""])
def test_a_malformed_outside_is_refused_and_the_field_named(name: str, value: object) -> None:
    if name == "content" and isinstance(value, str):
        with pytest.raises(DecryptFailed):
            opened(request(content=value))
        return
    with pytest.raises((InvalidQuery, InvalidSession)) as caught:
        parse_request(json.dumps(request(**{name: value})))
    assert caught.value.message.startswith(name)


def test_a_missing_field_is_named() -> None:
    wire = request()
    del wire["session"]
    with pytest.raises(InvalidQuery, match="session"):
        parse_request(json.dumps(wire))


def test_from_must_be_a_key() -> None:
    with pytest.raises(InvalidSession):
        opened(request(**{"from": "ff" * 32}))


def test_anothers_token_is_refused() -> None:
    with pytest.raises(InvalidSession):
        opened(request(**{"from": BOB.public.hex()}))


def test_an_old_token_is_refused() -> None:
    with pytest.raises(SessionExpired):
        opened(request(), now=NOW + 3600 + 60)


def test_a_request_for_another_enclave_does_not_open() -> None:
    with pytest.raises(DecryptFailed):
        opened(request(enclave="08" * 32))


def test_an_answer_of_another_session_does_not_open() -> None:
    other = client_keys(open_session(ALICE, NOW + 1), NODE.public, ENCLAVE)
    answer = json.dumps(seal_answer(other, {}, NONCE))
    with pytest.raises(DecryptFailed):
        open_answer(client_keys(SESSION, NODE.public, ENCLAVE), answer)


def test_a_request_is_no_answer() -> None:
    with pytest.raises(DecryptFailed):
        open_answer(client_keys(SESSION, NODE.public, ENCLAVE), json.dumps(request()))


def test_a_challenge_of_the_worked_example() -> None:
    text = (FOLDER / "challenge.json").read_text()
    assert run_path(str(FOLDER / "make_challenge.py"))["text"]() == text
    case = json.loads(text)
    node, bob, challenge = NODE, BOB, bytes.fromhex(case["challenge"])
    nonce, key, url = bytes.fromhex(case["nonce"]), push_key(node, bob.public), case["request"]["url"]
    assert (key.hex(), challenge_key(key).hex()) == (case["push_key"], case["challenge_key"])
    assert seal_challenge(key, node.public, bob.public, url, challenge, nonce) == case["request"]
    opened = open_push(bob, json.dumps(case["request"]))
    assert (opened.type, opened.from_, opened.url, opened.body["url"]) == ("Challenge", node.public, url, url)
    assert challenge_answer(opened) == case["answer"]
    assert is_challenge_answer(challenge, json.dumps(case["answer"]).encode())


@pytest.mark.parametrize("body", [b"", b"ok", b"{}", b"null", b"[]", b'{"type":"Taken"}', b"\xff", b"[" * 5000])
def test_only_the_opened_challenge_is_an_answer(body: bytes) -> None:
    challenge = bytes(range(32))
    request = seal_challenge(push_key(NODE, BOB.public), NODE.public, BOB.public, "https://b.example", challenge, NONCE)
    assert not is_challenge_answer(challenge, body)
    assert not is_challenge_answer(challenge, json.dumps(request).encode()), "a server that echoes its request"
    assert not is_challenge_answer(challenge, challenge_body(bytes(32)))
    assert is_challenge_answer(challenge, challenge_body(challenge))


def challenge_body(challenge: bytes) -> bytes:
    return json.dumps({"type": "Challenge_Answer", "challenge": challenge.hex()}).encode()


def test_a_challenge_does_not_open_as_a_push_nor_a_push_as_a_challenge() -> None:
    key, url = push_key(NODE, BOB.public), "https://b.example"
    challenge = seal_challenge(key, NODE.public, BOB.public, url, bytes(32), NONCE)
    push = seal_push(NODE, BOB.public, url, {"push_seq": 1, "challenge": "00" * 32}, NONCE)
    for wire in ({**challenge, "type": "Push"}, {**push, "type": "Challenge"}):
        with pytest.raises(DecryptFailed):
            open_push(BOB, json.dumps(wire))


@pytest.mark.parametrize("challenge", [None, 1, "", "00" * 31, "0G" * 32, ["00" * 32]])
def test_a_malformed_challenge_gets_no_answer(challenge: Any) -> None:
    opened = OpenedPush(type="Challenge", from_=NODE.public, to=BOB.public, url="", body={"challenge": challenge})
    with pytest.raises(DecryptFailed, match="challenge"):
        challenge_answer(opened)


def test_a_push_opens_for_its_recipient_alone() -> None:
    wire = seal_push(NODE, BOB.public, "https://example.org/hook", {"push_seq": 1}, NONCE)
    push = open_push(BOB, json.dumps(wire))
    assert (push.from_, push.url, push.body) == (NODE.public, "https://example.org/hook", {"push_seq": 1})
    with pytest.raises(DecryptFailed, match="another identity"):
        open_push(ALICE, json.dumps(wire))
    with pytest.raises(DecryptFailed):
        open_push(BOB, json.dumps({**wire, "from": ALICE.public.hex()}))
    with pytest.raises(DecryptFailed, match="from"):
        open_push(BOB, json.dumps({**wire, "from": "ff" * 32}))


def test_misuse() -> None:
    with pytest.raises(MisuseError):
        seal_request(SESSION, NODE.public, ENCLAVE, "Commit", {}, NONCE)  # type: ignore[arg-type]
    with pytest.raises(MisuseError):
        seal_request(SESSION, NODE.public, ENCLAVE, "Query", {"a": object()}, NONCE)
    with pytest.raises(MisuseError):
        seal_request(SESSION, NODE.public, ENCLAVE, "Query", {}, b"short")
