"""The page over 1,000,000 events of 10,000 enclaves, in SQLite: all requests of each of its pages, p95 under 300 ms.

The server is a separate process. A page's requests go one after the other over one connection, for random enclaves,
and their times are added up: a browser sends some of them at once, and waits less.
tests/dataview/page/test_requests.py checks that the list of requests is that of the page.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from floors import verdict
from pyspark.sql.types import StructType

from enc.dataview.lake import lake
from enc.dataview.publish.changes import INDEXES
from enc.dataview.publish.serving_writer import served_schema
from enc.dataview.publish.status import PIPELINE
from enc.dataview.serving.database import ServingDatabase

EVENTS, ENCLAVES, LARGE, MEMBERS = 1_000_000, 10_000, 200_000, 100_000
"""One enclave is large: it has a fifth of all events."""
ROUNDS = 100
AT_MOST_MS = 300.0
START = 1_780_000_000_000_000
STEP = 5_000_000
"""Microseconds between two events: all events span about two months."""
TYPES = ["message", "message", "message", "public", "Own", "Update", "Move", "Grant"]
ENC = [sys.executable, "-c", "from enc.cli import main; main()"]
GOLD: dict[str, tuple[StructType, str]] = {
    "activity_hourly": (lake.ACTIVITY_HOURLY, "enclave hour type"),
    "members": (lake.MEMBERS, "enclave identity"),
    "profiles": (lake.PROFILES, "identity"),
    "timeline": (lake.TIMELINE, "enclave id"),
    "registry_nodes": (lake.REGISTRY_NODES, "enclave seq_pub"),
    "registry_enclaves": (lake.REGISTRY_ENCLAVES, "enclave enclave_id"),
    "registry_identities": (lake.REGISTRY_IDENTITIES, "enclave id_pub"),
    "figures": (lake.FIGURES, "kind name"),
    "refusals": (lake.REFUSALS, "origin code"),
    "roles": (lake.ROLES, "state"),
}
VIEWS = (*GOLD, "events", "enclaves", "heads", "content_status", "access", "slots", "pipeline")

Row = dict[str, Any]


def hex_of(kind: str, n: int, size: int = 64) -> str:
    """Return hex that looks like a random id or key, but is the same for the same input."""
    draw = random.Random(f"{kind} {n}")
    return f"{draw.getrandbits(size * 4):0{size}x}"


# Rows of the tables


class Fleet:
    """Assigns events to enclaves in turn: the large enclave gets every fifth."""

    def __init__(self) -> None:
        self.ids = [hex_of("enclave", n) for n in range(ENCLAVES)]
        self.people = [hex_of("person", n) for n in range(20_000)]
        self.next_seq = [LARGE, *((EVENTS - LARGE) // (ENCLAVES - 1) for _ in range(ENCLAVES - 1))]
        self.node, self.manifest = hex_of("node", 0), json.dumps({"enc_v": 2, "bundle": {"size": 256}, "x": "y" * 3000})

    def events(self) -> Iterator[Row]:
        n, sig = 0, hex_of("sig", 0, 128)
        seqs, rest = [0] * ENCLAVES, 1
        while n < EVENTS:
            which = 0 if n % 5 == 0 and seqs[0] < LARGE else rest
            if which:
                rest = rest % (ENCLAVES - 1) + 1
            yield self._event(n, self.ids[which], seqs[which], sig)
            seqs[which] += 1
            n += 1
        self.next_seq = seqs

    def _event(self, n: int, enclave: str, seq: int, sig: str) -> Row:
        at = START + n * STEP
        return {
            "enclave": enclave,
            "seq": seq,
            "id": f"{n * 2654435761 % (1 << 64):064x}",
            "type": "Manifest" if seq == 0 else TYPES[n % len(TYPES)],
            "author": self.people[n * 7 % len(self.people)],
            "timestamp": at,
            "exp": at // 1000 + 60_000,
            "content": f"This is what somebody had to say as number {n} of all that was said.",
            "content_hash": sig[:64],
            "tags": "[]",
            "hash": sig[:64],
            "alg": "schnorr",
            "sig": sig,
            "sequencer": self.node,
            "seq_sig": sig,
            "enc_v": 2,
            "origin": "node:http://127.0.0.1:7700",
            "received_at": at + 900_000,
        }

    def enclaves(self) -> Iterator[Row]:
        for n, id_ in enumerate(self.ids):
            yield {
                "enclave": id_,
                "enc_v": 2,
                "creator": self.people[n % len(self.people)],
                "created": START + n * STEP,
                "manifest": self.manifest,
                "meta": json.dumps({"description": f"enclave {n}"}),
                "registry": n == 1,
                "lifecycle": "active",
                "closed_gates": "[]",
                "sequencers": json.dumps([{"sequencer": self.node, "from_seq": 0}]),
                "refused": 0,
            }

    def heads(self) -> Iterator[Row]:
        for n, id_ in enumerate(self.ids):
            missing = 3 if n % 500 == 0 else 0
            yield {
                "enclave": id_,
                "next_seq": self.next_seq[n],
                "events": self.next_seq[n] - missing,
                "missing": missing,
                "id": hex_of("head", n),
                "timestamp": START + EVENTS * STEP - n * STEP,
                "sequencer": self.node,
                "sequencers": json.dumps([{"sequencer": self.node, "from_seq": 0}]),
            }

    def members(self) -> Iterator[Row]:
        for n in range(MEMBERS):
            state = {"state": "MEMBER" if n % 3 else "OWNER", "traits": "[]", "owner": n % 3 == 0}
            who = {"enclave": self.ids[n % ENCLAVES], "identity": self.people[n * 13 % len(self.people)]}
            yield {**who, **state, "since_seq": 1, "since": START}

    def figures(self) -> Iterator[Row]:
        per_hour = 3_600_000_000 // STEP
        hours = [
            (f"{time.strftime('%Y-%m-%dT%H', time.gmtime((START + n * STEP) // 10**6))}:00:00Z")
            for n in range(0, EVENTS, per_hour)
        ]
        names = [("hour", name, per_hour) for name in hours] + [
            ("type", name, EVENTS // 8) for name in {*TYPES, "Manifest"}
        ]
        names += [("all", "", EVENTS), ("origin", "node:http://127.0.0.1:7700", EVENTS)]
        for kind, name, count in names:
            yield {
                "kind": kind,
                "name": name,
                "events": count,
                "enclaves": 7,
                "delay_ms": count * 900,
                "latest": START,
                "received_at": START,
            }

    def registry_enclaves(self) -> Iterator[Row]:
        for n, id_ in enumerate(self.ids):
            entry = {"event": hex_of("entry", n), "author": self.people[0], "seq": n, "timestamp": START}
            about = {
                "app": ["chat", "journal", "audit"][n % 3],
                "description": f"enclave {n}",
                "creator": self.people[n],
            }
            yield {"enclave": self.ids[1], "enclave_id": id_, "sequencer": self.node, **about, **entry}

    def registry_identities(self) -> Iterator[Row]:
        for n, who in enumerate(self.people):
            entry = {"event": hex_of("identity", n), "author": who, "seq": n, "timestamp": START}
            yield {"enclave": self.ids[1], "id_pub": who, "enclaves": "{}", **entry}

    def rows(self, name: str) -> Iterator[Row]:
        """Yield the rows of a table. `events` must come first: it determines the size of each enclave."""
        few: Mapping[str, list[Row]] = {
            "refusals": [{"origin": "push:x", "code": "INVALID_SIGNATURE", "refused": 3, "latest": START}],
            "roles": [{"state": "MEMBER", "members": MEMBERS, "owners": 0, "enclaves": ENCLAVES}],
            "registry_nodes": [{"enclave": self.ids[1], "seq_pub": self.node, "event": self.node, "timestamp": START}],
            "pipeline": [{"part": "ingest", "told_at": START}],
        }
        return getattr(self, name)() if hasattr(self, name) else iter(few.get(name, ()))


def fill(place: Path) -> Fleet:
    fleet, database = Fleet(), ServingDatabase(str(place))
    for name in ("events", *(each for each in VIEWS if each != "events")):
        if name == "pipeline":
            schema = PIPELINE
        elif name in GOLD:
            schema = served_schema(name, GOLD[name][1].split(), GOLD[name][0])
        else:
            schema = served_schema(name, lake.SPECS[name].key, lake.SPECS[name].schema)
        empty = dict.fromkeys(column.name for column in schema.columns)
        rows = ({**empty, **row} for row in fleet.rows(name))
        progress = {} if name == "pipeline" else dict(zip(fleet.ids, fleet.next_seq, strict=True))
        database.upsert(schema, rows, progress, index=INDEXES.get(name, ()))
    database.close()
    return fleet


# Requests of the page

Asking = list[tuple[str, dict[str, Any]]]
WHAT = "enclave,enc_v,creator,created,meta,lifecycle,registry"


class Places:
    """The requests of each page, one method per page: paths, and parameters by name."""

    def __init__(self, fleet: Fleet, views: list[str]) -> None:
        self._fleet, self._views, self._draw = fleet, [name for name in views if name != "pipeline"], random.Random(1)

    def _enclave(self) -> str:
        """Draw an enclave at random; one in five draws gives the large one."""
        ids = self._fleet.ids
        return ids[0] if self._draw.random() < 0.2 else self._draw.choice(ids)

    def _some(self, count: int) -> str:
        return ",".join(self._draw.sample(self._fleet.ids, count))

    def overview(self) -> Asking:
        recent = ",".join(self._fleet.ids[:25])
        return [
            ("/views", {}),
            ("/views/figures", {"kind": "all"}),
            ("/views/figures", {"kind": "hour", "name.ge": "1970", "name.le": "9", "order": "-name", "limit": 720}),
            ("/views/figures", {"kind": "type", "order": "-events", "limit": 10}),
            ("/views/figures", {"kind": "origin", "order": "-events", "limit": 20}),
            ("/views/roles", {"order": "-members", "limit": 100}),
            ("/views/refusals", {"order": "-latest", "limit": 100}),
            (
                "/views/heads",
                {"missing.gt": 0, "order": "-missing", "limit": 6, "select": "enclave,missing,next_seq,timestamp"},
            ),
            ("/views/pipeline", {"limit": 10}),
            ("/views/heads", {"order": "-timestamp", "limit": 25, "select": "enclave,next_seq"}),
            *((f"/views/{name}/progress", {"enclave.in": recent}) for name in self._views),
        ]

    def enclaves(self) -> Asking:
        return [("/views", {}), ("/views/enclaves", {"order": "-created", "limit": 50, "select": WHAT}), *self._about()]

    def _named(self) -> Asking:
        return [("/views/enclaves", {"enclave.in": self._some(50), "limit": 50, "select": WHAT}), *self._about()]

    def _about(self) -> Asking:
        ids, heads = self._some(50), "enclave,next_seq,events,missing,timestamp"
        return [
            ("/views/heads", {"enclave.in": ids, "limit": 50, "select": heads}),
            ("/views/registry_enclaves", {"enclave_id.in": ids, "limit": 200, "select": "enclave_id,app,description"}),
        ]

    def enclaves_by_id(self) -> Asking:
        asked = {"enclave.prefix": self._enclave()[:3], "limit": 50, "select": WHAT}
        return [("/views", {}), ("/views/enclaves", asked), *self._about()]

    def enclaves_by_owner(self) -> Asking:
        asked = {"identity.prefix": self._draw.choice(self._fleet.people)[:8], "owner": "true", "order": "identity"}
        return [("/views", {}), ("/views/members", {**asked, "limit": 50, "select": "enclave"}), *self._named()]

    def enclaves_by_app(self) -> Asking:
        asked = {"app": "chat", "limit": 50, "select": "enclave_id"}
        return [("/views", {}), ("/views/registry_enclaves", asked), *self._named()]

    def enclave(self) -> Asking:
        return self._one(self._enclave())

    def _one(self, id_: str) -> Asking:
        return [
            ("/views", {}),
            ("/views/enclaves", {"enclave": id_, "limit": 1}),
            ("/views/heads", {"enclave": id_, "limit": 1}),
            ("/views/registry_enclaves", {"enclave_id": id_, "limit": 20}),
        ]

    def _events(self, **more: Any) -> Asking:
        id_, select = self._enclave(), "seq,id,type,author,timestamp,content,withheld"
        asked = {"enclave": id_, **more, "order": "-seq", "limit": 50, "select": select}
        return [*self._one(id_), ("/views/events", asked)]

    def events(self) -> Asking:
        return self._events()

    def events_by_type(self) -> Asking:
        return self._events(type=self._draw.choice(TYPES))

    def events_by_author(self) -> Asking:
        return self._events(author=self._draw.choice(self._fleet.people))

    def members(self) -> Asking:
        id_ = self._enclave()
        return [*self._one(id_), ("/views/members", {"enclave": id_, "limit": 50})]

    def bundles(self) -> Asking:
        id_ = self._enclave()
        asked = {"enclave": id_, "seq.ge": 0, "order": "seq", "limit": 2000, "select": "seq,type,timestamp,sequencer"}
        return [*self._one(id_), ("/views/events", asked)]

    def views(self) -> Asking:
        return [("/views", {})]

    def view(self) -> Asking:
        return [("/views", {}), ("/views/events", {"limit": 50})]

    def view_newest_first(self) -> Asking:
        return [("/views", {}), ("/views/events", {"order": "-timestamp", "limit": 50})]

    def view_by_type(self) -> Asking:
        return [("/views", {}), ("/views/events", {"type": self._draw.choice(TYPES), "limit": 50})]

    def registry(self) -> Asking:
        return [("/views", {}), ("/views/registry_nodes", {"order": "seq_pub", "limit": 50})]

    def registry_enclaves(self) -> Asking:
        return [("/views", {}), ("/views/registry_enclaves", {"order": "enclave_id", "limit": 50})]

    def registry_identities(self) -> Asking:
        return [("/views", {}), ("/views/registry_identities", {"order": "id_pub", "limit": 50})]

    def proof_by_id(self) -> Asking:
        id_ = f"{self._draw.randrange(EVENTS) * 2654435761 % (1 << 64):064x}"
        return [("/views", {}), ("/views/events", {"id": id_, "limit": 1})]


NAMES = [name for name in vars(Places) if not name.startswith("_")]


@contextmanager
def serving(place: Path) -> Iterator[httpx.Client]:
    flags = [flag for name in VIEWS for flag in ("--public", name)]
    command = [*ENC, "dataview", "serve", "--database", str(place), "--listen", "127.0.0.1:0", *flags, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
                yield client
        finally:
            process.terminate()


def measure(http: httpx.Client, place: Callable[[], Asking]) -> list[float]:
    """Return the milliseconds of all requests of a page, sorted."""
    found = []
    for _ in range(ROUNDS):
        asked = place()
        start = time.perf_counter()
        for path, parameters in asked:
            answer = http.get(path, params=parameters)
            assert answer.status_code == 200, answer.text
        found.append((time.perf_counter() - start) * 1000)
    return sorted(found)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place, start = Path(folder) / "serving.db", time.perf_counter()
        fleet = fill(place)
        took, size = time.perf_counter() - start, place.stat().st_size >> 20
        print(f"the page: {EVENTS:,} events of {ENCLAVES:,} enclaves in {size:,} MiB, filled in {took:.0f} s")
        with serving(place) as http:
            names = [view["name"] for view in http.get("/views").json()["views"]]
            places = Places(fleet, names)
            for name in NAMES:
                found = measure(http, getattr(places, name))
                p50, p95 = statistics.median(found), found[len(found) * 95 // 100]
                what = f"the page: {name.replace('_', ' ')}"
                kept = verdict(what, p95 <= AT_MOST_MS)
                print(f"{what}, p95: {p95:.1f} ms (p50 {p50:.1f}), at most {AT_MOST_MS:g}: {kept}")


if __name__ == "__main__":
    main()
