"""Rows are decoded from pages as SQLite writes them; a damaged page raises BadRecord and nothing else."""

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from enc.node.salvage.records import KEYS, ROWS, BadRecord, RecordPage, Value

SIZE = 4096
ROW: list[Value] = [None, 0, 1, -3, 300, 70_000, 1 << 30, 1 << 40, -(1 << 62), 1.5, "ünï", "text", b"blob", "", b""]


def pages(path: Path, sql: str) -> list[bytes]:
    """Return the pages of a database with a table t of 15 columns, which has one row."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA page_size = {SIZE}")
        db.execute(sql)
        db.execute(f"INSERT INTO t VALUES ({','.join('?' * len(ROW))})", ROW)  # noqa: S608
    raw = path.read_bytes()
    return [raw[i : i + SIZE] for i in range(0, len(raw), SIZE)]


def page(data: bytes, number: int = 2, others: list[bytes] | None = None) -> RecordPage:
    return RecordPage(data, number, SIZE, 10, lambda n: others[n - 1] if others and n <= len(others) else None)


COLUMNS = "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o"


@pytest.fixture
def table(tmp_path: Path) -> bytes:
    return pages(tmp_path / "db", f"CREATE TABLE t ({COLUMNS})")[1]


def test_every_type_of_value(table: bytes) -> None:
    found = page(table)
    assert (found.kind, len(found.cells), found.rowid(0)) == (ROWS, 1, 1)
    assert found.record(0) == ROW


def test_a_table_without_rowids(tmp_path: Path) -> None:
    data = pages(tmp_path / "db", f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (b)) WITHOUT ROWID")[1]
    found = page(data)
    assert found.kind == KEYS
    assert found.record(0) == [ROW[1], ROW[0], *ROW[2:]]  # the key first


def test_the_first_page_begins_after_the_header(tmp_path: Path) -> None:
    found = page(pages(tmp_path / "db", f"CREATE TABLE t ({COLUMNS})")[0], number=1)
    assert found.record(0)[:4] == ["table", "t", "t", 2]


def test_columns_that_do_not_fill_the_row(table: bytes) -> None:
    wrong = bytearray(table)
    wrong[table.index(21, page(table).cells[0])] = 19  # a text of three bytes, not four
    with pytest.raises(BadRecord):
        page(bytes(wrong)).record(0)


def test_any_damage(table: bytes) -> None:
    random = Random(1)
    for _ in range(2_000):
        data = bytearray(table)
        for _ in range(random.choice([1, 2, 5])):
            start = page(table).cells[0]
            at = random.choice([random.randrange(12), random.randrange(start, min(start + 40, SIZE))])
            data[at] = random.randrange(256)
        found = page(bytes(data), others=[table] * 9)
        for cell in range(min(3, len(found.cells))):
            for read in (found.record, found.rowid):
                try:
                    read(cell)
                except BadRecord:
                    continue
