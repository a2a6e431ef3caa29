"""Listening to a group: what was told already, then what comes, for as long as one listens."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from enc.apps.group.errors import NotAMember
from enc.apps.group.views import Change
from enc.client.subscription import Subscription
from enc.core.errors import Unauthorized

if TYPE_CHECKING:
    from enc.apps.group.reading import Reading


class Following:
    """Changes, for as long as it is iterated. It ends by `close`, or by raising what ended the subscription.

    NotAMember: we were put out, or have left.
    """

    def __init__(self, group: "Reading") -> None:
        self._group = group
        self._is_closed = False
        self._live: Subscription | None = None

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        while not self._is_closed:
            change = self._next_told()
            if change is not None:
                return change
            self._wait()
        raise StopIteration

    def _next_told(self) -> Change | None:
        group = self._group
        with group._lock:
            if group._told == len(group._journal):
                return None
            group._told += 1
            return group._journal[group._told - 1]

    def _wait(self) -> None:
        """Until there is something new in the journal, or something has come that was there already."""
        group = self._group
        if self._live is None:
            with group._lock:
                group._ready()
                self._live = group._enclave.subscribe(after=group._fold.seq)
            if self._is_closed:
                self.close()
            return
        try:
            item = next(self._live, None)
        except Unauthorized as e:
            raise NotAMember("you are no member of the group any more") from e
        if item is None:
            self._is_closed = True
            return
        with group._lock:
            if item.seq > group._fold.seq + 1:
                group._pull()
            group._take(item.event)
            if group._heals:
                group._heal()

    def close(self) -> None:
        self._is_closed = True
        if self._live is not None:
            self._live.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
