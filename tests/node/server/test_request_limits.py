"""Limits on commits, bodies, JSON, sealed requests and filters, at the limit and just past it."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace

from enc.core.log.commit import build_manifest, wire_commit
from enc.core.primitives.encoding import MAX_INT, compact_json
from enc.node.config import LimitSettings
from tests.core.world import LIFETIME, person, pub
from tests.node.api.http_requests import BODIES, code, dialed, sealed
from tests.node.served import DEV, SMALL, Enclave, Json, Served, bad, good
from tests.node.server.limits_setup import KIB, MIB, filled, limited, read_last_response, spoken

# Commits


def test_content(enclave: Enclave) -> None:
    enclave.send("bob", "message", "a" * MIB)
    enclave.send("bob", "message", "é" * (MIB // 2))
    for content in ("a" * (MIB + 1), "é" * (MIB // 2) + "a"):
        error = enclave.refused("bob", "message", content)
        assert (error.status, error.code) == (400, "INVALID_COMMIT")
        assert error.message.startswith("content:")


def test_type(enclave: Enclave) -> None:
    enclave.send("bob", "t" * 64)
    for type_ in ("t" * 65, "é" * 32 + "t", ""):
        wire = {**wire_commit(enclave.commit("bob", "x")), "type": type_}
        error = bad(enclave.node.post(wire))
        assert error.code == "INVALID_COMMIT"
        assert error.message.startswith("type:")
    assert enclave.refused("bob", "é" * 32).code == "UNAUTHORIZED"


@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        ([("k",)] * 64, [("k",)] * 65),
        ([("k",) * 16], [("k",) * 17]),
        ([("a" * 4096, "é" * 2048)], [("k", "a" * 4097)]),
        ([("",)], [()]),
        ([("a" * 4096,)], [("é" * 2048 + "a",)]),
    ],
)
def test_tags(enclave: Enclave, most: list[tuple[str, ...]], beyond: list[tuple[str, ...]]) -> None:
    enclave.send("bob", "message", "x", *most)
    wire = {**wire_commit(enclave.commit("bob", "message", "x")), "tags": beyond}
    error = bad(enclave.node.post(wire))
    assert error.code == "INVALID_COMMIT"
    assert error.message.startswith("tags")


@pytest.mark.parametrize("beyond", ["0", "-1", "1.0", "soon", "", "01", " 1", "٣", str(MAX_INT + 1)])
def test_the_time_of_an_auto_delete(enclave: Enclave, beyond: str) -> None:
    exp = enclave.node.clock.now + LIFETIME
    enclave.send("bob", "message", "x", ("auto-delete", str(exp + 1)), exp=exp)
    enclave.send("bob", "message", "x", ("auto-delete", str(MAX_INT), "more"))
    for tags in ([("auto-delete", beyond)], [("auto-delete", str(exp))], [("auto-delete",)]):
        wire = {**wire_commit(enclave.commit("bob", "message", "x", exp=exp)), "tags": tags}
        assert bad(enclave.node.post(wire)).code == "INVALID_COMMIT"
    twice = [("auto-delete", str(MAX_INT))] * 2
    assert (
        bad(enclave.node.post({**wire_commit(enclave.commit("bob", "message")), "tags": twice})).code
        == "INVALID_COMMIT"
    )


def padded(size: int) -> str:
    """Return a Manifest of exactly this many bytes."""
    bare = compact_json({**SMALL, "extra": ""})
    return compact_json({**SMALL, "extra": "a" * (size - len(bare.encode()))})


def test_manifest(node: Served) -> None:
    for size in (256 * KIB, 256 * KIB + 1):
        commit = build_manifest(person("alice"), padded(size), node.clock.now + LIFETIME)
        assert len((commit.content or "").encode()) == size
        if size == 256 * KIB:
            assert node.submit(commit).seq == 0
        else:
            error = bad(node.post(wire_commit(commit)))
            assert (error.code, error.message.startswith("content:")) == ("INVALID_COMMIT", True)


def test_an_operator_may_lower_them_and_info_shows_it() -> None:
    limits = LimitSettings(
        content=4000, manifest=3500, body=6000, type=16, tags=2, tag_strings=3, tag_string=64, page_bytes=65536
    )
    with Served(replace(DEV, limits=limits)) as node:
        shown = good(node.get("/info"))["limits"]
        assert shown == {name: getattr(limits, name) for name in shown}
        assert {"content", "manifest", "body", "type", "tags", "tag_strings", "tag_string"} <= set(shown)
        enclave = node.create(SMALL)
        enclave.send("bob", "message", "a" * 4000, ("a" * 64, "", ""), ("k",))
        for content, tags in (
            ("a" * 4001, []),
            ("", [("a" * 65,)]),
            ("", [("k",) * 4]),
            ("", [("k",)] * 3),
        ):
            assert enclave.refused("bob", "message", content, *tags).code == "INVALID_COMMIT"
        assert enclave.refused("bob", "t" * 17).code == "INVALID_COMMIT"
        large = build_manifest(person("alice"), padded(3501), node.clock.now + LIFETIME)
        assert bad(node.post(wire_commit(large))).code == "INVALID_COMMIT"
        assert bad(node.post(b" " * 6001)).status == 413
        assert bad(node.post(b" " * 6000)).status == 400


# Bodies


def chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]


@pytest.mark.parametrize("path", ["/", "/state"])
def test_body(node: Served, enclave: Enclave, path: str) -> None:
    """A body at the limit is accepted, a longer one rejected, with or without Content-Length."""
    request: Any = wire_commit(enclave.commit("bob", "message", f"sent to {path}"))
    if path != "/":
        request = enclave.request("alice", "State_Proof", namespace="rbac", key=pub("alice"), mode="current")
    body = encode(request).ljust(2 * MIB)
    good(node.http.post(path, content=chunks(body)))
    error = bad(node.http.post(path, content=chunks(body + b" ")))
    assert (error.status, error.code) == (413, "INVALID_COMMIT")
    answer = node.http.post(path, content=body)
    assert answer.status_code == (409 if path == "/" else 200)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {2 * MIB + 1}\r\n\r\n"
    status, headers, _ = spoken(node, head.encode())
    assert (status, headers["connection"]) == (413, "close")


def test_a_peer_gets_the_refusal_although_it_is_still_sending(node: Served) -> None:
    head = f"POST /state HTTP/1.1\r\nHost: localhost\r\nContent-Length: {4 * MIB}\r\n\r\n"
    with dialed(node) as peer:
        peer.sendall(head.encode())
        assert read_last_response(peer)[0] == 413
        for _ in range(4):
            peer.sendall(b" " * MIB)
        assert peer.recv(1) == b""


def test_a_body_past_the_limit_is_not_taken_to_its_end(node: Served) -> None:
    with dialed(node) as peer:
        peer.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%b\r\n" % (MIB, b" " * MIB)
        try:
            for _ in range(64):
                peer.sendall(chunk)
        except OSError:
            return  # rejected while it was sent
        assert read_last_response(peer)[0] == 413
        assert peer.recv(1) == b""


# JSON


WRONG = [None, True, 7, -1, 1.5, "x", [], {}, [1], {"a": 1}]


COMMIT_FIELDS = ["hash", "enclave", "from", "type", "content", "exp", "tags", "alg", "sig"]


def wrong_for(right: Any) -> list[Any]:
    """Return values of other JSON types."""
    return [value for value in WRONG if type(value) is not type(right)]


@pytest.mark.parametrize("field", COMMIT_FIELDS)
def test_a_commit_with_a_field_of_another_type(node: Served, enclave: Enclave, field: str) -> None:
    right = {"alg": "schnorr", **wire_commit(enclave.commit("bob", "message", "x"))}
    right["tags"] = []
    for value in wrong_for(right[field]):
        error = bad(node.post({**right, field: value}))
        assert (error.status, error.code) == (400, "INVALID_COMMIT"), value
        assert error.message.startswith(field), value
    good(node.post(right))


@pytest.mark.parametrize("field", COMMIT_FIELDS)
def test_a_commit_without_a_field(node: Served, enclave: Enclave, field: str) -> None:
    wire = wire_commit(enclave.commit("bob", "message", f"without {field}"))
    wire.pop(field, None)
    response = node.post(wire)
    if field in ("tags", "alg"):
        good(response)
    else:
        assert bad(response).code == ("INVALID_QUERY" if field == "exp" else "INVALID_COMMIT")
        assert field in bad(response).message or field == "exp"


@pytest.mark.parametrize("field", ["hash", "enclave", "from", "sig"])
def test_hex_has_one_spelling(node: Served, enclave: Enclave, field: str) -> None:
    wire = wire_commit(enclave.commit("bob", "message", "x"))
    text = wire[field]
    for wrong in (text.upper(), "0x" + text[2:], text[:-1], text[:-2], text + "00", " " + text[1:], "g" + text[1:], ""):
        error = bad(node.post({**wire, field: wrong}))
        assert error.code == "INVALID_COMMIT"
        assert error.message.startswith(field)


@pytest.mark.parametrize("exp", ["1.0", "1e12", "-1", "9007199254740992", "1" * 400, "0x10", "NaN", "01"])
def test_exp_is_an_integer_that_every_reader_holds(node: Served, enclave: Enclave, exp: str) -> None:
    wire = encode(wire_commit(enclave.commit("bob", "message", "x")))
    number = b'"exp":%d' % decode(wire)["exp"]
    assert bad(node.post(wire.replace(number, b'"exp":' + exp.encode()))).code == "INVALID_COMMIT"


@pytest.mark.parametrize("tags", ["", {}, [1], ["r"], [[1]], [[None]], [["k", 1]], [{"k": "v"}], [[["k"]]]])
def test_tags_are_lists_of_strings(node: Served, enclave: Enclave, tags: Any) -> None:
    error = bad(node.post({**wire_commit(enclave.commit("bob", "message", "x")), "tags": tags}))
    assert error.code == "INVALID_COMMIT"
    assert error.message.startswith("tags")


@pytest.mark.parametrize("alg", ["", "SCHNORR", "ed25519", "none"])
def test_an_algorithm_that_is_not_there(node: Served, enclave: Enclave, alg: str) -> None:
    assert bad(node.post({**wire_commit(enclave.commit("bob", "message", "x")), "alg": alg})).code == "INVALID_COMMIT"


NO_JSON = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"3",
    b'"exp"',
    b"{",
    b"{}}",
    b"{'a': 1}",
    b'{"type":"Query"',
    b'{"type":"Query","type":}',
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b'{"exp":1',
    b'{"exp":1}garbage',
    b'{"exp":1,"type":"\xff"}',
    b'{"exp":1,"type":"\xed\xa0\x80"}',
    b'{"exp":1,"type":"\\ud800"}',
    b'{"exp":1,"session":"x"}',
]


@pytest.mark.parametrize("body", NO_JSON)
def test_what_is_no_json_or_says_nothing(node: Served, body: bytes) -> None:
    error = bad(node.post(body))
    assert error.status == 400
    assert error.code == ("INVALID_COMMIT" if b'"exp"' in body else "INVALID_QUERY")
    for path in ("/inclusion", "/bundle", "/state", "/state-batch", "/checkpoint"):
        error = bad(node.post(body, path))
        assert (error.status, error.code) == (400, "INVALID_QUERY")


@pytest.mark.parametrize(
    "outside", ["%b", '{"a":%b}', '{"exp":%b}', '{"exp":1,"a":%b}', '{"exp":1,"session":"","a":%b}']
)
def test_nesting_without_end(node: Served, outside: str) -> None:
    for deep in (b"[" * 100_000 + b"]" * 100_000, b"[" * 500_000, b'{"a":' * 100_000):
        error = bad(node.post(outside.encode().replace(b"%b", deep)))
        assert error.status == 400
        assert error.code in ("INVALID_COMMIT", "INVALID_QUERY")


def test_a_text_that_is_no_unicode_is_refused_before_it_is_hashed(node: Served, enclave: Enclave) -> None:
    wire = encode(wire_commit(enclave.commit("bob", "message", "TEXT")))
    for wrong in (b"\xff", b"\\ud800", b"\xed\xa0\x80", b"\\udc00\\ud800"):
        assert bad(node.post(wire.replace(b"TEXT", wrong))).code == "INVALID_COMMIT"


def test_of_a_repeated_key_the_last_counts_and_the_hash_decides(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "the last")
    wire = encode(wire_commit(commit))
    assert bad(node.post(wire[:-1] + b',"content":"another"}')).code == "INVALID_HASH"
    good(node.post(b'{"content":"the first",' + wire[1:]))


def test_fields_that_are_not_known_are_no_part_of_a_commit(node: Served, enclave: Enclave) -> None:
    wire = wire_commit(enclave.commit("bob", "message", "with more"))
    good(node.post({**wire, "content_hash": "00" * 32, "colour": [{}]}))


@pytest.mark.parametrize(
    "content",
    [
        '{"key":"topic","key":"topic","value":1}',
        '{"key":"topic","value":{"a":1,"a":1}}',
        '{"key":"topic","value":9007199254740992}',
        '{"key":"topic","value":1e999}',
        '{"key":"topic","value":NaN}',
        '{"key":"topic","value":"\\ud800"}',
        '{"key":"topic","value":' + "[" * 65 + "]" * 65 + "}",
        '{"key":"topic","value":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"key":1,"value":1}',
        '{"key":"topic"}',
        "[]",
        "",
    ],
)
def test_contents_that_two_readers_could_read_differently(enclave: Enclave, content: str) -> None:
    assert enclave.refused("bob", "Shared", content).code == "INVALID_COMMIT"


def test_contents_nested_as_deep_as_they_may_be(enclave: Enclave) -> None:
    enclave.send("bob", "Shared", '{"key":"topic","value":' + "[" * 64 + "]" * 64 + "}")
    for depth, status in ((64, 200), (65, 400)):
        text = compact_json({**SMALL, "deep": 0}).replace('"deep":0', '"deep":' + "[" * depth + "]" * depth)
        commit = build_manifest(person("alice"), text, enclave.node.clock.now + LIFETIME)
        assert enclave.node.post(wire_commit(commit)).status_code == status


# Sealed requests


REQUEST_FIELDS = ["type", "enclave", "from", "session", "content"]


@pytest.mark.parametrize("field", REQUEST_FIELDS)
def test_a_request_with_a_field_of_another_type_or_without_it(node: Served, enclave: Enclave, field: str) -> None:
    for type_, body in BODIES.items():
        request = enclave.request("alice", type_, **body)
        for value in wrong_for(""):
            assert code(node, {**request, field: value}, type_) == "INVALID_QUERY"
        assert code(node, {k: v for k, v in request.items() if k != field}, type_) == "INVALID_QUERY"
        for value in ("", "x", "00" * 33, request["enclave"].upper()):
            expected = {"session": "INVALID_SESSION", "content": "DECRYPT_FAILED"}.get(field, "INVALID_QUERY")
            if not (field == "enclave" and value == request["enclave"]):
                assert code(node, {**request, field: value}, type_) == expected, (type_, value)


HEX = "00" * 32


NO_NUMBERS: list[Any] = [None, True, -1, 1.5, "0", [], {}, MAX_INT + 1]


NO_HEX: list[Any] = [None, True, 7, [], {}, "", "zz" * 32, "00" * 31, "AA" * 32]


INSIDE: list[tuple[str, Json, str, list[Any]]] = [
    ("Query", {"filter": {}}, "filter", [None, True, 7, "x", []]),
    ("Query", {"filter": {}}, "proof", [None, 1, 0, "true", [], {}]),
    ("Inclusion_Proof", {"leaf_index": 0}, "leaf_index", NO_NUMBERS),
    ("Inclusion_Proof", {"leaf_index": 0}, "tree_size", NO_NUMBERS),
    ("Bundle_Proof", {}, "leaf_index", NO_NUMBERS),
    ("Bundle_Proof", {}, "event_id", NO_HEX),
    ("Bundle_Proof", {"leaf_index": 0}, "event_id", [HEX]),
    ("State_Proof", {"namespace": "rbac", "key": HEX}, "namespace", [None, True, 7, [], {}]),
    ("State_Proof", {"namespace": "rbac", "key": HEX}, "key", NO_HEX),
    ("State_Proof", {"namespace": "rbac", "key": HEX}, "tree_size", NO_NUMBERS),
    ("State_Proof", {"namespace": "rbac", "key": HEX}, "mode", [None, True, 7, [], {}, "", "VERIFIED", "pending"]),
    ("State_Batch", {}, "keys", [None, True, 7, "x", {}, [], [HEX], [{}], [{"namespace": "rbac"}], [{"key": HEX}]]),
    ("State_Batch", {"keys": [{"namespace": "rbac", "key": HEX}]}, "tree_size", NO_NUMBERS),
    ("State_Batch", {"keys": [{"namespace": "rbac", "key": HEX}]}, "mode", [None, 7, "pending"]),
]


@pytest.mark.parametrize(("type_", "body", "field", "values"), INSIDE)
def test_a_field_inside_that_is_no_such_thing(
    enclave: Enclave, type_: str, body: Json, field: str, values: list[Any]
) -> None:
    for value in values:
        error = enclave.denied("alice", type_, **body, **{field: value}) if field not in body else None
        error = error or enclave.denied("alice", type_, **{**body, field: value})
        assert (error.status, error.code) == (400, "INVALID_QUERY"), value


@pytest.mark.parametrize("type_", [type_ for type_, body in BODIES.items() if body])
def test_a_body_without_what_it_asks(enclave: Enclave, type_: str) -> None:
    assert enclave.denied("alice", type_).code == "INVALID_QUERY"
    for field in BODIES[type_]:
        rest = {name: value for name, value in BODIES[type_].items() if name != field}
        assert enclave.denied("alice", type_, **rest).code == "INVALID_QUERY"


def test_a_plaintext_with_a_repeated_key(node: Served, enclave: Enclave) -> None:
    session = node.session("alice")
    token = session.token.hex().encode()
    twice = b'{"session":"","session":"%b","filter":3,"filter":{}}' % token
    good(node.post(sealed(session, enclave, "Query", twice)))


# Filters


IDS = [f"{i:064x}" for i in range(101)]


MAXIMA: list[tuple[str, Any, Any]] = [
    ("id", IDS[:100], IDS),
    ("seq", list(range(100)), list(range(101))),
    ("type", [f"t{i}" for i in range(20)], [f"t{i}" for i in range(21)]),
    ("from", IDS[:100], IDS),
    ("tags", {f"t{i}": True for i in range(10)}, {f"t{i}": True for i in range(11)}),
    ("tags", {"k": [f"v{i}" for i in range(20)]}, {"k": [f"v{i}" for i in range(21)]}),
    ("limit", 1000, 1001),
    ("limit", 1, 0),
    ("seq", MAX_INT, MAX_INT + 1),
    ("seq", {"end_at": MAX_INT}, {"end_at": MAX_INT + 1}),
    ("timestamp", {"start_after": MAX_INT}, {"start_after": MAX_INT + 1}),
]


@pytest.mark.parametrize(("field", "most", "beyond"), MAXIMA)
def test_the_maxima_of_a_filter(enclave: Enclave, field: str, most: Any, beyond: Any) -> None:
    enclave.query("alice", **{field: most})
    error = enclave.denied("alice", "Query", filter={field: beyond})
    assert (error.status, error.code) == (400, "INVALID_FILTER")
    assert error.message.startswith(field)


NO_FILTERS: dict[str, list[Any]] = {
    "id": [None, True, 7, {}, "", "zz" * 32, "AA" * 32, [7], [None], [[]], ["00"]],
    "seq": [None, True, -1, 1.5, "1", [1.5], ["1"], [-1], [None], {"start": 1}, {"start_at": "1"}, {"end_at": None}],
    "type": [None, True, 7, {}, [7], [None]],
    "from": [None, True, 7, {}, "", "00", [7], ["AA" * 32]],
    "tags": [None, True, 7, "x", [], {"k": None}, {"k": False}, {"k": 7}, {"k": [7]}, {"k": {}}, {"k": [True]}],
    "timestamp": [None, True, 7, "x", [], [7], {"start_at": -1}, {"after": 1}, {"start_at": 1.5}],
    "limit": [None, True, -1, 0, 1.5, "1", [], {}, MAX_INT + 1],
    "reverse": [None, 1, 0, "true", [], {}],
    "Type": ["message"],
    "": [1],
}


@pytest.mark.parametrize("field", NO_FILTERS)
def test_what_is_no_filter(enclave: Enclave, field: str) -> None:
    for value in NO_FILTERS[field]:
        assert enclave.denied("alice", "Query", filter={field: value}).code == "INVALID_FILTER", value


def test_an_empty_list_matches_nothing(enclave: Enclave) -> None:
    for field in ("id", "seq", "type", "from"):
        assert enclave.query("alice", **{field: []}) == []
    assert enclave.query("alice", tags={"k": []}) == []


# Answers


def test_a_batch_of_keys(enclave: Enclave) -> None:
    keys = [{"namespace": "rbac", "key": f"{i:064x}"} for i in range(257)]
    assert len(enclave.ask("alice", "State_Batch", keys=keys[:256], mode="current")["proofs"]) == 256
    assert enclave.denied("alice", "State_Batch", keys=keys).code == "INVALID_QUERY"
    assert enclave.denied("alice", "State_Batch", keys=[]).code == "INVALID_QUERY"


def test_the_greatest_page() -> None:
    with filled(DEV, [""] * 1000) as enclave:
        page = enclave.ask("bob", "Query", filter={"limit": 1000})
        assert (len(page["events"]), page["more"]) == (1000, True)
        rest = enclave.ask("bob", "Query", filter={"limit": 1000, "seq": {"start_after": 999}})
        assert ([item["event"]["seq"] for item in rest["events"]], "more" in rest) == ([1000], False)
        whole = enclave.ask("bob", "Query", filter={"limit": 1000, "type": "message"})
        assert (len(whole["events"]), "more" in whole) == (1000, False)
        assert len(enclave.query("bob")) == 100


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_ends_at_its_size_in_bytes_and_says_so(reverse: bool) -> None:
    with filled(limited(page_bytes=64 * KIB), ["a" * 20_000] * 10 + ["b" * 100_000, "c"]) as enclave:
        seqs, sizes, range_ = list[int](), list[int](), dict[str, Any]()
        while True:
            page = enclave.ask("bob", "Query", filter={"seq": range_, "type": "message", "reverse": reverse})
            found = [item["event"]["seq"] for item in page["events"]]
            assert sum(len(encode(item["event"])) for item in page["events"]) <= 64 * KIB or len(found) == 1
            seqs, sizes = seqs + found, [*sizes, len(found)]
            range_ = {"end_before" if reverse else "start_after": found[-1]}
            if "more" not in page:
                break
        assert seqs == list(range(1, 13))[:: -1 if reverse else 1]
        assert sizes == ([3, 3, 3, 1, 1, 1] if not reverse else [1, 1, 3, 3, 3, 1])
