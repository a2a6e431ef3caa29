"""The operations that commands can ask a running node for, by name.

A part of the node adds its own:

    class BanParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        target: str
        reason: str = ""

    operations.add("ban", BanParams, ban)             # ban(params: BanParams) -> something for JSON
    operations.add("bans", Page, list_bans, changes=False)

and a command calls `enc.node.control.client.call(data_dir, "ban", {"target": …})`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeVar

import structlog
from msgspec import DecodeError, Struct, ValidationError, convert, json, to_builtins

from enc.core.errors import EncError, InternalError, MisuseError
from enc.node.control.wire import MAX_ANSWER, MISUSE, Answer, Request
from enc.runtime.unix_sockets.frame_server import Peer

HIDDEN = "[hidden]"

Params = TypeVar("Params", bound=Struct)

_log = structlog.get_logger("enc.control")


class NoParams(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of an operation that has none."""


class _Operation(NamedTuple):
    params: type[Struct]
    run: Callable[[Any], Any]
    changes: bool
    secrets: frozenset[str]


class Operations:
    """One runs at a time, on the thread of the control socket."""

    def __init__(self) -> None:
        self._by_name = dict[str, _Operation]()
        self.add("operations", NoParams, lambda params: sorted(self._by_name), changes=False)

    def add(
        self,
        name: str,
        params: type[Params],
        run: Callable[[Params], Any],
        *,
        changes: bool = True,
        secrets: Collection[str] = (),
    ) -> None:
        """Add an operation. `run` returns a result that msgspec can encode, and may wait for other
        threads, but a few seconds at most: longer work is only started by it.

        `changes`: it changes something, so each call is logged. `secrets`: parameters that no log may have.
        """
        if name in self._by_name:
            raise MisuseError(f"operation {name!r}: exists already")
        self._by_name[name] = _Operation(params, run, changes, frozenset(secrets))

    def perform(self, name: str, params: Mapping[str, Any], peer: Peer) -> Any:
        """Run an operation and return its result. Raises what it raises; MisuseError for an unknown
        name or an invalid parameter.
        """
        operation = self._by_name.get(name)
        if operation is None:
            raise MisuseError(f"operation {name!r}: this node has only {', '.join(sorted(self._by_name))}")
        try:
            parsed = convert(params, operation.params)
        except ValidationError as e:
            raise MisuseError(f"{name}: {e}") from None
        if not operation.changes:
            return operation.run(parsed)
        shown = {key: HIDDEN if key in operation.secrets else value for key, value in to_builtins(parsed).items()}
        log = _log.bind(operation=name, params=shown, pid=peer.pid, uid=peer.uid)
        try:
            result = operation.run(parsed)
        except Exception as e:
            log.warning("operator_action", failed=e.message if isinstance(e, EncError) else type(e).__name__)
            raise
        log.info("operator_action")
        return result

    def answer(self, request: bytes, peer: Peer) -> bytes:
        """Return the answer to a request of the socket. Errors become answers."""
        try:
            asked = json.decode(request, type=Request)
            found = json.encode(Answer(result=self.perform(asked.operation, asked.params, peer)))
            if len(found) > MAX_ANSWER:
                raise MisuseError(f"{asked.operation}: the result has over {MAX_ANSWER} bytes; ask for less")
        except ValidationError as e:
            return _failure(MisuseError(f"control request: {e}"))
        except DecodeError:
            return _failure(MisuseError("control request: not JSON"))
        except EncError as e:
            return _failure(e)
        except Exception as e:
            _log.error("internal_error", where="control", exc_info=e)
            return _failure(InternalError(f"internal error: {type(e).__name__}; the node's log says more"))
        return found


def _failure(error: EncError) -> bytes:
    return json.encode(Answer(error={**error.to_wire(), "code": error.code or MISUSE}))
