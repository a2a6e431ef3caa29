"""Tells systemd, or another service manager with its protocol, how this process is doing (sd_notify)."""

import os
import socket
from collections.abc import MutableMapping
from typing import Self

import structlog

_log = structlog.get_logger("enc.server")


class ServiceManager:
    """The socket that the service manager named in NOTIFY_SOCKET; without one, nothing is sent.

    Only the process that the manager started may use it, not its children.
    """

    def __init__(self, address: str = "", *, watchdog: bool = False) -> None:
        self._address, self._watchdog, self._has_failed = address, watchdog, False

    @classmethod
    def take(cls, environment: MutableMapping[str, str] = os.environ) -> Self:
        """Return the manager that the environment names, and remove it from there for child processes."""
        names = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        address, interval, pid = (environment.pop(name, "") for name in names)
        return cls(address, watchdog=interval != "" and pid in ("", str(os.getpid())))

    def ready(self, status: str) -> None:
        """Report that the service answers; `status` is one line for `systemctl status`."""
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """Report that the service still works, if the manager restarts it otherwise (WatchdogSec)."""
        if self._watchdog:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the service finishes its work and ends."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # An abstract address starts with @ in the variable and with a zero byte for the kernel.
        name = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)  # the event loop calls this
                sender.connect(name)
                sender.send(message.encode())
        except OSError as e:
            if not self._has_failed:
                _log.warning("manager_not_notified", message=message.partition("\n")[0], reason=e.strerror)
            self._has_failed = True
