"""Repeats a request at the node to which the enclave has moved."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from enc.client.errors import TimedOut, Unreachable
from enc.client.link.node_link import NodeLink
from enc.client.wire.flow import Flow
from enc.core.errors import EncError, EnclaveMigrated

MAX_HOPS = 8
"""Most nodes through which one request follows an enclave."""

P = ParamSpec("P")
T = TypeVar("T")


class Follower(Protocol):
    @property
    def node(self) -> NodeLink: ...

    def follow(self, error: EncError) -> Flow[None]: ...


S = TypeVar("S", bound=Follower)


def follow_moves(method: Callable[Concatenate[S, P], Flow[T]]) -> Callable[Concatenate[S, P], Flow[T]]:
    """Restart the flow at each node to which the enclave has moved."""

    @wraps(method)
    def flow(self: S, /, *args: P.args, **more: P.kwargs) -> Flow[Any]:
        for _ in range(MAX_HOPS):
            asked = self.node
            try:
                return (yield from method(self, *args, **more))
            except (EnclaveMigrated, Unreachable, TimedOut) as e:
                error = e
            if self.node is asked:  # else another thread has already switched
                yield from self.follow(error)
        return (yield from method(self, *args, **more))

    return flow
