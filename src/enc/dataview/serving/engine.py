"""Database engines: SQLite by path, PostgreSQL by URL, with explicit transactions."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DBAPIError

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.serving.errors import QueryTooSlow

_log = logging.getLogger("enc.dataview.serving")

BUSY_MS = 60_000
"""How long a writer of SQLite waits for another."""
CHECKPOINT_MS = 5_000
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    f"busy_timeout={BUSY_MS}",
    "cache_size=-65536",
    "secure_delete=ON",  # erased contents are overwritten, not only unlinked
)
_STEPS = 20_000
"""SQLite instructions between two checks of the clock: well under a millisecond."""


def open_engine(place: str) -> sa.Engine:
    """Open `postgresql://…`, `sqlite:///FILE`, or a file's path."""
    if place.startswith(("postgresql://", "postgresql+psycopg://")):
        return _postgresql(place)
    if "://" in place and not place.startswith("sqlite:///"):
        raise MisuseError("database: expected a file's path, sqlite:///FILE or postgresql://…")
    return _sqlite(Path(place.removeprefix("sqlite:///")))


def _postgresql(place: str) -> sa.Engine:
    try:
        url = sa.make_url(place).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        raise MisuseError("database: not a URL of PostgreSQL") from None
    return sa.create_engine(url, pool_size=8, max_overflow=0, pool_pre_ping=True, hide_parameters=True)


def _sqlite(path: Path) -> sa.Engine:
    if not path.name or not path.absolute().parent.is_dir():
        raise MisuseError(f"database: {path}: its folder does not exist")
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), pool_size=8, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: Any) -> None:
        connection.isolation_level = (
            None  # transactions begin explicitly: the driver would begin them only for some statements
        )
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        is_writer = connection.get_execution_options().get("enc_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate database errors, without leaking statements or their values."""
    try:
        yield
    except DBAPIError as e:
        state = getattr(e.orig, "sqlstate", None)
        if state == "57014" or str(e.orig) == "interrupted":
            raise QueryTooSlow("timed out: filter or order by the key or by an indexed column") from None
        if isinstance(e, sa.exc.IntegrityError):
            raise MisuseError("a row has null in a column of the key") from None
        if isinstance(e, sa.exc.OperationalError):  # these describe the environment, not the content of rows
            _log.warning("the database does not answer: %s", str(e.orig).partition("\n")[0])
        raise Unavailable(f"the database does not answer: {type(e.orig).__name__}", retry_after_ms=1000) from None
    except sa.exc.TimeoutError:
        raise Unavailable("too many concurrent queries", retry_after_ms=1000) from None


@contextmanager
def reading(engine: sa.Engine, patience_s: float) -> Iterator[sa.Connection]:
    """Open a consistent snapshot; queries that take longer than `patience_s` are cancelled."""
    with translated_errors():
        if engine.dialect.name == "postgresql":
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
            with engine.connect().execution_options(**options) as connection, connection.begin():
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(patience_s * 1000)}")
                yield connection
            return
        with engine.connect() as connection, _limited(connection, patience_s), connection.begin():
            yield connection


@contextmanager
def _limited(connection: sa.Connection, patience_s: float) -> Iterator[None]:
    raw: Any = connection.connection.driver_connection
    raw.set_progress_handler(_past(time.monotonic() + patience_s), _STEPS)
    try:
        yield
    finally:
        raw.set_progress_handler(None, 0)


def _past(deadline: float) -> Callable[[], bool]:
    return lambda: time.monotonic() > deadline


@contextmanager
def writing(engine: sa.Engine, lock: int) -> Iterator[sa.Connection]:
    """Open a write transaction, with one writer at a time per `lock`, a 32-bit number."""
    with translated_errors(), engine.execution_options(enc_write=True).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(lock)))
        yield connection


def vacuum(engine: sa.Engine, tables: Sequence[str]) -> None:
    """Empty SQLite's write-ahead log, unless readers use it for longer than `CHECKPOINT_MS`; vacuum
    PostgreSQL's tables.
    """
    if engine.dialect.name == "postgresql":
        quote = engine.dialect.identifier_preparer.quote
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for name in tables:
                connection.exec_driver_sql(f"VACUUM {quote(name)}")
        return
    with closing(engine.raw_connection()) as connection:  # outside of a transaction
        cursor = connection.cursor()
        for pragma in (f"busy_timeout={CHECKPOINT_MS}", "wal_checkpoint(TRUNCATE)", f"busy_timeout={BUSY_MS}"):
            cursor.execute(f"PRAGMA {pragma}").fetchall()
