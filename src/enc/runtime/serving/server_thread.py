"""Runs a server in a thread of this process."""

import asyncio
import logging
import threading
from collections.abc import Callable

from enc.runtime.serving.server import Server

END_S = 30.0
"""Time that a server in a thread has to end."""

_log = logging.getLogger("uvicorn.error")


class ServerThread:
    """Runs a server in a thread of this process; `run` replaces the function that the thread runs."""

    def __init__(self, server: Server, run: Callable[[], None] | None = None, *, name: str) -> None:
        self._server, self._work = server, run or self._serve
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> bool:
        """Return True when it answers, or False if it ended instead."""
        self._thread.start()
        while not self._server.started:
            if self.ended.wait(0.01):
                return False
        return True

    def stop(self) -> None:
        """Stop the server, and wait for its end."""
        self._server.stop()
        self._thread.join(END_S)

    def _serve(self) -> None:
        asyncio.run(self._server.run_until_stopped())

    def _run(self) -> None:
        try:
            self._work()
        except (OSError, RuntimeError) as e:
            _log.error("%s has ended: %s", self._thread.name, e)
        except SystemExit:
            pass  # uvicorn has logged why
        finally:
            self.ended.set()
