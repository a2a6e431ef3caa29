"""Fetches the history of an enclave's sequencers from its log."""

from collections.abc import Iterable, Sequence

from enc.client.link.enclave_session import EnclaveSession
from enc.client.verify.decode_answers import WireItem, page_decoder, read
from enc.client.verify.log_verifier import LogVerifier
from enc.client.verify.sequencer_history import History, history_of
from enc.client.wire.flow import Flow
from enc.core.errors import InvalidProof, Unauthorized
from enc.core.log.commit import version_of
from enc.core.log.event import check_event, event_from_wire
from enc.core.log.filter import MAX_LIMIT
from enc.core.primitives.types import Event

_FILTER = {"type": ["Manifest", "Migrate"], "limit": MAX_LIMIT}


def fetch_history(session: EnclaveSession, hints: Sequence[Event] = ()) -> Flow[History]:
    """Return the sequencers according to the Manifest and Migrates in the log.

    The verifier learns them. `hints`: Migrates from other sources, for identities that may not read
    them in the log.
    """
    verifier = yield from session.verifier()
    known = [move.event for move in verifier.history.moves]
    try:
        text = yield from session.ask("/", "Query", {"filter": _FILTER})
    except Unauthorized:
        text = b'{"events":[]}'
    with verifier.blame_node("page", text):
        shown = [event_from_wire(wire.event) for wire in read(text, page_decoder).events]
        has_migrates = any(event.type == "Migrate" for event in shown)
        history = _history(verifier, shown if has_migrates else [*known, *hints, *shown])
    if history.moves and history.knows(verifier.sequencer) and history.holds(verifier.history):
        verifier.learn(history)
    return history


def _history(verifier: LogVerifier, events: Iterable[Event]) -> History:
    found = sorted({event.id: event for event in events}.values(), key=lambda event: event.seq)
    first = None
    if found and found[0].type == "Manifest":
        manifest = found.pop(0)
        check_event(manifest, version_of(manifest))
        if manifest.enclave != verifier.enclave:
            raise InvalidProof("Manifest: belongs to another enclave")
        first = manifest.sequencer
    return history_of(first, found, verifier.enclave)


def has_unknown_signer(verifier: LogVerifier, wires: Iterable[WireItem]) -> bool:
    """Whether any of these events is signed by a key that only unknown Migrates could explain."""
    return any(verifier.signer_unknown(wire.event.seq, _key(wire.event.sequencer)) for wire in wires)


def _key(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
