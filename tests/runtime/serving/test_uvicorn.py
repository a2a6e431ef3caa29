"""The internals of uvicorn that `enc.runtime.serving` and the node's protocols rely on.

uvicorn promises none of them, so pyproject.toml pins its minor version. When a new version fails
here: read its changes to what failed, adapt our classes, and then this list and the pin.
"""

import inspect
import re
from typing import Any

import pytest
import uvicorn
from uvicorn.lifespan.off import LifespanOff
from uvicorn.lifespan.on import LifespanOn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from enc.runtime.serving.server import TICK_S

SIGNATURES = {
    uvicorn.Server: {
        "__init__": "self, config",
        "serve": "self, sockets",
        "startup": "self, sockets",
        "main_loop": "self",
        "on_tick": "self, counter",
        "shutdown": "self, sockets",
        "capture_signals": "self",
        "handle_exit": "self, sig, frame",
    },
    HttpToolsProtocol: {
        "connection_made": "self, transport",
        "connection_lost": "self, exc",
        "shutdown": "self",
        "data_received": "self, data",
        "_start_asgi_task": "self, cycle, app",
        "on_message_begin": "self",
        "on_headers_complete": "self",
        "on_body": "self, body",
        "on_message_complete": "self",
        "on_response_complete": "self",
        "handle_websocket_upgrade": "self",
        "send_400_response": "self, msg",
    },
    LifespanOn: {"shutdown": "self"},
    LifespanOff: {"shutdown": "self"},
    FlowControl: {"drain": "self"},
    WebSocketsSansIOProtocol: {
        "connection_made": "self, transport",
        "connection_lost": "self, exc",
        "data_received": "self, data",
        "handle_connect": "self, event",
        "handle_ping": "self",
        "handle_pong": "self, event",
        "handle_parser_exception": "self",
        "receive": "self",
        "send_receive_event_to_app": "self",
        "send": "self, message",
        "shutdown": "self",
        "stop_keepalive": "self",
    },
}
"""Methods that we override or call, with their parameters."""

ATTRIBUTES = {
    uvicorn.Server: "config lifespan server_state servers started should_exit force_exit",
    uvicorn.Config: "backlog http_protocol_class ssl loaded is_ssl timeout_graceful_shutdown",
    ServerState: "connections tasks",
    HttpToolsProtocol: (
        "app_state client cycle expect_100_continue flow headers loop parser pipeline server tasks transport url"
    ),
    RequestResponseCycle: "response_complete disconnected message_event",
    FlowControl: "write_paused",
    WebSocketsSansIOProtocol: (
        "app_state close_sent close_timer conn curr_msg_data_type disconnected frames handshake_complete "
        "handshake_initiated loop queue read_paused transport writable"
    ),
}
"""Attributes of their objects that we read or set."""

OPTIONS = (
    "app http ws loop lifespan interface log_config log_level access_log server_header date_header "
    "proxy_headers forwarded_allow_ips timeout_keep_alive "
    "timeout_graceful_shutdown ws_max_size ws_ping_interval ws_ping_timeout ws_per_message_deflate "
    "ssl_certfile ssl_keyfile"
)
"""Settings that we give."""


def test_it_is_the_version_whose_internals_were_read() -> None:
    assert uvicorn.__version__.startswith("0.54.")


@pytest.mark.parametrize(
    ("owner", "name", "expected"),
    [(owner, *each) for owner, methods in SIGNATURES.items() for each in methods.items()],
)
def test_a_method_has_the_parameters_we_know(owner: Any, name: str, expected: str) -> None:
    assert ", ".join(inspect.signature(getattr(owner, name)).parameters) == expected


@pytest.mark.parametrize(
    ("owner", "name"),
    [(owner, name) for owner, names in ATTRIBUTES.items() for name in names.split()],
)
def test_an_attribute_is_still_there(owner: Any, name: str) -> None:
    is_set = re.search(rf"\bself\.{name}\b.*[:=]", inspect.getsource(owner))
    assert is_set or hasattr(owner, name)


def test_the_settings_still_exist() -> None:
    assert set(OPTIONS.split()) <= set(inspect.signature(uvicorn.Config).parameters)


def test_ticks_come_ten_times_a_second() -> None:
    assert f"asyncio.sleep({TICK_S})" in inspect.getsource(uvicorn.Server.main_loop)


def test_small_things_that_the_protocols_import() -> None:
    assert httptools_impl.STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert issubclass(ClientDisconnected, OSError)
