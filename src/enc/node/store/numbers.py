"""The numbers of enclaves, remembered: nearly everything that is asked of a store names an enclave."""

from collections import OrderedDict
from threading import Lock

MAX_NUMBERS = 16_384


class EnclaveNumbers:
    """The latest used, for any thread. To be told only of what is committed and not purged.

    A number that was looked up before an enclave was forgotten may come in after: the epoch tells.
    """

    def __init__(self) -> None:
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()
        self.epoch = 0

    def get(self, enclave: bytes) -> int | None:
        with self._lock:
            number = self._numbers.get(enclave)
            if number is not None:
                self._numbers.move_to_end(enclave)
            return number

    def put(self, enclave: bytes, number: int, epoch: int) -> None:
        """`epoch` is the one that stood when the number was looked up."""
        with self._lock:
            if epoch == self.epoch:
                self._numbers[enclave] = number
                if len(self._numbers) > MAX_NUMBERS:
                    self._numbers.popitem(last=False)

    def forget(self, enclave: bytes) -> None:
        with self._lock:
            self.epoch += 1
            self._numbers.pop(enclave, None)
