"""All tables of the pipeline: their columns, keys and locations."""

import os
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructField, StructType

from enc.core.errors import MisuseError
from enc.dataview.lake.claim import WriterClaim
from enc.dataview.lake.lock import local_directory
from enc.dataview.lake.tables import Layer, Table, TableSpec
from enc.dataview.rows.schema import EVENTS, NUMBER, QUARANTINE, RAW, SMALL, TAGS, TEXT, TIME, WITHHELD

FLAG = BooleanType()
WORDS = ArrayType(TEXT)


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, type_, True) for name, type_ in columns.items()])


SEQUENCERS = ArrayType(_struct(sequencer=TEXT, from_seq=NUMBER))

TAG = _struct(enclave=TEXT, seq=NUMBER, id=TEXT, type=TEXT, position=SMALL, name=TEXT, value=TEXT, tag=WORDS)
CONTENT_STATUS = _struct(
    enclave=TEXT,
    id=TEXT,
    seq=NUMBER,
    type=TEXT,
    author=TEXT,
    timestamp=TIME,
    status=TEXT,
    content=TEXT,
    content_hash=TEXT,
    tags=TAGS,
    revision=TEXT,
    revised_seq=NUMBER,
    revised_by=TEXT,
    revised_at=TIME,
    expires_at=TIME,
    withheld=WITHHELD,
)
ACCESS = _struct(
    enclave=TEXT,
    identity=TEXT,
    state=TEXT,
    traits=WORDS,
    bitmask=TEXT,
    owner=FLAG,
    from_seq=NUMBER,
    to_seq=NUMBER,
    since=TIME,
    until=TIME,
    changed_by=TEXT,
    event=TEXT,
)
SLOTS = _struct(
    enclave=TEXT,
    kind=TEXT,
    owner=TEXT,
    key=TEXT,
    value=TEXT,
    content_hash=TEXT,
    author=TEXT,
    seq=NUMBER,
    id=TEXT,
    timestamp=TIME,
)
ENCLAVES = _struct(
    enclave=TEXT,
    enc_v=SMALL,
    creator=TEXT,
    created=TIME,
    manifest=TEXT,
    meta=TEXT,
    registry=FLAG,
    lifecycle=TEXT,
    lifecycle_seq=NUMBER,
    closed_gates=WORDS,
    sequencers=SEQUENCERS,
    refused=NUMBER,
)
HEADS = _struct(
    enclave=TEXT,
    next_seq=NUMBER,
    events=NUMBER,
    missing=NUMBER,
    id=TEXT,
    timestamp=TIME,
    sequencer=TEXT,
    sequencers=SEQUENCERS,
)
ACTIVITY_HOURLY = _struct(enclave=TEXT, hour=TIME, type=TEXT, events=NUMBER, first_seq=NUMBER, last_seq=NUMBER)
MEMBERS = _struct(enclave=TEXT, identity=TEXT, state=TEXT, traits=WORDS, owner=FLAG, since_seq=NUMBER, since=TIME)
PROFILES = _struct(identity=TEXT, enclave=TEXT, kind=TEXT, value=TEXT, seq=NUMBER, timestamp=TIME)
TIMELINE = _struct(
    enclave=TEXT,
    id=TEXT,
    seq=NUMBER,
    author=TEXT,
    content=TEXT,
    posted_at=TIME,
    edited_at=TIME,
    withheld=WITHHELD,
)
_ENTRY = {"event": TEXT, "author": TEXT, "seq": NUMBER, "timestamp": TIME}
REGISTRY_NODES = _struct(enclave=TEXT, seq_pub=TEXT, endpoints=WORDS, protocols=WORDS, enc_v=SMALL, **_ENTRY)
REGISTRY_ENCLAVES = _struct(
    enclave=TEXT, enclave_id=TEXT, app=TEXT, description=TEXT, meta=TEXT, creator=TEXT, sequencer=TEXT, **_ENTRY
)
REGISTRY_IDENTITIES = _struct(enclave=TEXT, id_pub=TEXT, enclaves=MapType(TEXT, TEXT), sub_pub=TEXT, **_ENTRY)
FIGURES = _struct(kind=TEXT, name=TEXT, events=NUMBER, enclaves=NUMBER, delay_ms=NUMBER, latest=TIME, received_at=TIME)
REFUSALS = _struct(origin=TEXT, code=TEXT, refused=NUMBER, latest=TIME, reason=TEXT, example=TEXT)
ROLES = _struct(state=TEXT, members=NUMBER, owners=NUMBER, enclaves=NUMBER)
FOLD = _struct(enclave=TEXT, next_seq=NUMBER, events=NUMBER, state=TEXT)
ERASURES = _struct(enclave=TEXT, seq=NUMBER, id=TEXT)
STATEMENTS = _struct(enclave=TEXT, seq=NUMBER, id=TEXT, withheld=WITHHELD)


_CHECKPOINTS = {"raw_events": 1009, "events": 1013, "heads": 1019, "content_status": 1021, "fold": 1031}
"""Checkpoint intervals of the tables that every batch writes; at these versions the batch waits for
Delta's checkpoint.
"""
CHECKPOINT_AFTER = 30
"""Commits after which a job writes a checkpoint beside its streams."""


def _spec(layer: Layer, name: str, schema: StructType, key: str, cluster: str = "", stats: str = "") -> TableSpec:
    return TableSpec(
        name=name,
        layer=layer,
        schema=schema,
        key=tuple(key.split()),
        cluster=tuple(cluster.split()),
        stats=tuple((stats or key or "enclave").split()),
        checkpoint_every=_CHECKPOINTS.get(name, 1000),
        large=name in ("raw_events", "events", "content_status"),
    )


SPECS = {
    spec.name: spec
    for spec in (
        _spec("bronze", "raw_events", RAW, "", "enclave seq", "enclave seq received_at"),
        _spec("silver", "events", EVENTS, "enclave seq", "enclave seq", "enclave seq type timestamp"),
        _spec("silver", "quarantine", QUARANTINE, "", ""),
        _spec("silver", "content_status", CONTENT_STATUS, "enclave id", "enclave id"),
        _spec("silver", "access", ACCESS, "enclave identity from_seq", "enclave"),
        _spec("silver", "slots", SLOTS, "enclave kind owner key", "enclave"),
        _spec("silver", "enclaves", ENCLAVES, "enclave"),
        _spec("silver", "heads", HEADS, "enclave"),
        _spec("state", "fold", FOLD, "enclave"),
        _spec("state", "erasures", ERASURES, "enclave seq"),
        _spec("state", "statements", STATEMENTS, "enclave seq"),
    )
}
"""Tables of layer `state` are internal: fold states, contents still to be erased from bronze, and
statements about withheld contents by keys that are not known to be sequencers of the log.
"""

PUBLIC = tuple(name for name, spec in SPECS.items() if spec.layer != "state")
"""Tables that views may read."""


class Lake:
    """The tables under one root: a directory, or any address that Spark can write to."""

    def __init__(self, root: str, claim: WriterClaim | None = None) -> None:
        """`claim`: the claim of the writer, if this process may write."""
        # Spark takes a relative path for a table name.
        self.root = os.path.abspath(root) if local_directory(root) == Path(root) else root.rstrip("/")
        self.claim = claim or WriterClaim()
        self._tables = {name: Table(self.root, spec, self.claim) for name, spec in SPECS.items()}

    def __getitem__(self, name: str) -> Table:
        try:
            return self._tables[name]
        except KeyError:
            raise MisuseError(f"{name[:60]}: not a table of the pipeline; expected one of {', '.join(SPECS)}") from None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def create(self, spark: SparkSession) -> "Lake":
        for table in self._tables.values():
            table.create(spark)
        return self

    def checkpoint(self, query: str) -> str:
        return f"{self.root}/_checkpoints/{query}"
