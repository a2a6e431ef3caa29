"""Operations: which requests run, what is logged, and what comes back."""

from typing import Any

import pytest
from msgspec import Struct
from msgspec.json import decode, encode
from structlog.testing import capture_logs

from enc.core.errors import EnclaveNotFound, MisuseError
from enc.node.control.operations import Operations
from enc.node.control.wire import MAX_ANSWER
from enc.runtime.unix_sockets.frame_server import Peer

PEER = Peer(pid=7, uid=1000)


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    token: str = ""


def fail(params: Params) -> None:
    raise EnclaveNotFound("enclave: not here")


def crash(params: Params) -> None:
    raise KeyError(params.token)


@pytest.fixture
def operations() -> Operations:
    made = Operations()
    made.add("echo", Params, lambda params: {"target": params.target}, secrets=["token"])
    made.add("look", Params, lambda params: params.target, changes=False)
    made.add("fail", Params, fail)
    made.add("crash", Params, crash)
    made.add("long", Params, lambda params: "x" * MAX_ANSWER)
    return made


def asked(operations: Operations, name: object, params: object) -> Any:
    return decode(operations.answer(encode({"operation": name, "params": params}), PEER))


def test_each_operation_answers_and_its_change_is_logged(operations: Operations) -> None:
    with capture_logs() as logs:
        assert asked(operations, "echo", {"target": "a", "token": "secret"}) == {"result": {"target": "a"}}
        assert asked(operations, "look", {"target": "b"}) == {"result": "b"}
    shown = {"target": "a", "token": "[hidden]"}
    assert logs == [
        {
            "event": "operator_action",
            "log_level": "info",
            "operation": "echo",
            "params": shown,
            "pid": 7,
            "uid": 1000,
        }
    ]
    assert asked(operations, "operations", {})["result"] == ["crash", "echo", "fail", "long", "look", "operations"]


def test_an_operation_that_fails_is_logged_and_reported(operations: Operations) -> None:
    with capture_logs() as logs:
        failed = asked(operations, "fail", {"target": "a"})
        crashed = asked(operations, "crash", {"target": "a", "token": "t0p"})
    assert failed["error"] == {"type": "Error", "code": "ENCLAVE_NOT_FOUND", "message": "enclave: not here"}
    assert crashed["error"]["code"] == "INTERNAL_ERROR"
    assert "t0p" not in crashed["error"]["message"]
    found = [(entry["event"], entry.get("failed")) for entry in logs]
    assert found == [
        ("operator_action", "enclave: not here"),
        ("operator_action", "KeyError"),
        ("internal_error", None),
    ]


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (b"nothing", "control request: not JSON"),
        (b"{}", "control request: Object missing required field `operation`"),
        (b'{"operation": 1}', "control request: Expected `str`"),
        (b'{"operation": "none"}', "operation 'none': this node has only crash, echo, fail, long, look, operations"),
        (b'{"operation": "echo"}', "echo: Object missing required field `target`"),
        (b'{"operation": "echo", "params": {"target": 1}}', "echo: Expected `str`, got `int` - at `$.target`"),
        (b'{"operation": "echo", "params": {"target": "", "x": 1}}', "echo: Object contains unknown field `x`"),
        (b'{"operation": "long", "params": {"target": ""}}', f"long: the result has over {MAX_ANSWER} bytes"),
    ],
)
def test_wrong_requests_are_the_callers_fault(operations: Operations, request_: bytes, why: str) -> None:
    error = decode(operations.answer(request_, PEER))["error"]
    assert error["code"] == "MISUSE"
    assert error["message"].startswith(why)


def test_a_name_is_given_once(operations: Operations) -> None:
    with pytest.raises(MisuseError, match="operation 'echo': exists already"):
        operations.add("echo", Params, fail)
