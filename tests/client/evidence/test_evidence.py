"""Evidence in a file, checked without anything else: what convicts, what does not, what is invalid."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.client import Distrust, Evidence, check_evidence, load_evidence
from enc.client.evidence import evidence as module
from enc.client.evidence.evidence import EvidenceKind, answer_evidence, two_events, two_heads, unconnected
from enc.core.errors import InvalidProof
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import ConsistencyProof, Event, TreeHead
from enc.core.trees.tree_head import sign_head
from tests.client.evidence.honest_log import LOG
from tests.client.tampering import leaves, tampered
from tests.core.world import START, person

ENCLAVE, ANOTHER = sha256(b"enclave"), sha256(b"another enclave")
NODE = person("node")


def head(ts: int, t: int = 0, root: bytes | None = None, enclave: bytes = ENCLAVE, key: str = "node") -> TreeHead:
    return sign_head(person(key), enclave, START + t, ts, LOG.roots[ts] if root is None else root)


def event(text: str, seq: int = 3, enclave: bytes = ENCLAVE, key: str = "node") -> Event:
    commit = build_commit(person("bob"), enclave, "message", text, START + 60_000, (("k", "v"),))
    return erase(finalize(commit, person(key), START, seq))


def heads(kind: EvidenceKind, first: TreeHead, then: TreeHead) -> Evidence:
    return two_heads(kind, ENCLAVE, NODE.public, "a message", first, then)


def split(first: TreeHead, then: TreeHead, proof: ConsistencyProof | None) -> Evidence:
    return unconnected(ENCLAVE, NODE.public, "a message", first, then, proof)


FALSE = sha256(b"another root")
CONVICTING: dict[str, Evidence] = {
    "fork": heads("fork", head(3), head(3, root=FALSE)),
    "fork of a later date": heads("fork", head(3), head(3, 5, FALSE)),
    "cut": heads("rollback", head(5), head(3, 1)),
    "equivocation": two_events(event("to you"), event("to others"), "a message"),
}
OTHERS: dict[str, Evidence] = {
    "rollback": heads("rollback", head(5, 1), head(3)),
    "rollback of one time": heads("rollback", head(5), head(3)),
    "inconsistent": split(head(3), head(5, 1, FALSE), LOG.connect(3, 5)),
    "refused": split(head(3), head(5, 1), None),
    "other sizes": split(head(3), head(5, 1), LOG.connect(3, 6)),
    "foreign": answer_evidence("foreign", ENCLAVE, NODE.public, "a message", b'{"seq_pub": "00"}'),
    "answer": answer_evidence("answer", ENCLAVE, NODE.public, "a message", b"\xff\x00 garbage"),
}
WHY = {
    "rollback": "that the older head was served after the newer one",
    "rollback of one time": "that the older head was served after the newer one",
    "inconsistent": "that no such proof exists",
    "refused": "that no such proof exists",
    "other sizes": "that no such proof exists",
    "foreign": "nothing in it is signed",
    "answer": "nothing in it is signed",
}
PROVED = {
    "fork": "signed two heads of 3 bundles with different roots",
    "fork of a later date": "signed two heads of 3 bundles with different roots",
    "cut": "the smaller one is dated later",
    "equivocation": "signed two different events as event 3",
}


def through_a_file(evidence: Evidence, tmp_path: Path) -> Evidence:
    evidence.save(tmp_path / "evidence.json")
    return load_evidence((tmp_path / "evidence.json").read_bytes())


@pytest.mark.parametrize("name", CONVICTING)
def test_what_convicts(name: str, tmp_path: Path) -> None:
    found = through_a_file(CONVICTING[name], tmp_path)
    verdict = check_evidence(found)
    assert verdict.convicts
    assert PROVED[name] in " ".join(verdict.proved)
    assert NODE.public.hex() in verdict.proved[0]
    assert "compare the key" in " ".join(verdict.not_proved)
    assert (found.enclave, found.sequencer, found.message) == (ENCLAVE, NODE.public, "a message")


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_convict_and_why(name: str, tmp_path: Path) -> None:
    verdict = check_evidence(through_a_file(OTHERS[name], tmp_path))
    assert not verdict.convicts
    assert WHY[name] in " ".join(verdict.not_proved)


def test_a_file_can_be_read_by_a_person(tmp_path: Path) -> None:
    CONVICTING["fork"].save(tmp_path / "evidence.json")
    text = (tmp_path / "evidence.json").read_text()
    assert text.endswith("}\n")
    assert '\n  "message": "a message"' in text


# Tampering


def refused(data: bytes) -> None:
    with pytest.raises(InvalidProof):
        check_evidence(load_evidence(data))


@pytest.mark.parametrize("name", [*CONVICTING, "rollback", "inconsistent"])
def test_tampered_evidence_is_refused(name: str) -> None:
    """Each text and number of it counts, except the message, which is for people, and a proof that proves nothing."""
    data = {**CONVICTING, **OTHERS}[name].json()
    paths = [path for path in leaves(json.loads(data)) if path != ("message",) and "proof" not in path]
    assert len(paths) > 12
    for path in paths:
        refused(tampered(data, path))


@pytest.mark.parametrize("name", [*CONVICTING, *OTHERS])
def test_evidence_of_another_form_is_refused(name: str) -> None:
    data = {**CONVICTING, **OTHERS}[name].json()
    for path in leaves(json.loads(data)):
        if "proof" not in path:
            for wrong in (None, [], {}, True, -1, 1.5):  # type: ignore[var-annotated]
                if (path[-1], wrong) != ("bound_sig", None):
                    refused(tampered(data, path, lambda _, wrong=wrong: wrong))  # type: ignore[misc]


def test_a_head_that_is_not_bound_is_no_evidence() -> None:
    """Two enclaves of one node may have heads of one size and different roots."""
    data = json.loads(CONVICTING["fork"].json())
    del data["parts"]["heads"][0]["bound_sig"]
    refused(json.dumps(data).encode())


NONE: dict[str, Evidence] = {
    "a fork of one root": heads("fork", head(3), head(3, 5)),
    "a fork of two sizes": heads("fork", head(3), head(5, root=FALSE)),
    "a fork of two enclaves": heads("fork", head(3), head(3, root=FALSE, enclave=ANOTHER)),
    "a fork by two keys": heads("fork", head(3), head(3, root=FALSE, key="node2")),
    "a rollback forwards": heads("rollback", head(3), head(5, 1)),
    "a rollback to the same": heads("rollback", head(3), head(3, 1)),
    "heads that are connected": split(head(3), head(5, 1), LOG.connect(3, 5)),
    "heads of one size": split(head(3), head(3, 1), LOG.connect(3, 3)),
    "heads of nothing": split(head(0), head(3), None),
    "heads the wrong way round": split(head(5), head(3, 1), None),
    "one event": two_events(event("to you"), event("to you"), "a message"),
    "two places": two_events(event("to you"), event("to others", 4), "a message"),
    "two enclaves": two_events(event("to you"), event("to others", enclave=ANOTHER), "a message"),
    "two sequencers": two_events(event("to you"), event("to others", key="node2"), "a message"),
}


@pytest.mark.parametrize("name", NONE)
def test_what_contradicts_nothing_is_no_evidence(name: str) -> None:
    """Values that an honest node may have signed convict nobody."""
    refused(NONE[name].json())


def test_another_is_not_convicted_by_a_foreign_key() -> None:
    data = json.loads(CONVICTING["fork"].json())
    data["sequencer"] = person("node2").public.hex()
    refused(json.dumps(data).encode())


def test_events_that_their_author_did_not_sign_are_no_evidence() -> None:
    """The sequencer's signature alone does not bind an event to an enclave."""
    first, then = event("to you"), event("to others")
    evidence = two_events(first, then, "a message")
    wire = {**wire_event(then), "enclave": ANOTHER.hex()}
    data = json.loads(evidence.json())
    data["parts"]["events"][1] = wire
    refused(json.dumps(data).encode())


# Hostile files


def wrapped(kind: str, parts: bytes) -> bytes:
    zeros = b"00" * 32
    return (
        b'{"format":"enc-evidence","version":1,"kind":"%b","enclave":"%b","sequencer":"%b","message":"","parts":%b}'
        % (kind.encode(), zeros, zeros, parts)
    )


def hostile(data: bytes) -> None:
    """Check that the input raises only our own error, whatever it is."""
    with suppress(InvalidProof):
        evidence = load_evidence(data)
        deeper(evidence.json)
        assert not deeper(lambda: check_evidence(evidence)).convicts


def deeper(work: Callable[[], Any], frames: int = 10) -> Any:
    """Run the work some frames deeper, as with a slightly smaller recursion limit."""
    return deeper(work, frames - 1) if frames else work()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"{" * 100_000,
        b"[" * 1_000_000,
        b"\xff\xfe",
        b'{"format": "enc-proof"}',
        wrapped("treason", b"{}"),
        wrapped("fork", b"[]"),
        wrapped("fork", b'{"heads": []}'),
        wrapped("fork", b'{"heads": [{}, {}, {}]}'),
        wrapped("equivocation", b'{"events": [1, 2]}'),
        wrapped("answer", b'{"answer": 5}'),
        wrapped("answer", b'{"answer": 1e400}'),
        wrapped("answer", rb'{"answer": "\ud800"}'),
        wrapped("foreign", b"{}"),
    ],
    ids=range(17),
)
def test_a_hostile_file_is_refused(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize("kind", ["fork", "rollback", "inconsistent", "equivocation", "answer", "foreign"])
def test_a_nested_file_does_no_harm(kind: str) -> None:
    """Also evidence nested so deep that it can be decoded but not encoded again."""
    for depth in [*range(900, 1010), 100_000]:
        deep = b"[" * depth + b"]" * depth
        for parts in (b'{"heads": [{"x": %b}, {}]}', b'{"events": [{"x": %b}, {}]}', b'{"answer": "", "x": %b}'):
            hostile(wrapped(kind, parts % deep))


def test_a_huge_file_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = CONVICTING["fork"].json()
    monkeypatch.setattr(module, "MAX_EVIDENCE", len(data))
    assert check_evidence(load_evidence(data)).convicts
    monkeypatch.setattr(module, "MAX_EVIDENCE", len(data) - 1)
    with pytest.raises(InvalidProof, match="over"):
        load_evidence(data)


def test_of_a_very_long_answer_the_beginning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the file can be read again, however long its text is in JSON."""
    assert 6 * module.MAX_ANSWER + 10_000 < module.MAX_EVIDENCE
    monkeypatch.setattr(module, "MAX_ANSWER", 10)
    assert answer_evidence("answer", ENCLAVE, NODE.public, "", b"0123456789 and more").parts == {"answer": "0123456789"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(name=st.sampled_from([*CONVICTING, *OTHERS]), value=json_values, data=st.data())
def test_any_value_in_any_place_does_no_harm(name: str, value: Any, data: st.DataObject) -> None:
    whole = {**CONVICTING, **OTHERS}[name].json()
    paths = [*leaves(json.loads(whole)), ("parts",), ("kind",)]
    path = data.draw(st.sampled_from(paths))
    with suppress(InvalidProof):
        check_evidence(load_evidence(tampered(whole, path, lambda _: value)))


def test_a_distrust_is_an_invalid_proof_and_carries_its_evidence() -> None:
    error = Distrust("a message", CONVICTING["fork"])
    assert isinstance(error, InvalidProof)
    assert error.evidence is CONVICTING["fork"]
