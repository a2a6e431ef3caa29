"""The error that a check raises."""

from enc.core.errors import EncError


class Difference(EncError):
    """A stored value differs from what the log implies. `enclave` is empty if it belongs to no
    enclave.
    """

    def __init__(self, enclave: bytes, seq: int | None, what: str) -> None:
        where = f"enclave {enclave.hex()}" if enclave else "store"
        super().__init__(f"{where}: {what}" if seq is None else f"{where}: seq {seq}: {what}")
        self.enclave, self.seq, self.what = enclave, seq, what

    def __reduce__(self) -> tuple[type["Difference"], tuple[bytes, int | None, str]]:
        return Difference, (self.enclave, self.seq, self.what)  # to pass it between processes
