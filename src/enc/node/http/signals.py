"""SIGINT and SIGTERM: the first stops a node in order, the second ends it at once."""

import signal
from typing import Any

from enc.node.http.server import Server
from enc.runtime.signals import end_on_next_signal


class SignalledServer(Server):
    """A server in the process's main thread."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:  # both came before the event loop looked
            signal.raise_signal(sig)
        end_on_next_signal()  # everything acknowledged is on disk
        super().handle_exit(sig, frame)
