"""The first half of the pipeline: verify incoming rows, deduplicate and store them. See
batch_context.py.

Tasks have read, verified and written the rows before a batch begins (staging.py). A batch nearly
always continues from the known head; then its files are added to the tables as they are. If events
may be stored already, appear twice, or carry another signature than the enclave's sequencer's, the
batch first decides which rows are admitted. The same holds if a key that is not known as a
sequencer withholds contents.

A batch writes in this order: raw_events (every row), quarantine (rejected rows), statements (about
withheld contents, by keys that are not known as sequencers), events (contents that are no longer
withheld, then new events), heads. The order matters: until `heads` is written, a repeated batch
sees the same state as the first attempt.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit

from enc.dataview.fold.known_heads import Heads, KnownHead
from enc.dataview.fold.sequencers import Handover, SignerHistory, spans, with_handovers
from enc.dataview.fold.transforms.admission import (
    ERASED,
    FOREIGN_STATEMENT,
    RETURNED,
    deduplicate,
    reject_foreign_sequencers,
    set_foreign_statements_apart,
)
from enc.dataview.fold.transforms.wire import wire
from enc.dataview.lake.driver_rows import Rows, arrow_table
from enc.dataview.lake.lake import HEADS
from enc.dataview.lake.parquet import read_files
from enc.dataview.lake.row_filters import rows_of_enclaves, rows_of_others
from enc.dataview.lake.tables import NewFile, Txn
from enc.dataview.pipeline.batch_context import Batches, PipelineContext
from enc.dataview.rows.batch_summary import EnclaveSummary, summarize
from enc.dataview.rows.schema import EVENTS, QUARANTINE
from enc.dataview.source.staging import StagedBatch, collect_staged

_MIGRATE = ("enclave", "seq", "sequencer", "author", "content")
_ADMISSION = "told"
"""Step of a batch's second commit to quarantine. It is stored in Delta's log, so it never changes."""


class Ingest:
    """The body of the query over rows of FILES. `app` names its checkpoint."""

    def __init__(self, context: PipelineContext, app: str, heads: Heads) -> None:
        self.context, self.batches, self.heads = context, Batches(app), heads

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.context.reached("ingest")
        try:
            _IngestBatch(self, batch.sparkSession, collect_staged(batch), self.batches.txn(batch_id)).run()
        except BaseException:
            self.heads.invalidate()  # before another source takes its turn
            raise


class _IngestBatch:
    def __init__(self, ingest: Ingest, spark: SparkSession, staged: StagedBatch, txn: Txn) -> None:
        self.context, self.lake, self.spark, self.txn = ingest.context, ingest.context.lake, spark, txn
        self.heads = ingest.heads
        self.files, self.summary, self.summaries = staged.files, staged.summary, staged.summary.enclaves

    def run(self) -> None:
        known, uncertain = self.heads.get(self.spark, self.summaries), self.heads.uncertain(self.spark, self.summaries)
        there = {**self.summaries, **self._stored_summaries(uncertain)}
        histories = {name: known[name].sequencers or [(s.signers[0], s.first)] for name, s in there.items()}
        self._apply_migrates(histories, uncertain)
        again = {name for name, s in self.summaries.items() if s.has_duplicates or s.first < known[name].next_seq}
        doubtful = [name for name in self.summaries if name in again or name in uncertain]
        suspect = {name: histories[name] for name, s in self.summaries.items() if _is_suspect(s, histories[name])}
        nodes = {name: {key for key, _ in histories[name]} for name, s in self.summaries.items() if s.withheld_by}
        has_foreign = any(
            not known_keys.issuperset(self.summaries[name].withheld_by) for name, known_keys in nodes.items()
        )
        versions = {name: self.lake[name].version(self.spark) for name in ("events", "heads")}
        self._add("raw_events")
        self._add("quarantine")
        if doubtful or suspect or has_foreign:
            admitted: Rows = self._admit(doubtful, suspect, nodes if has_foreign else {})
        else:
            self._add("events")
            admitted = self._batch_events()
        heads = self._heads(known, histories, {*doubtful, *suspect})
        progress = {head[0]: head[1] for head in heads}
        self._publish("events", admitted, progress, versions)
        if heads:
            table = self.lake["heads"]
            self.context.write(self.spark, table, self.txn, lambda txn: self.heads.write(self.spark, heads, txn))
        self._publish("heads", arrow_table(heads, HEADS), progress, versions)
        before = sum(known[name].events for name in progress)
        self.context.meter.ingested(sum(head[2] for head in heads) - before, self.summary.refused)

    def _add(self, name: str) -> None:
        files: list[NewFile] = self.files.get(name, [])
        if files:
            table = self.lake[name]
            self.context.write(self.spark, table, self.txn, lambda txn: table.add(self.spark, files, txn))

    def _batch_events(self) -> Rows:
        """Return the batch's events, held by the driver if they are few and small."""
        limits = self.context.limits
        if (
            sum(summary.rows for summary in self.summaries.values()) > limits.max_rows
            or self.summary.bytes > limits.max_bytes
        ):
            return self._staged_rows("events")
        files = self.files.get("events", [])
        return read_files(self.lake["events"], files) if files else arrow_table([], EVENTS)

    def _staged_rows(self, name: str) -> DataFrame:
        """Return the batch's rows for a table, read from its files."""
        table = self.lake[name]
        if name not in self.files:
            return self.spark.createDataFrame([], table.spec.schema)
        paths = [f"{table.path}/{file.path}" for file in self.files[name]]
        return self.spark.read.schema(table.spec.schema).parquet(*paths)

    def _stored_summaries(self, enclaves: Collection[str]) -> dict[str, EnclaveSummary]:
        """Summarize what `events` currently holds of these enclaves."""
        return summarize(self._only(self.lake["events"].read(self.spark), enclaves)).enclaves if enclaves else {}

    def _only(self, rows: DataFrame, enclaves: Collection[str]) -> DataFrame:
        return rows_of_enclaves(rows, enclaves, self.context.limits)

    # Sequencers

    def _apply_migrates(self, histories: dict[str, SignerHistory], uncertain: Sequence[str]) -> None:
        """Extend the sequencer histories by the batch's Migrates.

        For uncertain enclaves, the Migrates in `events` count as well.
        """
        moved = [name for name, summary in self.summaries.items() if summary.has_migrate]
        rows = [self._only(self._staged_rows("events"), moved)] if moved else []
        rows += [self._only(self.lake["events"].read(self.spark), uncertain)] if uncertain else []
        found: dict[str, list[Handover]] = {}
        for row in (row for each in rows for row in each.where(col("type") == "Migrate").select(*_MIGRATE).collect()):
            to = _new_sequencer(row.content)
            entitled = to == row.sequencer and self._is_owner(row.enclave, row.author)
            found.setdefault(row.enclave, []).append(Handover(row.seq, row.sequencer, to, entitled))
        for enclave, handovers in found.items():
            histories[enclave] = with_handovers(histories[enclave], handovers)

    def _is_owner(self, enclave: str, author: str) -> bool:
        here = (col("enclave") == enclave) & (col("identity") == author) & col("owner") & col("to_seq").isNull()
        return not self.lake["access"].read(self.spark).where(here).isEmpty()

    # Admission

    def _admit(
        self, doubtful: list[str], suspect: Mapping[str, SignerHistory], nodes: Mapping[str, Collection[str]]
    ) -> DataFrame:
        """Write the admissible rows to `events` and the others to quarantine. Returns the admitted
        rows.

        `nodes`: the keys whose statements about withheld contents count, if other keys signed some.
        """
        nothing = lit(None).cast("string")
        rows = self._staged_rows("events").select(
            "*", wire().alias("event"), nothing.alias("code"), nothing.alias("reason")
        )
        if nodes:
            pairs = [(name, key) for name, keys in nodes.items() for key in keys]
            rows = set_foreign_statements_apart(rows, self.spark.createDataFrame(pairs, "enclave string, node string"))
        if suspect:
            found = [(name, *span) for name, history in suspect.items() for span in spans(history)]
            allowed = self.spark.createDataFrame(found, "enclave string, key string, start bigint, end bigint")
            rows = reject_foreign_sequencers(rows, allowed)
        if doubtful:
            low = min(self.summaries[name].first for name in doubtful)
            known = self._known_events(doubtful).where(col("seq") >= low)
            others = rows_of_others(rows, doubtful, self.context.limits)
            rows = deduplicate(self._only(rows, doubtful), known).unionByName(others)
        # A file rather than a cache: it keeps its content when `events` grows, no matter who reads
        # it.
        rows = rows.localCheckpoint()
        erased, returned = (rows.where(col("code") == code) for code in (ERASED, RETURNED))
        refused, good = rows.where(~col("code").isin(ERASED, RETURNED)), rows.where(col("code").isNull())
        if nodes:
            foreign = good.where(col(FOREIGN_STATEMENT).isNotNull())
            named = foreign.select("enclave", "seq", "id", col(FOREIGN_STATEMENT).alias("withheld"))
            self.context.append("statements", named, self.txn)
        if not erased.isEmpty():  # its content is in `raw_events` again
            self.context.append("erasures", erased.select("enclave", "seq", "id"), self.txn)
        if not refused.isEmpty():
            self.context.append("quarantine", refused.select(*QUARANTINE.fieldNames()), self.txn.step(_ADMISSION))
        if not returned.isEmpty():
            self._show_returned(returned.select("enclave", "seq", "id", "content"))
        admitted = good.select(*EVENTS.fieldNames())
        self.context.append("events", admitted, self.txn)
        return admitted

    def _known_events(self, enclaves: Collection[str]) -> DataFrame:
        """Return the stored events, each with the statement about its content, whoever signed it."""
        events, statements = (
            self._only(self.lake[name].read(self.spark), enclaves) for name in ("events", "statements")
        )
        signed = statements.select("enclave", "seq", "id", col("withheld").alias("_signed"))
        joined = events.join(signed, ["enclave", "seq", "id"], "left")
        return joined.withColumn("withheld", coalesce("withheld", "_signed")).drop("_signed")

    def _show_returned(self, rows: DataFrame) -> None:
        """Write contents that are no longer withheld to their events."""
        table, columns = self.lake["events"], {"content": "s.content", "withheld": "NULL"}
        self.context.write(
            self.spark,
            table,
            self.txn,
            lambda txn: table.upsert(
                rows, txn, on=("enclave", "seq", "id"), update=columns, update_if="t.content IS NULL", insert=False
            ),
            "returned",
        )

    # Heads

    def _heads(
        self, known: Mapping[str, KnownHead], histories: Mapping[str, SignerHistory], recount: set[str]
    ) -> list[tuple[Any, ...]]:
        """Return each enclave's new head.

        For the enclaves in `recount`, rows were dropped or rejected, so the head is computed from
        `events`.
        """
        counted = {
            name: (summary, known[name].events) for name, summary in self.summaries.items() if name not in recount
        }
        counted |= {name: (summary, 0) for name, summary in self._stored_summaries(recount).items()}
        found: list[tuple[Any, ...]] = []
        for name, (summary, before) in counted.items():
            next_seq, events, history = summary.next_seq, before + summary.rows, histories[name]
            sequencers = [{"sequencer": key, "from_seq": first} for key, first in history]
            id_, at = summary.head
            head = (id_, datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at), history[-1][0], sequencers)
            found.append((name, next_seq, events, next_seq - events, *head))
        return found

    def _publish(self, name: str, rows: Rows, progress: Mapping[str, int], versions: Mapping[str, int]) -> None:
        if self.context.publisher is not None:
            self.context.reached(f"before publish {name}")
            self.context.publisher.push_batch(self.spark, self.lake[name], rows, None, progress, versions[name])
            self.context.reached(f"after publish {name}")


def _is_suspect(summary: EnclaveSummary, history: SignerHistory) -> bool:
    """Return True if the range has several sequencers, or a key other than its sequencer signed in
    it.
    """
    here = [
        key for key, start, end in spans(history) if start < summary.next_seq and (end is None or end > summary.first)
    ]
    return here != summary.signers or len(here) > 1


class _Migrate(Struct):
    new_sequencer: str = ""


def _new_sequencer(content: str | None) -> str:
    try:
        return msgspec.json.decode(content or "", type=_Migrate).new_sequencer
    except (msgspec.DecodeError, UnicodeError):
        return ""
