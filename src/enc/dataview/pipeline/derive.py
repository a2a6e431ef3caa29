"""The second half of the pipeline: tables derived from events. See batch_context.py.

A batch of new events changes only the rows that these events concern. If an enclave's events arrive
out of order (a push overtook a pull, a gap was filled), all its rows are recomputed from `events`,
which is slower and gives the same result.

The order of the writes matters. `erasures` comes before `content_status`, whose old rows name the
contents to erase. `fold`, which records the progress of the derived tables, comes last.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.json import encode
from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast, coalesce, col, lit
from pyspark.sql.types import StructField, StructType

from enc.dataview.fold.content_fold import REVISIONS, revised_id
from enc.dataview.fold.run_folds import (
    KNOWN,
    REFUSED,
    KnownState,
    as_known_rows,
    fold_contents,
    fold_control,
    fold_on_driver,
)
from enc.dataview.fold.transforms.kinds import is_revision
from enc.dataview.fold.transforms.kinds import revised_id as revised
from enc.dataview.lake.cached_table import CachedTable
from enc.dataview.lake.driver_rows import Rows, collect_if_few, driver_frame
from enc.dataview.lake.lake import FOLD
from enc.dataview.lake.parquet import write_file
from enc.dataview.lake.row_filters import rows_of_enclaves, rows_of_others, rows_with
from enc.dataview.lake.tables import Txn
from enc.dataview.pipeline.batch_context import Batches, PipelineContext
from enc.dataview.pipeline.fold_output import EnclaveProgress, FoldOutput
from enc.dataview.rows.batch_summary import EnclaveSummary, summarize, summarize_table
from enc.dataview.rows.schema import NUMBER, QUARANTINE, TEXT

_ENDS = StructType([StructField("enclave", TEXT), StructField("_end", NUMBER)])
DERIVED = ("access", "slots", "enclaves", "content_status")
_DELETED_IF = {"slots": "value IS NULL"}
"""By table, the condition under which a row of the fold stands for a deletion."""


class Derive:
    """The body of the query over `events`."""

    def __init__(self, context: PipelineContext, app: str) -> None:
        self.context, self.batches, self.fold = context, Batches(app), CachedTable(context.lake["fold"], context.limits)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        DeriveBatch(self, batch, self.batches.txn(batch_id)).run()


class DeriveBatch:
    def __init__(self, derive: Derive, events: DataFrame, txn: Txn) -> None:
        self.context, self.lake, self.limits = derive.context, derive.context.lake, derive.context.limits
        self.txn, self.fold = txn, derive.fold
        self.events, self.spark = events, events.sparkSession
        self.progress: dict[str, EnclaveProgress] = {}
        self.states: dict[str, str | None] = {}
        self.commits = dict.fromkeys(DERIVED, 0)

    def run(self) -> None:
        self.context.reached("derive")
        taken = collect_if_few(self.events, self.limits)
        summary = (summarize(self.events) if taken is None else summarize_table(taken)).enclaves
        if not summary:
            return
        self._load_state(summary)
        late = [name for name, place in self.progress.items() if place.is_late]
        fresh = self._fold(rows_of_others(self.events, late, self.limits), taken if not late else None, again=False)
        again = self._fold(self._full_history(late), None, again=True) if late else None
        self._write(fresh, again, late)
        self.context.meter.derived(sum(place.summary.rows for place in self.progress.values()))

    def _only(self, rows: DataFrame, enclaves: Collection[str]) -> DataFrame:
        return rows_of_enclaves(rows, enclaves, self.limits)

    def _load_state(self, summary: dict[str, EnclaveSummary]) -> None:
        """Load the saved fold states and the progress of the batch's enclaves."""
        known = {row["enclave"]: row for row in self.fold.rows_for(self.spark, summary)}
        before = {name: (row["next_seq"], row["events"]) for name, row in known.items()}
        self.progress = {name: EnclaveProgress(each, *before.get(name, ())) for name, each in summary.items()}
        self.states = {name: row["state"] for name, row in known.items()}

    def _full_history(self, late: Sequence[str]) -> DataFrame:
        """Return all events of the late enclaves, up to the end of the derived tables after this
        batch.
        """
        bounds = broadcast(driver_frame(self.spark, [(name, self.progress[name].end) for name in late], _ENDS))
        events = self._only(self.lake["events"].read(self.spark), late)
        return events.join(bounds, "enclave").where(col("seq") < col("_end")).select(*self.events.columns)

    # Folding

    def _fold(self, events: DataFrame, taken: pa.Table | None, *, again: bool) -> FoldOutput:
        """Fold events onto the saved states; with `again`, from the beginning."""
        taken = collect_if_few(events, self.limits) if taken is None else taken
        states, contents = self._state_rows(again), None if again else self._revised_contents(events, taken)
        revised = (
            collect_if_few(as_known_rows(contents), self.limits) if taken is not None and contents is not None else None
        )
        if taken is not None and (contents is None or revised is not None):
            known = [dict(zip(KNOWN.fieldNames(), row, strict=True)) for row in states]
            known += revised.to_pylist() if revised is not None else []
            return FoldOutput(self.spark, fold_on_driver(taken, known), taken["id"].to_pylist())
        rows = driver_frame(self.spark, states, KNOWN)
        rows = rows if contents is None else rows.unionByName(as_known_rows(contents))
        # Files rather than a cache: Delta recomputes a cache when a table that it was read from is
        # written, as happens here.
        control = fold_control(events, rows).localCheckpoint()
        return FoldOutput(self.spark, frames=(control, fold_contents(events, rows, control).localCheckpoint()))

    def _state_rows(self, again: bool) -> list[tuple[str, str, str]]:
        """Return rows of KNOWN: each enclave's saved state, and whether its events are complete."""
        places = ((name, place) for name, place in self.progress.items() if place.is_late == again)
        found = (
            (name, KnownState(place.is_complete, None if again else self.states.get(name))) for name, place in places
        )
        return [(name, "state", encode(known).decode()) for name, known in found]

    def _revised_contents(self, events: DataFrame, taken: pa.Table | None) -> DataFrame | None:
        """Return the rows of `content_status` that these events may change; None if there are none."""
        contents = self._only(self.lake["content_status"].read(self.spark), self.progress)
        if taken is None:
            targets = events.where(is_revision()).select("enclave", revised().alias("id")).distinct()
            return contents.join(targets, ["enclave", "id"], "left_semi")
        here = set(taken["id"].to_pylist())
        ids = {found for row in _revisions(taken) if (found := revised_id(row["tags"])) and found not in here}
        return rows_with(contents, "id", ids, self.limits) if ids else None

    # Writing

    def _write(self, fresh: FoldOutput, again: FoldOutput | None, late: Sequence[str]) -> None:
        versions = {name: self.lake[name].version(self.spark) for name in DERIVED}
        self._quarantine([each for each in (fresh, again) if each is not None and "quarantine" in each.names])
        for name in ("access", "slots", "enclaves"):
            self._derive(name, fresh, again, late)
        self._record_erasures([each for each in (fresh, again) if each is not None and "erasures" in each.names])
        self._derive("content_status", fresh, again, late)
        self._save_state(fresh, again)
        self._publish(fresh, versions, rebuilt=bool(late))

    def _derive(self, name: str, fresh: FoldOutput, again: FoldOutput | None, late: Sequence[str]) -> None:
        """Merge the new rows, and replace all rows of the late enclaves."""
        if name in fresh.names:
            self._merge(name, fresh)
        if again is not None:
            table, gone = self.lake[name], _DELETED_IF.get(name)
            whole = again.frame(name, table.spec.schema).where(f"NOT ({gone or 'false'})")
            where = f"enclave IN ({', '.join(repr(name) for name in late)})"
            self._commit(name, lambda txn: table.replace(whole, where, txn), "late")

    def _merge(self, name: str, fresh: FoldOutput) -> None:
        table, schema, gone = self.lake[name], self.lake[name].spec.schema, _DELETED_IF.get(name)
        if name == "content_status" and fresh.on_driver:
            new, changed = fresh.contents(schema)
            self._add(name, new)
            if not changed.num_rows:
                return
            rows = self.spark.createDataFrame(changed, schema)
        else:
            rows = fresh.frame(name, schema)
        delete_if, on_driver = f"s.{gone}" if gone else None, fresh.on_driver
        self._commit(name, lambda txn: table.upsert(rows, txn, delete_if=delete_if, on_driver=on_driver))

    def _add(self, name: str, rows: pa.Table) -> None:
        """Add rows whose keys are new: each belongs to an event of this batch that is not late."""
        table = self.lake[name]
        if rows.num_rows:
            self._commit(name, lambda txn: table.add(self.spark, [write_file(table, rows)], txn), "new")

    def _commit(self, name: str, act: Callable[[Txn], None], step: str = "") -> None:
        self.context.write(self.spark, self.lake[name], self.txn, act, step)
        self.commits[name] += 1

    def _quarantine(self, folded: Sequence[FoldOutput]) -> None:
        """Quarantine events that are in the log but violate the enclave's rules: evidence against
        its node.
        """
        for step, each in enumerate(folded):
            refused = each.frame("quarantine", REFUSED)
            place = ["enclave", "seq", "id"]
            events = self._only(self.lake["events"].read(self.spark), self.progress).select(
                *place, "origin", "received_at"
            )
            known = self.lake["quarantine"].read(self.spark).select(*place, "code")
            found = refused.join(known, [*place, "code"], "left_anti").join(events, place, "left")
            found = found.withColumn("event", lit(None).cast("string"))
            txn = self.txn.step("late") if step else self.txn
            self.context.append("quarantine", found.select(*QUARANTINE.fieldNames()), txn)

    def _record_erasures(self, folded: Sequence[FoldOutput]) -> None:
        """Record which contents to erase from `events` and `raw_events`; `upkeep` erases them."""
        for step, each in enumerate(folded):
            rows = each.frame("erasures", self.lake["erasures"].spec.schema)
            self.context.append("erasures", rows, self.txn.step("late") if step else self.txn)

    def _save_state(self, fresh: FoldOutput, again: FoldOutput | None) -> None:
        folded = [each for each in (fresh, again) if each is not None]
        made = {row[1]: row[2] for each in folded if each.on_driver for row in each.rows if row[0] == "fold"}
        states = {**self.states, **made}
        rows = [
            (name, place.end, place.events + place.summary.rows, states.get(name))
            for name, place in self.progress.items()
        ]
        table, many = self.lake["fold"], [each for each in folded if not each.on_driver]
        if not many:
            self.context.write(self.spark, table, self.txn, lambda txn: self.fold.replace_rows(self.spark, rows, txn))
            return
        new = driver_frame(self.spark, rows, FOLD)
        for each in many:
            new = new.join(each.states(), "enclave", "left").withColumn("state", coalesce("_state", "state"))
            new = new.drop("_state")
        self.context.write(self.spark, table, self.txn, lambda txn: table.upsert(new, txn))

    def _publish(self, fresh: FoldOutput, versions: dict[str, int], *, rebuilt: bool) -> None:
        """Publish all derived tables: an unchanged table has progressed as well. `rebuilt`: there are
        late enclaves, whose rows Delta's change feed has.
        """
        if self.context.publisher is None:
            return
        progress = {name: place.end for name, place in self.progress.items()}
        for name in DERIVED:
            self.context.reached(f"before publish {name}")
            table, rows, commits = self.lake[name], self._changed_rows(name, fresh), self.commits[name]
            if rebuilt:
                self.context.publisher.push(self.spark, table, progress)
            else:
                self.context.publisher.push_batch(self.spark, table, *rows, progress, versions[name], commits)
            self.context.reached(f"after publish {name}")

    def _changed_rows(self, name: str, fresh: FoldOutput) -> tuple[Rows, Rows | None]:
        """Return the current rows, and the deleted ones."""
        schema, gone = self.lake[name].spec.schema, name in _DELETED_IF
        if not fresh.on_driver:
            frame = fresh.frame(name, schema)
            return (frame.where("value IS NOT NULL"), frame.where("value IS NULL")) if gone else (frame, None)
        rows = fresh.driver_rows(name, schema)
        if not gone:
            return rows, None
        is_there = rows["value"].is_valid()
        return rows.filter(is_there), rows.filter(pc.invert(is_there))


def _revisions(events: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = events.select(["enclave", "type", "tags"]).to_pylist()
    return [row for row in rows if row["type"] in REVISIONS]
