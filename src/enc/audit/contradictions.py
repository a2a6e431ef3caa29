"""Proofs of a node that contradict its log: a wrong bundle boundary, or a wrong state."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from enc.audit.collected_heads import CollectedHead
from enc.audit.finding import Finding
from enc.core.machine.claim import is_proved
from enc.core.machine.fault import FaultKind
from enc.core.machine.observed_roots import EventPosition, ObservedBundle, contradiction


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


def first_contradiction(
    held: Iterable[tuple[CollectedHead, bytes | None]],
    bundles: Mapping[int, ObservedBundle],
    places: Mapping[int, EventPosition],
) -> Contradiction | None:
    """Return the contradiction about the earliest bundle; later ones may follow from it."""
    found = (_contradiction(each, signer, bundles, places) for each, signer in held if signer)
    return min((each for each in found if each is not None), key=lambda each: each.index, default=None)


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
