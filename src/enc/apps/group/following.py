"""Following a group: changes that are already known, then live ones."""

import math
from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Self

from enc.apps.group.errors import NotAMember
from enc.apps.group.views import Change, ChangeKind
from enc.client import Item
from enc.client.subscribe.subscription import Subscription
from enc.client.wire.retrying_caller import PAUSES
from enc.core.errors import Unauthorized, WorldError

if TYPE_CHECKING:
    from enc.apps.group.group_reader import GroupReader
    from enc.client import Enclave


class Following:
    """Iterates over changes until `close`, or until the error that ended the subscription is
    raised.

    NotAMember: we were removed, or have left. `through`: the same enclave, by another client. With
    `patience`, the changes `offline` and `online` report when the node stops answering and when it
    answers again; with `math.inf` the node is retried without end.
    """

    def __init__(self, group: "GroupReader", through: "Enclave | None" = None, patience: float | None = None) -> None:
        self._group, self._through, self._patience = group, through, patience
        self._closing = Event()
        self._live: Subscription | None = None
        self._is_offline = False

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        while not self._closing.is_set():
            change = self._group.next_change() or self._wait()
            if change is not None:
                return change
        raise StopIteration

    def _wait(self) -> Change | None:
        """Wait for news. Return a change if the connection is lost or restored; else read the
        journal.
        """
        try:
            return self._receive(self._live) if self._live is not None else self._begin()
        except Unauthorized as e:
            raise NotAMember("you are no longer a member of the group") from e
        except WorldError as e:
            if self._patience != math.inf:
                raise
            self._drop()
            if not self._is_offline:
                return self._connection_change(False, e.message)
            self._closing.wait(PAUSES.max_s)
            return None

    def _begin(self) -> Change | None:
        group = self._group
        if self._through is None or group.last_seq < 0:
            group.catch_up()
        # Not under the group's lock: it may wait long for the node.
        self._live = (self._through or group.enclave).subscribe(after=group.last_seq, patience=self._patience)
        if self._closing.is_set():
            self.close()
        return self._connection_change(True) if self._is_offline else None

    def _receive(self, live: Subscription) -> Change | None:
        news = live.news()
        if isinstance(news, Item):
            self._group.receive(news)
        elif news is None:
            self._closing.set()
        elif self._patience is not None and news.is_up == self._is_offline:
            return self._connection_change(news.is_up, news.why)
        return None

    def _connection_change(self, is_online: bool, why: str = "") -> Change:
        """Return a change without an event: it has neither id nor author."""
        group, self._is_offline = self._group, not is_online
        kind: ChangeKind = "online" if is_online else "offline"
        return Change(
            kind=kind, seq=group.last_seq, id=b"", author=b"", timestamp=group.now(), type=kind, what=why or kind
        )

    def _drop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.close()

    def close(self) -> None:
        self._closing.set()
        if self._live is not None:
            self._live.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
