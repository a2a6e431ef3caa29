"""What a witness publishes over HTTP, and what it rejects."""

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode, encode

from enc.core.trees.cosigning import parse_cosigned
from enc.core.trees.tree_head import wire_head
from enc.runtime.fair_share import FairShare
from enc.version import __version__
from enc.witness import http_util
from tests.client.migration.moving import Moving
from tests.witness.staged_witness import StagedWitness


@pytest.fixture
def looked(moving: Moving, post: StagedWitness) -> StagedWitness:
    """Return a witness that has seen four heads."""
    for text in ("five", "six", "seven"):
        post.poll()
        moving.grow(moving.node, text)
    post.poll()
    return post


def refused(post: StagedWitness, method: str, path: str, **more: Any) -> tuple[int, str]:
    found = post.ask(method, path, **more)
    wire = decode(found.content)
    assert wire["type"] == "Error"
    assert wire["message"]
    assert found.headers["content-type"] == "application/json"
    return found.status_code, wire["code"]


def test_who_it_is(looked: StagedWitness) -> None:
    assert looked.get("/") == {
        "witness": looked.identity.hex,
        "software": {"name": "enc", "version": __version__},
        "enclaves": 1,
        "interval_s": 10.0,
    }


def test_heads_one_by_one(moving: Moving, looked: StagedWitness) -> None:
    path = f"/heads/{moving.enclave.hex}"
    assert parse_cosigned(looked.ask("GET", path).content).head == moving.enclave.head()
    assert [parse_cosigned(looked.ask("GET", f"{path}?size={n}").content).head.ts for n in (2, 4)] == [2, 4]
    assert refused(looked, "GET", f"{path}?size=9") == (404, "TREE_SIZE_NOT_FOUND")
    for query in ("size=", "size=-1", "size=x", "size=1&size=2", f"size={2**53}", "size=٣", "size=" + "9" * 400):
        assert refused(looked, "GET", f"{path}?{query}") == (400, "INVALID_RANGE")
    for wrong in ("00" * 32, "xyz", moving.enclave.hex.upper(), "a" * 5000):
        assert refused(looked, "GET", f"/heads/{wrong}") == (404, "ENCLAVE_NOT_FOUND")


def test_heads_in_lines_page_by_page(moving: Moving, looked: StagedWitness) -> None:
    lines, after = list[Any](), 0
    while True:
        found = looked.ask("GET", f"/heads?after={after}&limit=3")
        assert found.headers["content-type"] == "application/x-ndjson"
        page = [decode(line) for line in found.content.splitlines()]
        assert len(page) <= 3
        if not page:
            break
        lines, after = lines + page, page[-1]["n"]
    assert [line["sth"]["ts"] for line in lines] == [2, 3, 4, 5]
    assert {(line["enclave"], line["source"]) for line in lines} == {
        (moving.enclave.hex, f"witness {looked.identity.hex}")
    }
    one = looked.ask("GET", f"/heads?enclave={moving.enclave.hex}&limit=1").content
    assert decode(one)["sth"]["ts"] == 2
    assert looked.ask("GET", f"/heads?enclave={'0' * 64}").content == b""
    assert refused(looked, "GET", "/heads?enclave=x") == (404, "ENCLAVE_NOT_FOUND")
    assert refused(looked, "GET", "/heads?after=x") == (400, "INVALID_RANGE")


def test_a_page_has_a_bound(looked: StagedWitness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_util, "MAX_LIMIT", 2)
    assert len(looked.ask("GET", "/heads").content.splitlines()) == 2
    assert len(looked.ask("GET", "/heads?limit=999").content.splitlines()) == 2


@pytest.mark.parametrize("path", ["/", "/enclaves", "/heads", "/heads/{}", "/evidence"])
def test_what_is_known_already_is_not_sent_again(moving: Moving, looked: StagedWitness, path: str) -> None:
    path = path.format(moving.enclave.hex)
    first = looked.ask("GET", path)
    tag = first.headers["etag"]
    again = looked.ask("GET", path, headers={"if-none-match": f'"other", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert looked.ask("GET", path, headers={"if-none-match": '"other"'}).content == first.content


def test_the_tag_is_of_what_is_shown(moving: Moving, looked: StagedWitness) -> None:
    path = f"/heads/{moving.enclave.hex}"
    before = looked.ask("GET", path).headers["etag"]
    moving.grow(moving.node, "eight")
    looked.poll()
    assert looked.ask("GET", path, headers={"if-none-match": before}).status_code == 200


def test_paths_and_methods(looked: StagedWitness) -> None:
    for path in ("/nothing", "/heads/", "/evidence/", "/evidence/0", "/evidence/..%2f..", "/heads/a/b"):
        status, code = refused(looked, "GET", path)
        assert (status, code) in ((404, "INVALID_QUERY"), (404, "ENCLAVE_NOT_FOUND")), path
    assert refused(looked, "DELETE", "/heads") == (405, "INVALID_QUERY")
    assert looked.ask("POST", "/enclaves").headers["allow"] in ("GET, HEAD", "HEAD, GET")


def test_what_is_brought_is_bounded_and_well_formed(moving: Moving, looked: StagedWitness) -> None:
    good = {"enclave": moving.enclave.hex, "sth": wire_head(moving.enclave.head())}

    def submit(body: Any) -> tuple[int, str]:
        return refused(looked, "POST", "/heads", content=body if isinstance(body, bytes) else encode(body))

    assert submit(b" " * (http_util.MAX_BODY + 1)) == (413, "INVALID_COMMIT")
    assert submit({**good, "enclave": "00" * 32}) == (404, "ENCLAVE_NOT_FOUND")
    for body in (b"", b"[]", b"{", b"\xff", b"[" * 9000, {}, {**good, "sth": None}, {**good, "sequencer": "x"}):
        assert submit(body) == (400, "INVALID_QUERY")
    for change in ({"ts": -1}, {"ts": 2**53}, {"t": 2**60}, {"r": "00"}, {"sig": "x"}, {"bound_sig": 5}, {"ts": 1.5}):
        assert submit({**good, "sth": {**good["sth"], **change}}) == (400, "INVALID_QUERY")
    assert looked.evidence() == []


def test_one_address_may_bring_so_many(moving: Moving, looked: StagedWitness) -> None:
    from enc.witness.main import SUBMITTED_BURST

    head = moving.enclave.head()
    found = [looked.submit(head).status_code for _ in range(SUBMITTED_BURST + 3)]
    assert found.index(429) >= SUBMITTED_BURST
    late = looked.submit(head)
    assert (late.status_code, late.headers["retry-after"]) == (429, "1")
    assert looked.get("/heads"), "reads are free"


def test_the_addresses_of_one_subscriber_share_a_rate(moving: Moving, looked: StagedWitness) -> None:
    from enc.witness.main import SUBMITTED_BURST

    head, found = moving.enclave.head(), list[int]()
    for i in range(SUBMITTED_BURST + 3):
        looked.asker = f"2001:db8::{i:x}"
        found.append(looked.submit(head).status_code)
    assert 429 in found
    looked.asker = "2001:db8:0:1::1"
    assert looked.submit(head).status_code == 200


def test_so_many_requests_at_a_time(looked: StagedWitness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked.service.app, "_places", FairShare(0))
    assert refused(looked, "GET", "/") == (503, "UNAVAILABLE")
    monkeypatch.setattr(looked.service.app, "_places", FairShare(1))
    for _ in range(2):
        assert looked.get("/")


@pytest.mark.parametrize(("most", "expected"), [(128, 503), (0, 200)])
def test_one_address_leaves_requests_for_others(moving: Moving, tmp_path: Path, most: int, expected: int) -> None:
    """Also if their bodies never end. Behind a proxy, all requests have one address."""
    witness = StagedWitness(moving.stage, moving.enclave.id, tmp_path, connections_per_address=most)
    try:
        places = witness.service.app._places
        while places.take("127.0.0.1"):  # as requests that go on
            pass
        assert witness.ask("GET", "/").status_code == expected
        witness.asker = "192.0.2.1"
        assert witness.ask("GET", "/").status_code == 200
    finally:
        witness.close()


def test_a_fault_of_its_own_says_nothing_more(looked: StagedWitness, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(looked.ledger, "latest", broken)
    found = looked.ask("GET", "/enclaves")
    assert (found.status_code, decode(found.content)["code"]) == (500, "INTERNAL_ERROR")
    assert b"secret" not in found.content


def test_rubbish_is_refused_and_changes_nothing(moving: Moving, looked: StagedWitness) -> None:
    rng, before = random.Random(7), looked.ask("GET", "/heads").content
    whole = encode({"enclave": moving.enclave.hex, "sth": wire_head(moving.enclave.head()), "sequencer": "00" * 32})
    for _ in range(40):
        body = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        found = looked.ask("POST", "/heads", content=bytes(body))
        assert found.status_code in (200, 400, 404, 429), found.text
        assert decode(found.content)
    assert (looked.ask("GET", "/heads").content, looked.evidence()) == (before, [])
