"""Co-signed heads (docs/protocol.md, section 27): a witness's statement that it saw a signed head,
and that the head extends every other head of the enclave that it has co-signed.

All signed fields have a fixed width, so that no two heads share a digest. They include the
sequencer's two signatures: a co-signature is for exactly these bytes and proves nothing without
them.
"""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.core.errors import InvalidProof, InvalidSignature, MisuseError
from enc.core.primitives.encoding import MAX_INT, check_numbers, decode_json, unhex
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_schnorr
from enc.core.primitives.types import TreeHead
from enc.core.trees.tree_head import WireHead, check_bound_head, head_from_wire, wire_head

DOMAIN = b"enc:witness:"


class CosignedHead(Struct, frozen=True, kw_only=True):
    """`seen` is when the witness first saw the head, in Unix milliseconds, by its own clock."""

    enclave: bytes
    sequencer: bytes
    head: TreeHead
    seen: int
    witness: bytes
    sig: bytes


def _digest(enclave: bytes, sequencer: bytes, head: TreeHead, seen: int) -> bytes:
    numbers = head.t.to_bytes(8, "big") + head.ts.to_bytes(8, "big")
    signatures = head.sig + (head.bound_sig or b"")
    return sha256(DOMAIN + enclave + sequencer + numbers + head.r + signatures + seen.to_bytes(8, "big"))


def cosign(key: Signer, enclave: bytes, sequencer: bytes, head: TreeHead, seen: int) -> CosignedHead:
    """Return a witness's co-signature. The caller must have checked what it states: see the rules
    in the protocol."""
    if head.bound_sig is None or head.ts < 1:
        raise MisuseError("a witness co-signs only a head that names its enclave and has at least one bundle")
    if not 0 <= seen <= MAX_INT or (len(enclave), len(sequencer)) != (32, 32):
        raise MisuseError("an id and a key must be 32 bytes, and a time must be 0 to 2^53 - 1")
    sig = key.sign("schnorr", _digest(enclave, sequencer, head, seen))
    return CosignedHead(enclave=enclave, sequencer=sequencer, head=head, seen=seen, witness=key.public, sig=sig)


def check_cosigned(cosigned: CosignedHead, witness: bytes, enclave: bytes) -> None:
    """Check that the named sequencer signed the head for this enclave, and that this witness
    co-signed it.

    Does not check that the named sequencer is the enclave's. Raises InvalidProof.
    """
    if (cosigned.witness, cosigned.enclave) != (witness, enclave):
        raise InvalidProof("cosigned: by another witness, or of another enclave")
    if cosigned.head.ts < 1:
        raise InvalidProof("cosigned: a head of no bundles")
    check_bound_head(cosigned.head, cosigned.sequencer, enclave)
    digest = _digest(enclave, cosigned.sequencer, cosigned.head, cosigned.seen)
    try:
        check_schnorr(witness, digest, cosigned.sig)
    except InvalidSignature:
        raise InvalidProof("cosigned: not signed by this witness") from None


class WireCosigned(Struct, kw_only=True):
    enclave: str
    sequencer: str
    sth: WireHead
    seen: int
    witness: str
    cosig: str


_decoder = Decoder(WireCosigned)


def parse_cosigned(data: bytes | str) -> CosignedHead:
    return cosigned_from_wire(decode_json(data, _decoder, InvalidProof))


def cosigned_from_wire(wire: WireCosigned) -> CosignedHead:
    check_numbers(InvalidProof, seen=wire.seen)
    return CosignedHead(
        enclave=unhex(wire.enclave, 32, "enclave", InvalidProof),
        sequencer=unhex(wire.sequencer, 32, "sequencer", InvalidProof),
        head=head_from_wire(wire.sth),
        seen=wire.seen,
        witness=unhex(wire.witness, 32, "witness", InvalidProof),
        sig=unhex(wire.cosig, 64, "cosig", InvalidProof),
    )


def wire_cosigned(cosigned: CosignedHead) -> dict[str, Any]:
    return {
        "enclave": cosigned.enclave.hex(),
        "sequencer": cosigned.sequencer.hex(),
        "sth": wire_head(cosigned.head),
        "seen": cosigned.seen,
        "witness": cosigned.witness.hex(),
        "cosig": cosigned.sig.hex(),
    }
