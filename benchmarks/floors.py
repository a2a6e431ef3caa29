"""Timing in alternating rounds, and the raw costs that are lower bounds for the benchmarks."""

import hashlib
import time
from collections.abc import Callable

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT

Work = Callable[[], object]


def best_by_turns(*works: Work, rounds: int = 200) -> list[float]:
    """Return the shortest time of each work in seconds, over `rounds` rounds in which each has its turn."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for i, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


missed: list[str] = []
"""The bounds that this run has exceeded."""


def verdict(what: str, kept: bool) -> str:
    if not kept:
        missed.append(what)
    return "ok" if kept else "MISSED"


def report(what: str, cost: float, floor: float, floor_name: str, at_most: float) -> None:
    print(
        f"{what}: {cost * 1e6:.1f} us = {cost / floor:.2f} x {floor_name} ({floor * 1e6:.1f} us), "
        f"at most {at_most}: {verdict(what, cost / floor <= at_most)}"
    )


def raw_sha256(count: int, message: bytes) -> Work:
    """Return a work of `count` calls of SHA-256 and nothing else."""
    sha256 = hashlib.sha256

    def work() -> None:
        for _ in range(count):
            sha256(message).digest()

    return work


def raw_verify(checks: list[tuple[bytes, bytes, bytes]]) -> Work:
    """Return a work of secp256k1_schnorrsig_verify over (public key, digest, signature), keys parsed beforehand."""
    ctx, verify, parsed = GLOBAL_CONTEXT.ctx, lib.secp256k1_schnorrsig_verify, []
    for public, digest, sig in checks:
        key = ffi.new("secp256k1_xonly_pubkey *")
        assert lib.secp256k1_xonly_pubkey_parse(ctx, key, public)
        parsed.append((sig, digest, key))

    def work() -> None:
        for sig, digest, key in parsed:
            verify(ctx, sig, digest, 32, key)

    return work


def raw_sign(secret: bytes, digests: list[bytes]) -> Work:
    """Return a work of secp256k1_schnorrsig_sign32, the key pair made beforehand."""
    ctx, sign, sig = GLOBAL_CONTEXT.ctx, lib.secp256k1_schnorrsig_sign32, ffi.new("unsigned char[64]")
    keypair = ffi.new("secp256k1_keypair *")
    assert lib.secp256k1_keypair_create(ctx, keypair, secret)

    def work() -> None:
        for digest in digests:
            sign(ctx, sig, digest, keypair, ffi.NULL)

    return work
