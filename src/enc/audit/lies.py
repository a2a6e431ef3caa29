"""Where a node's proofs say otherwise than its log: a bundle that the rule does not draw, a state that nobody made."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from enc.audit.finding import Finding
from enc.audit.heads import HeldHead
from enc.core.claim import is_proved
from enc.core.fault import FaultKind
from enc.core.marks import EventPosition, ObservedBundle, contradiction


class Lie(Struct, frozen=True, kw_only=True):
    """A claim that is proved under a signed head, and is not what the log gives."""

    kind: FaultKind
    index: int
    seq: int
    what: str
    size: int
    state_hash: bytes
    held: HeldHead
    signer: bytes

    def finding(self, enclave: bytes, path: str) -> Finding:
        """`before` is the bundle's index."""
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


def first_lie(
    held: Iterable[tuple[HeldHead, bytes | None]],
    bundles: Mapping[int, ObservedBundle],
    places: Mapping[int, EventPosition],
) -> Lie | None:
    """The claim about the earliest bundle that the log contradicts; later ones may follow from it."""
    lies = [lie for each, signer in held if signer and (lie := _lie(each, signer, bundles, places)) is not None]
    return min(lies, key=lambda lie: lie.index, default=None)


def _lie(
    held: HeldHead, signer: bytes, bundles: Mapping[int, ObservedBundle], places: Mapping[int, EventPosition]
) -> Lie | None:
    claim = held.claim
    if claim is None or claim.index not in bundles or claim.seq not in places:
        return None
    place = places[claim.seq]
    found = contradiction(claim, bundles[claim.index], place.at)
    if found is None or not is_proved(claim, held.head, place.id):
        return None
    kind, seq, what = found
    size, state_hash = claim.membership.size, claim.leaf.state_hash
    return Lie(
        kind=kind, index=claim.index, seq=seq, what=what, size=size, state_hash=state_hash, held=held, signer=signer
    )
