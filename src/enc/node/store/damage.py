"""What a store raises for data that is damaged: a page that cannot be read, or is not what it was."""

from enc.core.errors import Unavailable


class DamagedData(Unavailable):
    """The data of some enclave, or of all, cannot be read. Other enclaves may be sound."""
