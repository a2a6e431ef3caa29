"""Request handlers: each checks the caller's rights first."""

import re
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from enc.core.errors import InvalidQuery
from enc.core.primitives.hashing import sha256
from enc.dataview.serving import cursor, formats, proofs, values
from enc.dataview.serving import query as queries
from enc.dataview.serving.database import ServingDatabase, Snapshot, StoredView
from enc.dataview.serving.errors import Unauthenticated, ViewNotFound
from enc.dataview.serving.proofs import MAX_PROVED, Prover
from enc.dataview.serving.query import Query
from enc.dataview.serving.rights import Caller, Rights
from enc.version import __version__

MAX_COMPLETE = 1000
"""Most enclaves whose progress is sent with rows; /progress has all."""
MAX_IN_HEADER = 32
MAX_PAGE = 16 << 20
"""Most bytes of text in a page, which may therefore end before its limit."""
JSON = "application/json"
_ENCLAVE = re.compile("[0-9a-f]{64}")


class ViewRequest(Struct, frozen=True, kw_only=True):
    caller: Caller
    path: str
    name: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    accept: str = ""
    known: str = ""
    """The header If-None-Match."""

    def parameter(self, name: str) -> str | None:
        return next((text for given, text in self.parameters if given == name), None)


class ViewResponse(Struct, frozen=True):
    body: bytes
    media: str = JSON
    headers: dict[str, str] = {}
    status: int = 200


class ViewHandlers:
    def __init__(self, database: ServingDatabase, rights: Rights, prover: Prover) -> None:
        self._database, self._rights, self._prover = database, rights, prover
        self._complete: dict[str, tuple[str, int, list[tuple[str, int]]]] = {}

    def info(self, request: ViewRequest) -> ViewResponse:
        _expect(request)
        key = self._rights.session_pub
        wire = {"type": "DataView", "version": __version__, "session_pub": None if key is None else key.hex()}
        return ViewResponse(msgspec.json.encode(wire))

    def health(self, request: ViewRequest) -> ViewResponse:
        _expect(request)
        with self._database.reading() as snapshot:
            snapshot.view("events")
        return ViewResponse(b'{"status":"ok"}')

    def readable_views(self, caller: Caller) -> list[StoredView]:
        with self._database.reading() as snapshot:
            return [view for view in snapshot.views() if self._rights.may_read(caller, view.schema.name)]

    def views(self, request: ViewRequest) -> ViewResponse:
        _expect(request)
        found = [self._described(view) for view in self.readable_views(request.caller)]
        return ViewResponse(msgspec.json.encode({"views": found}), headers=_cache_headers(False))

    def _described(self, view: StoredView) -> dict[str, Any]:
        schema = view.schema
        return {
            "name": schema.name,
            "description": schema.description,
            "key": schema.key,
            "columns": [{"name": column.name, "type": column.kind} for column in schema.columns],
            "public": self._rights.is_public(schema.name),
            "verifiable": proofs.event_reference(schema) is not None,
            "href": f"/views/{schema.name}",
        }

    def progress(self, request: ViewRequest) -> ViewResponse:
        """Return progress by enclave, in pages sorted by id; or of the given enclaves."""
        _expect(request, "after", "limit", "enclave.in")
        limit = _number(request.parameter("limit"), MAX_COMPLETE, 10_000)
        named = request.parameter("enclave.in")
        only = None if named is None else named.split(",")
        if only is not None and len(only) > queries.MAX_IN:
            raise InvalidQuery(f"enclave.in: at most {queries.MAX_IN} values")
        with self._database.reading() as snapshot:
            view = self._view(snapshot, request)
            found = snapshot.progress(
                view.schema.name, limit + 1, after=request.parameter("after") or "", only=_ids(only)
            )
        more = found[limit - 1][0] if len(found) > limit else None
        wire = {"view": view.schema.name, "complete": dict(found[:limit]), "next": more}
        return ViewResponse(msgspec.json.encode(wire), headers=_cache_headers(self._rights.is_public(view.schema.name)))

    def _view(self, snapshot: Snapshot, request: ViewRequest) -> StoredView:
        """Return the view. Callers without read rights get the same error whether or not it exists."""
        if self._rights.may_read(request.caller, request.name):
            stored = snapshot.view(request.name)
            if stored is None:
                raise ViewNotFound("this view is not published yet; the pipeline publishes it once it has rows")
            return stored
        if request.caller.kind == "anybody":
            raise Unauthenticated("no public view of this name; other views need a token or a session")
        raise ViewNotFound("no such view, or you may not read it")

    # Rows

    def rows(self, request: ViewRequest) -> ViewResponse:
        with_proofs = _flag(request.parameter("verify"), "verify")
        format_ = formats.choose(request.parameter("format"), request.accept)
        with self._database.reading() as snapshot:
            view = self._view(snapshot, request)
            query = queries.parse(view.schema, request.parameters)
            reference = self._event_reference(request, query, format_) if with_proofs else None
            headers = _cache_headers(self._rights.is_public(request.name), kept=not with_proofs)
            if not with_proofs:
                headers["etag"] = etag = _etag(view, query, format_)
                if etag in (each.strip().removeprefix("W/") for each in request.known.split(",")):
                    return ViewResponse(b"", headers=headers, status=304)
            table, also = snapshot.table(view.schema), reference.columns if reference else ()
            statement = queries.statement(query, table, self._database.dialect, also)
            rows, more = snapshot.page(statement, query.limit, MAX_PAGE)
            complete = self._enclave_progress(snapshot, view, query)
            found = None if reference is None else proofs.events_of(snapshot, reference, rows)
        page = formats.RowPage(
            view=query.view.name,
            columns=query.select,
            rows=rows,
            complete=dict(complete[:MAX_COMPLETE]),
            all_enclaves=len(complete) <= MAX_COMPLETE,
            next=cursor.make(query.order, query.fingerprint, rows[-1]) if more else None,
            proofs=None if found is None else self._prover.prove(found),
        )
        return _paged(request, page, complete, format_, headers)

    def _event_reference(
        self, request: ViewRequest, query: Query, format_: formats.AnswerFormat
    ) -> proofs.EventReference:
        if format_ != "json":
            raise InvalidQuery("verify: needs format json")
        if query.limit > MAX_PROVED:
            raise InvalidQuery(f"verify: needs a limit of at most {MAX_PROVED}")
        if not self._rights.may_verify(request.caller, request.name):
            raise InvalidQuery("verify: you may not read the events of this view")
        reference = proofs.event_reference(query.view)
        if reference is None:
            raise InvalidQuery(
                f"verify: a row of {query.view.name} does not identify an event: it needs both an enclave "
                f"and one of {', '.join(proofs.NAMES)}"
            )
        return reference

    def _enclave_progress(self, snapshot: Snapshot, view: StoredView, query: Query) -> list[tuple[str, int]]:
        """Return the progress of the query's enclaves; one more than the limit if there are more."""
        name, only = view.schema.name, query.enclaves()
        if only is not None:
            return snapshot.progress(name, queries.MAX_IN, only=_ids(only))
        kept = self._complete.get(name)
        if kept is None or kept[:2] != (view.generation, view.version):
            found = snapshot.progress(name, MAX_COMPLETE + 1)
            self._complete[name] = kept = (view.generation, view.version, found)
        return kept[2]


def _ids(named: list[str] | None) -> list[str] | None:
    """Return the values that have the form of an id: a database may not accept every text."""
    return None if named is None else [each for each in named if _ENCLAVE.fullmatch(each)]


def _paged(
    request: ViewRequest,
    page: formats.RowPage,
    complete: list[tuple[str, int]],
    format_: formats.AnswerFormat,
    headers: dict[str, str],
) -> ViewResponse:
    if page.next is not None:
        rest = [(name, text) for name, text in request.parameters if name != "cursor"]
        headers["link"] = f'<{quote(request.path)}?{urlencode([*rest, ("cursor", page.next)])}>; rel="next"'
    is_short = len(complete) <= MAX_IN_HEADER
    header = ", ".join(f"{enclave}={seq}" for enclave, seq in complete) if is_short else f"{request.path}/progress"
    return ViewResponse(formats.encode(page, format_), formats.MEDIA[format_], {**headers, "enc-complete": header})


def _etag(view: StoredView, query: Query, format_: str) -> str:
    asks = [query.fingerprint, [column.name for column in query.select], query.limit, repr(query.after), format_]
    return f'"{sha256(msgspec.json.encode([view.generation, view.version, *asks]))[:16].hex()}"'


def _cache_headers(public: bool, *, kept: bool = True) -> dict[str, str]:
    """Return cache headers: caches must revalidate every time."""
    said = "no-cache" if kept else "no-store"
    return {"cache-control": f"{'public' if public else 'private'}, {said}", "vary": "accept, authorization"}


def _expect(request: ViewRequest, *names: str) -> None:
    """Reject other parameters, and repeated ones."""
    given = [name for name, _ in request.parameters]
    if set(given) - set(names) or len(set(given)) != len(given):
        raise InvalidQuery(f"parameters: expected {'only ' + ', '.join(names) + ', each once' if names else 'none'}")


def _number(text: str | None, default: int, most: int) -> int:
    number = default if text is None else values.integer(text)
    if number is None or not 1 <= number <= most:
        raise InvalidQuery(f"limit: expected 1 to {most}")
    return number


def _flag(text: str | None, name: str) -> bool:
    if text not in (None, "0", "1"):
        raise InvalidQuery(f"{name}: expected 0 or 1")
    return text == "1"
