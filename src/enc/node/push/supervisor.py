"""Supervises the sender's process: starts it when there is something to send, and replaces it when
it dies.

Sending has its own process so that sealing and TLS take no time from the sequencer, and so that no
endpoint's answer reaches the process that holds the node's key. One thread here serves the process:
it answers with the keys of recipients, and has delivery results stored.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import structlog
from msgspec import ValidationError

from enc.core.errors import EncError
from enc.core.primitives.sealing import push_key
from enc.core.primitives.signer import Signer, SignerUnavailable
from enc.node.config import NodeConfig
from enc.node.push.sender_pipe import (
    LENGTH,
    Alive,
    AskKey,
    DeliveryResults,
    FromSender,
    Key,
    ResultsStored,
    Start,
    ToSender,
    length,
    packed,
    read_from_sender,
)
from enc.node.store.push_interface import PushResult
from enc.runtime.backoff import RetryPauses
from enc.runtime.pipes import PipeTimeout, read_in_time, write_in_time

STOP_S = 5.0
"""How long a sender may take to stop before it is killed."""
SIGNER_PAUSE_S = 0.25
"""Pause between two requests to a signer that does not answer."""
SILENT_S, ALIVE_S = 30.0, 5.0
"""How long a sender may neither write nor read before it is killed and replaced; how often it shows
that it is alive.
"""
PAUSES = RetryPauses(first_s=1.0, max_s=60.0)
"""Pauses between two starts of a sender that keeps dying."""

StoreResults = Callable[[Sequence[PushResult]], None]
"""Makes delivery results durable, or raises."""

_log = structlog.get_logger("enc.push.supervisor")


class _Process:
    def __init__(self, cores: Iterable[int]) -> None:
        command = [sys.executable, "-m", "enc.node.push.sender_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)  # noqa: S603
        self.pid = self._process.pid
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
        if cores:
            with suppress(OSError):
                os.sched_setaffinity(self.pid, cores)
        self._lock = threading.Lock()

    def write(self, message: ToSender) -> None:
        """Send a message. Does nothing if the process has ended: `read` then reports the end. Kills one
        that does not read.
        """
        with self._lock, suppress(OSError, ValueError):
            if self._process.stdin is None:
                return
            try:
                write_in_time(self._process.stdin.fileno(), packed(message), time.monotonic() + SILENT_S)
            except PipeTimeout:
                self._kill_silent()

    def read(self) -> FromSender | None:
        """Return the next message; None at the end of the output, or after an invalid message. Kills a
        process that sends none.
        """
        if self._process.stdout is None:
            return None
        descriptor, deadline = self._process.stdout.fileno(), time.monotonic() + SILENT_S
        try:
            head = read_in_time(descriptor, LENGTH.size, deadline)
            if len(head) < LENGTH.size:
                return None
            message: FromSender = read_from_sender(read_in_time(descriptor, length(head), deadline))
            return message
        except PipeTimeout:
            self._kill_silent()
            return None
        except (OSError, ValueError, ValidationError):
            return None

    def _kill_silent(self) -> None:
        _log.error("sender_silent", pid=self.pid, seconds=SILENT_S)
        self.kill()

    def end_input(self) -> None:
        """Ask the process to stop. Kills one that does not even read."""
        if not self._lock.acquire(timeout=STOP_S):
            self.kill()
            return
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._lock.release()

    def kill(self) -> None:
        with suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """Wait for the process to end; kill it after STOP_S."""
        self.end_input()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class PushSupervisor:
    """Runs the sender's process between `start` and `close`. Calls `is_due` and `settle` on its own
    thread.
    """

    def __init__(
        self,
        config: NodeConfig,
        key: Signer,
        is_due: Callable[[], bool],
        store_results: StoreResults,
        cores: Iterable[int] = (),
    ) -> None:
        """`is_due`: whether there is anything to send. `cores`: where the process runs; empty for
        any core.
        """
        self._start_message = start_message(config, key.public)
        self._interval_s = min(config.push.interval_s, 1.0)
        self._key, self._is_due, self._store_results, self._cores = key, is_due, store_results, set(cores)
        self._stopping = threading.Event()
        self._process: _Process | None = None
        self.failures = 0
        """Number of processes that were replaced."""
        self._thread = threading.Thread(target=self._run, name="senders", daemon=True)

    @property
    def pid(self) -> int | None:
        """Id of the process, while there is one."""
        process = self._process
        return process.pid if process else None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Let the process finish running requests for a short time. Batches without a stored result
        are sent again later.
        """
        self._stopping.set()
        if (process := self._process) is not None:  # the thread may set it to None at any time
            process.end_input()
        if self._thread.ident is None:
            return
        self._thread.join(STOP_S)
        if self._thread.is_alive() and (process := self._process) is not None:
            process.kill()
            self._thread.join(STOP_S)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(self._interval_s):
            if not self._is_needed():
                continue
            try:
                was_useful = self._serve()
            except OSError as e:
                _log.error("sender_not_started", reason=e.strerror)
                was_useful = False
            if self._stopping.is_set():
                return
            pause = 0.0 if was_useful else PAUSES.after(pause)
            self._stopping.wait(pause)

    def _is_needed(self) -> bool:
        try:
            return self._is_due()
        except EncError as e:
            _log.error("push_store_failed", reason=e.message)
            return False

    def _serve(self) -> bool:
        """Serve one process from its start to its end. Returns whether any results were stored."""
        self._process = process = _Process(self._cores)
        if self._stopping.is_set():
            process.end_input()
        was_useful = False
        try:
            process.write(self._start_message)
            while (message := process.read()) is not None:
                if isinstance(message, Alive):
                    continue
                answer = self._answer(message)
                if answer is None:
                    break
                was_useful |= answer == ResultsStored(True)
                process.write(answer)
        finally:
            if not self._stopping.is_set():
                self.failures += 1
                _log.error("sender_failed", pid=process.pid)
            process.close()
            self._process = None
        return was_useful

    def _answer(self, message: AskKey | DeliveryResults) -> Key | ResultsStored | None:
        """Return the answer; None if the node stops before there is one."""
        if isinstance(message, AskKey):
            key = self._key_of(message.identity)
            return None if key is None else Key(message.identity, key)
        try:
            self._store_results(message.results)
        except EncError as e:
            _log.error("outcomes_not_kept", reason=e.message)
            return ResultsStored(False)
        except Exception as e:  # a damaged row must not end this thread
            _log.error("outcomes_not_kept", reason=type(e).__name__, exc_info=e)
            return ResultsStored(False)
        return ResultsStored(True)

    def _key_of(self, identity: bytes) -> bytes | None:
        """Return the key for an identity's deliveries; empty if the identity is not a public key,
        since any 32 bytes may be granted rights. Waits while the signer does not answer; None if the
        node stops meanwhile.
        """
        while True:
            try:
                return push_key(self._key, identity)
            except SignerUnavailable:
                if self._stopping.wait(SIGNER_PAUSE_S):
                    return None
            except (EncError, ValueError):
                return b""


def start_message(config: NodeConfig, seq_pub: bytes) -> Start:
    push = config.push
    return Start(
        store=str(config.store_path),
        seq_pub=seq_pub,
        allow_private=config.private_endpoints,
        timeout_s=push.timeout_s,
        tries=push.tries,
        first_retry_s=push.first_retry_s,
        max_retry_s=push.max_retry_s,
        connections=push.connections,
        unsent_bytes=push.unsent_bytes,
        host_per_s=config.host_per_s,
        host_bytes_per_s=config.host_bytes_per_s,
        host_connections=config.host_connections,
        confirmed_s=push.confirmed_days * 86_400 if push.require_challenge else None,
        max_hold_s=config.max_hold_s,
        interval_s=push.interval_s,
        alive_s=ALIVE_S,
        ca_file=push.ca_file,
        log_level=config.log_level,
        log_format=config.log_format,
    )
