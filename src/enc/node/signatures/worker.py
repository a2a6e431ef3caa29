"""A process that only checks signatures: `python -m enc.node.signatures.worker`, between two pipes.

It reads a count and that many records, and answers a byte for each: 1 if the signature is valid. It
ends when its input ends, and so with the node, whatever ends the node. It ignores signals sent to
the whole process group.
"""

import os
from struct import Struct

from enc.core.errors import InvalidSignature
from enc.core.primitives.signing import check_ecdsa, is_schnorr
from enc.runtime.signals import ignore_stop_signals

COUNT = Struct(">I")
RECORD = Struct(">? 32s 32s 64s")
"""Whether it is ECDSA; public key, digest, signature."""


def verdicts(records: bytes) -> bytes:
    """Return a byte for each record: 1 if the signature is valid."""
    return bytes(
        [
            (_is_ecdsa if is_ecdsa else is_schnorr)(public, digest, sig)
            for is_ecdsa, public, digest, sig in RECORD.iter_unpack(records)
        ]
    )


def _is_ecdsa(public: bytes, digest: bytes, sig: bytes) -> bool:
    try:
        check_ecdsa(public, digest, sig)
    except InvalidSignature:
        return False
    return True


def read_exactly(descriptor: int, size: int) -> bytes:
    """Return `size` bytes, or fewer at the end of the input."""
    data = b""
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def main() -> None:
    ignore_stop_signals()
    while len(head := read_exactly(0, COUNT.size)) == COUNT.size:
        (count,) = COUNT.unpack(head)
        os.write(1, verdicts(read_exactly(0, count * RECORD.size)))


if __name__ == "__main__":
    main()
    os._exit(0)  # at once: there is nothing to clean up, and the node waits
