"""File descriptors of a server's process: each connection needs one."""

import os
import resource
import time
from collections.abc import Callable

import structlog

MAX_FILES = 1 << 20
"""Maximum to which the limit is raised: some systems allow a billion, which slows other programs."""
RESERVE = 256
"""Descriptors that a server needs for other things than connections."""
LOG_S = 60.0
"""Seconds between two log entries about connections that cannot be accepted."""

_log = structlog.get_logger("enc.server")


def raise_file_limit(connections: int) -> None:
    """Raise this process's limit of open files as far as it may, if it is too low for so many
    connections; log a warning if it still is. Programs that this one starts get the same limit.
    """
    (soft, hard), needed = resource.getrlimit(resource.RLIMIT_NOFILE), connections + RESERVE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    most = max(soft, MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < needed:
        _log.warning("few_file_descriptors", limit=most, needed=needed, connections=connections)


def affordable_connections() -> int:
    """Return for how many connections this process may have descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_FILES if soft == resource.RLIM_INFINITY else max(soft - RESERVE, 1)


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
