"""Signs the events of a batch with one request to a signer outside this process.

Before a batch is judged, each commit is assumed to be accepted; then its event's seq and time are
known. Where a commit is rejected, those that follow in its enclave are signed one by one. What was
signed for the wrong place never leaves this object, like an event whose transaction fails.
"""

from collections.abc import Callable, Iterable, Sequence

from enc.core.machine.state import EnclaveState
from enc.core.primitives.hashing import event_hash
from enc.core.primitives.signer import BatchSigner
from enc.core.primitives.signing import Alg
from enc.core.primitives.types import Commit


class AheadSigner:
    """A signer that has some signatures already."""

    def __init__(self, signer: BatchSigner) -> None:
        self._signer, self.public = signer, signer.public
        self._signed: dict[bytes, bytes] = {}

    def prepare(self, digests: Sequence[bytes]) -> None:
        """Have these digests signed; what was signed before is dropped. Raises SignerUnavailable."""
        self._signed = {}
        if len(digests) > 1:
            self._signed = dict(zip(digests, self._signer.sign_all("schnorr", digests), strict=True))

    def sign(self, alg: Alg, digest: bytes, /) -> bytes:
        signed = self._signed.pop(digest, None) if alg == "schnorr" else None
        return self._signer.sign(alg, digest) if signed is None else signed

    def ecdh(self, public: bytes, /) -> bytes:
        return self._signer.ecdh(public)

    def derive(self, label: str, /) -> bytes:
        return self._signer.derive(label)


def expected_digests(
    commits: Iterable[Commit], state_of: Callable[[bytes], EnclaveState | None], now: int, sequencer: bytes
) -> list[bytes]:
    """Return what the sequencer signs for these commits if it accepts all of them."""
    places: dict[bytes, tuple[int, int]] = {}
    digests: list[bytes] = []
    for commit in commits:
        if commit.enclave not in places:
            state = state_of(commit.enclave)
            places[commit.enclave] = (0, now) if state is None else (state.seq + 1, max(now, state.min_timestamp))
        seq, timestamp = places[commit.enclave]
        digests.append(event_hash(timestamp, seq, sequencer, commit.sig))
        places[commit.enclave] = seq + 1, timestamp
    return digests
