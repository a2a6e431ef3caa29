"""Asks a running node to do something, by the control socket in its data directory."""

import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode, encode

from enc.core.errors import MisuseError, Unavailable, from_wire
from enc.node.control.wire import MAX_ANSWER, MAX_REQUEST, MISUSE, SOCKET, Answer, Request
from enc.runtime.unix_sockets import frames, unix_socket

TIMEOUT_S = 60.0
_NOT_A_NODE = "the answer does not come from a node"


def call(data_dir: Path, name: str, params: Mapping[str, Any] | None = None, *, timeout_s: float = TIMEOUT_S) -> Any:
    """Run an operation of the node that uses this data directory; return its result.

    Raises what the operation raised, as an error with the same code; Unavailable if the node does
    not run, does not answer, or belongs to another user; MisuseError for wrong parameters.
    """
    request = encode(Request(name, dict(params or {})))
    if len(request) > MAX_REQUEST:
        raise MisuseError(f"{name}: the parameters have over {MAX_REQUEST} bytes; give fewer at a time")
    answer = _exchange(data_dir.absolute() / SOCKET, request, timeout_s)
    try:
        found = decode(answer, type=Answer)
    except DecodeError:
        raise Unavailable(f"{data_dir / SOCKET}: {_NOT_A_NODE}") from None
    if found.error is None:
        return found.result
    if found.error.get("code") == MISUSE:
        raise MisuseError(str(found.error.get("message", "")))
    raise from_wire(found.error)


def _exchange(path: Path, request: bytes, timeout_s: float) -> bytes:
    try:
        connection = unix_socket.connect(path, timeout_s)
    except (FileNotFoundError, ConnectionRefusedError):
        raise Unavailable(f"no node is running on {path.parent}; start it with `enc node run`") from None
    except PermissionError:
        raise Unavailable(_belongs_to_other(path)) from None
    except OSError as e:
        raise Unavailable(f"{path}: cannot be reached: {e.strerror or e}") from None
    with connection:
        try:
            return frames.exchange(connection, request, MAX_ANSWER)
        except TimeoutError:
            why = f"the node did not answer within {timeout_s:g} seconds; it may still do what was asked"
        except (OSError, EOFError):
            why = "the node closed the connection; it may have stopped, or others use all of its connections"
        except frames.NotAFrame:
            why = _NOT_A_NODE
        raise Unavailable(f"{path}: {why}") from None


def _belongs_to_other(path: Path) -> str:
    other = "another user"
    with suppress(OSError):
        other = f"the user {_name(path.stat().st_uid)}"
    own = _name(os.geteuid())
    return f"{path}: the node runs as {other}, and {own} may not control it; run this command as that user or as root"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
