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

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0

_object = Decoder(dict[str, object])


class Backoff:
    """How long to wait before the next try; each wait is twice the one before, until patience is over."""

    def __init__(self, patience: float, clock: Callable[[], float]) -> None:
        self._patience, self._clock = patience, clock
        self.reset()

    def reset(self) -> None:
        """It went well: patience begins anew, with the next failure."""
        self._pause: float = FIRST_PAUSE_S
        self._give_up: float | None = None

    def wait(self, error: EncError) -> float:
        """Seconds to wait; raises the error once patience is over."""
        wait, now = max(self._pause, _retry_after(error)), self._clock()
        if self._give_up is None:
            self._give_up = now + self._patience
        if now + wait >= self._give_up:
            raise error
        self._pause = min(self._pause * 2, MAX_PAUSE_S)
        return wait


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
        return Backoff(self._patience if patience in (None, math.inf) else patience, self._clock)


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


def _retry_after(error: EncError) -> float:
    after = error.context.get("retry_after_ms", 0)
    return min(after, MAX_PAUSE_S * 1000) / 1000 if isinstance(after, int | float) else 0.0
