"""An enclave whose node gets a commit without its client seeing the answer, or never gets it."""

from enc.client import Enclave, Unreachable
from enc.core.errors import Expired
from enc.core.primitives.types import Commit, Receipt


class Losing(Enclave):
    """Fails the next sends: "answer" after the node accepted the commit, "request" before; "expired" says so."""

    def __init__(self, inner: Enclave, *fates: str) -> None:
        super().__init__(inner._client, inner._reader)
        self._fates = list(fates)
        self.tried: list[Commit] = []

    def send(self, commit: Commit) -> Receipt:
        self.tried.append(commit)
        fate = self._fates.pop(0) if self._fates else ""
        if fate == "request":
            raise Unreachable("the request was lost")
        if fate == "expired":
            raise Expired("too late")
        receipt = super().send(commit)
        if fate == "answer":
            raise Unreachable("the answer was lost")
        return receipt
