"""The messages over a node's control socket: a request is a Request, an answer an Answer, both in JSON."""

from typing import Any

from msgspec import Struct

SOCKET = "control.sock"
"""The socket's name in the node's data directory."""
MAX_REQUEST, MAX_ANSWER = 64 << 10, 4 << 20
MISUSE = "MISUSE"
"""The code of an error that is the caller's fault: a parameter, or a name that no operation has."""


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    operation: str
    params: dict[str, Any] = {}


class Answer(Struct, frozen=True, omit_defaults=True):
    """The result, or the error object of the one that the operation raised."""

    result: Any = None
    error: dict[str, Any] | None = None
