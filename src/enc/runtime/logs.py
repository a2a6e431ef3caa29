"""Logs: one line per entry on stderr, with time, level, event and fields.

`setup_logs` sends everything the same way: our own entries (structlog) and those of the libraries
(logging, warnings). Secrets and people's content do not get into logs, whatever a careless call
passes: `redact` filters every entry first.
"""

import logging
import re
import sys
from collections.abc import Mapping, Set
from contextlib import suppress
from itertools import islice
from math import isfinite
from typing import Any, TextIO

import structlog
from msgspec import Struct, structs
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from enc.core.errors import MisuseError
from enc.runtime.log_options import Level, LogFormat
from enc.runtime.log_throttle import LogThrottle

REDACTED = "[redacted]"
SECRETS = frozenset("content secret key sig session token ciphertext authorization cookie".split())
"""Names whose values are never written, alone or as a name's last word: `sig`, `seq_sig`, `Set-Cookie`."""

MAX_TEXT, MAX_ITEMS, MAX_DEPTH = 2048, 64, 4
"""What an entry may hold: characters of a text, items of a list, lists within lists."""

LEVELS: Mapping[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_WORD = re.compile(r"[_.\-]")
_OURS = "enc"
_CHATTY = ("httpx", "httpcore")
"""Libraries that log every request."""


def setup_logs(
    level: Level, format: LogFormat, stream: TextIO | None = None, throttle: LogThrottle | None = None
) -> None:
    """Write the process's logs to `stream` (stderr) from now on; a second call replaces the first.
    `throttle` drops repeats of our own entries.

    Libraries never log below `info`: their debug entries contain the frames and requests that they
    carry. uvicorn must not set up logging itself (`log_config=None`).
    """
    if level not in LEVELS or format not in ("json", "console"):
        raise MisuseError("logs: unknown level or format")
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        redact,
    ]
    structlog.configure(
        processors=[*([throttle] if throttle else []), *before, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=before, processors=_rendering(format)))
    _route(handler, LEVELS[level])


def _rendering(format: LogFormat) -> list[Processor]:
    first: list[Processor] = [_arrange]
    if format == "json":
        return [*first, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # Plain tracebacks: the pretty ones show the values of local variables.
    plain = structlog.dev.plain_traceback
    console = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=plain, timestamp_key="time", pad_event_to=0, sort_keys=False
    )
    return [*first, _escape, console]


def _route(handler: logging.Handler, level: int) -> None:
    """Send the entries of all loggers to this handler and to no other."""
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger(_OURS).setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.captureWarnings(True)


class _Handler(logging.StreamHandler[TextIO]):
    """A handler that reports an entry it cannot write without repeating its content."""

    def handleError(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            self.stream.write(f'{{"level": "error", "event": "log entry lost", "line": {record.lineno}}}\n')
            self.flush()


def redact(_logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
    """Return the entry without secrets: replaces values named in SECRETS, cuts bytes to 8, bounds sizes."""
    return {name: value if _is_needed(name, value) else _clean_item(name, value, 0) for name, value in entry.items()}


def _is_needed(name: str, value: Any) -> bool:
    """Return whether structlog still uses it: a library's log record, or an exception to report."""
    if name == "exc_info":
        error = value[1] if isinstance(value, tuple) and len(value) == 3 else value
        return isinstance(error, BaseException)
    return name == "_record" and isinstance(value, logging.LogRecord)


def _clean_item(name: Any, value: Any, depth: int) -> Any:
    return REDACTED if _WORD.split(str(name).lower())[-1] in SECRETS else _clean(value, depth)


def _clean(value: Any, depth: int) -> Any:
    """Return a value that JSON can hold, without secrets; of a Struct the fields' names decide."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[:8]).hex()
    if isinstance(value, Struct):
        value = structs.asdict(value)
    if isinstance(value, Mapping | Set | list | tuple):
        return _clean_many(value, depth + 1)
    return _cut(value if isinstance(value, str) else _named(value))


def _clean_many(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {_cut(str(k)): _clean_item(k, v, depth) for k, v in islice(value.items(), MAX_ITEMS)}
    return [_clean(item, depth) for item in islice(value, MAX_ITEMS)]


def _named(value: Any) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"


def _arrange(_logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
    """Put time, level and event first; a library's entry also gets its logger's name."""
    record, ours = entry.pop("_record"), entry.pop("_from_structlog")
    first = {name: entry.pop(name, None) for name in ("time", "level", "event")}
    return {**first, **({} if ours else {"logger": record.name}), **entry}


def _escape(_logger: WrappedLogger, _method: str, entry: EventDict) -> EventDict:
    """Spell control characters out, so that no text can fake a line or control a terminal."""
    return {
        name: value.encode("unicode_escape").decode() if isinstance(value, str) and not value.isprintable() else value
        for name, value in entry.items()
    }
