"""Views made by hand."""

from typing import Any

import msgspec

from enc.core.log.withheld import wire_withheld
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event
from enc.dataview.serving import cursor, query
from enc.dataview.serving.columns import Column, ViewSchema
from enc.dataview.serving.database import ServingDatabase

A, B = "aa" * 32, "bb" * 32

PEOPLE = ViewSchema(
    "people",
    (
        Column("name", "string"),
        Column("enclave", "string"),
        Column("age", "integer"),
        Column("score", "double"),
        Column("is_well", "boolean"),
        Column("born", "date"),
        Column("seen", "timestamp"),
        Column("photo", "binary"),
        Column("extra", "json"),
        Column("limit", "integer"),
    ),
    ("name",),
    "People by name.",
)


def person(name: str, **more: Any) -> dict[str, Any]:
    return {**dict.fromkeys(column.name for column in PEOPLE.columns), "name": name, "enclave": A, **more}


ANNA = person(
    "anna",
    age=30,
    score=1.5,
    is_well=True,
    born="1996-02-29",
    seen=1_700_000_000_123_456,
    photo=b"\x00\xff",
    extra='{"a":[1,2]}',
    limit=7,
)
PAIRS = ViewSchema("pairs", (Column("a", "integer"), Column("b", "string"), Column("c", "integer")), ("a", "b"))


def pairs(count: int) -> list[dict[str, Any]]:
    return [{"a": n // 3, "b": f"b{n % 3}", "c": None if n % 4 == 0 else n % 5} for n in range(count)]


_TEXTS = "enclave id type author content content_hash hash alg sig sequencer seq_sig origin".split()
_NUMBERS = "seq exp enc_v batch_id".split()
EVENTS = ViewSchema(
    "events",
    (
        *(Column(name, "string") for name in _TEXTS),
        *(Column(name, "integer") for name in _NUMBERS),
        Column("timestamp", "timestamp"),
        Column("tags", "json"),
        Column("withheld", "json"),
    ),
    ("enclave", "seq"),
)


def event_row(event: Event, enc_v: int = 2) -> dict[str, Any]:
    """Return an event as a row of the view `events`."""
    return {
        "enclave": event.enclave.hex(),
        "seq": event.seq,
        "id": event.id.hex(),
        "type": event.type,
        "author": event.from_.hex(),
        "timestamp": event.timestamp * 1000,
        "exp": event.exp,
        "content": event.content,
        "content_hash": event.content_hash.hex(),
        "withheld": None if event.withheld is None else compact_json(wire_withheld(event.withheld)),
        "tags": msgspec.json.encode(event.tags).decode(),
        "hash": event.hash.hex(),
        "alg": event.alg,
        "sig": event.sig.hex(),
        "sequencer": event.sequencer.hex(),
        "seq_sig": event.seq_sig.hex(),
        "enc_v": enc_v,
        "origin": "by hand",
        "batch_id": 0,
    }


def ask(database: ServingDatabase, view: str, **parameters: str) -> list[dict[str, Any]]:
    """Return one page, in the database's form."""
    return page(database, view, **parameters)[0]


def page(database: ServingDatabase, view: str, **parameters: str) -> tuple[list[dict[str, Any]], str | None]:
    with database.reading() as snapshot:
        stored = snapshot.view(view)
        assert stored is not None
        asked = query.parse(stored.schema, [(name.replace("__", "."), text) for name, text in parameters.items()])
        rows = snapshot.rows(query.statement(asked, snapshot.table(stored.schema), database.dialect))
    shown = rows[: asked.limit]
    more = cursor.make(asked.order, asked.fingerprint, shown[-1]) if len(rows) > asked.limit else None
    names = [column.name for column in asked.select]
    return [{name: row._mapping[name] for name in names} for row in shown], more
