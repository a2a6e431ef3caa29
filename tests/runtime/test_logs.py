"""Logs: one line per entry, one form for all, and no secrets."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import Duplicate, MisuseError
from enc.core.log.commit import build_commit
from enc.core.primitives.signing import PrivateKey
from enc.runtime.logs import MAX_ITEMS, MAX_TEXT, REDACTED, SECRETS, redact, setup_logs
from tests.core.strategies import examples

KEY = PrivateKey(b"k" * 32)
NAMES = ["", "enc", "uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio", "httpx", "httpcore"]


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    with warnings.catch_warnings():
        yield
    logging.captureWarnings(False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


class Log:
    """The lines that were written."""

    def __init__(self, level: Any = "info", format: Any = "json") -> None:
        self.stream = io.StringIO()
        setup_logs(level, format, self.stream)
        self.ours = structlog.get_logger("enc.node.test")

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def test_an_entry_has_time_level_event_and_the_rest() -> None:
    log = Log()
    log.ours.info("node started", port=7700, url="http://a")
    (entry,) = log.entries
    assert list(entry) == ["time", "level", "event", "port", "url"]
    when = datetime.fromisoformat(entry.pop("time"))
    assert when.utcoffset() == timedelta(0)
    assert entry == {"level": "info", "event": "node started", "port": 7700, "url": "http://a"}
    assert log.lines[0].split('"')[3].endswith("Z")


def test_logs_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logs("info", "json")
    structlog.get_logger("enc").info("here")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["event"] == "here"


def test_what_is_bound_comes_along() -> None:
    log = Log()
    structlog.contextvars.bind_contextvars(request=5, token="t")
    log.ours.bind(enclave=b"\x01" * 32).warning("slow")
    (entry,) = log.entries
    assert (entry["request"], entry["token"], entry["enclave"]) == (5, REDACTED, "01" * 8)


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
@pytest.mark.parametrize("logger", [structlog.get_logger, logging.getLogger])
def test_what_is_below_the_level_is_not_written(level: str, heard: list[str], logger: Callable[[str], Any]) -> None:
    log = Log(level)
    for name in ("debug", "info", "warning", "error"):
        getattr(logger("enc.node.test"), name)(name)
    assert [entry["event"] for entry in log.entries] == heard
    assert [entry["level"] for entry in log.entries] == heard


@pytest.mark.parametrize("name", [*NAMES[2:7], "websockets.server", "anything"])
def test_libraries_are_routed_the_same_way_but_never_below_info(name: str) -> None:
    logger = logging.getLogger(name)
    logger.handlers[:] = [logging.NullHandler()] if name in NAMES else []
    log = Log("debug")
    logger.debug("a frame with %s", "what people wrote")
    logger.info("listening on %s", 7700)
    (entry,) = log.entries
    del entry["time"]
    assert entry == {"level": "info", "event": "listening on 7700", "logger": name}
    assert logger.handlers == []


def test_requests_that_the_node_makes_are_no_entries() -> None:
    stream = io.StringIO()
    setup_logs("info", "json", stream)
    logging.getLogger("httpx").info("HTTP Request: POST")
    logging.getLogger("httpx").warning("odd")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["odd"]


def test_libraries_obey_a_higher_level() -> None:
    log = Log("error")
    logging.getLogger("uvicorn.error").warning("unheard")
    logging.getLogger("uvicorn.error").error("heard")
    assert [entry["event"] for entry in log.entries] == ["heard"]


def test_what_is_not_written_is_not_looked_at() -> None:
    class Bad:
        def __str__(self) -> str:
            raise AssertionError("never asked")

    log = Log()
    log.ours.debug("unheard", value=Bad())
    assert log.entries == []


def test_a_library_s_own_level_does_not_hide_it() -> None:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn").propagate = False
    log = Log()
    logging.getLogger("uvicorn.error").info("here")
    assert [entry["event"] for entry in log.entries] == ["here"]


def test_warnings_are_entries_too() -> None:
    log = Log()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        setup_logs("info", "json", log.stream)
        warnings.warn("careful", stacklevel=1)
        logging.captureWarnings(False)
    (entry,) = log.entries
    assert (entry["level"], entry["logger"]) == ("warning", "py.warnings")
    assert "careful" in entry["event"]


def test_a_second_set_up_takes_the_place_of_the_first() -> None:
    first, second = Log("debug"), Log("error")
    structlog.get_logger("enc.node").error("once")
    structlog.get_logger("enc.node").info("not at all")
    assert (len(first.entries), len(second.entries)) == (0, 1)


@pytest.mark.parametrize(("level", "format"), [("loud", "json"), ("info", "xml")])
def test_an_unknown_level_or_format(level: Any, format: Any) -> None:
    with pytest.raises(MisuseError):
        setup_logs(level, format)


# Exceptions


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize("logger", [structlog.get_logger, logging.getLogger])
def test_an_exception_is_told_without_the_values_of_variables(format: str, logger: Callable[[str], Any]) -> None:
    log = Log(format=format)
    value = "hidden in a " + "variable"
    try:
        raise ValueError(len(value))
    except ValueError:
        logger("enc.node").exception("failed")
    written = log.stream.getvalue()
    assert "ValueError: 20" in written
    assert "Traceback" in written
    assert value not in written
    assert format == "console" or len(log.lines) == 1


def test_an_exception_that_is_passed_is_told() -> None:
    log = Log()
    log.ours.error("failed", exc_info=ValueError("one"))
    error = ValueError("two")
    log.ours.error("failed", exc_info=(ValueError, error, None))
    assert [entry["exception"] for entry in log.entries] == ["ValueError: one", "ValueError: two"]


@pytest.mark.parametrize("name", ["exc_info", "stack_info", "_record", "_from_structlog"])
def test_no_name_is_a_way_around(name: str) -> None:
    for value in (b"x" * 32, ("a", b"x" * 32, "c"), {"secret": "x" * 32}):
        assert "x" * 32 not in repr(redact(None, "info", {name: value}))
    log = Log()
    log.ours.info("careless", **{name: {"secret": "x" * 32}})
    assert "x" * 32 not in log.stream.getvalue()
    assert log.entries[0]["event"] == "careless"


def test_an_exception_as_a_value_is_its_name_and_message() -> None:
    log = Log()
    log.ours.error("refused", why=Duplicate("there already", receipt={"sig": "5167"}))
    assert log.entries[0]["why"] == "Duplicate: there already"


# Secrets


@pytest.mark.parametrize("name", sorted(SECRETS))
@pytest.mark.parametrize("format", ["json", "console"])
def test_secrets_are_not_written(name: str, format: str) -> None:
    log = Log(format=format)
    for spelled in (name, name.upper(), f"x_{name}", f"Proxy-{name.title()}", f"a.{name}"):
        log.ours.info(
            "careless", **{spelled: "hidden"}, deep={"list": [{spelled: "hidden"}]}, pairs={spelled: ["hidden"]}
        )
    assert "hidden" not in log.stream.getvalue()
    assert log.stream.getvalue().count(REDACTED) == 15


def test_the_secrets_are_those_promised() -> None:
    assert set("content secret key sig session token ciphertext authorization cookie".split()) == SECRETS


@pytest.mark.parametrize("name", ["content_hash", "key_file", "signed", "keys", "sessions", "enclave", "monkey"])
def test_what_only_sounds_like_a_secret_is_written(name: str) -> None:
    log = Log()
    log.ours.info("fine", **{name: "shown"})
    assert log.entries[0][name] == "shown"


def test_the_protocol_s_own_types_are_judged_by_their_fields() -> None:
    log = Log()
    commit = build_commit(KEY, bytes(32), "note", "what people wrote", 60_000)
    log.ours.info("careless", commit=commit, several=[commit])
    written = log.stream.getvalue()
    assert "what people wrote" not in written
    assert commit.sig.hex()[:16] not in written
    assert log.entries[0]["commit"]["hash"] == commit.hash[:8].hex()


def test_a_private_key_is_shown_by_its_public_one() -> None:
    log = Log()
    log.ours.info("careless", node=KEY, nodes=[KEY])
    assert KEY.secret.hex()[:16] not in log.stream.getvalue()
    assert KEY.public.hex() in log.entries[0]["node"]


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_bytes_are_the_hex_of_the_first_8(make: Callable[[bytes], Any]) -> None:
    log = Log()
    log.ours.info("bytes", id=make(b"\xab" * 32), ids=[make(b"\xcd" * 32)], short=make(b"\x01"))
    entry = log.entries[0]
    assert (entry["id"], entry["ids"], entry["short"]) == ("ab" * 8, ["cd" * 8], "01")


def test_an_entry_that_cannot_be_written_is_not_repeated() -> None:
    class Bad:
        def __str__(self) -> str:
            raise ValueError("hidden")

    log = Log()
    logging.getLogger("enc").info("%d", "hidden")
    logging.getLogger("enc").info(Bad())
    assert "hidden" not in log.stream.getvalue()
    assert [entry["event"] for entry in log.entries] == ["log entry lost"] * 2


def test_a_stream_that_is_gone_stops_nobody() -> None:
    log = Log()
    log.stream.close()
    log.ours.info("to nobody")


# Form


def test_sizes_are_bounded() -> None:
    log = Log()
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    log.ours.info(
        "e" * 10_000, text="x" * 10_000, many=list(range(10_000)), table=dict.fromkeys(range(10_000)), deep=deep
    )
    entry = log.entries[0]
    assert len(entry["event"]) == len(entry["text"]) == MAX_TEXT + 1
    assert len(entry["many"]) == len(entry["table"]) == MAX_ITEMS
    assert entry["deep"] == [[[["…"]]]]


def test_odd_values_are_still_json() -> None:
    log = Log()
    odd = {"nan": float("nan"), "inf": float("inf"), "path": Path("/a"), "none": None, "set": {1}, "lone": "\udcff"}
    log.ours.info("odd", **odd)
    assert "NaN" not in log.lines[0]
    entry = log.entries[0]
    assert {name: entry[name] for name in odd} == {
        "nan": "nan",
        "inf": "inf",
        "path": "/a",
        "none": None,
        "set": [1],
        "lone": "\udcff",
    }


@pytest.mark.parametrize("format", ["json", "console"])
def test_nothing_passes_for_another_line_or_steers_a_terminal(format: str) -> None:
    log = Log(format=format)
    log.ours.info("one\nline", value="a\r\nb\x1b[31m", nested=["a\nb"])
    logging.getLogger("uvicorn.access").info("GET %s", "/\n\x1b[31m")
    assert len(log.lines) == 2
    assert "\x1b" not in log.stream.getvalue()


def test_the_console_is_for_people() -> None:
    log = Log(format="console")
    log.ours.info("node started", port=7700)
    assert log.lines[0].endswith("[info     ] node started port=7700")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=10,
)


@examples()
@given(st.dictionaries(st.text(), values))
def test_whatever_is_passed_becomes_json(entry: dict[str, Any]) -> None:
    json.dumps(redact(None, "info", entry), allow_nan=False)
