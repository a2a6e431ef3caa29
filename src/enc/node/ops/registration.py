"""Registers the node in a registry: in the background, with retries until it succeeds."""

import threading
from collections.abc import Callable

import structlog

from enc.core.errors import EncError
from enc.core.primitives.types import Receipt
from enc.runtime.backoff import RetryPauses

PAUSES = RetryPauses(first_s=1.0, max_s=300.0)

_log = structlog.get_logger("enc.registration")


class NodeRegistrar:
    """Calls `register`, which registers the node's endpoints, or returns None if they are
    registered already.
    """

    def __init__(self, register: Callable[[], Receipt | None], endpoints: tuple[str, ...]) -> None:
        self._register, self._endpoints = register, endpoints
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registrar", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop retrying. Does not wait for a running request: it may be repeated at the next start."""
        self._stopped.set()

    def _run(self) -> None:
        pause = PAUSES.first_s
        while not self._stopped.is_set():
            if self._is_done(pause):
                return
            self._stopped.wait(pause)
            pause = PAUSES.after(pause)

    def _is_done(self, pause: float) -> bool:
        try:
            receipt = self._register()
        except EncError as e:
            _log.warning("not_registered", code=e.code, reason=e.message, again_in_s=pause)
        except Exception as e:
            _log.error("not_registered", reason=type(e).__name__, again_in_s=pause, exc_info=e)
        else:
            what = "registered" if receipt else "registered_before"
            _log.info(what, endpoints=self._endpoints, **({"seq": receipt.seq} if receipt else {}))
            return True
        return False
