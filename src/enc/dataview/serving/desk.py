"""What each path answers, for a caller whose rights are asked for first."""

import re
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from enc.core.errors import InvalidQuery
from enc.core.hashing import sha256
from enc.dataview.serving import cursor, formats, proofs, values
from enc.dataview.serving import query as queries
from enc.dataview.serving.database import Database, Moment, Stored
from enc.dataview.serving.errors import Unauthenticated, ViewNotFound
from enc.dataview.serving.proofs import MAX_PROVED, Prover
from enc.dataview.serving.query import Query
from enc.dataview.serving.rights import Caller, Rights
from enc.version import __version__

MAX_COMPLETE = 1000
"""Enclaves whose progress is told beside rows; /progress tells that of all."""
MAX_IN_HEADER = 32
MAX_PAGE = 16 << 20
"""Bytes of texts in one page: it ends before its limit where there are more."""
JSON = "application/json"
_ENCLAVE = re.compile("[0-9a-f]{64}")


class Asked(Struct, frozen=True, kw_only=True):
    caller: Caller
    path: str
    name: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    accept: str = ""
    known: str = ""
    """The header If-None-Match."""

    def parameter(self, name: str) -> str | None:
        return next((text for given, text in self.parameters if given == name), None)


class Answer(Struct, frozen=True):
    body: bytes
    media: str = JSON
    headers: dict[str, str] = {}
    status: int = 200


class Desk:
    def __init__(self, database: Database, rights: Rights, prover: Prover) -> None:
        self._database, self._rights, self._prover = database, rights, prover
        self._complete: dict[str, tuple[str, int, list[tuple[str, int]]]] = {}

    def info(self, asked: Asked) -> Answer:
        _expect(asked)
        key = self._rights.session_pub
        wire = {"type": "DataView", "version": __version__, "session_pub": None if key is None else key.hex()}
        return Answer(msgspec.json.encode(wire))

    def health(self, asked: Asked) -> Answer:
        _expect(asked)
        with self._database.reading() as moment:
            moment.view("events")
        return Answer(b'{"status":"ok"}')

    def readable(self, caller: Caller) -> list[Stored]:
        with self._database.reading() as moment:
            return [view for view in moment.views() if self._rights.may_read(caller, view.schema.name)]

    def views(self, asked: Asked) -> Answer:
        _expect(asked)
        found = [self._described(view) for view in self.readable(asked.caller)]
        return Answer(msgspec.json.encode({"views": found}), headers=_shared(False))

    def _described(self, view: Stored) -> dict[str, Any]:
        schema = view.schema
        return {
            "name": schema.name,
            "description": schema.description,
            "key": schema.key,
            "columns": [{"name": column.name, "type": column.kind} for column in schema.columns],
            "public": self._rights.is_public(schema.name),
            "verifiable": proofs.basis_of(schema) is not None,
            "href": f"/views/{schema.name}",
        }

    def progress(self, asked: Asked) -> Answer:
        """Enclaves by id, page by page; or those that are named."""
        _expect(asked, "after", "limit", "enclave.in")
        limit = _number(asked.parameter("limit"), MAX_COMPLETE, 10_000)
        named = asked.parameter("enclave.in")
        only = None if named is None else named.split(",")
        if only is not None and len(only) > queries.MAX_IN:
            raise InvalidQuery(f"enclave.in: at most {queries.MAX_IN} values")
        with self._database.reading() as moment:
            view = self._view(moment, asked)
            found = moment.progress(view.schema.name, limit + 1, after=asked.parameter("after") or "", only=_ids(only))
        more = found[limit - 1][0] if len(found) > limit else None
        wire = {"view": view.schema.name, "complete": dict(found[:limit]), "next": more}
        return Answer(msgspec.json.encode(wire), headers=_shared(self._rights.is_public(view.schema.name)))

    def _view(self, moment: Moment, asked: Asked) -> Stored:
        """To who may not read it, a view that is not there and one that is are the same."""
        if self._rights.may_read(asked.caller, asked.name):
            stored = moment.view(asked.name)
            if stored is None:
                raise ViewNotFound("nothing is published under this name yet: the pipeline does it, once it has rows")
            return stored
        if asked.caller.kind == "anybody":
            raise Unauthenticated("there is no public view of this name; others need a token or a session")
        raise ViewNotFound("there is no view of this name, or it is not yours to read")

    # Rows

    def rows(self, asked: Asked) -> Answer:
        wants = _flag(asked.parameter("verify"), "verify")
        format_ = formats.choose(asked.parameter("format"), asked.accept)
        with self._database.reading() as moment:
            view = self._view(moment, asked)
            query = queries.parse(view.schema, asked.parameters)
            basis = self._basis(asked, query, format_) if wants else None
            headers = _shared(self._rights.is_public(asked.name), kept=not wants)
            if not wants:
                headers["etag"] = etag = _etag(view, query, format_)
                if etag in (each.strip().removeprefix("W/") for each in asked.known.split(",")):
                    return Answer(b"", headers=headers, status=304)
            table, also = moment.table(view.schema), basis.columns if basis else ()
            statement = queries.statement(query, table, self._database.dialect, also)
            rows, more = moment.page(statement, query.limit, MAX_PAGE)
            complete = self._told(moment, view, query)
            found = None if basis is None else proofs.events_of(moment, basis, rows)
        page = formats.Page(
            view=query.view.name,
            columns=query.select,
            rows=rows,
            complete=dict(complete[:MAX_COMPLETE]),
            all_enclaves=len(complete) <= MAX_COMPLETE,
            next=cursor.make(query.order, query.mark, rows[-1]) if more else None,
            proofs=None if found is None else self._prover.prove(found),
        )
        return _paged(asked, page, complete, format_, headers)

    def _basis(self, asked: Asked, query: Query, format_: formats.Format) -> proofs.Basis:
        if format_ != "json":
            raise InvalidQuery("verify: proofs come in JSON")
        if query.limit > MAX_PROVED:
            raise InvalidQuery(f"verify: with a limit of at most {MAX_PROVED}")
        if not self._rights.may_verify(asked.caller, asked.name):
            raise InvalidQuery("verify: the events behind this view are not yours to read")
        basis = proofs.basis_of(query.view)
        if basis is None:
            raise InvalidQuery(
                f"verify: a row of {query.view.name} names no single event: it has not both an enclave "
                f"and one of {', '.join(proofs.NAMES)}"
            )
        return basis

    def _told(self, moment: Moment, view: Stored, query: Query) -> list[tuple[str, int]]:
        """The progress of the enclaves that are meant; one more than is told, if there are more."""
        name, only = view.schema.name, query.enclaves()
        if only is not None:
            return moment.progress(name, queries.MAX_IN, only=_ids(only))
        kept = self._complete.get(name)
        if kept is None or kept[:2] != (view.generation, view.version):
            found = moment.progress(name, MAX_COMPLETE + 1)
            self._complete[name] = kept = (view.generation, view.version, found)
        return kept[2]


def _ids(named: list[str] | None) -> list[str] | None:
    """Those that can be ids: a database may not take every text."""
    return None if named is None else [each for each in named if _ENCLAVE.fullmatch(each)]


def _paged(
    asked: Asked, page: formats.Page, complete: list[tuple[str, int]], format_: formats.Format, headers: dict[str, str]
) -> Answer:
    if page.next is not None:
        rest = [(name, text) for name, text in asked.parameters if name != "cursor"]
        headers["link"] = f'<{quote(asked.path)}?{urlencode([*rest, ("cursor", page.next)])}>; rel="next"'
    is_short = len(complete) <= MAX_IN_HEADER
    told = ", ".join(f"{enclave}={seq}" for enclave, seq in complete) if is_short else f"{asked.path}/progress"
    return Answer(formats.encode(page, format_), formats.MEDIA[format_], {**headers, "enc-complete": told})


def _etag(view: Stored, query: Query, format_: str) -> str:
    asks = [query.mark, [column.name for column in query.select], query.limit, repr(query.after), format_]
    return f'"{sha256(msgspec.json.encode([view.generation, view.version, *asks]))[:16].hex()}"'


def _shared(public: bool, *, kept: bool = True) -> dict[str, str]:
    """Who may keep an answer: it is asked for again each time, with what is known of it."""
    said = "no-cache" if kept else "no-store"
    return {"cache-control": f"{'public' if public else 'private'}, {said}", "vary": "accept, authorization"}


def _expect(asked: Asked, *names: str) -> None:
    """No parameters but these, each once."""
    given = [name for name, _ in asked.parameters]
    if set(given) - set(names) or len(set(given)) != len(given):
        raise InvalidQuery(f"expected no parameters but {', '.join(names) or 'none'}, each once")


def _number(text: str | None, default: int, most: int) -> int:
    number = default if text is None else values.integer(text)
    if number is None or not 1 <= number <= most:
        raise InvalidQuery(f"limit: expected 1 to {most}")
    return number


def _flag(text: str | None, name: str) -> bool:
    if text not in (None, "0", "1"):
        raise InvalidQuery(f"{name}: expected 0 or 1")
    return text == "1"
