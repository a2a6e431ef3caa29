"""Judges contents by the schemas of the enclave's manifest (docs/protocol.md, section 12.7).

An event is judged by its current content: that of its latest Update, if it has one. An Update is
judged by the schema of its target's type.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from enc.client.enclave.combined_reads import latest_updates, policy, read_events
from enc.client.enclave.commit_builder import write
from enc.client.enclave.search import PagedSearch
from enc.client.enclave.writes import as_bytes
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.items import Item
from enc.client.wire.flow import Flow, work
from enc.core.errors import EventNotFound, MisuseError
from enc.core.log.filter import MAX_TYPES
from enc.core.primitives.types import Event, Receipt, Tags
from enc.core.rules.manifest_schemas import ContentSchemas, read_schemas


def fetch_schemas(reader: EnclaveReader, types: Sequence[str] = ()) -> Flow[ContentSchemas]:
    """Return the schemas of the manifest; raise MisuseError if one of these types has none.

    A manifest never changes: it is read once.
    """
    if reader.schemas is None:
        reader.schemas = yield from reader.once.run("schemas", lambda: _read(reader))
    for type_ in types:
        reader.schemas.check_type(type_)
    return reader.schemas


def _read(reader: EnclaveReader) -> Flow[ContentSchemas]:
    rules = yield from policy(reader)
    return read_schemas(rules.manifest)


class JudgedSearch:
    """A search for the events whose contents satisfy their schemas; without `valid`, violate them.

    Other events are left out: those of types without a schema, and those without a current content
    that the caller may read.
    """

    def __init__(
        self, search: Mapping[str, Any], limit: int | None, reverse: bool, *, valid: bool, proof: bool
    ) -> None:
        self._search, self._left, self._reverse, self._valid, self._proof = dict(search), limit, reverse, valid, proof
        self._pages = PagedSearch(search, limit, reverse)
        self._schemas: ContentSchemas | None = None

    @property
    def is_over(self) -> bool:
        return self._pages.wire is None or self._left == 0

    def advance(self, reader: EnclaveReader) -> Flow[list[Item]]:
        """Return the selected items of the next page."""
        if self._schemas is None:
            self._schemas = yield from self._begin(reader)
        page = yield from reader.page(self._pages.wire or {}, proof=self._proof)
        items = yield from judge_items(reader, list(self._pages.advance(page)), self._schemas)
        found = [item for item in items if item.violations is not None and (item.violations == ()) == self._valid]
        found = found[: self._left]
        self._left = None if self._left is None else self._left - len(found)
        return found

    def _begin(self, reader: EnclaveReader) -> Flow[ContentSchemas]:
        """Fetch the schemas, and limit the search to types that have one."""
        given = self._search["type"] or ()
        types = [given] if isinstance(given, str) else list(given)
        schemas = yield from fetch_schemas(reader, [type_ for type_ in types if type_ != "Update"])
        if not schemas.by_type:
            raise MisuseError("; ".join(["valid: the manifest has no schemas", *schemas.problems.values()]))
        judged = [*schemas.by_type, "Update"]
        if not types and len(judged) <= MAX_TYPES:
            self._search["type"] = judged
        self._pages = PagedSearch(self._search, None, self._reverse)
        return schemas


def judge_items(reader: EnclaveReader, items: Sequence[Item], schemas: ContentSchemas) -> Flow[list[Item]]:
    """Return the items with their `violations`, and with the contents that were judged."""
    judged = [item for item in items if item.type == "Update" or item.type in schemas.by_type]
    updates, targets = (yield from latest_updates(reader, judged)), dict[bytes, Event]()
    yield from read_events(reader, {item.target for item in judged if item.type == "Update" and item.target}, targets)

    def judge(item: Item) -> Item:
        target = targets.get(item.target or b"")
        current = item if item.updated_by is None else updates.get(item.id)
        type_ = item.type if target is None else target.type
        if current is None:
            return item
        return replace(item, violations=schemas.violations(type_, current.content), judged=current.content)

    found: list[Item] = yield from work(lambda: [judge(item) for item in items])
    return found


def write_checked(reader: EnclaveReader, type_: str, content: str, tags: Tags) -> Flow[Receipt]:
    """Write an event; raise InvalidContent if its content violates its schema, MisuseError
    if there is none."""
    judged = type_
    if type_ == "Update":
        named = (tag[1] for tag in tags if tag[0] == "r" and len(tag) > 1)
        target, found = as_bytes(next(named, ""), "event"), dict[bytes, Event]()
        yield from read_events(reader, [target], found)
        if target not in found:
            raise EventNotFound("the event to update is deleted, or you may not read it: its type is unknown")
        judged = found[target].type
    schemas = yield from fetch_schemas(reader)
    schemas.check(judged, content)
    return (yield from write(reader, lambda dialect: (type_, content, tags)))
