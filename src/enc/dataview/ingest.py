"""The first half: rows as they come in, verified, told apart, and kept. See pipeline.py.

Tasks have read, verified and written the rows when a batch begins (staging.py). Where a batch goes on from what is
known, which is nearly always, its files are added to the tables as they are. Where events may be there already, come
twice, or are signed by another than the enclave's sequencer, those that stand are told apart first.

A batch leaves, in this order: raw_events (everything), quarantine (what may not stand), events (what is new), heads.
The order matters: until `heads` is written, a batch that is begun again sees what it saw at first.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from enc.dataview.files import read_files
from enc.dataview.heads import Heads, Known
from enc.dataview.held import arrow_of
from enc.dataview.lake import HEADS
from enc.dataview.pipeline import Batches, Setting, but, only
from enc.dataview.schema import EVENTS, QUARANTINE
from enc.dataview.seen import Seen, glance
from enc.dataview.sequencers import Handover, History, extend, spans
from enc.dataview.serving.publish import Rows
from enc.dataview.staging import Staged, gathered
from enc.dataview.tables import NewFile, Txn
from enc.dataview.transforms.admission import ERASED, held_to_sequencers, told_apart
from enc.dataview.transforms.wire import wire

_MIGRATE = ("enclave", "seq", "sequencer", "author", "content")


class Ingest:
    """The body of the query over rows of FILES. `app` names its checkpoint."""

    def __init__(self, setting: Setting, app: str, heads: Heads) -> None:
        self.setting, self.batches, self.heads = setting, Batches(app), heads

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.setting.reached("ingest")
        try:
            _Batch(self, batch.sparkSession, gathered(batch), self.batches.txn(batch_id)).run()
        except BaseException:
            self.heads.doubt()  # before another source has its turn
            raise


class _Batch:
    def __init__(self, ingest: Ingest, spark: SparkSession, staged: Staged, txn: Txn) -> None:
        self.setting, self.lake, self.spark, self.txn = ingest.setting, ingest.setting.lake, spark, txn
        self.heads = ingest.heads
        self.files, self.glance, self.seen = staged.files, staged.glance, staged.glance.seen

    def run(self) -> None:
        known, unsure = self.heads.of(self.spark, self.seen), self.heads.unsure(self.spark, self.seen)
        there = {**self.seen, **self._there(unsure)}
        histories = {name: known[name].sequencers or [(s.signers[0], s.first)] for name, s in there.items()}
        self._hand_over(histories, unsure)
        again = {name for name, s in self.seen.items() if s.is_doubled or s.first < known[name].next_seq}
        doubtful = [name for name in self.seen if name in again or name in unsure]
        suspect = {name: histories[name] for name, s in self.seen.items() if _is_suspect(s, histories[name])}
        versions = {name: self.lake[name].version(self.spark) for name in ("events", "heads")}
        self._add("raw_events")
        self._add("quarantine")
        if doubtful or suspect:
            admitted: Rows = self._tell_apart(doubtful, suspect)
        else:
            self._add("events")
            admitted = self._added()
        heads = self._heads(known, histories, {*doubtful, *suspect})
        progress = {head[0]: head[1] for head in heads}
        self._publish("events", admitted, progress, versions)
        if heads:
            table = self.lake["heads"]
            self.setting.write(self.spark, table, self.txn, lambda txn: self.heads.put(self.spark, heads, txn))
        self._publish("heads", arrow_of(heads, HEADS), progress, versions)
        before = sum(known[name].events for name in progress)
        self.setting.meter.took(sum(head[2] for head in heads) - before, self.glance.refused)

    def _add(self, name: str) -> None:
        files: list[NewFile] = self.files.get(name, [])
        if files:
            table = self.lake[name]
            self.setting.write(self.spark, table, self.txn, lambda txn: table.add(self.spark, files, txn))

    def _added(self) -> Rows:
        """The batch's events: with the driver, if they are few and small."""
        limits = self.setting.limits
        if sum(seen.rows for seen in self.seen.values()) > limits.held or self.glance.bytes > limits.bytes:
            return self._rows("events")
        files = self.files.get("events", [])
        return read_files(self.lake["events"], files) if files else arrow_of([], EVENTS)

    def _rows(self, name: str) -> DataFrame:
        """What the batch brings for a table, read from its files."""
        table = self.lake[name]
        if name not in self.files:
            return self.spark.createDataFrame([], table.spec.schema)
        paths = [f"{table.path}/{file.path}" for file in self.files[name]]
        return self.spark.read.schema(table.spec.schema).parquet(*paths)

    def _there(self, enclaves: Collection[str]) -> dict[str, Seen]:
        """What `events` has of these enclaves by now."""
        return glance(self._only(self.lake["events"].read(self.spark), enclaves)).seen if enclaves else {}

    def _only(self, rows: DataFrame, enclaves: Collection[str]) -> DataFrame:
        return only(rows, enclaves, self.setting.limits)

    # Sequencers

    def _hand_over(self, histories: dict[str, History], unsure: Sequence[str]) -> None:
        """Take the batch's Migrates into the histories; of enclaves that are unsure, also those of `events`."""
        moved = [name for name, seen in self.seen.items() if seen.moves]
        rows = [self._only(self._rows("events"), moved)] if moved else []
        rows += [self._only(self.lake["events"].read(self.spark), unsure)] if unsure else []
        found: dict[str, list[Handover]] = {}
        for row in (row for each in rows for row in each.where(col("type") == "Migrate").select(*_MIGRATE).collect()):
            to = _new_sequencer(row.content)
            entitled = to == row.sequencer and self._is_owner(row.enclave, row.author)
            found.setdefault(row.enclave, []).append(Handover(row.seq, row.sequencer, to, entitled))
        for enclave, handovers in found.items():
            histories[enclave] = extend(histories[enclave], handovers)

    def _is_owner(self, enclave: str, author: str) -> bool:
        here = (col("enclave") == enclave) & (col("identity") == author) & col("owner") & col("to_seq").isNull()
        return not self.lake["access"].read(self.spark).where(here).isEmpty()

    # Telling apart

    def _tell_apart(self, doubtful: list[str], suspect: Mapping[str, History]) -> DataFrame:
        """Keep what may stand, and refuse the rest. The answer is what is kept."""
        nothing = lit(None).cast("string")
        rows = self._rows("events").select("*", wire().alias("event"), nothing.alias("code"), nothing.alias("reason"))
        if suspect:
            found = [(name, *span) for name, history in suspect.items() for span in spans(history)]
            allowed = self.spark.createDataFrame(found, "enclave string, key string, start bigint, end bigint")
            rows = held_to_sequencers(rows, allowed)
        if doubtful:
            low = min(self.seen[name].first for name in doubtful)
            known = self._only(self.lake["events"].read(self.spark), doubtful).where(col("seq") >= low)
            others = but(rows, doubtful, self.setting.limits)
            rows = told_apart(self._only(rows, doubtful), known).unionByName(others)
        # A file, and no cache: it says the same when `events` has grown, and whoever comes to read it.
        rows = rows.localCheckpoint()
        erased, refused = rows.where(col("code") == ERASED), rows.where(col("code") != ERASED)
        if not erased.isEmpty():  # it is in `raw_events` once more
            self.setting.append("erasures", erased.select("enclave", "seq", "id"), self.txn)
        if not refused.isEmpty():
            self.setting.append("quarantine", refused.select(*QUARANTINE.fieldNames()), self.txn.step("told"))
        admitted = rows.where(col("code").isNull()).select(*EVENTS.fieldNames())
        self.setting.append("events", admitted, self.txn)
        return admitted

    # Heads

    def _heads(
        self, known: Mapping[str, Known], histories: Mapping[str, History], told: set[str]
    ) -> list[tuple[Any, ...]]:
        """Each enclave's new head. Where rows were dropped or refused, what is in `events` by now says it."""
        counted = {name: (seen, known[name].events) for name, seen in self.seen.items() if name not in told}
        counted |= {name: (seen, 0) for name, seen in self._there(told).items()}
        found: list[tuple[Any, ...]] = []
        for name, (seen, before) in counted.items():
            next_seq, events, history = seen.next_seq, before + seen.rows, histories[name]
            sequencers = [{"sequencer": key, "from_seq": first} for key, first in history]
            id_, at = seen.head
            head = (id_, datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at), history[-1][0], sequencers)
            found.append((name, next_seq, events, next_seq - events, *head))
        return found

    def _publish(self, name: str, rows: Rows, progress: Mapping[str, int], versions: Mapping[str, int]) -> None:
        if self.setting.publishing is not None:
            self.setting.reached(f"before publish {name}")
            self.setting.publishing.push_batch(self.spark, self.lake[name], rows, None, progress, versions[name])
            self.setting.reached(f"after publish {name}")


def _is_suspect(seen: Seen, history: History) -> bool:
    """Somebody else than the sequencer of the whole range signed some of it, or more than one did."""
    here = [key for key, start, end in spans(history) if start < seen.next_seq and (end is None or end > seen.first)]
    return here != seen.signers or len(here) > 1


class _Migrate(Struct):
    new_sequencer: str = ""


def _new_sequencer(content: str | None) -> str:
    try:
        return msgspec.json.decode(content or "", type=_Migrate).new_sequencer
    except (msgspec.DecodeError, UnicodeError):
        return ""
