"""The second half: what follows from events. See pipeline.py.

A batch of new events changes only the rows that they are about. Where an enclave's events come out of order (a push
overtook a pull, a gap was filled) all its rows are made again from `events`, which is slower and as right.

The order matters: `erasures` comes before `content_status`, whose old rows say what is to be erased, and `fold`, which
says how far the derived tables are, last.
"""

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.json import encode
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, coalesce, col, lit
from pyspark.sql.types import StructField, StructType

from enc.dataview.contents import REVISIONS, revised_id
from enc.dataview.files import write_file
from enc.dataview.folding import (
    KNOWN,
    REFUSED,
    Known,
    Made,
    fold_contents,
    fold_control,
    fold_few,
    rows_of,
    told,
    typed,
)
from enc.dataview.held import few, held
from enc.dataview.kept import Kept
from enc.dataview.lake import FOLD
from enc.dataview.pipeline import Batches, Setting, but, named, only
from enc.dataview.schema import NUMBER, QUARANTINE, TEXT
from enc.dataview.seen import Seen, glance, glance_at
from enc.dataview.serving.publish import Rows
from enc.dataview.tables import Txn
from enc.dataview.transforms.kinds import is_revision
from enc.dataview.transforms.kinds import revised_id as revised

_ENDS = StructType([StructField("enclave", TEXT), StructField("_end", NUMBER)])
DERIVED = ("access", "slots", "enclaves", "content_status")
_GONE = {"slots": "value IS NULL"}
"""Rows that the fold makes of what is no more."""


class Derive:
    """The body of the query over `events`."""

    def __init__(self, setting: Setting, app: str) -> None:
        self.setting, self.batches, self.fold = setting, Batches(app), Kept(setting.lake["fold"], setting.limits)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        DeriveBatch(self, batch, self.batches.txn(batch_id)).run()


class _Place(Struct, frozen=True):
    """What the batch brings of an enclave, and how far the derived tables are with it."""

    seen: Seen
    next_seq: int = 0
    events: int = 0

    @property
    def is_late(self) -> bool:
        return self.seen.first < self.next_seq

    @property
    def end(self) -> int:
        """How far they are after it."""
        return max(self.next_seq, self.seen.next_seq)

    @property
    def is_complete(self) -> bool:
        """Whether no event is missing."""
        return self.events + self.seen.rows == self.end


class _Folded:
    """What the folds made: with the driver, or where Spark keeps it."""

    def __init__(
        self,
        spark: SparkSession,
        rows: Sequence[Made] = (),
        ids: Sequence[str] = (),
        frames: Sequence[DataFrame] = (),
    ) -> None:
        """`rows`: those with the driver; `ids`: of the events that they are of. `frames`: rows of MADE, computed."""
        self.spark, self.rows, self._ids, self._frames, self.is_held = spark, rows, ids, frames, not frames
        self.names = {table for table, _, _ in self.rows}
        for frame in frames:
            self.names |= {row["table"] for row in frame.select("table").distinct().collect()}

    def of(self, table: str, schema: StructType) -> DataFrame:
        if self.is_held:
            return self.spark.createDataFrame(self.held(table, schema), schema)
        return typed(self._made(table), schema)

    def _made(self, table: str) -> DataFrame:
        return reduce(DataFrame.unionByName, self._frames).where(col("table") == table)

    def held(self, table: str, schema: StructType) -> pa.Table:
        """The same, of what the driver has."""
        return rows_of((row for row in self.rows if row[0] == table), schema)

    def contents(self, schema: StructType) -> tuple[pa.Table, pa.Table]:
        """Rows of contents that the driver has: of the events themselves, and of those that they revise."""
        rows = self.held("content_status", schema)
        is_new = pc.is_in(rows["id"], pa.array(self._ids, pa.string()))
        return rows.filter(is_new), rows.filter(pc.invert(is_new))

    def states(self) -> DataFrame:
        """What the folds on executors remember."""
        return self._made("fold").select("enclave", col("data").alias("_state"))


class DeriveBatch:
    def __init__(self, derive: Derive, events: DataFrame, txn: Txn) -> None:
        self.setting, self.lake, self.limits = derive.setting, derive.setting.lake, derive.setting.limits
        self.txn, self.fold = txn, derive.fold
        self.events, self.spark = events, events.sparkSession
        self.places: dict[str, _Place] = {}
        self.states: dict[str, str | None] = {}
        self.commits = dict.fromkeys(DERIVED, 0)

    def run(self) -> None:
        self.setting.reached("derive")
        taken = few(self.events, self.limits)
        seen = (glance(self.events) if taken is None else glance_at(taken)).seen
        if not seen:
            return
        self._look(seen)
        late = [name for name, place in self.places.items() if place.is_late]
        fresh = self._fold(but(self.events, late, self.limits), taken if not late else None, again=False)
        again = self._fold(self._whole(late), None, again=True) if late else None
        self._write(fresh, again, late)
        self.setting.meter.derived(sum(place.seen.rows for place in self.places.values()))

    def _only(self, rows: DataFrame, enclaves: Collection[str]) -> DataFrame:
        return only(rows, enclaves, self.limits)

    def _look(self, seen: dict[str, Seen]) -> None:
        """What is remembered of the batch's enclaves."""
        known = {row["enclave"]: row for row in self.fold.of(self.spark, seen)}
        before = {name: (row["next_seq"], row["events"]) for name, row in known.items()}
        self.places = {name: _Place(each, *before.get(name, ())) for name, each in seen.items()}
        self.states = {name: row["state"] for name, row in known.items()}

    def _whole(self, late: Sequence[str]) -> DataFrame:
        """All that is known of the late enclaves, as far as the derived tables will be after this batch."""
        bounds = broadcast(held(self.spark, [(name, self.places[name].end) for name in late], _ENDS))
        events = self._only(self.lake["events"].read(self.spark), late)
        return events.join(bounds, "enclave").where(col("seq") < col("_end")).select(*self.events.columns)

    # Folding

    def _fold(self, events: DataFrame, taken: pa.Table | None, *, again: bool) -> _Folded:
        """Go on from what is known; or `again` from the beginning."""
        taken = few(events, self.limits) if taken is None else taken
        states, contents = self._known(again), None if again else self._revised(events, taken)
        revised = few(told(contents), self.limits) if taken is not None and contents is not None else None
        if taken is not None and (contents is None or revised is not None):
            known = [dict(zip(KNOWN.fieldNames(), row, strict=True)) for row in states]
            known += revised.to_pylist() if revised is not None else []
            return _Folded(self.spark, fold_few(taken, known), taken["id"].to_pylist())
        rows = held(self.spark, states, KNOWN)
        rows = rows if contents is None else rows.unionByName(told(contents))
        # Files, and no cache: Delta makes a cache anew when a table that it was read from is written, as this one is.
        control = fold_control(events, rows).localCheckpoint()
        return _Folded(self.spark, frames=(control, fold_contents(events, rows, control).localCheckpoint()))

    def _known(self, again: bool) -> list[tuple[str, str, str]]:
        """Rows of KNOWN: what the fold remembers of each enclave, and whether anything of it is missing."""
        places = ((name, place) for name, place in self.places.items() if place.is_late == again)
        found = ((name, Known(place.is_complete, None if again else self.states.get(name))) for name, place in places)
        return [(name, "state", encode(known).decode()) for name, known in found]

    def _revised(self, events: DataFrame, taken: pa.Table | None) -> DataFrame | None:
        """The rows of `content_status` that these events may change."""
        contents = self._only(self.lake["content_status"].read(self.spark), self.places)
        if taken is None:
            targets = events.where(is_revision()).select("enclave", revised().alias("id")).distinct()
            return contents.join(targets, ["enclave", "id"], "left_semi")
        here = set(taken["id"].to_pylist())
        ids = {found for row in _revisions(taken) if (found := revised_id(row["tags"])) and found not in here}
        return named(contents, "id", ids, self.limits) if ids else None

    # Writing

    def _write(self, fresh: _Folded, again: _Folded | None, late: Sequence[str]) -> None:
        versions = {name: self.lake[name].version(self.spark) for name in DERIVED}
        self._refused([each for each in (fresh, again) if each is not None and "quarantine" in each.names])
        for name in ("access", "slots", "enclaves"):
            self._derive(name, fresh, again, late)
        self._erase([each for each in (fresh, again) if each is not None and "erasures" in each.names])
        self._derive("content_status", fresh, again, late)
        self._remember(fresh, again)
        self._publish(fresh, versions)

    def _derive(self, name: str, fresh: _Folded, again: _Folded | None, late: Sequence[str]) -> None:
        """Merge what is new; put what the late enclaves are now in place of what they were."""
        if name in fresh.names:
            self._merge(name, fresh)
        if again is not None:
            table, gone = self.lake[name], _GONE.get(name)
            whole = again.of(name, table.spec.schema).where(f"NOT ({gone or 'false'})")
            where = f"enclave IN ({', '.join(repr(name) for name in late)})"
            self._commit(name, lambda txn: table.replace(whole, where, txn), "late")

    def _merge(self, name: str, fresh: _Folded) -> None:
        table, schema, gone = self.lake[name], self.lake[name].spec.schema, _GONE.get(name)
        if name == "content_status" and fresh.is_held:
            new, changed = fresh.contents(schema)
            self._add(name, new)
            if not changed.num_rows:
                return
            rows = self.spark.createDataFrame(changed, schema)
        else:
            rows = fresh.of(name, schema)
        how: dict[str, Any] = {"held": fresh.is_held, "delete_if": f"s.{gone}" if gone else None}
        self._commit(name, lambda txn: table.upsert(rows, txn, **how))

    def _add(self, name: str, rows: pa.Table) -> None:
        """Rows whose keys cannot be there yet: each is of an event of this batch, and of one that is not late."""
        table = self.lake[name]
        if rows.num_rows:
            self._commit(name, lambda txn: table.add(self.spark, [write_file(table, rows)], txn), "new")

    def _commit(self, name: str, act: Callable[[Txn], None], step: str = "") -> None:
        self.setting.write(self.spark, self.lake[name], self.txn, act, step)
        self.commits[name] += 1

    def _refused(self, folded: Sequence[_Folded]) -> None:
        """Events that stand in the log against the enclave's own rules: evidence against its node."""
        for step, each in enumerate(folded):
            refused = each.of("quarantine", REFUSED)
            place = ["enclave", "seq", "id"]
            events = self._only(self.lake["events"].read(self.spark), self.places).select(
                *place, "origin", "received_at"
            )
            known = self.lake["quarantine"].read(self.spark).select(*place, "code")
            found = refused.join(known, [*place, "code"], "left_anti").join(events, place, "left")
            found = found.withColumn("event", lit(None).cast("string"))
            txn = self.txn.step("late") if step else self.txn
            self.setting.append("quarantine", found.select(*QUARANTINE.fieldNames()), txn)

    def _erase(self, folded: Sequence[_Folded]) -> None:
        """Note which contents go from `events` and `raw_events`; `upkeep` takes them out."""
        for step, each in enumerate(folded):
            rows = each.of("erasures", self.lake["erasures"].spec.schema)
            self.setting.append("erasures", rows, self.txn.step("late") if step else self.txn)

    def _remember(self, fresh: _Folded, again: _Folded | None) -> None:
        folded = [each for each in (fresh, again) if each is not None]
        made = {row[1]: row[2] for each in folded if each.is_held for row in each.rows if row[0] == "fold"}
        states = {**self.states, **made}
        rows = [
            (name, place.end, place.events + place.seen.rows, states.get(name)) for name, place in self.places.items()
        ]
        table, many = self.lake["fold"], [each for each in folded if not each.is_held]
        if not many:
            self.setting.write(self.spark, table, self.txn, lambda txn: self.fold.put(self.spark, rows, txn))
            return
        new = held(self.spark, rows, FOLD)
        for each in many:
            new = new.join(each.states(), "enclave", "left").withColumn("state", coalesce("_state", "state"))
            new = new.drop("_state")
        self.setting.write(self.spark, table, self.txn, lambda txn: table.upsert(new, txn))

    def _publish(self, fresh: _Folded, versions: dict[str, int]) -> None:
        """All of them: what did not change is complete so far as well."""
        if self.setting.publishing is None:
            return
        progress = {name: place.end for name, place in self.places.items()}
        for name in DERIVED:
            self.setting.reached(f"before publish {name}")
            rows, commits = self._changed(name, fresh), self.commits[name]
            self.setting.publishing.push_batch(self.spark, self.lake[name], *rows, progress, versions[name], commits)
            self.setting.reached(f"after publish {name}")

    def _changed(self, name: str, fresh: _Folded) -> tuple[Rows, Rows | None]:
        """The rows that are there, and those that are there no more."""
        schema, gone = self.lake[name].spec.schema, name in _GONE
        if not fresh.is_held:
            frame = fresh.of(name, schema)
            return (frame.where("value IS NOT NULL"), frame.where("value IS NULL")) if gone else (frame, None)
        rows = fresh.held(name, schema)
        if not gone:
            return rows, None
        is_there = rows["value"].is_valid()
        return rows.filter(is_there), rows.filter(pc.invert(is_there))


def _revisions(events: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = events.select(["enclave", "type", "tags"]).to_pylist()
    return [row for row in rows if row["type"] in REVISIONS]
