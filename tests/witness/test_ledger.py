"""The ledger: co-signed heads stay, and nothing contradicts them."""

import sqlite3
from pathlib import Path

import pytest

from enc.client.verify.pins import Pin, pin_of
from enc.client.verify.sequencer_history import History
from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.hashing import sha256
from enc.core.trees.cosigning import check_cosigned
from enc.core.trees.tree_head import sign_head
from enc.witness.ledger import HeadLedger
from tests.core.world import person

NODE, OTHER, WITNESS = person("node"), person("other"), person("walter")
ENCLAVE, SECOND = sha256(b"one"), sha256(b"two")


def a_ledger(
    folder: Path, keep: int = 100, key: object = WITNESS, listed: tuple[bytes, ...] = (ENCLAVE,)
) -> HeadLedger:
    return HeadLedger(folder, key, lambda: 1_800_000_000_000, listed, keep)  # type: ignore[arg-type]


def a_pin(size: int, root: str = "", enclave: bytes = ENCLAVE) -> Pin:
    head = sign_head(NODE, enclave, 1_700_000_000_000, size, sha256(f"{size}{root}".encode()))
    return pin_of(NODE.public, head, History(NODE.public))


def sizes(ledger: HeadLedger, enclave: bytes | None = None) -> list[int]:
    rows = [row.cosigned for row in ledger.page(0, 1000, enclave)]
    for row in rows:
        check_cosigned(row, WITNESS.public, row.enclave)
    return [row.head.ts for row in rows]


def test_what_is_believed_is_co_signed_and_is_there_after_a_restart(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    for size in (1, 3, 3, 7):
        ledger.store(ENCLAVE, a_pin(size))
    assert sizes(ledger) == [1, 3, 7]
    ledger.close()
    ledger = a_ledger(tmp_path)
    assert ledger.load(ENCLAVE) == a_pin(7)
    latest, third = ledger.latest(ENCLAVE), ledger.at(ENCLAVE, 3)
    assert latest is not None
    assert third is not None
    assert (latest.cosigned.head.ts, third.cosigned.head, ledger.at(ENCLAVE, 4)) == (7, a_pin(3).head, None)
    assert (ledger.latest(SECOND), ledger.page(3, 10), len(ledger.page(1, 1))) == (None, [], 1)
    ledger.close()


def test_a_smaller_head_or_another_of_one_size_leaves_all_as_it_was(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger.store(ENCLAVE, a_pin(5))
    for pin in (a_pin(4), a_pin(5, "another"), Pin(NODE.public, None), Pin(OTHER.public, a_pin(9).head)):
        ledger.store(ENCLAVE, pin)
    assert (sizes(ledger), ledger.load(ENCLAVE)) == ([5], a_pin(5))
    ledger.close()


@pytest.mark.parametrize("pin", [a_pin(4), a_pin(5, "another")], ids=["smaller", "other"])
def test_whoever_is_believed_nothing_is_signed_beside_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pin: Pin
) -> None:
    """In every case, even if another sequencer's head has replaced the one before."""
    monkeypatch.setattr("enc.witness.ledger.merge_pins", lambda old, new: new)
    ledger = a_ledger(tmp_path)
    ledger.store(ENCLAVE, a_pin(5))
    with pytest.raises(MisuseError, match="nothing is signed"):
        ledger.store(ENCLAVE, pin)
    assert (sizes(ledger), ledger.load(ENCLAVE)) == ([5], a_pin(5))
    ledger.close()


@pytest.mark.parametrize("pin", [a_pin(9), a_pin(3), a_pin(5, "another")], ids=["larger", "smaller", "other"])
def test_a_pin_that_was_lost_beside_its_heads_signs_nothing_more(tmp_path: Path, pin: Pin) -> None:
    """Otherwise later heads would be checked against nothing."""
    ledger = a_ledger(tmp_path)
    ledger.store(ENCLAVE, a_pin(5))
    ledger.close()
    with sqlite3.connect(tmp_path / "witness.db") as db:
        db.execute("DELETE FROM pins")
    db.close()
    ledger = a_ledger(tmp_path)
    with pytest.raises(MisuseError, match="nothing is signed"):
        ledger.store(ENCLAVE, pin)
    assert (sizes(ledger), ledger.load(ENCLAVE)) == ([5], None)
    ledger.close()


def test_it_forgets_nothing_when_told_to(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger.store(ENCLAVE, a_pin(5))
    with pytest.raises(MisuseError):
        ledger.remove(ENCLAVE)
    assert ledger.load(ENCLAVE) == a_pin(5)
    ledger.close()


def test_only_what_is_listed_is_co_signed(tmp_path: Path) -> None:
    """The same ledger holds the pin of a registry, which the witness was not configured to
    follow.
    """
    ledger = a_ledger(tmp_path)
    ledger.store(SECOND, a_pin(5, enclave=SECOND))
    assert (sizes(ledger), ledger.load(SECOND)) == ([], a_pin(5, enclave=SECOND))
    ledger.close()
    ledger = a_ledger(tmp_path, listed=(ENCLAVE, SECOND))
    ledger.store(SECOND, a_pin(6, enclave=SECOND))
    ledger.store(ENCLAVE, a_pin(1))
    assert (sizes(ledger, SECOND), sizes(ledger, ENCLAVE)) == ([6], [1])
    ledger.close()


def test_so_many_heads_are_kept_and_always_the_latest(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path, keep=3, listed=(ENCLAVE, SECOND))
    ledger.store(SECOND, a_pin(1, enclave=SECOND))
    for size in range(1, 9):
        ledger.store(ENCLAVE, a_pin(size))
    assert (sizes(ledger, ENCLAVE), sizes(ledger, SECOND)) == ([6, 7, 8], [1])
    ledger.close()
    ledger = a_ledger(tmp_path, keep=1)
    ledger.store(ENCLAVE, a_pin(9))
    assert sizes(ledger, ENCLAVE) == [9]
    ledger.close()


def test_one_process_and_one_key(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    with pytest.raises(MisuseError, match="another witness is using it"):
        a_ledger(tmp_path)
    ledger.close()
    with pytest.raises(MisuseError, match=f"is the ledger of witness {WITNESS.public.hex()}"):
        a_ledger(tmp_path, key=OTHER)
    a_ledger(tmp_path).close()


def test_what_is_no_ledger_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "witness.db").write_bytes(b"something else")
    (tmp_path / "witness.db").chmod(0o600)
    with pytest.raises(MisuseError, match="is not a "):
        a_ledger(tmp_path)
    assert (tmp_path / "witness.db").read_bytes() == b"something else"
    (tmp_path / "witness.db").unlink()
    with sqlite3.connect(tmp_path / "witness.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    (tmp_path / "witness.db").chmod(0o600)
    with pytest.raises(MisuseError, match="is not a "):
        a_ledger(tmp_path)


def test_a_disk_that_fails_is_said_and_nothing_is_shown(tmp_path: Path) -> None:
    ledger = a_ledger(tmp_path)
    ledger.store(ENCLAVE, a_pin(1))
    ledger._db.execute("PRAGMA query_only = 1")
    with pytest.raises(Unavailable, match="cannot be written"):
        ledger.store(ENCLAVE, a_pin(2))
    assert (sizes(ledger), ledger.load(ENCLAVE)) == ([1], a_pin(1))
    ledger._db.execute("PRAGMA query_only = 0")
    ledger.store(ENCLAVE, a_pin(2))
    assert sizes(ledger) == [1, 2]
    ledger.close()
