"""The docket: evidence that a witness met, in its ledger and as files that `enc verify` reads.

What convicts and what does not are bounded apart: a node that sends rubbish all day crowds out nothing that counts.
"""

import sqlite3
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from enc.client.evidence import Evidence, check_evidence
from enc.core.errors import InvalidProof
from enc.runtime import private_file

MAX_OF_ENCLAVE = 32
"""Pieces of evidence about one enclave that convict; and as many that do not."""
MAX_WORDS = 1 << 16
"""Characters of what came over the wire that are kept as somebody's word."""
ID_SIZE = 16


class Filed(Struct, frozen=True):
    n: int
    id: str
    enclave: bytes
    kind: str
    convicts: bool
    at: int
    message: str
    is_new: bool = False


_SELECT = "SELECT n, id, enclave, kind, convicts, at, message FROM evidence "


class Docket:
    """`alone`: held for each use of the database, which others use as well."""

    def __init__(self, db: sqlite3.Connection, alone: AbstractContextManager[object], folder: Path) -> None:
        self._db, self._alone, self._folder = db, alone, folder
        for filed in self.page(0, -1):  # a crash may have come between the ledger and the file
            self._write(filed)

    def file(self, evidence: Evidence, at: int) -> Filed | None:
        """Keep it once, however often it comes; None where there is enough."""
        evidence = _bounded(evidence)
        body = evidence.json()
        id_, convicts = sha256(body).hexdigest()[: 2 * ID_SIZE], _convicts(evidence)
        with self._alone:
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
        filed = Filed(n, id_, evidence.enclave, evidence.kind, convicts, at, evidence.message, is_new=True)
        self._write(filed)
        return filed

    def _write(self, filed: Filed) -> None:
        path = self._folder / f"enc-evidence-{filed.kind}-{filed.id}.json"
        if not path.exists():
            private_file.make_directory(self._folder)
            private_file.write(path, self.body(filed.id) or b"", overwrite=True)

    def _count(self, enclave: bytes, convicts: bool) -> int:
        sql = "SELECT count(*) FROM evidence WHERE enclave = ? AND convicts = ?"
        with self._alone:
            return int(self._db.execute(sql, (enclave, convicts)).fetchone()[0])

    def of(self, enclave: bytes) -> int:
        """Pieces of evidence about an enclave."""
        return self._count(enclave, True) + self._count(enclave, False)

    def get(self, id_: str) -> Filed | None:
        with self._alone:
            row = self._db.execute(_SELECT + "WHERE id = ?", (id_,)).fetchone()
        return None if row is None else _filed(row)

    def body(self, id_: str) -> bytes | None:
        with self._alone:
            row = self._db.execute("SELECT body FROM evidence WHERE id = ?", (id_,)).fetchone()
        return None if row is None else row[0]

    def page(self, after: int, limit: int) -> list[Filed]:
        with self._alone:
            rows = self._db.execute(_SELECT + "WHERE n > ? ORDER BY n LIMIT ?", (after, limit)).fetchall()
        return [_filed(row) for row in rows]


def _filed(row: tuple[int, str, bytes, str, int, int, str]) -> Filed:
    n, id_, enclave, kind, convicts, at, message = row
    return Filed(n, id_, enclave, kind, bool(convicts), at, message)


def _bounded(evidence: Evidence) -> Evidence:
    words = evidence.parts.get("answer")
    if isinstance(words, str) and len(words) > MAX_WORDS:
        return replace(evidence, parts={**evidence.parts, "answer": words[:MAX_WORDS]})
    return evidence


def _convicts(evidence: Evidence) -> bool:
    try:
        return check_evidence(evidence).convicts
    except InvalidProof:
        return False
