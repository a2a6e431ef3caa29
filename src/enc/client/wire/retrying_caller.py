"""Sends a call until it is answered: what to retry, how long to wait, and when to give up.

Everything that a client sends may be sent twice: reads change nothing, and the node answers a
commit, or a request for a hold, that it already accepted with DUPLICATE.
"""

import math
from collections.abc import Callable

from msgspec.json import Decoder
from msgspec.structs import replace

from enc.client.errors import TimedOut, Unreachable
from enc.client.wire.flow import Answer, Call, Flow, Pause, ask
from enc.core.errors import EncError, EnclaveNotFound, InvalidProof, RateLimited, Unavailable, from_wire
from enc.core.primitives.encoding import decode_json
from enc.runtime.backoff import Backoff, RetryPauses

PAUSES = RetryPauses(first_s=0.1, max_s=5.0)

_object = Decoder(dict[str, object])


class RetryingCaller:
    """`patience`: seconds until an unanswered call fails; 0 tries once. `base`: the node's URL."""

    def __init__(self, patience: float, clock: Callable[[], float], base: str | None = None) -> None:
        self._patience, self._clock, self.base = patience, clock, base

    def request(self, call: Call) -> Flow[bytes]:
        """Return the body of a successful answer. Raises the error that a refusal names."""
        backoff = self.backoff()
        call = replace(call, base=self.base)
        while True:
            try:
                return _good(call, (yield from ask(call)))
            except (Unreachable, TimedOut, Unavailable, RateLimited) as e:
                wait = backoff.wait(e)
            yield Pause(wait)

    def for_node(self, url: str, patience: float | None = None) -> "RetryingCaller":
        """Return a caller for another node."""
        return RetryingCaller(self._patience if patience is None else patience, self._clock, url)

    def backoff(self, patience: float | None = None) -> Backoff:
        """Return a backoff with this patience, or the caller's own for None and for infinity."""
        return Backoff(self._patience if patience in (None, math.inf) else patience, self._clock, PAUSES)


def _good(call: Call, answer: Answer) -> bytes:
    if answer.status in (200, 202):
        return answer.body
    try:
        wire = decode_json(answer.body, _object, InvalidProof)
    except InvalidProof:
        wire = {}
    if wire.get("type") != "Error":
        raise Unreachable(f"{call.path} answered {answer.status}, but not as an ENC node does")
    raise _named(from_wire(wire), call)


def _named(error: EncError, call: Call) -> EncError:
    """Add the URL to EnclaveNotFound: a node may not know the address under which it was asked."""
    if isinstance(error, EnclaveNotFound) and call.base is not None:
        return EnclaveNotFound(f"{error.message} ({call.base})", **error.context)
    return error
