"""A connection to one node, with the part that all its enclaves share: the node's key."""

from enc.client.errors import ForeignSequencer, Forgery
from enc.client.evidence.evidence import answer_evidence
from enc.client.verify.decode_answers import NodeLimits, info_decoder, read
from enc.client.wire.flow import Call, Flow
from enc.client.wire.retrying_caller import RetryingCaller
from enc.client.wire.single_flight import SingleFlight
from enc.core.errors import InvalidProof
from enc.core.primitives.encoding import unhex
from enc.core.primitives.signing import check_public_key
from enc.core.registry.evacuation import Evacuation, check_evacuation, parse_evacuation


class NodeLink:
    """One node; with `is_unresolved` not known yet: a registry will name it."""

    def __init__(
        self,
        caller: RetryingCaller,
        seq_pub: bytes | None,
        *,
        is_unresolved: bool = False,
        evacuations: dict[bytes, Evacuation] | None = None,
    ) -> None:
        """`evacuations` collects what nodes ask of their owners, by the node's key."""
        self.caller, self._expected, self.is_unresolved = caller, seq_pub, is_unresolved
        self._evacuations = {} if evacuations is None else evacuations
        self._asking = SingleFlight()
        self.found: bytes | None = None
        """The key, once the node has answered with it."""
        self.limits = NodeLimits()
        """What the node accepts in one request, from the same answer."""
        self.evacuation: Evacuation | None = None
        """The node's request to move enclaves away, from the same answer; signed by its key."""

    @property
    def url(self) -> str | None:
        """None: the client's own node."""
        return self.caller.base

    def without_retries(self) -> RetryingCaller:
        """Return a caller that does not retry."""
        return self.caller if self.url is None else self.caller.for_node(self.url, 0)

    def seq_pub(self, by: RetryingCaller | None = None) -> Flow[bytes]:
        """Return the node's key from its `/info`; raise if another was expected.

        `by`: caller to use.
        """
        if self.found is not None:
            return self.found
        return (yield from self._asking.run(by is None, lambda: self._ask(by or self.caller)))

    def _ask(self, caller: RetryingCaller) -> Flow[bytes]:
        body = yield from caller.request(Call("/info"))
        found, limits = self._read(body)
        if self._expected not in (None, found):
            message = f"the node's key is {found.hex()}, but {(self._expected or b'').hex()} was expected"
            raise ForeignSequencer(message, answer_evidence("foreign", bytes(32), self._expected or b"", message, body))
        self.found, self.limits, self.evacuation = found, limits, _evacuation(body, found)
        self._evacuations.pop(found, None)
        if self.evacuation is not None:
            self._evacuations[found] = self.evacuation
        return found

    def _read(self, body: bytes) -> tuple[bytes, NodeLimits]:
        try:
            info = read(body, info_decoder)
            found = unhex(info.seq_pub, 32, "seq_pub", InvalidProof)
            check_public_key(found, "seq_pub", InvalidProof)
            return found, info.node_limits()
        except InvalidProof as e:
            message = f"info: {e.message}"
            raise Forgery(
                message, answer_evidence("answer", bytes(32), self._expected or bytes(32), message, body)
            ) from e


def _evacuation(body: bytes, node: bytes) -> Evacuation | None:
    """Return the node's statement; None without one, or if the node did not sign it."""
    try:
        found = parse_evacuation(read(body, info_decoder).evacuation)
        check_evacuation(found, node)
    except InvalidProof:
        return None
    return found
