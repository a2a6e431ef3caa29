"""One node, as far as it concerns every enclave on it: its key."""

from enc.client.answers import info_decoder, read
from enc.client.courier import RetryingCaller
from enc.client.errors import ForeignSequencer, Forgery
from enc.client.evidence import answer_evidence
from enc.client.flow import Call, Flow
from enc.core.encoding import unhex
from enc.core.errors import InvalidProof
from enc.core.signing import check_public_key


class NodeLink:
    """One node; or, with `is_nowhere`, none yet: a registry will say which."""

    def __init__(self, caller: RetryingCaller, seq_pub: bytes | None, *, is_unresolved: bool = False) -> None:
        self.caller, self._expected, self.is_unresolved = caller, seq_pub, is_unresolved
        self.found: bytes | None = None
        """The key, once it was asked for."""

    @property
    def url(self) -> str | None:
        """None: the client's own."""
        return self.caller.base

    def glance(self) -> RetryingCaller:
        """Asks once, without patience."""
        return self.caller if self.url is None else self.caller.for_node(self.url, 0)

    def seq_pub(self, by: RetryingCaller | None = None) -> Flow[bytes]:
        """The node's key: what the caller said, and else what the node itself says. `by`: who asks it."""
        if self.found is None:
            body = yield from (by or self.caller).request(Call("/info"))
            found = self._read(body)
            if self._expected not in (None, found):
                message = f"the node's key is {found.hex()}, and {(self._expected or b'').hex()} was expected"
                raise ForeignSequencer(
                    message, answer_evidence("foreign", bytes(32), self._expected or b"", message, body)
                )
            self.found = found
        return self.found

    def _read(self, body: bytes) -> bytes:
        try:
            found = unhex(read(body, info_decoder).seq_pub, 32, "seq_pub", InvalidProof)
            check_public_key(found, "seq_pub", InvalidProof)
            return found
        except InvalidProof as e:
            message = f"info: {e.message}"
            raise Forgery(
                message, answer_evidence("answer", bytes(32), self._expected or bytes(32), message, body)
            ) from e
