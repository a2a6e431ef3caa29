"""The rows of tables in a SQLite file, which an app may also query by itself.

    SELECT json_extract(content, '$.what') FROM enc_rows WHERE type = 'dish'

`withheld` is the statement of a node that withholds the current content, as JSON; else null.
A file may hold several tables, one for each enclave and set of types. A table of valid rows
(`valid=True`) also keeps the others here; they have `violations`.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from enc.client.enclave.table import Row, Staged
from enc.core.errors import MisuseError, Unavailable
from enc.core.log.withheld import WireWithheld, wire_withheld, withheld_from_wire

_SCHEMA = """
CREATE TABLE IF NOT EXISTS enc_tables (
  enclave BLOB, types TEXT, seq INTEGER NOT NULL, PRIMARY KEY (enclave, types)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS enc_rows (
  enclave BLOB, types TEXT, id BLOB, seq INTEGER NOT NULL, type TEXT NOT NULL, author BLOB NOT NULL,
  timestamp INTEGER NOT NULL, tags TEXT NOT NULL, content TEXT, changed_seq INTEGER NOT NULL,
  changed_by BLOB NOT NULL, changed INTEGER NOT NULL, violations TEXT, withheld TEXT,
  PRIMARY KEY (enclave, types, id)
) WITHOUT ROWID;
"""
_COLUMNS = "id, seq, type, author, timestamp, tags, content, changed_seq, changed_by, changed, violations, withheld"
_LOAD = f"SELECT {_COLUMNS} FROM enc_rows WHERE enclave = ? AND types = ? ORDER BY seq"  # noqa: S608
_SAVE = f"INSERT OR REPLACE INTO enc_rows (enclave, types, {_COLUMNS}) VALUES ({', '.join('?' * 14)})"  # noqa: S608


class TableFile:
    """One table in a SQLite file. Only one program at a time may fold into it."""

    def __init__(self, path: Path, enclave: bytes, types: Sequence[str], *, valid: bool = False) -> None:
        named = msgspec.json.encode(sorted(types)).decode()
        self._path, self._key = path, (enclave, f"{named} valid" if valid else named)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as e:
            raise MisuseError(f"{path}: cannot be opened: {e}") from None
        try:
            self._db.executescript(_SCHEMA)
            if not any(column[1] == "withheld" for column in self._db.execute("PRAGMA table_info(enc_rows)")):
                self._db.execute("ALTER TABLE enc_rows ADD COLUMN withheld TEXT")  # a file of an earlier version
        except sqlite3.Error as e:
            self._db.close()
            raise MisuseError(f"{path}: is not a SQLite file for tables: {e}") from None

    def load(self) -> tuple[list[Row], int]:
        """Return the saved rows and the seq of the last folded event; -1 before the first."""
        try:
            with self._db:
                self._db.execute("INSERT OR IGNORE INTO enc_tables VALUES (?, ?, -1)", self._key)
                rows = [_row(*found) for found in self._db.execute(_LOAD, self._key)]
                return rows, self._seq()
        except (sqlite3.Error, msgspec.MsgspecError) as e:
            self._db.close()
            raise MisuseError(f"{self._path}: cannot be read: {e}") from None

    def _seq(self) -> int:
        found = self._db.execute("SELECT seq FROM enc_tables WHERE enclave = ? AND types = ?", self._key)
        return int(found.fetchone()[0])

    def save(self, staged: Staged, before: int, seq: int) -> None:
        """Save changes and the new seq in one transaction."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            if self._seq() != before:
                raise MisuseError(f"{self._path}: another program folds into this table; close one of them")
            for id_, row in staged.items():
                if row is None:
                    sql = "DELETE FROM enc_rows WHERE enclave = ? AND types = ? AND id = ?"
                    self._db.execute(sql, (*self._key, id_))
                else:
                    self._db.execute(_SAVE, (*self._key, *_columns(row)))
            self._db.execute("UPDATE enc_tables SET seq = ? WHERE enclave = ? AND types = ?", (seq, *self._key))
            self._db.execute("COMMIT")
        except BaseException as e:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(e, sqlite3.Error):
                raise Unavailable(f"{self._path}: the table cannot be saved: {e}") from None
            raise

    def close(self) -> None:
        self._db.close()


def _columns(row: Row) -> tuple[object, ...]:
    tags = msgspec.json.encode(row.tags).decode()
    named = (row.id, row.seq, row.type, row.author, row.timestamp, tags, row.content)
    violations = msgspec.json.encode(row.violations).decode() if row.violations else None
    withheld = msgspec.json.encode(wire_withheld(row.withheld)).decode() if row.withheld else None
    return (*named, row.changed_seq, row.changed_by, row.changed, violations, withheld)


def _row(*columns: object) -> Row:
    found = dict(zip(_COLUMNS.split(", "), columns, strict=True))
    found["tags"] = tuple(map(tuple, msgspec.json.decode(str(found["tags"]), type=list[list[str]])))
    found["violations"] = tuple(msgspec.json.decode(str(found["violations"] or "[]"), type=list[str]))
    if found["withheld"] is not None:
        found["withheld"] = withheld_from_wire(msgspec.json.decode(str(found["withheld"]), type=WireWithheld))
    return Row(**found)  # type: ignore[arg-type]
