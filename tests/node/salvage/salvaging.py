"""Stores that are damaged in many ways, and what a salvage of one must keep."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event, TreeHead
from enc.node.fsck import check_file
from enc.node.salvage.enclaves import LeftOut
from enc.node.salvage.records import ROWS
from enc.node.salvage.salvage import SalvageReport, SalvageSteps
from enc.node.salvage.salvage import salvage as run
from enc.node.store.sqlite.connection import PAGE_BYTES
from enc.node.store.sqlite.store import SqliteStore
from tests.node.fsck.stores import ignore_progress
from tests.node.store_host import NODE

STEPS = SalvageSteps(ignore_progress, ignore_progress, ignore_progress)


class Log(Struct, frozen=True):
    """What a store holds of one enclave."""

    events: list[Event]
    state: EnclaveState
    heads: list[TreeHead | None]


def read_log(store: SqliteStore, enclave: bytes) -> Log | None:
    state = store.load(enclave)
    if state is None:
        return None
    heads = [store.head(enclave, size) for size in range(1, state.log.size + 1)]
    return Log(store.events(enclave, 0, state.seq + 1), state, heads)


class Original:
    """A store before it is damaged."""

    def __init__(self, path: Path, names: dict[str, bytes]) -> None:
        self.path, self.names, self.raw = path, names, path.read_bytes()
        with closing(SqliteStore(path)) as store:
            self.purged = {enclave for enclave in names.values() if store.is_purged(enclave)}
            found = {enclave: read_log(store, enclave) for enclave in names.values() if enclave not in self.purged}
        self.logs = {enclave: log for enclave, log in found.items() if log is not None}

    @property
    def pages(self) -> int:
        return len(self.raw) // PAGE_BYTES

    def page(self, number: int) -> bytes:
        return self.raw[(number - 1) * PAGE_BYTES : number * PAGE_BYTES]

    def pages_of(self, *names: str) -> list[int]:
        """Return the numbers of the pages of tables and indexes; a table may have several."""
        with closing(sqlite3.connect(self.path)) as db:
            query = "SELECT name, rootpage FROM sqlite_schema"
            roots = {name: root for name, root in db.execute(query) if not names or name in names}
        found = set[int]()
        waiting = [1, *roots.values()] if "sqlite_schema" in names else [*roots.values()]
        while waiting:
            number = waiting.pop()
            found.add(number)
            waiting += self._children(number)
        return sorted(found)

    def _children(self, number: int) -> list[int]:
        page = self.page(number)
        if page[0] not in (2, 5):
            return []
        cells = int.from_bytes(page[3:5])
        places = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i]) for i in range(cells)]
        return [int.from_bytes(page[8:12]), *(int.from_bytes(page[at : at + 4]) for at in places)]

    def hit(self, pages: list[int]) -> set[bytes]:
        """Return the enclaves with events in these pages."""
        rows = [page for page in map(self.page, pages) if page[:1] == bytes([ROWS])]
        return {enclave for enclave in self.logs if any(b'"enclave":"%b"' % enclave.hex().encode() in p for p in rows)}


class Damaged:
    """A copy of a store, with some damage."""

    def __init__(self, original: Original, folder: Path) -> None:
        self.original, self.folder = original, folder
        self.path, self.raw = folder / "enc.db", bytearray(original.raw)
        self.pages = list[int]()
        """Numbers of the damaged pages."""

    def overwrite(self, number: int, data: bytes, at: int = 0) -> None:
        start = (number - 1) * PAGE_BYTES + at
        self.raw[start : start + len(data)] = data
        self.pages.append(number)

    def overwrite_anyhow(self, random: Random, number: int) -> None:
        """Damage a page in one of several ways."""
        match random.choice(["zero", "random", "copy", "bits", "start"]):
            case "zero":
                self.overwrite(number, bytes(PAGE_BYTES))
            case "random":
                self.overwrite(number, random.randbytes(PAGE_BYTES))
            case "copy":
                self.overwrite(number, self.original.page(random.randint(1, self.original.pages)))
            case "bits":
                for _ in range(random.choice([1, 5, 50])):
                    at = random.randrange(PAGE_BYTES)
                    flipped = self.raw[(number - 1) * PAGE_BYTES + at] ^ 1 << random.randrange(8)
                    self.overwrite(number, bytes([flipped]), at)
            case _:
                self.overwrite(number, random.randbytes(16))

    def truncate(self, size: int) -> None:
        self.pages += range(size // PAGE_BYTES + 1, self.original.pages + 1)
        del self.raw[size:]

    def salvage(self, **options: Any) -> tuple[SalvageReport, dict[bytes, Log]]:
        """Salvage the store; return the report, and the logs in the new one, which is sound."""
        self.path.write_bytes(self.raw)
        report = salvage(self.path, self.folder / "new", **options)
        assert self.path.read_bytes() == self.raw, "the damaged store was written"
        return report, read_logs(self.folder / "new" / "enc.db", self.original)

    def _claims_more(self, left: LeftOut) -> bool:
        """Return whether an enclave is left out because a damaged number says that it had more events."""
        log = self.original.logs.get(left.enclave)
        return log is not None and bool(left.missing) and left.missing[0][0] == len(log.events)

    def check(self, **options: Any) -> tuple[SalvageReport, dict[bytes, Log]]:
        """Salvage the store; check that it keeps what it must and contradicts nothing."""
        report, found = self.salvage(**options)
        lost = self.original.hit(self.pages)
        if not set(self.pages).isdisjoint(self.original.pages_of("states", "kinds", "bundles")):
            lost |= {each.enclave for each in report.enclaves.left_out if self._claims_more(each)}
        for enclave, old in self.original.logs.items():
            new = found.get(enclave)
            if new is None:
                assert enclave in lost, report.enclaves.left_out
            else:
                check_same(old, new)
        named = {each.enclave for each in report.enclaves.left_out}
        without_id = sum(not each.enclave for each in report.enclaves.left_out) + report.unnamed
        assert len(self.original.logs.keys() - found.keys() - named) <= without_id, "it does not say what is missing"
        return report, found


def check_same(old: Log, new: Log) -> None:
    """Check that a salvaged log has the same events, and no head that contradicts an old one."""
    assert new.events == old.events
    assert 0 <= len(old.heads) - len(new.heads) <= 1  # the last bundle is open again if nothing says that it is closed
    for before, after in zip(old.heads, new.heads, strict=False):
        assert before is None or after is None or (before.ts, before.r) == (after.ts, after.r)


def salvage(path: Path, to: Path, **options: Any) -> SalvageReport:
    """Salvage a store into a new directory; check that the result is sound and restored."""
    shutil.rmtree(to, ignore_errors=True)
    report = run(path, to, NODE, STEPS, **options)
    assert check_file(to / "enc.db", NODE.public, (), ignore_progress).differences == []
    assert {each.name for each in to.iterdir()} <= {"enc.db", "enc.db.lock"}
    assert [each for each in to.parent.iterdir() if each.name.startswith(".enc")] == []
    return report


def read_logs(path: Path, original: Original) -> dict[bytes, Log]:
    with closing(SqliteStore(path)) as store:
        assert store.restored().startswith("salvaged from")
        found = {enclave: read_log(store, enclave) for enclave in original.logs}
    return {enclave: log for enclave, log in found.items() if log is not None}


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()
