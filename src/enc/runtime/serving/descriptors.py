"""File descriptors of a server's process: each connection needs one, and without one it ends unheard."""

import os
import resource
import time
from collections.abc import Callable

import structlog

MAX_FILES = 1 << 20
"""To what the limit is raised at most: some systems allow a billion, which slows other programs."""
RESERVE = 256
"""Descriptors that a server needs for other things than connections."""
LOG_S = 60.0
"""Seconds between two log entries about connections that cannot be accepted."""

_log = structlog.get_logger("enc.server")


def raise_file_limit(connections: int) -> None:
    """Raise this process's limit of open files as far as it may; log a warning if it is too low for
    so many connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    needed = connections + RESERVE
    if soft != resource.RLIM_INFINITY and soft < needed:
        _log.warning("few_file_descriptors", limit=soft, needed=needed, connections=connections)


class AcceptFailures:
    """Logs that connections cannot be accepted, at most once in LOG_S. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._next = clock, float("-inf")

    def log(self, error: OSError) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + LOG_S
            _log.error("accept_failed", reason=error.strerror)

    def probe(self, descriptor: int) -> None:
        """Log it if the process has no free descriptor.

        An event loop does not report it: uvloop closes new connections and says nothing.
        """
        try:
            os.close(os.dup(descriptor))
        except OSError as e:
            self.log(e)
