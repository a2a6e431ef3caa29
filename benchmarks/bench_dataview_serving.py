"""Views over HTTP: a point lookup and a page of 100 rows of a view of 1,000,000, in SQLite.

The server is a separate process, with requests over one open connection, at random places. Its floor is the same
statement by SQLite's own driver, in this process.
"""

import json
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from floors import verdict

from enc.dataview.serving.columns import Column, ViewSchema
from enc.dataview.serving.database import ServingDatabase

ROWS, ENCLAVES, PAGE = 1_000_000, 50, 100
ASKED = 1_000
AT_MOST_MS = 5.0
TEXTS = "enclave id type author content".split()
POSTS = ViewSchema(
    "posts",
    (*(Column(name, "string") for name in TEXTS), Column("seq", "integer"), Column("timestamp", "timestamp")),
    ("enclave", "seq"),
)
ENC = [sys.executable, "-c", "from enc.cli import main; main()"]


def enclave(n: int) -> str:
    return f"{n * 7919:064x}"


def rows() -> Iterator[dict[str, Any]]:
    for n in range(ROWS):
        yield {
            "enclave": enclave(n % ENCLAVES),
            "seq": n // ENCLAVES,
            "id": f"{n * 2654435761 % (1 << 64):064x}",
            "type": "post",
            "author": f"{n % 997:064x}",
            "content": f"This is what somebody had to say as number {n} of all that was said.",
            "timestamp": 1_700_000_000_000_000 + n * 1000,
        }


@contextmanager
def serving(place: Path) -> Iterator[httpx.Client]:
    command = [*ENC, "dataview", "serve", "--database", str(place), "--listen", "127.0.0.1:0", "--public", "posts"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with httpx.Client(base_url=url, trust_env=False) as client:
                yield client
        finally:
            process.terminate()


def times(work: Callable[[], object], count: int = ASKED) -> list[float]:
    """Return the times in milliseconds, sorted."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        found.append((time.perf_counter() - start) * 1000)
    return sorted(found)


def report(what: str, found: list[float], floor: list[float]) -> None:
    p50, p95, least = statistics.median(found), found[len(found) * 95 // 100], statistics.median(floor)
    print(
        f"{what}, p50: {p50:.2f} ms (p95 {p95:.2f}; by SQLite alone {least:.2f}), "
        f"at most {AT_MOST_MS:g}: {verdict(what, p50 <= AT_MOST_MS)}"
    )


def measure(http: httpx.Client, raw: sqlite3.Connection) -> None:
    draw = random.Random(1)

    def place() -> tuple[str, int]:
        return enclave(draw.randrange(ENCLAVES)), draw.randrange(ROWS // ENCLAVES - PAGE)

    def ask(expected: int, **parameters: Any) -> None:
        answer = http.get("/views/posts", params=parameters)
        assert len(answer.json()["rows"]) == expected, answer.text

    def point() -> None:
        enclave, seq = place()
        ask(1, enclave=enclave, seq=seq)

    def by_id() -> None:
        ask(1, id=f"{draw.randrange(ROWS) * 2654435761 % (1 << 64):064x}")

    def page() -> None:
        enclave, seq = place()
        ask(PAGE, **{"enclave": enclave, "seq.ge": seq, "limit": PAGE})

    def latest() -> None:
        ask(PAGE, **{"order": "-timestamp", "timestamp.lt": 1_700_000_000_000 + draw.randrange(1000, ROWS)})

    def raw_point() -> None:
        raw.execute("SELECT * FROM view_posts WHERE enclave = ? AND seq = ?", place()).fetchall()

    def raw_page() -> None:
        order = "ORDER BY enclave, seq LIMIT 100"
        raw.execute(f"SELECT * FROM view_posts WHERE enclave = ? AND seq >= ? {order}", place()).fetchall()  # noqa: S608

    for work in (point, page):
        times(work, 50)
    lookup, floor = times(point), times(raw_point)
    report("view of 1,000,000 rows: a point lookup by the key", lookup, floor)
    report("view of 1,000,000 rows: a point lookup by an index", times(by_id), floor)
    pages, floor = times(page), times(raw_page)
    report("view of 1,000,000 rows: a page of 100 by the key", pages, floor)
    report("view of 1,000,000 rows: a page of 100, newest first", times(latest), floor)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "serving.db"
        database, start = ServingDatabase(str(place)), time.perf_counter()
        progress = {enclave(n): ROWS // ENCLAVES for n in range(ENCLAVES)}
        database.upsert(POSTS, rows(), progress, index=["id", "timestamp"])
        database.close()
        took = time.perf_counter() - start
        print(f"serving database: {ROWS:,} rows with two indexes taken in: {ROWS / took:,.0f} rows a second")
        raw = sqlite3.connect(place)
        with serving(place) as http:
            measure(http, raw)
        raw.close()


if __name__ == "__main__":
    main()
