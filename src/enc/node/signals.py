"""SIGINT and SIGTERM: the first stops a node in order, the second ends it at once."""

import signal
from typing import Any

from enc.node.server import Server


def end_at_once() -> None:
    """From now on a signal does what it does to any program: it ends it. Everything acknowledged is on disk."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class SignalledServer(Server):
    """A server in the process's main thread."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:  # both came before the event loop looked
            signal.raise_signal(sig)
        end_at_once()
        super().handle_exit(sig, frame)
