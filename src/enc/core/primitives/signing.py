"""Identity keys and the two signature schemes over secp256k1 (docs/protocol.md, section 4).

The module calls the C functions of libsecp256k1 directly, because a node spends most of its time
signing and checking. Checks release the interpreter lock, so that threads check in parallel.
Signing keeps the lock: it takes half as long, and a thread that signs event after event would have
to win the lock back each time. Parsed public keys are cached, because lifting an x-coordinate to a
point costs a fifth of a check.
"""

import ctypes
from functools import lru_cache
from typing import Any, Literal

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT

from enc.core.errors import InvalidCommit, InvalidSignature, MisuseError, PeerError
from enc.core.primitives.derivation import hkdf

Alg = Literal["schnorr", "ecdsa"]

CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

_ctx: Any = GLOBAL_CONTEXT.ctx
_NULL: Any = ffi.NULL
_verify = lib.secp256k1_schnorrsig_verify
_sign32 = ctypes.PYFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(
    int(ffi.cast("uintptr_t", ffi.addressof(lib, "secp256k1_schnorrsig_sign32")))
)
_ctx_address = int(ffi.cast("uintptr_t", _ctx))
_COMPRESSED = lib.SECP256K1_EC_COMPRESSED


@lru_cache(maxsize=16_384)
def _xonly(public: bytes) -> Any:
    key = ffi.new("secp256k1_xonly_pubkey *")
    return key if len(public) == 32 and lib.secp256k1_xonly_pubkey_parse(_ctx, key, public) else None


@lru_cache(maxsize=4_096)
def _point(compressed: bytes) -> Any:
    key = ffi.new("secp256k1_pubkey *")
    return key if len(compressed) == 33 and lib.secp256k1_ec_pubkey_parse(_ctx, key, compressed, 33) else None


def is_public_key(public: bytes) -> bool:
    """Return whether these 32 bytes are the x-coordinate of a point on the curve."""
    return _xonly(public) is not None


def check_public_key(public: bytes, field: str, error: type[PeerError] = InvalidCommit) -> None:
    if _xonly(public) is None:
        raise error(f"{field}: not the x-coordinate of a point on secp256k1")


def is_schnorr(public: bytes, digest: bytes, sig: bytes) -> bool:
    """Return whether this is a valid BIP-340 signature, for callers that check many and do not want
    exceptions."""
    key = _xonly(public)
    return key is not None and len(sig) == 64 and len(digest) == 32 and _verify(_ctx, sig, digest, 32, key) == 1


def check_schnorr(public: bytes, digest: bytes, sig: bytes) -> None:
    """Check a BIP-340 signature; raise InvalidSignature if it is not valid."""
    if not is_schnorr(public, digest, sig):
        raise InvalidSignature("the Schnorr signature is invalid")


def check_ecdsa(public: bytes, digest: bytes, sig: bytes) -> None:
    """Check ECDSA over secp256k1 against 0x02 || public, compact r || s, low s only; or raise
    InvalidSignature."""
    check_ecdsa_point(b"\x02" + public, digest, sig)


def check_ecdsa_point(compressed: bytes, digest: bytes, sig: bytes) -> None:
    """Do what `check_ecdsa` does, for a key given as a compressed point. libsecp256k1 itself
    rejects a high s."""
    key, parsed = _point(compressed), ffi.new("secp256k1_ecdsa_signature *")
    if (
        key is None
        or len(sig) != 64
        or len(digest) != 32
        or not lib.secp256k1_ecdsa_signature_parse_compact(_ctx, parsed, sig)
        or not lib.secp256k1_ecdsa_verify(_ctx, parsed, digest, key)
    ):
        raise InvalidSignature("the ECDSA signature is invalid")


def check_signature(alg: Alg, public: bytes, digest: bytes, sig: bytes) -> None:
    """Check a signature by the algorithm that `alg` names, without falling back to the other."""
    if alg == "schnorr":
        check_schnorr(public, digest, sig)
    else:
        check_ecdsa(public, digest, sig)


class PrivateKey:
    """A private key in the form whose public point has even y, so that one number serves BIP-340,
    ECDSA and ECDH.

    `public` is its x-only public key: the identity. Neither repr() nor any message shows the
    secret.
    """

    __slots__ = ("_address", "_keypair", "_secret", "public")

    def __init__(self, secret: bytes) -> None:
        """`secret` is 32 bytes, a number in [1, n − 1]. It is negated if its point has odd y."""
        keypair, full = ffi.new("secp256k1_keypair *"), ffi.new("secp256k1_pubkey *")
        if len(secret) != 32 or not lib.secp256k1_keypair_create(_ctx, keypair, secret):
            raise MisuseError("a private key must be 32 bytes, a number from 1 to the curve order less 1")
        lib.secp256k1_keypair_pub(_ctx, full, keypair)
        compressed = serialize_point(full)
        if compressed[0] == 3:
            secret = (CURVE_ORDER - int.from_bytes(secret, "big")).to_bytes(32, "big")
            lib.secp256k1_keypair_create(_ctx, keypair, secret)
        self.public = compressed[1:]
        self._secret, self._keypair = secret, keypair
        self._address = int(ffi.cast("uintptr_t", keypair))

    @property
    def secret(self) -> bytes:
        """The 32 bytes in even form, for key files and key agreement of sessions only."""
        return self._secret

    def __repr__(self) -> str:
        return f"PrivateKey(public={self.public.hex()})"

    def __reduce__(self) -> Any:
        raise MisuseError("a PrivateKey cannot be pickled: pass its `secret` instead")

    def sign_schnorr(self, digest: bytes) -> bytes:
        """Sign by BIP-340 with 32 zero bytes of auxiliary randomness: one digest always gives one
        signature."""
        if len(digest) != 32:
            raise MisuseError("a digest must be 32 bytes")
        sig = ctypes.create_string_buffer(64)
        # libsecp256k1 defines absent auxiliary data to be 32 zero bytes.
        _sign32(_ctx_address, sig, digest, self._address, None)
        return sig.raw

    def sign_ecdsa(self, digest: bytes) -> bytes:
        """Sign by ECDSA with RFC 6979; return compact r || s with low s."""
        if len(digest) != 32:
            raise MisuseError("a digest must be 32 bytes")
        sig, compact = ffi.new("secp256k1_ecdsa_signature *"), ffi.new("unsigned char[64]")
        lib.secp256k1_ecdsa_sign(_ctx, sig, digest, self._secret, _NULL, _NULL)
        lib.secp256k1_ecdsa_signature_serialize_compact(_ctx, compact, sig)
        return bytes(ffi.buffer(compact))

    def sign(self, alg: Alg, digest: bytes) -> bytes:
        return self.sign_schnorr(digest) if alg == "schnorr" else self.sign_ecdsa(digest)

    def ecdh(self, public: bytes) -> bytes:
        """Return the x-coordinate of the point shared with an x-only or compressed public key;
        constant time."""
        point = _point(b"\x02" + public if len(public) == 32 else public)
        if point is None:
            raise InvalidCommit("public key: not a point on secp256k1")
        shared = ffi.new("unsigned char[32]")
        lib.secp256k1_ecdh(_ctx, shared, point, self._secret, _keep_x, _NULL)
        return bytes(ffi.buffer(shared))

    def derive(self, label: str) -> bytes:
        """Return a secret for one purpose, derived from the private key by HKDF-SHA256."""
        return hkdf(self._secret, label)


@ffi.callback("int(unsigned char *, const unsigned char *, const unsigned char *, void *)")  # type: ignore[untyped-decorator]
def _keep_x(out: Any, x: Any, y: Any, data: Any) -> int:
    """Serve libsecp256k1's ECDH as its hash function: return the x-coordinate unchanged."""
    ffi.memmove(out, x, 32)
    return 1


def serialize_point(key: Any) -> bytes:
    """Return a libsecp256k1 public key as 33 bytes."""
    out, size = ffi.new("unsigned char[33]"), ffi.new("size_t *", 33)
    lib.secp256k1_ec_pubkey_serialize(_ctx, out, size, key, _COMPRESSED)
    return bytes(ffi.buffer(out))


def _check_scalar(scalar: bytes) -> None:
    if len(scalar) != 32:
        raise MisuseError("a scalar must be 32 bytes")


def add_generator(public: bytes, scalar: bytes) -> bytes | None:
    """Return lift(public) + scalar·G as a compressed point; None if there is no such point."""
    _check_scalar(scalar)
    key, out = _xonly(public), ffi.new("secp256k1_pubkey *")
    if key is None or not lib.secp256k1_xonly_pubkey_tweak_add(_ctx, out, key, scalar):
        return None
    return serialize_point(out)


def add_multiple(base: bytes, scalar: bytes, public: bytes) -> bytes | None:
    """Return lift(base) + scalar·lift(public) as a compressed point; None if there is no such
    point.

    For public values only, because it does not run in constant time.
    """
    _check_scalar(scalar)
    start, parsed = _point(b"\x02" + base), _point(b"\x02" + public)
    if start is None or parsed is None:
        return None
    product, out = ffi.new("secp256k1_pubkey *", parsed[0]), ffi.new("secp256k1_pubkey *")
    if not lib.secp256k1_ec_pubkey_tweak_mul(_ctx, product, scalar):
        return None
    if not lib.secp256k1_ec_pubkey_combine(_ctx, out, [start, product], 2):
        return None
    return serialize_point(out)
