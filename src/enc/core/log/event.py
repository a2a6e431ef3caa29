"""Events: finalise a commit, parse, check, erase, withhold (docs/protocol.md, section 6)."""

from binascii import unhexlify
from collections.abc import Container, Sequence
from struct import Struct as Layout
from typing import Any

from msgspec.json import Decoder
from msgspec.structs import replace

from enc.core.errors import InvalidArchive, InvalidCommit, InvalidHash, InvalidSignature, MisuseError, PeerError
from enc.core.log.commit import (
    MAX_EXP_WINDOW_MS,
    SKEW_MS,
    UNLIMITED,
    WireCommit,
    auto_delete_at,
    check_commit,
    check_hash,
    check_shape,
    wire_commit,
)
from enc.core.log.withheld import WireWithheld, is_signed, wire_withheld, withheld_from_wire
from enc.core.primitives import hashing
from enc.core.primitives.encoding import MAX_INT, check_numbers, decode_json, unhex
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_schnorr
from enc.core.primitives.types import Commit, Event, Receipt, Target, Withheld


class WireEvent(WireCommit, kw_only=True):
    """An event as JSON spells it. An erased one has `content: null` and its `content_hash`; a
    withheld one has `withheld`, too."""

    id: str
    timestamp: int
    sequencer: str
    seq: int
    seq_sig: str
    content_hash: str | None = None
    withheld: WireWithheld | None = None


_decoder = Decoder(WireEvent)
_parts = Layout("32s32s32s64s32s32s64s").unpack


def finalize(commit: Commit, key: Signer, timestamp: int, seq: int) -> Event:
    """Return the event that the sequencer with `key` makes of a commit that it has judged."""
    seq_sig = key.sign("schnorr", hashing.event_hash(timestamp, seq, key.public, commit.sig))
    return sequenced(commit, hashing.sha256(seq_sig), timestamp, key.public, seq, seq_sig)


def sequenced(commit: Commit, id_: bytes, timestamp: int, sequencer: bytes, seq: int, seq_sig: bytes) -> Event:
    """Return the commit as an event with the sequencer's fields. Nothing is checked."""
    return Event(
        hash=commit.hash,
        enclave=commit.enclave,
        from_=commit.from_,
        type=commit.type,
        content=commit.content,
        content_hash=commit.content_hash,
        exp=commit.exp,
        tags=commit.tags,
        alg=commit.alg,
        sig=commit.sig,
        id=id_,
        timestamp=timestamp,
        sequencer=sequencer,
        seq=seq,
        seq_sig=seq_sig,
    )


def parse_event(data: bytes | str) -> Event:
    """Parse an event from wire JSON, with or without its content, without verifying it. A node's
    own limits do not apply."""
    return event_from_wire(decode_json(data, _decoder, InvalidCommit))


def event_from_wire(wire: WireEvent) -> Event:
    digest = _content_hash(wire)
    withheld = None if wire.withheld is None else _withheld(wire, wire.withheld)
    hash_, enclave, from_, sig, id_, sequencer, seq_sig = _unhexed(
        wire.hash, wire.enclave, wire.from_, wire.sig, wire.id, wire.sequencer, wire.seq_sig
    )
    timestamp, seq = wire.timestamp, wire.seq
    if not (0 <= timestamp <= MAX_INT and 0 <= seq <= MAX_INT):
        check_numbers(InvalidCommit, timestamp=timestamp, seq=seq)
    event = Event(
        hash=hash_,
        enclave=enclave,
        from_=from_,
        type=wire.type,
        content=wire.content,
        content_hash=digest,
        exp=wire.exp,
        tags=wire.tags,
        alg=wire.alg,
        sig=sig,
        id=id_,
        timestamp=timestamp,
        sequencer=sequencer,
        seq=seq,
        seq_sig=seq_sig,
    )
    check_shape(event, UNLIMITED)
    # Not a 16th keyword above: CPython passes more than 15 in a dictionary, which takes 0.4 µs.
    return event if withheld is None else replace(event, withheld=withheld)


def _unhexed(hash_: str, enclave: str, from_: str, sig: str, id_: str, sequencer: str, seq_sig: str) -> Sequence[bytes]:
    """Decode all hex fields of an event at once, for speed. If one is malformed, `unhex` raises the
    error."""
    if len(hash_) == len(enclave) == len(from_) == len(id_) == len(sequencer) == 64 and len(sig) == len(seq_sig) == 128:
        digits = f"{hash_}{enclave}{from_}{sig}{id_}{sequencer}{seq_sig}"
        try:
            raw = unhexlify(digits)
        except ValueError:
            raw = b""
        if raw.hex() == digits:
            return _parts(raw)
    named = {"hash": hash_, "enclave": enclave, "from": from_, "sig": sig, "id": id_, "sequencer": sequencer}
    sizes = {"sig": 64, "seq_sig": 64}
    return [unhex(text, sizes.get(name, 32), name) for name, text in (named | {"seq_sig": seq_sig}).items()]


def _content_hash(wire: WireEvent) -> bytes:
    """Return the hash of the content or, if the content is missing, the `content_hash` of the
    wire."""
    if wire.content is not None and wire.content_hash is None:
        return hashing.content_hash(wire.content)
    if wire.content is None and wire.content_hash is None:
        raise InvalidCommit("content_hash: missing beside a null content")
    given = None if wire.content_hash is None else unhex(wire.content_hash, 32, "content_hash")
    if wire.content is None:
        return given or b""
    digest = hashing.content_hash(wire.content)
    if given is not None and given != digest:
        raise InvalidCommit("content_hash: not the hash of content")
    return digest


def _withheld(wire: WireEvent, withheld: WireWithheld) -> Withheld:
    if wire.content is not None:
        raise InvalidCommit("withheld: stands beside a content")
    return withheld_from_wire(withheld)


def check_sequenced(event: Event | Receipt) -> None:
    """Check that the sequencer signed the timestamp, the seq and the author's signature, and that
    `id` is the hash of `seq_sig`. Works for events and receipts.
    """
    digest = hashing.event_hash(event.timestamp, event.seq, event.sequencer, event.sig)
    try:
        check_schnorr(event.sequencer, digest, event.seq_sig)
    except InvalidSignature:
        raise InvalidSignature("seq_sig: not the sequencer's signature over this event") from None
    if hashing.sha256(event.seq_sig) != event.id:
        raise InvalidHash("id: not the hash of seq_sig")


def check_event(event: Event, enc_v: int) -> None:
    """Check everything that an event proves by itself: the author's commit, the sequencer's order,
    the id."""
    if event.type == "Manifest" and event.seq != 0:
        raise InvalidCommit("seq: a Manifest is event 0")
    check_commit(event, enc_v)
    check_sequenced(event)


def check_signed_event(event: Event, enc_v: int, *, by_author: bool, by_sequencer: bool) -> None:
    """Do what `check_event` does, for callers that had both signatures checked elsewhere."""
    if event.type == "Manifest" and event.seq != 0:
        raise InvalidCommit("seq: a Manifest is event 0")
    check_hash(event, enc_v)
    if not by_author:
        raise InvalidSignature("sig: not the author's signature over this commit")
    if not by_sequencer:
        raise InvalidSignature("seq_sig: not the sequencer's signature over this event")
    if hashing.sha256(event.seq_sig) != event.id:
        raise InvalidHash("id: not the hash of seq_sig")


def check_manifest_place(event: Event, error: type[PeerError] = InvalidArchive) -> None:
    """Check that event 0 and no other is the Manifest; otherwise raise `error`."""
    if (event.seq == 0) != (event.type == "Manifest"):
        raise error("seq: event 0 and no other is the Manifest")


def check_time(event: Event, error: type[PeerError] = InvalidArchive) -> None:
    """Check that `timestamp` is in the window that `exp` allows: no node sequences a commit outside
    it."""
    if event.timestamp > event.exp + SKEW_MS:
        raise error("timestamp: more than 60 s after exp")
    if event.exp > event.timestamp + MAX_EXP_WINDOW_MS + SKEW_MS:
        raise error("exp: more than an hour after timestamp")


def check_content_present(event: Event, predefined: frozenset[str], error: type[PeerError] = InvalidArchive) -> None:
    """Check that the content is there, or is of a kind that may be erased; otherwise raise `error`.

    `predefined` is the policy's.
    """
    if lacks_required_content(event, predefined):
        raise error(f"content: a {event.type} is never erased")


def target_of(event: Event) -> Target:
    """Return what the rules of later events need to know of this one."""
    return Target(event.type, event.from_, auto_delete_at(event) is not None)


def is_erasable(event: Event, predefined: frozenset[str]) -> bool:
    """Return whether the content may be erased: only that of content events and of their Updates
    may.

    `predefined` is the policy's.
    """
    return event.type == "Update" or event.type not in predefined


def lacks_required_content(event: Event, predefined: frozenset[str]) -> bool:
    """Return whether the content is missing although no event of its type is ever erased or
    withheld."""
    return event.content is None and not is_erasable(event, predefined)


def erase(event: Event) -> Event:
    """Return the event without its content, and without a statement about it. The content's hash
    stays, so that all signatures still verify."""
    return replace(event, content=None, withheld=None)


def withhold(event: Event, statement: Withheld) -> Event:
    """Return the event without its content, with the node's statement about it. Only content that
    `is_erasable` may be withheld: callers check that."""
    if not is_signed(statement, event.enclave, event.id):
        raise MisuseError(f"withheld: {statement.node.hex()} did not sign this statement about event {event.seq}")
    return replace(event, content=None, withheld=statement)


def restore_content(event: Event, content: str) -> Event:
    """Return the event with its content again; raise InvalidCommit if it is another content."""
    if hashing.content_hash(content) != event.content_hash:
        raise InvalidCommit(f"content: not that of event {event.seq}: its hash is not content_hash")
    return replace(event, content=content, withheld=None)


def signed_statement(event: Event) -> Withheld | None:
    """Return the statement with which some key withholds the content; None if there is none or it
    is not valid. Whether the key counts depends on the log: see `withheld_by`."""
    statement = event.withheld
    if statement is None or event.content is not None:
        return None
    return statement if is_signed(statement, event.enclave, event.id) else None


def withheld_by(event: Event, nodes: Container[bytes]) -> Withheld | None:
    """Return the statement with which one of the nodes withholds the content; None if there is
    none.

    `nodes`: the keys of the log's sequencers, and the key to which the log has moved.
    """
    statement = event.withheld
    return signed_statement(event) if statement is not None and statement.node in nodes else None


def keep_valid_statement(event: Event, nodes: Container[bytes]) -> Event:
    """Return the event without a statement that does not count: see `withheld_by`."""
    if event.withheld is None or withheld_by(event, nodes) is not None:
        return event
    return replace(event, withheld=None)


def wire_event(event: Event) -> dict[str, Any]:
    """Return the event as a JSON object. An erased one has `"content": null` and its
    `content_hash`; a withheld one has `withheld`, too."""
    wire = wire_commit(event)
    wire["id"] = event.id.hex()
    wire["timestamp"] = event.timestamp
    wire["sequencer"] = event.sequencer.hex()
    wire["seq"] = event.seq
    wire["seq_sig"] = event.seq_sig.hex()
    if event.content is None:
        wire["content_hash"] = event.content_hash.hex()
        if event.withheld is not None:
            wire["withheld"] = wire_withheld(event.withheld)
    return wire
