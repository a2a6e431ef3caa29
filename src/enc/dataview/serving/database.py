"""The serving database: a table for each view, its schema, and its progress.

All changes of a batch to a view, including its progress, are one transaction: a reader sees all of
it or nothing, and writing a batch again changes nothing.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from enc.core.errors import MisuseError
from enc.dataview.serving.columns import Column, ViewSchema, check_schema, sql_table, sql_type, table_name
from enc.dataview.serving.engine import open_engine, reading, translated_errors, vacuum, writing
from enc.dataview.serving.statements import Row, chunks, delete_rows, insert_into, key_parameters, upsert_rows

PATIENCE_S = 10.0
_FETCHED = 32
"""Rows of a page that are fetched at once: a content may be a mebibyte."""

_meta = sa.MetaData()
_views = sa.Table(
    "enc_views",
    _meta,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("schema", sa.Text, nullable=False),
    sa.Column("generation", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("batch_id", sa.BigInteger),
)
_progress = sa.Table(
    "enc_progress",
    _meta,
    sa.Column("view", sa.Text, primary_key=True),
    sa.Column("enclave", sa.Text(collation="C").with_variant(sa.Text(), "sqlite"), primary_key=True),
    sa.Column("next_seq", sa.BigInteger, nullable=False),
)
_schema = msgspec.json.Decoder(ViewSchema)


class StoredView(Struct, frozen=True):
    """A stored view. `version` grows with every change within one `generation`."""

    schema: ViewSchema
    generation: str
    version: int
    batch_id: int | None


class ServingDatabase:
    def __init__(self, place: str, *, patience_s: float = PATIENCE_S) -> None:
        self._engine = open_engine(place)
        self._patience_s = patience_s
        self._known: dict[str, tuple[ViewSchema, sa.Table]] = {}
        with translated_errors():
            is_new = not sa.inspect(self._engine).has_table(_progress.name)
        if is_new:
            with writing(self._engine, 0) as connection:
                _meta.create_all(connection)

    @property
    def dialect(self) -> str:
        return self._engine.dialect.name

    def close(self) -> None:
        self._engine.dispose()

    # Writing

    def upsert(
        self,
        schema: ViewSchema,
        rows: Iterable[Row],
        progress: Mapping[str, int],
        *,
        deleted: Iterable[Row] = (),
        index: Sequence[str] = (),
        batch_id: int | None = None,
    ) -> None:
        """Upsert `rows` by key, remove `deleted`, and advance `progress`, in one transaction.

        `progress`: for each enclave the first seq that is not in the view yet; a lower value than
        before is ignored. `index`: columns to index. New columns are added.
        """
        check_schema(schema)
        with self._writing(schema.name) as connection:
            present, table = self._prepare(connection, schema, index)
            for chunk in chunks(rows):
                connection.execute(upsert_rows(table, schema, self.dialect), chunk)
            for chunk in chunks(deleted):
                connection.execute(delete_rows(table, schema.key), [key_parameters(row, schema.key) for row in chunk])
            self._advance_progress(connection, schema.name, progress)
            bump = {"version": _views.c.version + 1, "batch_id": batch_id, "schema": _text(present)}
            connection.execute(sa.update(_views).where(_views.c.name == schema.name).values(bump))

    def replace(
        self,
        schema: ViewSchema,
        rows: Iterable[Row],
        progress: Mapping[str, int],
        *,
        index: Sequence[str] = (),
        batch_id: int | None = None,
        keep_progress: bool = False,
    ) -> None:
        """Replace the view, whatever it was: readers see the old one until the new one is complete.

        `keep_progress`: `progress` is added to the recorded one, as in `upsert`; otherwise it
        replaces it.
        """
        check_schema(schema)
        with self._writing(schema.name) as connection:
            self._drop(connection, schema.name, keep_progress=keep_progress)
            _, table = self._prepare(connection, schema, index)
            for chunk in chunks(rows):
                connection.execute(upsert_rows(table, schema, self.dialect), chunk)
            self._advance_progress(connection, schema.name, progress)
            connection.execute(sa.update(_views).where(_views.c.name == schema.name).values(batch_id=batch_id))

    def advance_progress(self, view: str, progress: Mapping[str, int]) -> None:
        """Advance a view's progress: for each enclave the first seq that is not in it yet."""
        with self._writing(view) as connection:
            self._advance_progress(connection, view, progress)
            bump = {"version": _views.c.version + 1}
            connection.execute(sa.update(_views).where(_views.c.name == view).values(bump))

    def drop(self, view: str) -> None:
        """Remove a view; a missing view is ignored."""
        with self._writing(view) as connection:
            self._drop(connection, view)

    def vacuum(self) -> None:
        """Remove old versions of rows from the disk, without stopping readers.

        SQLite overwrites deleted rows in its file; this empties its write-ahead log. PostgreSQL
        frees the space of old versions and overwrites it later.
        """
        with self.reading() as snapshot:
            tables = [table_name(view.schema.name) for view in snapshot.views()]
        with translated_errors():
            vacuum(self._engine, [*tables, _progress.name])

    @contextmanager
    def _writing(self, view: str) -> Iterator[sa.Connection]:
        with writing(self._engine, crc32(view.encode()) | 1) as connection:
            yield connection

    def _drop(self, connection: sa.Connection, view: str, *, keep_progress: bool = False) -> None:
        stored = _stored(connection, view)
        if stored is not None:
            sql_table(stored.schema, self.dialect).drop(connection)
            connection.execute(sa.delete(_views).where(_views.c.name == view))
            if not keep_progress:
                connection.execute(sa.delete(_progress).where(_progress.c.view == view))

    def _prepare(
        self, connection: sa.Connection, schema: ViewSchema, index: Sequence[str]
    ) -> tuple[ViewSchema, sa.Table]:
        """Return the view's new schema, and its table adapted to it."""
        stored = _stored(connection, schema.name)
        if stored is None:
            table = sql_table(schema, self.dialect)
            table.create(connection)
            made = {"schema": _text(schema), "generation": secrets.token_hex(8), "version": 1}
            connection.execute(sa.insert(_views).values(name=schema.name, **made))
            present = schema
        else:
            present = self._evolve(connection, stored.schema, schema)
            table = sql_table(present, self.dialect)
        for name in index:
            self._index(connection, table, name)
        return present, table

    def _evolve(self, connection: sa.Connection, old: ViewSchema, new: ViewSchema) -> ViewSchema:
        """Return the old schema plus new columns. Columns that are gone stay, without new values."""
        if old.key != new.key:
            raise MisuseError(f"view {old.name}: its key is {', '.join(old.key)}; changing it needs a rebuild")
        added = []
        for column in new.columns:
            known = old.column(column.name)
            if known is None:
                added.append(column)
            elif known.kind != column.kind:
                why = f"is a {known.kind}, not a {column.kind}; changing it needs a rebuild"
                raise MisuseError(f"view {old.name}: {column.name} {why}")
        present = ViewSchema(old.name, (*old.columns, *added), old.key, new.description or old.description)
        check_schema(present)
        for column in added:
            self._add(connection, present, column)
        return present

    def _add(self, connection: sa.Connection, schema: ViewSchema, column: Column) -> None:
        quote = self._engine.dialect.identifier_preparer.quote
        type_ = sql_type(column.kind, self.dialect).compile(self._engine.dialect)
        connection.exec_driver_sql(
            f"ALTER TABLE {quote(table_name(schema.name))} ADD COLUMN {quote(column.name)} {type_}"
        )

    def _index(self, connection: sa.Connection, table: sa.Table, name: str) -> None:
        if name not in table.c:
            raise MisuseError(f"{table.name}: index: no such column: {name}")
        # The key follows, so that pages in this order are read from the index.
        first = table.c[name].asc().nulls_first() if self.dialect == "postgresql" else table.c[name]
        columns = [first, *(column for column in table.primary_key if column.name != name)]
        label = f"ix_{crc32(table.name.encode()):08x}_{name}"[:63]
        sa.Index(label, *columns).create(connection, checkfirst=True)

    def _advance_progress(self, connection: sa.Connection, view: str, progress: Mapping[str, int]) -> None:
        rows = [{"view": view, "enclave": enclave, "next_seq": next_seq} for enclave, next_seq in progress.items()]
        insert = insert_into(_progress, self.dialect)
        ahead = sa.case((insert.excluded.next_seq > _progress.c.next_seq, insert.excluded.next_seq))
        taken = insert.on_conflict_do_update(
            index_elements=["view", "enclave"], set_={"next_seq": sa.func.coalesce(ahead, _progress.c.next_seq)}
        )
        for chunk in chunks(rows):
            connection.execute(taken, chunk)

    # Reading

    @contextmanager
    def reading(self) -> Iterator["Snapshot"]:
        with reading(self._engine, self._patience_s) as connection:
            yield Snapshot(self, connection)

    def table(self, schema: ViewSchema) -> sa.Table:
        known = self._known.get(schema.name)
        if known is None or known[0] != schema:
            self._known[schema.name] = known = (schema, sql_table(schema, self.dialect))
        return known[1]


class Snapshot:
    """A consistent snapshot of the database."""

    def __init__(self, database: ServingDatabase, connection: sa.Connection) -> None:
        self._database, self._connection = database, connection

    def views(self) -> list[StoredView]:
        return [_as_stored(row) for row in self._connection.execute(sa.select(_views).order_by(_views.c.name))]

    def view(self, name: str) -> StoredView | None:
        return _stored(self._connection, name)

    def table(self, schema: ViewSchema) -> sa.Table:
        return self._database.table(schema)

    def page(self, statement: sa.Select[Any], limit: int, max_bytes: int) -> tuple[list[sa.Row[Any]], bool]:
        """Return at most `limit` rows, ending before `max_bytes` but with at least one; and whether
        more follow.
        """
        rows, size = list[sa.Row[Any]](), 0
        options = {"stream_results": True, "max_row_buffer": _FETCHED} if self._database.dialect == "postgresql" else {}
        with self._connection.execute(statement, execution_options=options) as result:
            while part := result.fetchmany(_FETCHED):
                for row in part:
                    size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
                    if len(rows) == limit or (rows and size > max_bytes):
                        return rows, True
                    rows.append(row)
        return rows, False

    def rows(self, statement: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        return self._connection.execute(statement).all()

    def progress(
        self, view: str, limit: int, *, after: str = "", only: Sequence[str] | None = None
    ) -> list[tuple[str, int]]:
        """Return enclaves with their next seq, sorted by id: those after `after`, or those in
        `only`.
        """
        columns, is_view = (_progress.c.enclave, _progress.c.next_seq), _progress.c.view == view
        chosen = _progress.c.enclave > after if only is None else _progress.c.enclave.in_(only)
        found = sa.select(*columns).where(is_view, chosen).order_by(_progress.c.enclave).limit(limit)
        return [(enclave, next_seq) for enclave, next_seq in self._connection.execute(found)]


def _stored(connection: sa.Connection, name: str) -> StoredView | None:
    row = connection.execute(sa.select(_views).where(_views.c.name == name)).one_or_none()
    return None if row is None else _as_stored(row)


def _as_stored(row: sa.Row[Any]) -> StoredView:
    return StoredView(_schema.decode(row.schema), row.generation, row.version, row.batch_id)


def _text(schema: ViewSchema) -> str:
    return msgspec.json.encode(schema).decode()
