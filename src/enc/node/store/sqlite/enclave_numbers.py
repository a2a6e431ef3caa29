"""A cache of enclave numbers: nearly every request to a store names an enclave."""

from collections import OrderedDict
from threading import Lock

MAX_NUMBERS = 16_384


class EnclaveNumbers:
    """The most recently used numbers, for any thread. It may contain only committed enclaves that
    are not purged.

    A lookup that began before an enclave was forgotten may finish after that; the epoch detects it.
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
        """Cache a number. `epoch` is its value when the number was looked up."""
        with self._lock:
            if epoch == self.epoch:
                self._numbers[enclave] = number
                if len(self._numbers) > MAX_NUMBERS:
                    self._numbers.popitem(last=False)

    def forget(self, enclave: bytes) -> None:
        with self._lock:
            self.epoch += 1
            self._numbers.pop(enclave, None)
