"""Passphrases for programs that nobody watches: from a file descriptor, a credential of systemd, or
a command.

No passphrase is an argument, because other users can see those. No error message contains one.
"""

import os
import select
import shlex
import subprocess
import time
from functools import cache
from pathlib import Path
from signal import SIGKILL

from msgspec import Struct

from enc.core.errors import MisuseError
from enc.runtime.pipes import PipeTimeout

MAX_SIZE = 1024
"""Most bytes of a passphrase."""
COMMAND_S = 60.0
"""How long a command may take: it may ask a person."""
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The variable in which systemd names the directory of a service's credentials."""


class PassphraseSource(Struct, frozen=True, kw_only=True):
    """Where a program reads a passphrase: one of three places, or none."""

    fd: int | None = None
    command: str = ""
    """Program and arguments, split as a shell does. It prints the passphrase on standard output."""
    credential: str = ""
    """Name of the file in `$CREDENTIALS_DIRECTORY`."""

    def read(self) -> str | None:
        """Return the passphrase; None if no source is set. Raises MisuseError if it has none."""
        if (self.fd is not None) + bool(self.command) + bool(self.credential) > 1:
            raise MisuseError("passphrase: give one of a file descriptor, a command and a credential, not several")
        if self.fd is not None:
            return from_descriptor(self.fd)
        if self.command:
            return from_command(self.command)
        return from_credential(self.credential) if self.credential else None


def from_environment(variable: str) -> str | None:
    """Return the passphrase in the variable, or from the source in `variable` and a suffix; None if
    none of them is set.
    """
    literal, fd = os.environ.get(variable), os.environ.get(f"{variable}_FD")
    if literal == "":
        raise MisuseError(f"{variable} is empty: set a passphrase, or unset the variable to use none")
    if fd is not None and not fd.isdecimal():
        raise MisuseError(f"{variable}_FD: {fd!r}: expected the number of a file descriptor")
    command, credential = (os.environ.get(f"{variable}_{name}", "") for name in ("COMMAND", "CREDENTIAL"))
    if literal is not None and (fd or command or credential):
        raise MisuseError(f"{variable}: set it, or one of {variable}_FD, _COMMAND and _CREDENTIAL, not both")
    source = PassphraseSource(fd=None if fd is None else int(fd), command=command, credential=credential)
    return source.read() if literal is None else literal


@cache
def from_descriptor(fd: int) -> str:
    """Return the first line that the descriptor yields, and close it. Later calls return the same."""
    name, data = f"passphrase: file descriptor {fd}", b""
    try:
        while b"\n" not in data and len(data) <= MAX_SIZE and (more := os.read(fd, MAX_SIZE + 1 - len(data))):
            data += more
        if fd > 2:
            os.close(fd)
    except OSError as e:
        raise MisuseError(f"{name}: {e.strerror}; open it for the program, as in `--passphrase-fd 3 3< FILE`") from None
    return _checked(name, data)


def from_command(command: str) -> str:
    """Return the first line that the command prints."""
    try:
        arguments = shlex.split(command)
    except ValueError as e:
        raise MisuseError(f"passphrase command: cannot be split into arguments: {e}") from None
    if not arguments:
        raise MisuseError("passphrase command: is empty; give a program and its arguments")
    name = f"passphrase command {arguments[0]}"  # not its arguments, which may be secret
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)  # noqa: S603
    except OSError as e:
        raise MisuseError(f"{name}: cannot be started: {e.strerror}") from None
    return _checked(name, _output(name, process))


def _output(name: str, process: "subprocess.Popen[bytes]") -> bytes:
    """Return the start of what the command prints; raise MisuseError if it fails or takes too long."""
    deadline = time.monotonic() + COMMAND_S
    try:
        data = _printed(process, deadline)
        process.wait(max(deadline - time.monotonic(), 0))
    except (PipeTimeout, subprocess.TimeoutExpired):
        process.kill()
        process.wait()
        data = b""
    if process.returncode and len(data) <= MAX_SIZE:  # one that prints more is stopped by SIGPIPE
        code = process.returncode
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        if code == -SIGKILL:
            how += f" (it has {COMMAND_S:g} seconds)"
        raise MisuseError(f"{name}: failed with {how}; run it by hand to see why")
    return data


def _printed(process: "subprocess.Popen[bytes]", deadline: float) -> bytes:
    """Return what the process prints until it ends, or closes its output: a child that it leaves behind may
    hold that open. Raises PipeTimeout at the deadline.
    """
    assert process.stdout is not None  # noqa: S101
    ended = os.pidfd_open(process.pid)
    data, poll = b"", select.poll()
    poll.register(ended, select.POLLIN)
    try:
        with process.stdout as printed:
            poll.register(printed, select.POLLIN)
            while len(data) <= MAX_SIZE:
                ready = [fd for fd, _ in poll.poll(max(deadline - time.monotonic(), 0) * 1000)]
                if not ready:
                    raise PipeTimeout("the command did not end in time")
                more = os.read(printed.fileno(), MAX_SIZE + 1 - len(data)) if printed.fileno() in ready else b""
                if not more:
                    break
                data += more
    finally:
        os.close(ended)
    return data


def has_credential(name: str) -> bool:
    """Return whether systemd has given the service a credential of this name."""
    directory = os.environ.get(CREDENTIALS)
    return bool(directory) and (Path(directory or "") / name).exists()


def from_credential(name: str) -> str:
    """Return the first line of a credential of the service (systemd's LoadCredential)."""
    directory = os.environ.get(CREDENTIALS)
    if not directory:
        raise MisuseError(f"passphrase credential {name}: {CREDENTIALS} is not set; add LoadCredential to the unit")
    if "/" in name or name in (".", ".."):
        raise MisuseError(f"passphrase credential {name}: expected a file's name without a path")
    try:
        with (Path(directory) / name).open("rb") as file:
            return _checked(f"passphrase credential {name}", file.read(MAX_SIZE + 1))
    except OSError as e:
        why = f"{e.strerror}; add LoadCredential={name}:FILE to the unit"
        raise MisuseError(f"passphrase credential {name}: {why}") from None


def _checked(name: str, data: bytes) -> str:
    line = data.partition(b"\n")[0].removesuffix(b"\r")
    if len(line) > MAX_SIZE:
        raise MisuseError(f"{name}: over {MAX_SIZE} bytes in its first line, so that is not a passphrase")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise MisuseError(f"{name}: its first line is not UTF-8") from None
    if not text:
        raise MisuseError(f"{name}: has no passphrase: its first line is empty")
    return text
