"""Evidence that a witness found, in its database and as files that `enc verify` reads.

Evidence that convicts and evidence that does not have separate limits, so that a node that keeps
sending garbage cannot displace evidence that counts.
"""

import sqlite3
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from enc.client.evidence.check_evidence import check_evidence
from enc.client.evidence.evidence import Evidence
from enc.core.errors import InvalidProof
from enc.runtime import private_file

MAX_OF_ENCLAVE = 32
"""Evidence files about one enclave that convict; and as many that do not."""
MAX_ANSWER = 1 << 16
"""Characters of a node's unsigned answer that are stored."""
ID_SIZE = 16


class StoredEvidence(Struct, frozen=True):
    n: int
    id: str
    enclave: bytes
    kind: str
    convicts: bool
    at: int
    message: str
    is_new: bool = False


_SELECT = "SELECT n, id, enclave, kind, convicts, at, message FROM evidence "


class EvidenceStore:
    """`lock`: held for each use of the database, which the ledger shares."""

    def __init__(self, db: sqlite3.Connection, lock: AbstractContextManager[object], folder: Path) -> None:
        self._db, self._lock, self._folder = db, lock, folder
        for filed in self.page(0, -1):  # after a crash, a file may be missing
            self._write(filed)

    def add(self, evidence: Evidence, at: int) -> StoredEvidence | None:
        """Store evidence once; return None if the limit for its enclave is reached."""
        evidence = _bounded(evidence)
        body = evidence.json()
        id_, convicts = sha256(body).hexdigest()[: 2 * ID_SIZE], _convicts(evidence)
        with self._lock:
            known = self.get(id_)
            if known is not None:
                return known
            if self._count(evidence.enclave, convicts) >= MAX_OF_ENCLAVE:
                return None
            self._db.execute(
                "INSERT INTO evidence (id, enclave, kind, convicts, at, message, body) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (id_, evidence.enclave, evidence.kind, convicts, at, evidence.message, body),
            )
            n = self._db.execute("SELECT last_insert_rowid()").fetchone()[0]
        filed = StoredEvidence(n, id_, evidence.enclave, evidence.kind, convicts, at, evidence.message, is_new=True)
        self._write(filed)
        return filed

    def _write(self, filed: StoredEvidence) -> None:
        path = self._folder / f"enc-evidence-{filed.kind}-{filed.id}.json"
        if not path.exists():
            private_file.make_directory(self._folder)
            private_file.write(path, self.body(filed.id) or b"", overwrite=True)

    def _count(self, enclave: bytes, convicts: bool) -> int:
        sql = "SELECT count(*) FROM evidence WHERE enclave = ? AND convicts = ?"
        with self._lock:
            return int(self._db.execute(sql, (enclave, convicts)).fetchone()[0])

    def count(self, enclave: bytes) -> int:
        """Return how much evidence about an enclave is stored."""
        return self._count(enclave, True) + self._count(enclave, False)

    def get(self, id_: str) -> StoredEvidence | None:
        with self._lock:
            row = self._db.execute(_SELECT + "WHERE id = ?", (id_,)).fetchone()
        return None if row is None else _stored(row)

    def body(self, id_: str) -> bytes | None:
        with self._lock:
            row = self._db.execute("SELECT body FROM evidence WHERE id = ?", (id_,)).fetchone()
        return None if row is None else row[0]

    def page(self, after: int, limit: int) -> list[StoredEvidence]:
        with self._lock:
            rows = self._db.execute(_SELECT + "WHERE n > ? ORDER BY n LIMIT ?", (after, limit)).fetchall()
        return [_stored(row) for row in rows]


def _stored(row: tuple[int, str, bytes, str, int, int, str]) -> StoredEvidence:
    n, id_, enclave, kind, convicts, at, message = row
    return StoredEvidence(n, id_, enclave, kind, bool(convicts), at, message)


def _bounded(evidence: Evidence) -> Evidence:
    answer = evidence.parts.get("answer")
    if isinstance(answer, str) and len(answer) > MAX_ANSWER:
        return replace(evidence, parts={**evidence.parts, "answer": answer[:MAX_ANSWER]})
    return evidence


def _convicts(evidence: Evidence) -> bool:
    try:
        return check_evidence(evidence).convicts
    except InvalidProof:
        return False
