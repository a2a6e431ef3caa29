"""Evidence in a file, checked without anything else: what convicts, what does not, what is invalid."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.client import Distrust, Evidence, check_evidence, load_evidence
from enc.client.evidence import evidence as module
from enc.client.evidence.check_log_evidence import MAX_LINE, MAX_LOG
from enc.client.evidence.evidence import (
    EvidenceKind,
    answer_evidence,
    two_events,
    two_heads,
    unconnected,
    with_cosignature,
)
from enc.client.evidence.log_evidence import MAX_EVENTS
from enc.client.evidence.verdict import KEY_OWNER, Verdict
from enc.core.errors import InvalidProof
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import ConsistencyProof, Event, TreeHead
from enc.core.trees.cosigning import cosign
from enc.core.trees.proof import wire_consistency
from enc.core.trees.tree_head import sign_head, wire_head
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
    "a root of another size": split(head(3, root=LOG.roots[4]), head(5, 1), LOG.connect(4, 5)),
    "from the first bundle on": split(head(1), head(5, 1), None),
    "foreign": answer_evidence("foreign", ENCLAVE, NODE.public, "a message", b'{"seq_pub": "00"}'),
    "answer": answer_evidence("answer", ENCLAVE, NODE.public, "a message", b"\xff\x00 garbage"),
}
KEY = NODE.public.hex()
TWO_LOGS = "the sequencer showed different logs to different clients, or rewrote one"
FORKED = (
    f"{KEY} signed two heads of 3 bundles with different roots for this enclave",
    f"no log has both roots: {TWO_LOGS}",
)
UNSEEN = "that the older head was served after the newer one: only the client states this"
UNCONNECTED = (
    f"{KEY} signed a head of 3 bundles and one of 5 for this enclave",
    "no valid consistency proof came with them",
)
UNASKED = (
    "that no such proof exists: ask the node for one; if it has none, it has forked the log",
    KEY_OWNER,
)
UNSIGNED = "anything: a client states that it received this answer, and nothing in it is signed"
VERDICTS: dict[str, Verdict] = {
    "fork": Verdict(True, FORKED, (KEY_OWNER, "which of the two others saw")),
    "fork of a later date": Verdict(True, FORKED, (KEY_OWNER, "which of the two others saw")),
    "cut": Verdict(
        True,
        (
            f"{KEY} signed a head of 5 bundles and one of 3 for this enclave",
            "the smaller one is dated later: the log was cut",
        ),
        (KEY_OWNER,),
    ),
    "equivocation": Verdict(
        True,
        (f"{KEY} signed two different events as event 3 of this enclave", f"a log has one event per seq: {TWO_LOGS}"),
        (KEY_OWNER,),
    ),
    "rollback": Verdict(False, (f"{KEY} signed a head of 5 bundles and one of 3 for this enclave",), (UNSEEN,)),
    "rollback of one time": Verdict(
        False, (f"{KEY} signed a head of 5 bundles and one of 3 for this enclave",), (UNSEEN,)
    ),
    "inconsistent": Verdict(False, UNCONNECTED, UNASKED),
    "refused": Verdict(False, UNCONNECTED, UNASKED),
    "other sizes": Verdict(False, UNCONNECTED, UNASKED),
    "a root of another size": Verdict(False, UNCONNECTED, UNASKED),
    "from the first bundle on": Verdict(
        False, (f"{KEY} signed a head of 1 bundles and one of 5 for this enclave", UNCONNECTED[1]), UNASKED
    ),
    "foreign": Verdict(False, (), (UNSIGNED,)),
    "answer": Verdict(False, (), (UNSIGNED,)),
}


def through_a_file(evidence: Evidence, tmp_path: Path) -> Evidence:
    evidence.save(tmp_path / "evidence.json")
    return load_evidence((tmp_path / "evidence.json").read_bytes())


@pytest.mark.parametrize("name", [*CONVICTING, *OTHERS])
def test_what_evidence_proves_and_what_it_does_not(name: str, tmp_path: Path) -> None:
    found = through_a_file({**CONVICTING, **OTHERS}[name], tmp_path)
    assert check_evidence(found) == VERDICTS[name]
    assert VERDICTS[name].convicts == (name in CONVICTING)
    assert (found.enclave, found.sequencer, found.message) == (ENCLAVE, NODE.public, "a message")


def test_a_file_can_be_read_by_a_person(tmp_path: Path) -> None:
    CONVICTING["fork"].save(tmp_path / "evidence.json")
    text = (tmp_path / "evidence.json").read_text()
    assert text.endswith("}\n")
    assert '\n  "message": "a message"' in text


# What a witness states


WITNESS = person("witness")


def cosigned(evidence: Evidence, head: TreeHead, enclave: bytes = ENCLAVE) -> Evidence:
    return with_cosignature(evidence, cosign(WITNESS, enclave, NODE.public, head, START + 7))


@pytest.mark.parametrize(("number", "which", "size"), [(0, "first", 5), (1, "second", 3)])
def test_a_witness_is_quoted_beside_what_the_heads_prove(number: int, which: str, size: int, tmp_path: Path) -> None:
    seen = (head(5), head(3, 1))[number]
    verdict = check_evidence(through_a_file(cosigned(CONVICTING["cut"], seen), tmp_path))
    alone = VERDICTS["cut"]
    said = f"co-signed the {which}, of {size} bundles, and says that it saw it at {START + 7}"
    assert verdict == replace(alone, proved=(*alone.proved, f"the witness {WITNESS.public.hex()} {said}"))


def test_a_witness_of_another_head_or_enclave_is_refused() -> None:
    refused(cosigned(CONVICTING["cut"], head(4)).json())
    refused(cosigned(CONVICTING["cut"], head(5), ANOTHER).json())
    forged = json.loads(cosigned(CONVICTING["cut"], head(5)).json())
    forged["parts"]["cosigned"]["seen"] += 1
    refused(json.dumps(forged).encode())


@pytest.mark.parametrize("name", ["equivocation", "answer"])
def test_a_witness_says_nothing_about_what_is_no_head(name: str) -> None:
    evidence = {**CONVICTING, **OTHERS}[name]
    assert check_evidence(cosigned(evidence, head(5))) == VERDICTS[name]


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
    "heads of one size that nothing connects": split(head(3), head(3, 1), None),
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


@pytest.mark.parametrize("field", ["enclave", "sequencer"])
def test_a_malformed_field_is_named(field: str) -> None:
    for kind in ("fork", "event"):
        wire = json.loads(replace(CONVICTING["fork"], kind=kind).json())
        with pytest.raises(InvalidProof, match=f"^{field}: expected 64 lower-case hex"):
            load_evidence(json.dumps({**wire, field: "zz"}).encode())


def test_a_malformed_signer_is_named() -> None:
    parts = {**CONVICTING["fork"].parts, "signer": "zz"}
    with pytest.raises(InvalidProof, match=r"^signer: expected 64 lower-case hex"):
        check_evidence(replace(CONVICTING["fork"], parts=parts))


@pytest.mark.parametrize("kind", get_args(EvidenceKind))
def test_only_a_line_or_a_log_may_accuse_no_sequencer(kind: EvidenceKind) -> None:
    nobody = replace(CONVICTING["fork"], kind=kind, sequencer=b"").json()
    if kind in ("event", "log"):
        assert load_evidence(nobody).sequencer == b""
    else:
        with pytest.raises(InvalidProof, match=r"^sequencer: expected 64"):
            load_evidence(nobody)


def test_the_parts_of_evidence_are_the_node_s_statements() -> None:
    pair = [wire_head(head(3)), wire_head(head(5))]
    proof = LOG.connect(3, 5)
    assert split(head(3), head(5), proof).parts == {"heads": pair, "proof": wire_consistency(proof)}
    assert split(head(3), head(5), None).parts == {"heads": pair, "proof": None}
    both = two_events(event("to you"), event("to others"), "why")
    assert (both.kind, both.message) == ("equivocation", "why")
    shown = answer_evidence("answer", ENCLAVE, NODE.public, "", b"\xff\x00 garbage")
    assert shown.parts == {"answer": "\ufffd\x00 garbage"}


def test_events_of_version_1_convict_too() -> None:
    commits = [
        build_commit(person("bob"), ENCLAVE, "message", text, START + 60_000, enc_v=1) for text in ("one", "two")
    ]
    first, then = (finalize(commit, NODE, START, 3) for commit in commits)
    assert check_evidence(two_events(first, then, "a message")) == VERDICTS["equivocation"]


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
        assert isinstance(deeper(evidence.json), bytes)
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


def test_the_limits_of_evidence_are_those_of_the_protocol() -> None:
    """docs/protocol.md, section 28.2."""
    mebibyte = 1024 * 1024
    assert (256 * mebibyte, 10 * mebibyte) == (module.MAX_EVIDENCE, module.MAX_ANSWER)
    assert (1_000_000, 4096 * mebibyte, 4 * mebibyte) == (MAX_EVENTS, MAX_LOG, MAX_LINE)


def test_of_a_very_long_answer_the_beginning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the file can be read again, however long its text is in JSON."""
    assert 6 * module.MAX_ANSWER + 10_000 < module.MAX_EVIDENCE
    usual = "x" * (1 << 20)
    assert answer_evidence("answer", ENCLAVE, NODE.public, "", usual.encode()).parts == {"answer": usual}
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
