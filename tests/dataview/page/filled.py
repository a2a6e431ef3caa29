"""A serving database as a pipeline fills it: a real log, its enclave's rows, and many enclaves beside it."""

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from pyspark.sql.types import StructType

from enc.dataview.lake import lake
from enc.dataview.publish.changes import INDEXES
from enc.dataview.publish.serving_writer import served_schema
from enc.dataview.publish.status import PIPELINE
from enc.dataview.serving.columns import ViewSchema
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.rights import ViewRights
from enc.dataview.views.catalog import built_in
from tests.core.world import GROUP, START, pub
from tests.dataview.logs import Log, small_log
from tests.dataview.serving.rows import event_row

Row = dict[str, Any]
HOUR = 3_600_000_000
END = START * 1000
"""Time of the latest event, in microseconds."""
ENCLAVES = 120
PUBLIC = ViewRights(public=True)
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
"""Hostile text that a log may contain; it must be shown as it is."""

_GOLD: dict[str, tuple[StructType, str]] = {
    "members": (lake.MEMBERS, "enclave identity"),
    "timeline": (lake.TIMELINE, "enclave id"),
    "activity_hourly": (lake.ACTIVITY_HOURLY, "enclave hour type"),
    "registry_nodes": (lake.REGISTRY_NODES, "enclave seq_pub"),
    "registry_enclaves": (lake.REGISTRY_ENCLAVES, "enclave enclave_id"),
    "registry_identities": (lake.REGISTRY_IDENTITIES, "enclave id_pub"),
    "figures": (lake.FIGURES, "kind name"),
    "refusals": (lake.REFUSALS, "origin code"),
    "roles": (lake.ROLES, "state"),
}
_ABOUT = {view.name: view.description for view in built_in()}
PUBLISHED = (*(name for name in _GOLD), "events", "enclaves", "heads")


def schema(name: str) -> ViewSchema:
    if name == "pipeline":
        return PIPELINE
    if name in _GOLD:
        columns, key = _GOLD[name]
        return served_schema(name, key.split(), columns, _ABOUT.get(name, ""))
    spec = lake.SPECS[name]
    return served_schema(name, spec.key, spec.schema)


def key_of(name: str) -> str:
    """Return a plausible key or id."""
    return sha256(name.encode()).hexdigest()


def whole(view: ViewSchema, row: Mapping[str, Any]) -> Row:
    """Return the row with all columns, and JSON in the database's form."""
    found = {column.name: row.get(column.name) for column in view.columns}
    kinds = {column.name: column.kind for column in view.columns}
    return {
        name: json.dumps(value) if kinds[name] == "json" and value is not None else value
        for name, value in found.items()
    }


class Filling:
    """Fills a database."""

    def __init__(self, place: str, progress: Mapping[str, int]) -> None:
        self._database, self._progress = ServingDatabase(place), dict(progress)

    def put(self, name: str, rows: Iterable[Mapping[str, Any]], progress: Mapping[str, int] | None = None) -> None:
        view = schema(name)
        told = self._progress if progress is None else progress
        self._database.upsert(view, (whole(view, row) for row in rows), told, index=INDEXES.get(name, ()))

    def close(self) -> None:
        self._database.close()


def fill(place: str, *, but: Sequence[str] = ()) -> Log:
    """Fill all views except `but`. Returns the real log in them."""
    log, draw = small_log(), random.Random(7)
    ids = [log.enclave, *(key_of(f"enclave {n}") for n in range(1, ENCLAVES))]
    seqs = {id_: 40 + 13 * n % 900 for n, id_ in enumerate(ids)} | {log.enclave: len(log.events)}
    filling = Filling(place, seqs)
    rows: dict[str, list[Row]] = {
        "events": _events(log),
        "enclaves": [_enclave(n, id_, log) for n, id_ in enumerate(ids)],
        "heads": [_head(n, id_, seqs[id_], log) for n, id_ in enumerate(ids)],
        "members": _members(ids, log, draw),
        "timeline": [],
        **_registry(ids),
        **_figures(draw),
    }
    for name, each in rows.items():
        if name not in but:
            late = {id_: seq - (seq % 3 == 0) for id_, seq in seqs.items()}
            filling.put(name, each, late if name == "timeline" else None)
    if "pipeline" not in but:
        filling.put("pipeline", _pipeline(), {})
    filling.close()
    return log


def _events(log: Log) -> list[Row]:
    rows = [event_row(event) for event in log.events]
    for row in rows:
        row |= {
            "tags": json.loads(row["tags"]),
            "origin": "node:http://127.0.0.1:7700",
            "received_at": row["timestamp"] + 900_000,
        }
    rows[12]["content"] = HOSTILE
    return rows


NAMES = ["Release notes", "Household", "Field measurements", "Board minutes", "Choir rehearsals", "Incident log"]
APPS = ["chat", "journal", "audit", "sensors"]


def _enclave(n: int, id_: str, log: Log) -> Row:
    name = NAMES[n % len(NAMES)] + ("" if n < len(NAMES) else f" {n // len(NAMES) + 1}")
    manifest = {**GROUP, "meta": {"description": name}}
    state = "paused" if n % 17 == 5 else "terminated" if n % 29 == 7 else "active"
    return {
        "enclave": id_,
        "enc_v": log.enc_v,
        "creator": pub("alice") if n % 3 == 0 else key_of(f"person {n}"),
        "created": END - (n * 5 + 1) * HOUR,
        "manifest": json.dumps(manifest),
        "meta": json.dumps(manifest["meta"]) if n % 11 else None,
        "registry": n == 4,
        "lifecycle": state,
        "lifecycle_seq": 7 if state != "active" else None,
        "closed_gates": ["notices"] if n % 13 == 1 else [],
        "sequencers": _sequencers(n),
        "refused": 2 if n % 23 == 3 else 0,
    }


def _sequencers(n: int) -> list[Row]:
    first = [{"sequencer": pub("node"), "from_seq": 0}]
    return first if n % 5 else [*first, {"sequencer": pub("node2"), "from_seq": 12}]


def _head(n: int, id_: str, next_seq: int, log: Log) -> Row:
    missing = 0 if n % 19 or n == 0 else 3 + n
    last = log.events[-1]
    return {
        "enclave": id_,
        "next_seq": next_seq,
        "events": next_seq - missing,
        "missing": missing,
        "id": last.id.hex() if n == 0 else key_of(f"head {n}"),
        "timestamp": END - n * HOUR // 3,
        "sequencer": _sequencers(n)[-1]["sequencer"],
        "sequencers": _sequencers(n),
    }


def _members(ids: Sequence[str], log: Log, draw: random.Random) -> list[Row]:
    rows = [(id_, key_of(f"person {draw.randrange(400)}"), n) for id_ in ids for n in range(draw.randrange(2, 9))]
    own = [(log.enclave, pub("alice"), 0), *((log.enclave, key_of(f"member {n}"), n + 1) for n in range(60))]
    return [
        {
            "enclave": id_,
            "identity": who,
            "state": "MEMBER" if n % 5 else "PENDING",
            "traits": ["admin"] if n == 0 else [],
            "owner": n == 0,
            "since_seq": n,
            "since": END - n * HOUR,
        }
        for id_, who, n in {(id_, who): (id_, who, n) for id_, who, n in [*rows, *own]}.values()
    ]


def _registry(ids: Sequence[str]) -> dict[str, list[Row]]:
    home = ids[4]
    entries = [
        {"enclave": home, "event": key_of(f"entry {n}"), "author": pub("alice"), "seq": n, "timestamp": END - n * HOUR}
        for n in range(len(ids))
    ]
    nodes = [
        {"seq_pub": pub(name), "endpoints": [f"https://{name}.example:7700"], "protocols": ["v2"], "enc_v": 2}
        for name in ("node", "node2", "node3")
    ]
    return {
        "registry_nodes": [{**entries[n], **node} for n, node in enumerate(nodes)],
        "registry_enclaves": [
            {
                **entries[n],
                "enclave_id": id_,
                "app": APPS[n % len(APPS)],
                "description": NAMES[n % len(NAMES)],
                "creator": pub("alice"),
                "sequencer": pub("node"),
            }
            for n, id_ in enumerate(ids)
        ],
        "registry_identities": [
            {**entries[n], "id_pub": key_of(f"person {n}"), "enclaves": {"personal": ids[n]}} for n in range(30)
        ],
    }


TYPES = {
    "message": 48_211,
    "public": 21_840,
    "Own": 9_120,
    "Update": 6_404,
    "Move": 4_188,
    "Grant": 2_107,
    "Manifest": 120,
}


def _figures(draw: random.Random) -> dict[str, list[Row]]:
    hours = []
    for back in range(24 * 30):
        at = END // HOUR * HOUR - back * HOUR
        swing = 1 + (at // HOUR % 24 in range(7, 19)) * 3
        count = draw.randrange(20, 90) * swing
        hours.append(
            (
                f"{datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%dT%H:%M:%S}Z",
                count,
                draw.randrange(3) * (back % 5 == 0),
                at,
            )
        )
    rows = [
        _figure("hour", name, count, began, count * draw.randrange(350, 1900), at) for name, count, began, at in hours
    ]
    total = sum(TYPES.values())
    rows.append(_figure("all", "", total, ENCLAVES, total * 800, END))
    rows += [_figure("type", name, count, 0, count * 800, END) for name, count in TYPES.items()]
    sources = {
        "node:http://127.0.0.1:7700": 61_904,
        "push:https://node.example": 24_011,
        "archive:/data/archives/": 6_075,
    }
    rows += [_figure("origin", name, count, 0, count * 740, END) for name, count in sources.items()]
    refusals = [
        ("push:https://node.example", "INVALID_SIGNATURE", 14, "the author's signature does not fit the commit"),
        ("archive:/data/archives/", "INVALID_COMMIT", 3, "the archive is truncated within a line"),
        (
            "node:http://forger.example:7700",
            "FOREIGN_SEQUENCER",
            2,
            "signed by another key than the enclave's sequencer",
        ),
    ]
    roles = [("MEMBER", 412, 0), ("OWNER", 120, 120), ("PENDING", 63, 0), ("BLOCKED", 9, 0)]
    return {
        "figures": rows,
        "refusals": [
            {
                "origin": origin,
                "code": code,
                "refused": count,
                "latest": END - n * 7 * HOUR,
                "reason": why,
                "example": origin,
            }
            for n, (origin, code, count, why) in enumerate(refusals)
        ],
        "roles": [{"state": state, "members": many, "owners": own, "enclaves": 100} for state, many, own in roles],
    }


def _figure(kind: str, name: str, events: int, enclaves: int, delay_ms: int, at: int) -> Row:
    return {
        "kind": kind,
        "name": name,
        "events": events,
        "enclaves": enclaves,
        "delay_ms": delay_ms,
        "latest": at,
        "received_at": at + 900_000,
    }


def _pipeline() -> list[Row]:
    now = time.time_ns() // 1000 + HOUR  # always recent, however long a test takes
    return [
        {
            "part": "ingest",
            "told_at": now,
            "batch": 812,
            "rows": 37,
            "rows_per_second": 410.5,
            "took_ms": 640,
            "behind": 0,
        },
        {"part": "derive", "told_at": now, "batch": 240, "rows": 37, "rows_per_second": 96.0, "took_ms": 2210},
        {"part": "views", "told_at": now, "rows": 4},
    ]


def empty(place: str) -> None:
    """Create all views without rows."""
    filling = Filling(place, {})
    for name in (*PUBLISHED, "pipeline"):
        filling.put(name, [])
    filling.close()
