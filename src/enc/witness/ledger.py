"""The ledger: a witness's pins, its co-signed heads and its evidence; one SQLite file, one process.

The pin of an enclave (what its client side trusts) and the co-signature of a new head are written
in one transaction. So after a crash at any point both exist or neither does, and the next head is
compared with every one that was co-signed:

 1. a head is written before it is published
 2. the heads of one enclave never shrink, and there is one root for each size
 3. the latest head of an enclave is never dropped
"""

import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from msgspec import Struct
from msgspec.json import encode

from enc.client.evidence.evidence import Evidence
from enc.client.verify.pins import Pin, format_pin, merge_pins, parse_pin
from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import TreeHead
from enc.core.trees.cosigning import CosignedHead, cosign, parse_cosigned, wire_cosigned
from enc.runtime import private_file
from enc.runtime.locks import FileLock, LockHeld
from enc.witness.evidence_store import EvidenceStore, StoredEvidence

APPLICATION, VERSION = 0x454E4357, 1
"""The database's application id, "ENCW", and its version."""

_SCHEMA = """
CREATE TABLE witness (key BLOB NOT NULL);
CREATE TABLE pins (enclave BLOB PRIMARY KEY, pin BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE heads (
  n INTEGER PRIMARY KEY AUTOINCREMENT, enclave BLOB NOT NULL, size INTEGER NOT NULL, sequencer BLOB NOT NULL,
  root BLOB NOT NULL, wire BLOB NOT NULL, UNIQUE (enclave, size, sequencer)
);
CREATE TABLE evidence (
  n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, enclave BLOB NOT NULL, kind TEXT NOT NULL,
  convicts INTEGER NOT NULL, at INTEGER NOT NULL, message TEXT NOT NULL, body BLOB NOT NULL
);
CREATE INDEX evidence_of ON evidence (enclave, convicts);
"""


class LedgerRow(Struct, frozen=True):
    """One co-signed head: its number in the ledger and its wire form."""

    n: int
    wire: bytes

    @property
    def cosigned(self) -> CosignedHead:
        return parse_cosigned(self.wire)


class HeadLedger:
    """`now`: Unix milliseconds. `followed`: enclaves whose heads are co-signed. `keep`: heads
    stored for each.

    It implements `enc.client.verify.pins.Pins`: every head that the client pins, it co-signs.
    """

    def __init__(
        self, folder: Path, key: Signer, now: Callable[[], int], followed: Collection[bytes], keep: int
    ) -> None:
        self._key, self._now, self._followed, self._keep = key, now, frozenset(followed), keep
        self._db_lock = RLock()
        """Held for each use of the database: threads that check signatures also write to it."""
        private_file.make_directory(folder)
        path = folder / "witness.db"
        self._lock = _locked(folder / "witness.lock")
        try:
            private_file.create(path)
            self._db = _open(path)
            self._check_owner(path)
        except BaseException:
            self._lock.close()
            raise
        self.evidence = EvidenceStore(self._db, self._db_lock, folder / "evidence")

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    def _check_owner(self, path: Path) -> None:
        found = self._db.execute("SELECT key FROM witness").fetchone()
        if found is None:
            self._db.execute("INSERT INTO witness VALUES (?)", (self._key.public,))
        elif found != (self._key.public,):
            private_file.refuse(path, f"is the ledger of witness {found[0].hex()}; give its key, or another --data")

    # Pins

    def check(self) -> None:
        """Do nothing: writing shows whether the ledger can be written."""

    def load(self, enclave: bytes) -> Pin | None:
        with self._db_lock:
            row = self._db.execute("SELECT pin FROM pins WHERE enclave = ?", (enclave,)).fetchone()
        return None if row is None else parse_pin(enclave, row[0])

    def store(self, enclave: bytes, pin: Pin) -> None:
        """Store a pin and co-sign its head if it is new. Both are on disk when this returns."""
        with self._db_lock:
            old = self.load(enclave)
            new = merge_pins(old, pin)
            before = old.head if old else None
            if new == old or (before is not None and new.head is None):
                return
            with self._transaction():
                self._write_pin(enclave, new)
                if new.head is not None and new.head.ts and enclave in self._followed:
                    self._cosign(enclave, new.sequencer, new.head, before)

    def remove(self, enclave: bytes) -> None:
        raise MisuseError("a witness cannot remove pins: it must remember what it co-signed")

    def _write_pin(self, enclave: bytes, pin: Pin) -> None:
        self._db.execute("INSERT OR REPLACE INTO pins VALUES (?, ?)", (enclave, format_pin(enclave, pin)))

    def _cosign(self, enclave: bytes, sequencer: bytes, head: TreeHead, before: TreeHead | None) -> None:
        """Co-sign a head. The caller has checked it against the pin `before`; rule 2 is checked
        again.
        """
        last = self._db.execute(
            "SELECT size, root FROM heads WHERE enclave = ? ORDER BY size DESC, n DESC LIMIT 1", (enclave,)
        ).fetchone()
        if last is not None and (
            before is None or before.ts < last[0] or head.ts < last[0] or (head.ts == last[0] and head.r != last[1])
        ):
            raise MisuseError(f"enclave {enclave.hex()}: the pin contradicts the co-signed heads: nothing is signed")
        cosigned = cosign(self._key, enclave, sequencer, head, self._now())
        self._db.execute(
            "INSERT OR IGNORE INTO heads (enclave, size, sequencer, root, wire) VALUES (?, ?, ?, ?, ?)",
            (enclave, head.ts, sequencer, head.r, encode(wire_cosigned(cosigned))),
        )
        self._db.execute(
            "DELETE FROM heads WHERE enclave = ?1 AND n < "
            "(SELECT n FROM heads WHERE enclave = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)",
            (enclave, self._keep - 1),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as e:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise Unavailable(f"the ledger cannot be written: {e}", retry_after_ms=1000) from None

    # Co-signed heads and evidence

    def latest(self, enclave: bytes) -> LedgerRow | None:
        return self._head("enclave = ? AND size > ?", enclave, 0)

    def at(self, enclave: bytes, size: int) -> LedgerRow | None:
        """Return the latest head of this size: after a move there are two, with one root."""
        return self._head("enclave = ? AND size = ?", enclave, size)

    def _head(self, where: str, enclave: bytes, size: int) -> LedgerRow | None:
        sql = f"SELECT n, wire FROM heads WHERE {where} ORDER BY size DESC, n DESC LIMIT 1"  # noqa: S608
        with self._db_lock:
            row = self._db.execute(sql, (enclave, size)).fetchone()
        return None if row is None else LedgerRow(*row)

    def page(self, after: int, limit: int, enclave: bytes | None = None) -> list[LedgerRow]:
        """Return heads in the order in which they were co-signed."""
        sql = "SELECT n, wire FROM heads WHERE n > ?1 AND (?3 IS NULL OR enclave = ?3) ORDER BY n LIMIT ?2"
        with self._db_lock:
            return [LedgerRow(*row) for row in self._db.execute(sql, (after, limit, enclave))]

    def add_evidence(self, evidence: Evidence) -> StoredEvidence | None:
        """Store evidence; return None if the limit for its enclave is reached."""
        try:
            return self.evidence.add(evidence, self._now())
        except sqlite3.Error as e:
            raise Unavailable(f"the ledger cannot be written: {e}", retry_after_ms=1000) from None


def _open(path: Path) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        marks = [
            db.execute(sql).fetchone()[0]
            for sql in ("SELECT count(*) FROM sqlite_schema", "PRAGMA application_id", "PRAGMA user_version")
        ]
        if marks[0] == 0:
            made = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
            db.executescript(f"BEGIN; {_SCHEMA} {made} COMMIT;")
        elif marks[1:] != [APPLICATION, VERSION]:
            private_file.refuse(path, "is not a witness's ledger of a known version; give another --data")
    except sqlite3.Error as e:
        private_file.refuse(path, f"is not a ledger: {e}")
    return db


def _locked(path: Path) -> FileLock:
    """Lock the ledger until the process ends: two processes could co-sign two heads of one size."""
    try:
        return FileLock(path)
    except LockHeld:
        private_file.refuse(path.parent, "another witness is using it; stop that one, or give another --data")
    except OSError as e:
        private_file.refuse(path, f"cannot be created: {private_file.reason(e)}")
