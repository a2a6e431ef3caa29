"""Proofs of a node that contradict its log: a wrong bundle boundary, or a wrong state."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from enc.audit.collected_heads import CollectedHead
from enc.audit.finding import Finding
from enc.core.machine.claim import is_proved
from enc.core.machine.fault import FaultKind
from enc.core.machine.observed_roots import EventPosition, ObservedBundle, contradiction, is_run


class Contradiction(Struct, frozen=True, kw_only=True):
    """A claim that is proved under a signed head, but differs from the log."""

    kind: FaultKind
    index: int
    seq: int
    what: str
    size: int
    state_hash: bytes
    held: CollectedHead
    signer: bytes

    def finding(self, enclave: bytes, path: str) -> Finding:
        """Return the finding; its `before` is the bundle's index."""
        return Finding(
            kind=self.kind,
            enclave=enclave,
            seq=self.seq,
            what=self.what,
            path=path,
            sequencer=self.signer,
            heads=(self.held,),
            before=self.index,
            timestamp=self.held.head.t,
        )


MAX_RUNS = 16
"""Claimed bundles of one log that are compared with its events."""
MAX_SIZE = 65_536
"""Most events of a claimed bundle that are read again for that: the largest that a manifest allows."""


def first_contradiction(
    held: Iterable[tuple[CollectedHead, bytes | None]],
    bundles: Mapping[int, ObservedBundle],
    places: Mapping[int, EventPosition],
    ids: Callable[[int, int], Sequence[bytes]],
) -> Contradiction | None:
    """Return the contradiction about the earliest bundle; later ones may follow from it.

    `ids` returns the ids of that many events of the log, from an event's number on. Anyone can
    write another size into an honest proof: a bundle counts only if the log has exactly its events.
    """
    found = [_contradiction(each, signer, bundles, places) for each, signer in held if signer]
    for each in sorted((each for each in found if each is not None), key=lambda each: each.index)[:MAX_RUNS]:
        claim = each.held.claim
        if claim is None or each.kind == "wrong_state_root":
            return each
        first = places[claim.seq].at - claim.membership.ei
        if first >= 0 and each.size <= MAX_SIZE and is_run(ids(first, each.size), claim):
            return each
    return None


def _contradiction(
    held: CollectedHead, signer: bytes, bundles: Mapping[int, ObservedBundle], places: Mapping[int, EventPosition]
) -> Contradiction | None:
    claim = held.claim
    if claim is None or claim.index not in bundles or claim.seq not in places:
        return None
    place = places[claim.seq]
    found = contradiction(claim, bundles[claim.index], place.at)
    if found is None or not is_proved(claim, held.head, place.id):
        return None
    kind, seq, what = found
    size, state_hash = claim.membership.size, claim.leaf.state_hash
    return Contradiction(
        kind=kind, index=claim.index, seq=seq, what=what, size=size, state_hash=state_hash, held=held, signer=signer
    )
