"""Listening to a group: what was told already, then what comes, for as long as one listens."""

import math
from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Self

from enc.apps.group.errors import NotAMember
from enc.apps.group.views import Change, ChangeKind
from enc.client import Item
from enc.client.courier import MAX_PAUSE_S
from enc.client.subscription import Subscription
from enc.core.errors import Unauthorized, WorldError

if TYPE_CHECKING:
    from enc.apps.group.reading import Reading
    from enc.client import Enclave


class Following:
    """Changes, for as long as it is iterated. It ends by `close`, or by raising what ended the subscription.

    NotAMember: we were put out, or have left. `through`: the same enclave, by another client. With `patience` the
    changes `offline` and `online` tell when the node does not answer, and when it does again; with `math.inf` it is
    waited for without end.
    """

    def __init__(self, group: "Reading", through: "Enclave | None" = None, patience: float | None = None) -> None:
        self._group, self._through, self._patience = group, through, patience
        self._closing = Event()
        self._live: Subscription | None = None
        self._is_offline = False

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        while not self._closing.is_set():
            change = self._next_told() or self._wait()
            if change is not None:
                return change
        raise StopIteration

    def _next_told(self) -> Change | None:
        group = self._group
        with group._lock:
            if group._told == len(group._journal):
                return None
            group._told += 1
            return group._journal[group._told - 1]

    def _wait(self) -> Change | None:
        """Wait until there is something new in the journal, or the connection is lost or is back; that is returned."""
        try:
            return self._heard(self._live) if self._live is not None else self._begin()
        except Unauthorized as e:
            raise NotAMember("you are no member of the group any more") from e
        except WorldError as e:
            if self._patience != math.inf:
                raise
            self._drop()
            if not self._is_offline:
                return self._told(False, e.message)
            self._closing.wait(MAX_PAUSE_S)
            return None

    def _begin(self) -> Change | None:
        group = self._group
        with group._lock:
            if self._through is None or group._fold.seq < 0:
                group._pull()
                group._mend()
            after = group._fold.seq
        # Not under the lock: it may be patient, and others have things to do.
        self._live = (self._through or group._enclave).subscribe(after=after, patience=self._patience)
        if self._closing.is_set():
            self.close()
        return self._told(True) if self._is_offline else None

    def _heard(self, live: Subscription) -> Change | None:
        news = live.news()
        if isinstance(news, Item):
            self._take(news)
        elif news is None:
            self._closing.set()
        elif self._patience is not None and news.is_up == self._is_offline:
            return self._told(news.is_up, news.why)
        return None

    def _take(self, item: Item) -> None:
        group = self._group
        with group._lock:
            if item.seq > group._fold.seq + 1:
                group._pull()
            group._take(item.event)
            if item.content is None:
                group._pull()  # why it is gone stands in the log by now
            group._mend()

    def _told(self, is_online: bool, why: str = "") -> Change:
        """No event of the log: it has neither id nor author."""
        group, self._is_offline = self._group, not is_online
        kind: ChangeKind = "online" if is_online else "offline"
        seq, now = group._fold.seq, group._clock()
        return Change(kind=kind, seq=seq, id=b"", author=b"", timestamp=now, type=kind, what=why or kind)

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
