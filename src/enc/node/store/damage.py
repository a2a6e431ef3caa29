"""What a store raises for data that is damaged: a page that cannot be read, or is not what it was."""

from enc.core.errors import Unavailable

RETRY_MS = 600_000


class DamagedData(Unavailable):
    """The data of some enclave, or of all, cannot be read. Other enclaves may be sound."""


def damaged_enclave() -> DamagedData:
    """Return the error for a commit to an enclave whose data is known to be damaged."""
    return DamagedData("this enclave's data is damaged: the node's operator must repair it", retry_after_ms=RETRY_MS)
