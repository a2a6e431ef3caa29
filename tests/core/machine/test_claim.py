"""Claims on the wire: as a node's answers give them."""

import pytest

from enc.core.errors import InvalidProof
from enc.core.machine.claim import Claim, WireClaim, claim_from_wire
from enc.core.primitives.encoding import convert_json
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import InclusionProof
from enc.core.trees.bundle import events_root, prove_membership
from enc.core.trees.proof import LogLeaf
from tests.core.world import Json

IDS = [sha256(b"event %d" % i) for i in range(2)]
CLAIM = Claim(
    seq=5,
    membership=prove_membership(IDS, 1),
    leaf=LogLeaf(events_root(IDS), sha256(b"state")),
    inclusion=InclusionProof(4, 2, (sha256(b"a"), sha256(b"b"))),
)
ROOTS = {"events_root": events_root(IDS).hex(), "state_hash": sha256(b"state").hex()}
WIRE: Json = {
    "seq": 5,
    "membership": {
        "leaf_index": 2,
        "ei": 1,
        "s": [IDS[0].hex()],
        "size": 2,
        "events_root": ROOTS["events_root"],
    },
    "inclusion": {"ts": 4, "li": 2, "p": [sha256(b"a").hex(), sha256(b"b").hex()], **ROOTS},
}


def parsed(wire: Json) -> Claim:
    return claim_from_wire(convert_json(wire, WireClaim, InvalidProof))


def test_a_claim_goes_over_the_wire() -> None:
    assert CLAIM.wire() == WIRE
    assert parsed(WIRE) == CLAIM
    assert CLAIM.index == 2


@pytest.mark.parametrize("field", ROOTS)
def test_a_claim_has_both_roots_of_its_leaf(field: str) -> None:
    inclusion = {name: value for name, value in WIRE["inclusion"].items() if name != field}
    for bad in (inclusion, {**inclusion, field: "zz"}):
        with pytest.raises(InvalidProof, match=f"^{field}: expected 64 lower-case hex"):
            parsed({**WIRE, "inclusion": bad})


@pytest.mark.parametrize("seq", [-1, 1 << 53])
def test_the_seq_of_a_claim_is_a_number_of_the_protocol(seq: int) -> None:
    with pytest.raises(InvalidProof, match=r"^seq: "):
        parsed({**WIRE, "seq": seq})
