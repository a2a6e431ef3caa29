"""Summaries of batches, against counting one by one. Without Spark."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from enc.dataview.rows.batch_summary import BatchSummary, merge_summaries, summarize_batch
from enc.dataview.rows.schema import VERIFIED, arrow_schema

SCHEMA = pa.schema(
    [arrow_schema(VERIFIED).field(name) for name in "enclave seq id timestamp sequencer type withheld code".split()]
)
Row = tuple[str, int, str, bool, bool]
ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.sampled_from("kl"), st.booleans(), st.booleans()),
    max_size=40,
)


def batch(rows: list[Row]) -> pa.RecordBatch:
    """Return rows of: enclave, seq, signer, whether it is a Migrate, whether it is rejected."""
    columns: list[list[Any]] = [
        [row[0] for row in rows],
        [row[1] for row in rows],
        [f"id{row[1]}" for row in rows],
        [row[1] * 1000 for row in rows],
        [row[2] for row in rows],
        ["Migrate" if row[3] else "note" for row in rows],
        [{"node": f"by {row[2]}"} if row[1] % 2 else None for row in rows],
        ["BAD" if row[4] else None for row in rows],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@settings(deadline=None)
@given(ROWS, st.integers(1, 7))
def test_as_counted_one_by_one_however_it_is_cut(rows: list[Row], size: int) -> None:
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    found = merge_summaries(summarize_batch(batch(part)) for part in parts)
    good = [row for row in rows if not row[4]]
    assert found.refused == len(rows) - len(good)
    assert set(found.enclaves) == {row[0] for row in good}
    for name, seen in found.enclaves.items():
        mine = [row for row in good if row[0] == name]
        seqs = {row[1] for row in mine}
        assert seen.rows == len(mine)
        assert seen.has_duplicates == (len(seqs) != len(mine))
        assert (seen.first, seen.next_seq) == (min(seqs), max(seqs) + 1)
        assert {seq for start, end in seen.ranges for seq in range(start, end)} == seqs
        assert seen.head == (f"id{max(seqs)}", max(seqs) * 1000)
        assert seen.has_migrate == any(row[3] for row in mine)
        assert sorted(seen.withheld_by) == sorted({f"by {row[2]}" for row in mine if row[1] % 2})
        firsts = {key: min(row[1] for row in mine if row[2] == key) for key in {row[2] for row in mine}}
        assert sorted(seen.first_signed) == sorted((seq, key) for key, seq in firsts.items())


def test_the_bytes_of_what_is_not_refused() -> None:
    row: Row = ("a", 0, "k", False, False)
    one, two = (
        summarize_batch(batch([row])),
        summarize_batch(batch([row, ("a", 1, "k", False, False), ("a", 2, "k", False, True)])),
    )
    assert 0 < one.bytes < two.bytes < 3 * one.bytes
    assert merge_summaries([one, two]).bytes == one.bytes + two.bytes


def test_nothing() -> None:
    assert merge_summaries([]) == BatchSummary({})
    assert summarize_batch(batch([])) == BatchSummary({})
