"""Sequencer histories: chains of Migrates, in pins and in proof files."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.client.errors import TooManyMoves
from enc.client.evidence.check_evidence import check_evidence
from enc.client.evidence.evidence import load_evidence, split_event, split_head, two_heads
from enc.client.evidence.verdict import KEY_OWNER, Verdict
from enc.client.verify.pins import FilePins, Pin, merge_pins, pin_of
from enc.client.verify.sequencer_history import MAX_CONTENT, MAX_MOVES, History, Migration, Term, history_of
from enc.core.errors import InvalidProof
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.tree_head import sign_head
from tests.core.world import person

ENCLAVE = sha256(b"enclave")
A, B, C, OWNER = (person(name) for name in ("node-a", "node-b", "node-c", "alice"))
T = 1_790_000_000_000


def migrate(
    seq: int, by: PrivateKey, to: PrivateKey, enclave: bytes = ENCLAVE, type_: str = "Migrate", **more: Any
) -> Event:
    content = {"new_sequencer": to.public.hex(), "prev_seq": seq - 1, "ct_root": "ab" * 32, **more}
    return finalize(build_commit(OWNER, enclave, type_, compact_json(content), T + 60_000), by, T + seq, seq)


def message(seq: int, by: PrivateKey, text: str = "hello", enclave: bytes = ENCLAVE) -> Event:
    return finalize(build_commit(OWNER, enclave, "message", text, T + 60_000), by, T + seq, seq)


def head(ts: int, key: PrivateKey) -> TreeHead:
    return sign_head(key, ENCLAVE, T, ts, sha256(b"root %d" % ts))


TO_B, TAKEN_BY_C, BACK = migrate(5, A, B), migrate(9, C, C), migrate(12, C, A)
LINE = history_of(A.public, [TO_B, TAKEN_BY_C, BACK], ENCLAVE)


def test_whose_signature_stands_where() -> None:
    """A peaceful Migrate is the last event of the old sequencer, a forced one the first of the new one."""
    keys = [LINE.at(seq) for seq in (0, 5, 6, 8, 9, 12, 13, 99)]
    assert keys == [key.public for key in (A, A, B, B, C, C, A, A)]
    assert (LINE.sequencer, LINE.reach) == (A.public, 12)
    assert LINE.at(-1) == A.public


def test_who_left_when() -> None:
    moves = {move.event.id: move for move in LINE.moves}
    assert LINE.departure(A.public) is None
    assert LINE.departure(B.public) == moves[TAKEN_BY_C.id]
    assert LINE.departure(C.public) == moves[BACK.id]
    assert LINE.superseded(A.public, 6) == moves[TO_B.id]
    assert LINE.superseded(A.public, 10) == moves[TAKEN_BY_C.id]
    assert LINE.superseded(A.public, 5) is None
    assert LINE.superseded(A.public, 13) is None
    assert LINE.superseded(OWNER.public, 13) is None
    assert LINE.superseded(C.public, 8) is None
    taken = migrate(6, C, C)
    at_once = history_of(A.public, [TO_B, taken], ENCLAVE)
    assert at_once.superseded(B.public, 6) == Migration(taken, C.public)


def test_which_term_begins_where() -> None:
    assert list(LINE.terms()) == [Term(A.public, 0), Term(B.public, 6), Term(C.public, 9), Term(A.public, 13)]
    assert (LINE.reach, History(A.public).reach) == (12, -1)
    assert LINE.sized({TO_B.id: 7}).sizes() == {TO_B.id: 7}


def test_without_the_first_one_a_peaceful_move_names_it_and_a_forced_one_does_not() -> None:
    assert history_of(None, [TO_B], ENCLAVE).first == A.public
    unknown = history_of(None, [TAKEN_BY_C], ENCLAVE)
    assert (unknown.first, unknown.at(3), unknown.at(9)) == (None, None, C.public)


@pytest.mark.parametrize(
    ("first", "events", "why"),
    [
        (A, [migrate(5, B, C)], "finalised neither by"),
        (A, [TO_B, migrate(9, A, C)], "finalised neither by"),
        (A, [TO_B, migrate(5, B, C)], "not after the previous Migrate"),
        (A, [migrate(5, A, B, sha256(b"other"))], "not a Migrate of this enclave"),
        (A, [migrate(5, A, B, type_="Pause")], "not a Migrate of this enclave"),
        (A, [migrate(5, A, B, prev_seq=3)], "prev_seq"),
        (A, [message(5, A)], "not a Migrate"),
        (A, [erase(TO_B)], "content"),
    ],
    ids=range(8),
)
def test_what_is_no_chain(first: PrivateKey, events: list[Event], why: str) -> None:
    with pytest.raises(InvalidProof, match=why):
        history_of(first.public, events, ENCLAVE)


def test_the_content_of_a_migrate_has_a_bound() -> None:
    spare = MAX_CONTENT - len(migrate(5, A, B, more="").content or "")
    longest = migrate(5, A, B, more="x" * spare)
    assert len(longest.content or "") == MAX_CONTENT
    assert history_of(A.public, [longest], ENCLAVE).sequencer == B.public
    with pytest.raises(InvalidProof, match="characters"):
        history_of(A.public, [migrate(5, A, B, more="x" * (spare + 1))], ENCLAVE)


def test_a_chain_has_a_bound() -> None:
    history_of(None, [migrate(seq, A, A) for seq in range(1, MAX_MOVES + 1)], ENCLAVE)
    with pytest.raises(TooManyMoves, match="follows at most 64"):
        history_of(None, [migrate(seq, A, A) for seq in range(1, MAX_MOVES + 2)], ENCLAVE)


# Pins


def part(count: int) -> History:
    return History(A.public, LINE.moves[:count])


AT_A, NOTED = pin_of(A.public, head(3, A), part(0)), pin_of(A.public, head(3, A), part(1))
AT_B, AT_C, HOME = (pin_of(key.public, head(n, key), part(n - 3)) for key, n in ((B, 4), (C, 5), (A, 6)))


@pytest.mark.parametrize(
    ("before", "stored", "after"),
    [
        (AT_A, AT_B, AT_B),
        (NOTED, AT_B, AT_B),
        (AT_A, NOTED, NOTED),
        (NOTED, AT_A, NOTED),
        (AT_B, AT_A, AT_B),
        (AT_B, NOTED, AT_B),
        (AT_A, AT_C, AT_C),
        (AT_C, AT_B, AT_C),
        (AT_C, HOME, HOME),
        (HOME, AT_C, HOME),
        (AT_A, HOME, HOME),
        (HOME, AT_A, HOME),
        (AT_B, pin_of(B.public, head(9, B), History(B.public)), pin_of(B.public, head(9, B), part(1))),
        (AT_B, Pin(OWNER.public, head(9, OWNER)), AT_B),
        (AT_B, pin_of(C.public, head(9, C), history_of(A.public, [migrate(9, C, C)], ENCLAVE)), AT_B),
    ],
    ids=range(15),
)
def test_another_sequencer_comes_by_its_migrates_alone(before: Pin, stored: Pin, after: Pin) -> None:
    assert merge_pins(before, stored) == after


def test_a_pin_with_moves_is_kept_in_a_file(tmp_path: Path) -> None:
    pins = FilePins(tmp_path)
    for pin in (AT_A, AT_B, pin_of(C.public, None, LINE.sized({TO_B.id: 7}))):
        pins.remove(ENCLAVE)
        pins.store(ENCLAVE, pin)
        assert pins.load(ENCLAVE) == pin
    assert [move.size for move in (pins.load(ENCLAVE) or AT_A).moves] == [7, None, None]


# Evidence


def moved(migrated: Event, to: PrivateKey) -> str:
    at = f"{migrated.sequencer.hex()} made it event {migrated.seq}"
    return f"{OWNER.public.hex()} signed a Migrate to {to.public.hex()}; {at}"


def still(key: PrivateKey, seq: int, type_: str = "message") -> str:
    return f"{key.public.hex()} signed event {seq}, of type {type_}, where it was not the sequencer"


OWN_HAND = "its own signature handed the enclave over"
RETURN = "that no later Migrate gave the enclave back to it"
UNAWARE = ("that the Migrate's author was the owner", "that the old sequencer knew of it")


@pytest.mark.parametrize(
    ("migrated", "event", "verdict"),
    [
        (TO_B, message(6, A), Verdict(True, (moved(TO_B, B), still(A, 6), OWN_HAND), (KEY_OWNER,))),
        # A may have the enclave back since, or by this very event
        (TO_B, message(7, A), Verdict(False, (moved(TO_B, B), still(A, 7), OWN_HAND), (RETURN, KEY_OWNER))),
        (
            TO_B,
            migrate(6, A, A),
            Verdict(False, (moved(TO_B, B), still(A, 6, "Migrate"), OWN_HAND), (RETURN, KEY_OWNER)),
        ),
        (TO_B, migrate(6, A, C), Verdict(True, (moved(TO_B, B), still(A, 6, "Migrate"), OWN_HAND), (KEY_OWNER,))),
        # B may not know of the takeover
        (
            TAKEN_BY_C,
            message(9, B),
            Verdict(False, (moved(TAKEN_BY_C, C), still(B, 9)), (RETURN, *UNAWARE, KEY_OWNER)),
        ),
        (
            TAKEN_BY_C,
            message(10, B),
            Verdict(False, (moved(TAKEN_BY_C, C), still(B, 10)), (RETURN, *UNAWARE, KEY_OWNER)),
        ),
    ],
    ids=range(6),
)
def test_evidence_of_an_event_convicts_after_its_signer_s_own_migrate_alone(
    migrated: Event, event: Event, verdict: Verdict
) -> None:
    assert check_evidence(load_evidence(split_event(migrated, event, "why").json())) == verdict


@pytest.mark.parametrize(
    ("migrated", "event"),
    [
        (TO_B, message(5, A)),
        (TO_B, message(4, A)),
        (TO_B, TO_B),
        (TAKEN_BY_C, message(8, B)),
        (TO_B, message(6, B)),
        (message(5, A), message(6, A)),
        (migrate(5, A, B, sha256(b"other")), message(6, A)),
        (migrate(5, A, A), message(6, A)),
        (migrate(5, A, B, type_="Pause"), message(6, A)),
        (replace(TO_B, seq_sig=bytes(64)), message(6, A)),
        (TO_B, replace(message(6, A), sig=bytes(64))),
        (TO_B, message(6, A, enclave=sha256(b"other"))),
    ],
    ids=range(12),
)
def test_what_is_no_evidence(migrated: Event, event: Event) -> None:
    evidence = replace(split_event(migrated, event, "why"), enclave=ENCLAVE, sequencer=event.sequencer)
    with pytest.raises(InvalidProof):
        check_evidence(evidence)


def test_evidence_names_who_signed_the_event() -> None:
    for sequencer in (B, C):
        evidence = replace(split_event(TO_B, message(6, A), "why"), sequencer=sequencer.public)
        with pytest.raises(InvalidProof):
            check_evidence(evidence)


def test_evidence_after_a_migrate_is_one_event_or_one_head() -> None:
    event, over = split_event(TO_B, message(6, A), "why"), split_head(TO_B, 3, head(4, A), A.public, "why")
    for parts in ({**event.parts, **over.parts}, {"migrate": event.parts["migrate"], "size": 3}):
        with pytest.raises(InvalidProof, match="expected one of event and head"):
            check_evidence(replace(event, parts=parts))


def test_evidence_of_a_head_beyond_what_its_signer_left() -> None:
    for size in (0, 3):
        verdict = check_evidence(load_evidence(split_head(TO_B, size, head(4, A), A.public, "why").json()))
        word = f"that the log had {size} bundles when event 5 was made: that is the client's word"
        signed = f"{A.public.hex()} signed a head of 4 bundles"
        assert verdict == Verdict(False, (moved(TO_B, B), signed, OWN_HAND), (word, RETURN, KEY_OWNER))
    unknown = split_head(TO_B, 0, head(4, A), A.public, "why")
    without = replace(unknown, parts={name: part for name, part in unknown.parts.items() if name != "size"})
    assert check_evidence(without) == check_evidence(unknown)
    for size, found, signer in ((4, head(4, A), A), (3, head(4, B), A), (3, head(4, B), B), (-1, head(4, A), A)):
        with pytest.raises(InvalidProof):
            check_evidence(split_head(TO_B, size, found, signer.public, "why"))


def test_two_signers_are_no_proof_against_one() -> None:
    """Heads of two sequencers do not convict one of them: neither of a rollback nor of two logs of one size."""
    old = sign_head(B, ENCLAVE, T + 1, 3, sha256(b"other"))
    verdict = check_evidence(two_heads("fork", ENCLAVE, B.public, "why", head(3, A), old, A.public))
    both = f"{A.public.hex()} signed a head of 3 bundles, and {B.public.hex()} one of 3, for this enclave"
    proved = (both, "their roots are different: no log has both")
    assert verdict == Verdict(False, proved, ("which of the two rewrote the log",))
    with pytest.raises(InvalidProof):
        check_evidence(two_heads("rollback", ENCLAVE, B.public, "why", head(4, A), old, A.public))
    with pytest.raises(InvalidProof):
        check_evidence(two_heads("fork", ENCLAVE, B.public, "why", head(3, A), old, C.public))
