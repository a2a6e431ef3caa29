"""The second half: what follows from events. See pipeline.py.

A batch of new events changes only the rows that they are about. Where an enclave's events come out of order (a push
overtook a pull, a gap was filled) all its rows are made again from `events`, which is slower and as right.

The order matters: `erasures` comes before `content_status`, whose old rows say what is to be erased, and `fold`, which
says how far the derived tables are, last.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.json import encode
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, coalesce, col, lit, struct, to_json
from pyspark.sql.types import BooleanType, StructField, StructType

from enc.dataview.contents import REVISIONS, revised_id
from enc.dataview.folding import KNOWN, MADE, REFUSED, Known, Made, fold_few, fold_many, told, typed
from enc.dataview.held import FEW, held
from enc.dataview.lake import FOLD
from enc.dataview.pipeline import Setting, but, named, only
from enc.dataview.schema import NUMBER, QUARANTINE, TEXT
from enc.dataview.seen import Seen, glance, glance_at
from enc.dataview.tables import Txn
from enc.dataview.transforms.kinds import is_revision
from enc.dataview.transforms.kinds import revised_id as revised

_ENDS = StructType([StructField("enclave", TEXT), StructField("_end", NUMBER)])
_COMPLETE = StructType([StructField("enclave", TEXT), StructField("complete", BooleanType())])
DERIVED = ("access", "slots", "enclaves", "content_status")
_GONE = {"slots": "value IS NULL"}
"""Rows that the fold makes of what is no more."""


class Derive:
    """The body of the query over `events`."""

    def __init__(self, setting: Setting, app: str) -> None:
        self.setting, self.app = setting, app

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        DeriveBatch(self.setting, batch, Txn(self.app, batch_id)).run()


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

    def __init__(self, spark: SparkSession, rows: Sequence[Made] | DataFrame) -> None:
        self.spark, self.is_held = spark, not isinstance(rows, DataFrame)
        self._frame = rows.persist() if isinstance(rows, DataFrame) else None
        self.rows: Sequence[Made] = () if isinstance(rows, DataFrame) else rows
        """Those with the driver."""
        self.names = {table for table, _, _ in self.rows}
        if self._frame is not None:
            self.names = {row["table"] for row in self._frame.select("table").distinct().collect()}

    def of(self, table: str) -> DataFrame:
        """Rows of MADE."""
        if self._frame is not None:
            return self._frame.where(col("table") == table)
        return held(self.spark, [row for row in self.rows if row[0] == table], MADE)

    def close(self) -> None:
        if self._frame is not None:
            self._frame.unpersist()


class DeriveBatch:
    def __init__(self, setting: Setting, events: DataFrame, txn: Txn) -> None:
        self.setting, self.lake, self.txn = setting, setting.lake, txn
        self.events, self.spark = events, events.sparkSession
        self.places: dict[str, _Place] = {}
        self.states: dict[str, str | None] | None = None

    def run(self) -> None:
        self.setting.reached("derive")
        few = _few(self.events)
        seen = (glance(self.events) if few is None else glance_at(few)).seen
        if not seen:
            return
        self._look(seen, with_states=few is not None)
        late = [name for name, place in self.places.items() if place.is_late]
        fresh = self._fold(but(self.events, late), few if not late else None, again=False)
        again = self._fold(self._whole(late), None, again=True) if late else None
        try:
            self._write(fresh, again, late)
        finally:
            for folded in (fresh, again):
                if folded is not None:
                    folded.close()

    def _look(self, seen: dict[str, Seen], *, with_states: bool) -> None:
        """What is remembered of the batch's enclaves; of a large batch, without states: those stay where they are."""
        columns = ["enclave", "next_seq", "events", *["state"] * with_states]
        known = only(self.lake["fold"].read(self.spark), seen).select(*columns).collect()
        before = {row.enclave: (row.next_seq, row.events) for row in known}
        self.places = {name: _Place(each, *before.get(name, ())) for name, each in seen.items()}
        self.states = {row.enclave: row.state for row in known} if with_states else None

    def _whole(self, late: Sequence[str]) -> DataFrame:
        """All that is known of the late enclaves, as far as the derived tables will be after this batch."""
        bounds = broadcast(held(self.spark, [(name, self.places[name].end) for name in late], _ENDS))
        events = only(self.lake["events"].read(self.spark), late)
        return events.join(bounds, "enclave").where(col("seq") < col("_end")).select(*self.events.columns)

    # Folding

    def _fold(self, events: DataFrame, few: pa.Table | None, *, again: bool) -> _Folded:
        """Go on from what is known; or `again` from the beginning."""
        few = _few(events) if few is None else few
        known = self._states(again)
        if not again:
            contents = self._revised(events, few)
            known = known if contents is None else known.unionByName(told(contents))
        if few is None:
            return _Folded(self.spark, fold_many(events, known))
        return _Folded(self.spark, fold_few(few, known.collect()))

    def _states(self, again: bool) -> DataFrame:
        """Rows of KNOWN: what the fold remembers of each enclave, and whether anything of it is missing."""
        complete = {name: place.is_complete for name, place in self.places.items() if place.is_late == again}
        if again or self.states is not None:
            states = {} if again else self.states or {}
            rows = [(name, Known(each, states.get(name))) for name, each in complete.items()]
            return held(self.spark, [(name, "state", encode(known).decode()) for name, known in rows], KNOWN)
        remembered = only(self.lake["fold"].read(self.spark), complete).select("enclave", "state")
        known = held(self.spark, list(complete.items()), _COMPLETE).join(remembered, "enclave", "left")
        return known.select("enclave", lit("state").alias("kind"), to_json(struct("complete", "state")).alias("data"))

    def _revised(self, events: DataFrame, few: pa.Table | None) -> DataFrame | None:
        """The rows of `content_status` that these events may change."""
        contents = only(self.lake["content_status"].read(self.spark), self.places)
        if few is None:
            targets = events.where(is_revision()).select("enclave", revised().alias("id")).distinct()
            return contents.join(targets, ["enclave", "id"], "left_semi")
        here = set(few["id"].to_pylist())
        ids = {found for row in _revisions(few) if (found := revised_id(row["tags"])) and found not in here}
        return named(contents, "id", ids) if ids else None

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
        table, schema, gone = self.lake[name], self.lake[name].spec.schema, _GONE.get(name)
        if name in fresh.names:
            how: dict[str, Any] = {"held": fresh.is_held, "delete_if": f"s.{gone}" if gone else None}
            rows = typed(fresh.of(name), schema)
            self.setting.write(self.spark, table, self.txn, lambda txn: table.upsert(rows, txn, **how))
        if again is not None:
            whole = typed(again.of(name), schema).where(f"NOT ({gone or 'false'})")
            where = f"enclave IN ({', '.join(repr(name) for name in late)})"
            self.setting.write(self.spark, table, self.txn, lambda txn: table.replace(whole, where, txn), "late")

    def _refused(self, folded: Sequence[_Folded]) -> None:
        """Events that stand in the log against the enclave's own rules: evidence against its node."""
        for step, each in enumerate(folded):
            refused = typed(each.of("quarantine"), REFUSED)
            place = ["enclave", "seq", "id"]
            events = only(self.lake["events"].read(self.spark), self.places).select(*place, "origin", "received_at")
            known = self.lake["quarantine"].read(self.spark).select(*place, "code")
            found = refused.join(known, [*place, "code"], "left_anti").join(events, place, "left")
            found = found.withColumn("event", lit(None).cast("string"))
            txn = self.txn.step("late") if step else self.txn
            self.setting.append("quarantine", found.select(*QUARANTINE.fieldNames()), txn)

    def _erase(self, folded: Sequence[_Folded]) -> None:
        """Note which contents go from `events` and `raw_events`; `upkeep` takes them out."""
        for step, each in enumerate(folded):
            rows = typed(each.of("erasures"), self.lake["erasures"].spec.schema)
            self.setting.append("erasures", rows, self.txn.step("late") if step else self.txn)

    def _remember(self, fresh: _Folded, again: _Folded | None) -> None:
        folded, table = [each for each in (fresh, again) if each is not None], self.lake["fold"]
        states = {row[1]: row[2] for each in folded if each.is_held for row in each.rows if row[0] == "fold"}
        rows = [
            (name, place.end, place.events + place.seen.rows, states.get(name)) for name, place in self.places.items()
        ]
        new = held(self.spark, rows, FOLD)
        for each in folded:
            if not each.is_held:
                more = each.of("fold").select("enclave", col("data").alias("_state"))
                new = new.join(more, "enclave", "left").withColumn("state", coalesce("_state", "state")).drop("_state")
        kept = {"next_seq": "s.next_seq", "events": "s.events", "state": "coalesce(s.state, t.state)"}
        how: dict[str, Any] = {"update": kept, "held": all(each.is_held for each in folded)}
        self.setting.write(self.spark, table, self.txn, lambda txn: table.upsert(new, txn, **how))

    def _publish(self, fresh: _Folded, versions: dict[str, int]) -> None:
        """All of them: what did not change is complete so far as well."""
        if self.setting.publishing is None:
            return
        progress = {name: place.end for name, place in self.places.items()}
        for name in DERIVED:
            self.setting.reached(f"before publish {name}")
            rows, gone = typed(fresh.of(name), self.lake[name].spec.schema), _GONE.get(name)
            there = coalesce(~col("value").isNull(), lit(False)) if gone else lit(True)
            batch = rows.where(there), rows.where(~there) if gone else None
            self.setting.publishing.push_batch(self.lake[name], *batch, progress, versions[name])
            self.setting.reached(f"after publish {name}")


def _few(events: DataFrame) -> pa.Table | None:
    """The rows with the driver, if they are few."""
    found = events.limit(FEW + 1).toArrow()
    return found if found.num_rows <= FEW else None


def _revisions(events: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = events.select(["enclave", "type", "tags"]).to_pylist()
    return [row for row in rows if row["type"] in REVISIONS]
