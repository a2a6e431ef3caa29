"""Sends a call until it is answered: what is worth another try, how long to wait for it, and when to give up.

Everything a client sends may be sent twice: reads change nothing, and a commit that was taken before is a DUPLICATE.
"""

import math
from collections.abc import Callable

from msgspec.json import Decoder
from msgspec.structs import replace

from enc.client.errors import TimedOut, Unreachable
from enc.client.flow import Answer, Call, Flow, Pause, ask
from enc.core.encoding import decode_json
from enc.core.errors import EncError, EnclaveNotFound, InvalidProof, RateLimited, Unavailable, from_wire
from enc.runtime.backoff import Backoff, RetryPauses

PAUSES = RetryPauses(first_s=0.1, max_s=5.0)

_object = Decoder(dict[str, object])


class RetryingCaller:
    """`patience`: seconds after which an unanswered call has failed; 0 tries once. `base`: the node's URL."""

    def __init__(self, patience: float, clock: Callable[[], float], base: str | None = None) -> None:
        self._patience, self._clock, self.base = patience, clock, base

    def request(self, call: Call) -> Flow[bytes]:
        """The body of a good answer. A refusal is raised as the error that it names."""
        backoff = self.backoff()
        call = replace(call, base=self.base)
        while True:
            try:
                return _good(call, (yield from ask(call)))
            except (Unreachable, TimedOut, Unavailable, RateLimited) as e:
                wait = backoff.wait(e)
            yield Pause(wait)

    def for_node(self, url: str, patience: float | None = None) -> "RetryingCaller":
        """A courier to another node."""
        return RetryingCaller(self._patience if patience is None else patience, self._clock, url)

    def backoff(self, patience: float | None = None) -> Backoff:
        """By the courier's patience, or another one. Without an end, it is over as often as the courier's is."""
        return Backoff(self._patience if patience in (None, math.inf) else patience, self._clock, PAUSES)


def _good(call: Call, answer: Answer) -> bytes:
    if answer.status in (200, 202):
        return answer.body
    try:
        wire = decode_json(answer.body, _object, InvalidProof)
    except InvalidProof:
        wire = {}
    if wire.get("type") != "Error":
        raise Unreachable(f"{call.path} answers {answer.status}, and not as a node does")
    raise _named(from_wire(wire), call)


def _named(error: EncError, call: Call) -> EncError:
    """Which node does not have an enclave is not said by the node, which may not know by what name it is asked."""
    if isinstance(error, EnclaveNotFound) and call.base is not None:
        return EnclaveNotFound(f"{error.message} ({call.base})", **error.context)
    return error
