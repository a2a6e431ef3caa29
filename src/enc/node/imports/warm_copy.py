"""A warm copy: the log of an enclave on another node, checked and replayed ahead of its move.

It is a staging area that goes on where it stopped. Nobody can read it, and no answer contains
anything of it except how many events it has. When the owner's Migrate arrives, the import goes on
with it: only the events that are missing have to be fetched and replayed.
"""

import threading
from contextlib import closing

from enc.core.errors import Unavailable
from enc.node.imports.context import ImportContext
from enc.node.imports.log_lines import LogFile, fetched_events
from enc.node.imports.replay import StagedReplay
from enc.node.imports.source_node import ImportCancelled
from enc.node.signatures.import_check import ImportSignaturePool


class WarmCopyBytes:
    """The bytes of all warm copies, and their limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._lock, self._by_copy = threading.Lock(), dict[bytes, int]()

    @property
    def total(self) -> int:
        with self._lock:
            return sum(self._by_copy.values())

    def set(self, name: bytes, size: int) -> None:
        """Count the bytes of a copy anew; raise Unavailable if all of them are over the limit."""
        with self._lock:
            self._by_copy[name] = size
        if self.total > self.most:
            raise Unavailable(f"warm copies have over {self.most} bytes (imports.ahead_bytes)")

    def remove(self, name: bytes) -> None:
        with self._lock:
            self._by_copy.pop(name, None)


class WarmCopy:
    """One warm copy. One thread at a time may use it."""

    root = b""
    """The checkpoint root of the events that it has."""

    def __init__(self, context: ImportContext, enclave: bytes, stored: WarmCopyBytes, stopped: threading.Event) -> None:
        """Waits for the sequencer's thread. `stopped` ends a replay."""
        self._context, self._stored, self._stopped = context, stored, stopped
        staging = context.call(lambda: context.store.stage(enclave, -1))
        self.staged = StagedReplay(
            context.store,
            staging,
            context.key,
            enclave,
            None,
            None,
            write=lambda steps: context.call(lambda: staging.write(steps)),
            on_slice=self._after_slice,
        )

    @property
    def events(self) -> int:
        return self.staged.replay.events

    def extend(self, log: LogFile, count: int) -> None:
        """Add the events in `log`, about `count`. After a failure the copy cannot be used any more."""
        context, staged = self._context, self.staged
        with closing(ImportSignaturePool(context.cores, count)) as checkers:
            staged.checkers = checkers
            staged.replay_events(fetched_events(log, context.policy, self.events))
        self.root = staged.replay.checkpoint_root()
        self.rest()

    def rest(self) -> None:
        """Free memory, and erase contents whose time has passed."""
        self.staged.rest()
        while self._context.call(self._erase):
            pass

    def _erase(self) -> bool:
        """On the sequencer's thread: erase some contents; return whether there are more."""
        now = self._context.clock()
        if self._context.sequencer.is_clock_wrong(now):  # it would erase what is not due
            now = 0
        return self.staged.staging.rest(now)

    def _after_slice(self, staged: StagedReplay) -> None:
        if self._stopped.is_set():
            raise ImportCancelled("the node is stopping")
        self._context.policy.rules.disk.check()
        name = staged.staging.name
        self._stored.set(name, self._context.store.size(name))

    def close(self) -> None:
        """Discard it."""
        self.hand_over()
        self.staged.close()
        self.staged.staging.drop()

    def hand_over(self) -> None:
        """Stop counting it as a warm copy: an import goes on with it."""
        self._stored.remove(self.staged.staging.name)
