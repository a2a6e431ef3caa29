"""Import orders and the status of an import, as the API reads and returns them."""

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from enc.core.errors import (
    InvalidCommit,
    InvalidQuery,
)
from enc.core.log.commit import check_author, parse_commit, version_of
from enc.core.log.event import check_sequenced, parse_event
from enc.core.log.receipt import build_receipt, wire_receipt
from enc.core.primitives.encoding import decode_json
from enc.core.primitives.types import Commit, Event
from enc.core.rules.content import parse_migrate
from enc.runtime.endpoints import HttpEndpoint, parse_endpoint


class WireImportOrder(Struct, forbid_unknown_fields=True):
    migrate: Raw
    source: str | UnsetType = UNSET


class _Kind(Struct):
    seq_sig: str | UnsetType = UNSET


_wire, _kind = Decoder(WireImportOrder), Decoder(_Kind)


class ImportOrder(Struct, frozen=True):
    """A request for an import: the Migrate, and the node that has the log unless an archive
    follows.
    """

    migrate: Commit
    prev_seq: int
    source: HttpEndpoint | None = None

    @property
    def is_final(self) -> bool:
        """Whether the previous node has finalised the Migrate: a peaceful move."""
        return isinstance(self.migrate, Event)

    def is_same_source(self, other: "ImportOrder") -> bool:
        return self.source is not None and other.source is not None and self.source.url == other.source.url

    @property
    def total(self) -> int:
        return self.prev_seq + 2


class ImportStatus(Struct, frozen=True, omit_defaults=True):
    """Status of an import, as the API returns it."""

    import_: str = field(name="import")
    enclave: str
    status: str
    events: int | UnsetType = UNSET
    total: int | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET
    receipt: dict[str, Any] | UnsetType = UNSET


def parse_order(line: bytes, has_archive: bool, seq_pub: bytes, *, allow_private: bool) -> ImportOrder:
    """Parse an order and check the signatures of its Migrate."""
    wire = decode_json(line, _wire, InvalidQuery)
    is_final = decode_json(bytes(wire.migrate), _kind, InvalidQuery).seq_sig is not UNSET
    commit = parse_event(bytes(wire.migrate)) if is_final else parse_commit(bytes(wire.migrate))
    if commit.type != "Migrate":
        raise InvalidCommit("migrate: expected a Migrate")
    migrate = parse_migrate(commit)
    if migrate.new_sequencer != seq_pub:
        raise InvalidCommit("migrate: new_sequencer: expected this node's key")
    _check_signed(commit)
    if (wire.source is not UNSET) == has_archive:
        raise InvalidQuery("expected either a source, or an archive after the first line")
    if wire.source is UNSET:
        return ImportOrder(commit, migrate.prev_seq)
    if not is_final:
        raise InvalidQuery("source: needs a Migrate that the source has finalised; send an archive instead")
    source = parse_endpoint(wire.source, allow_private=allow_private)
    return ImportOrder(commit, migrate.prev_seq, source)


def _check_signed(commit: Commit) -> None:
    """Check the commit's hash by either version, the author's signature and, of an event, the
    sequencer's.
    """
    version_of(commit)
    check_author(commit)
    if isinstance(commit, Event):
        check_sequenced(commit)


def done_status(event: Event) -> ImportStatus:
    """Return the status of an import whose Migrate is in the log."""
    receipt = wire_receipt(build_receipt(event))
    return ImportStatus(event.hash.hex(), event.enclave.hex(), "done", event.seq + 1, event.seq + 1, receipt=receipt)
