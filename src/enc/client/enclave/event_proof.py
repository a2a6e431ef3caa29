"""The proof of an event, with all that its file needs: also after the enclave has moved."""

from pathlib import Path

from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.verify.facts import EventFact
from enc.client.verify.proof_file import Proof, Statement
from enc.client.verify.sequencer_history import Migration
from enc.client.wire.flow import Flow
from enc.core.primitives.types import Event


class EventProof(EventFact, frozen=True, kw_only=True):
    """An event with its proof and status, and the key that signed the proof's head."""

    sequencer: bytes
    moves: tuple[Migration, ...] = ()
    """The Migrates that made this key the enclave's sequencer, as far as known."""

    @property
    def file(self) -> Proof:
        """The content of a proof file."""
        return Proof(self.event.enclave, self.sequencer, self, self.moves)

    def save(self, path: Path | str) -> Statement:
        """Write a proof file, which anyone can check with `enc verify`; return what it proves.

        Checks the file's bytes first: if they are invalid, raises InvalidProof and writes nothing.
        """
        return self.file.save(path)


def event_proof(reader: EnclaveReader, event_id: bytes, *, wait: bool) -> Flow[EventProof]:
    """Return an event's proof, all of it from one node."""
    while True:
        before = (yield from reader.session.verifier()).sequencer
        fact = yield from reader.event_fact(event_id, wait=wait)
        update = yield from _update(reader, fact)
        history = yield from fetch_history(reader.session)
        sequencer = reader.session.known_verifier().sequencer
        if sequencer == before:  # else the enclave moved meanwhile: two keys may have signed the parts
            moves = history.moves_to(sequencer)
            return EventProof(
                fact.event, fact.membership, fact.anchor, fact.status_fact, update, sequencer=sequencer, moves=moves
            )


def _update(reader: EnclaveReader, fact: EventFact) -> Flow[Event | None]:
    """Return the Update that the proved status names; None if there is none, or it may not be read."""
    if fact.status_fact is None or fact.status_fact.value is None or fact.status != "updated":
        return None
    page = yield from reader.page({"id": fact.status_fact.value.hex()})
    return page.items[0].event if page.items else None
