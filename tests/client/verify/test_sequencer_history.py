"""Sequencer histories: chains of Migrates, in pins and in proof files."""

from pathlib import Path
from typing import Any

import pytest

from enc.client.errors import TooManyMoves
from enc.client.evidence.check_evidence import check_evidence
from enc.client.evidence.evidence import load_evidence, split_event, split_head, two_heads
from enc.client.verify.pins import FilePins, Pin, merge_pins, pin_of
from enc.client.verify.sequencer_history import MAX_CONTENT, MAX_MOVES, History, history_of
from enc.core.errors import InvalidProof
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize
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


def message(seq: int, by: PrivateKey, text: str = "hello") -> Event:
    return finalize(build_commit(OWNER, ENCLAVE, "message", text, T + 60_000), by, T + seq, seq)


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
        (A, [migrate(5, A, B, more="x" * MAX_CONTENT)], "characters"),
        (A, [message(5, A)], "not a Migrate"),
    ],
    ids=range(8),
)
def test_what_is_no_chain(first: PrivateKey, events: list[Event], why: str) -> None:
    with pytest.raises(InvalidProof, match=why):
        history_of(first.public, events, ENCLAVE)


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


def test_evidence_of_an_event_after_its_signer_s_own_migrate_convicts() -> None:
    evidence = load_evidence(split_event(TO_B, message(6, A), "why").json())
    verdict = check_evidence(evidence)
    assert verdict.convicts
    assert not check_evidence(split_event(TO_B, message(7, A), "why")).convicts  # A may have it back since
    assert not check_evidence(split_event(TO_B, migrate(6, A, A), "why")).convicts  # by this very event
    assert not check_evidence(split_event(TAKEN_BY_C, message(9, B), "why")).convicts  # B may not know of the takeover


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
    ],
    ids=range(7),
)
def test_what_is_no_evidence(migrated: Event, event: Event) -> None:
    with pytest.raises(InvalidProof):
        check_evidence(split_event(migrated, event, "why"))


def test_evidence_of_a_head_beyond_what_its_signer_left() -> None:
    verdict = check_evidence(split_head(TO_B, 3, head(4, A), A.public, "why"))
    assert not verdict.convicts
    for size, found, signer in ((4, head(4, A), A), (3, head(4, B), A), (3, head(4, B), B)):
        with pytest.raises(InvalidProof):
            check_evidence(split_head(TO_B, size, found, signer.public, "why"))


def test_two_signers_are_no_proof_against_one() -> None:
    """Heads of two sequencers do not convict one of them: neither of a rollback nor of two logs of one size."""
    old = sign_head(B, ENCLAVE, T + 1, 3, sha256(b"other"))
    verdict = check_evidence(two_heads("fork", ENCLAVE, B.public, "why", head(3, A), old, A.public))
    assert not verdict.convicts
    with pytest.raises(InvalidProof):
        check_evidence(two_heads("rollback", ENCLAVE, B.public, "why", head(4, A), old, A.public))
    with pytest.raises(InvalidProof):
        check_evidence(two_heads("fork", ENCLAVE, B.public, "why", head(3, A), old, C.public))
