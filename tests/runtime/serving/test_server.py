"""The server that every program uses: ready, stop, signals, sockets."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from enc.core.errors import MisuseError
from enc.runtime.serving.listening import listen, listen_at, url_of
from enc.runtime.serving.server import Server
from enc.runtime.serving.server_config import server_config
from enc.runtime.serving.server_thread import ServerThread

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


def made(**options: Any) -> Server:
    listening = socket.create_server(("127.0.0.1", 0))
    return Server(server_config(app, lifespan="off"), listening, **options)


def test_a_server_in_a_thread_answers_until_it_is_stopped() -> None:
    told: list[str] = []
    server: Server = made(ready=lambda: told.append(server.url))
    thread = ServerThread(server, name="test")
    assert thread.start()
    assert told == [server.url]
    answer = httpx.get(server.url, trust_env=False)
    assert answer.content == b"here"
    assert "server" not in answer.headers
    thread.stop()
    assert thread.ended.is_set()
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url, trust_env=False)


def test_a_server_that_cannot_start_says_so() -> None:
    server = made()
    server._socket.close()
    thread = ServerThread(server, name="test")
    assert not thread.start()
    assert thread.ended.is_set()


def test_it_drains_before_connections_close_and_ticks_while_it_serves() -> None:
    done: list[str] = []

    class Own(Server):
        def each_second(self) -> None:
            done.append("tick")

        async def drain(self) -> None:
            done.append(f"drain, {len(self.server_state.connections)} open")
            assert not any(server.is_serving() for server in self.servers)

    listening = socket.create_server(("127.0.0.1", 0))
    server = Own(server_config(app, lifespan="off"), listening)
    thread = ServerThread(server, name="test")
    assert thread.start()
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        client.get("/")
        thread.stop()
    assert done[0] == "tick"
    assert done[-1] == "drain, 1 open"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("passes", range(4))
def test_it_answers_a_request_that_arrived_before_it_stops(loop: Any, passes: int) -> None:
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    class Own(Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            client.connect(self._socket.getsockname())
            client.sendall(request)
            for _ in range(passes):
                await asyncio.sleep(0)
            await super().shutdown(sockets)

    with socket.socket() as client, socket.create_server(("127.0.0.1", 0)) as listening:
        server = Own(server_config(app, lifespan="off"), listening)
        server.ready = server.stop
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(server.run_until_stopped())
        client.settimeout(5)
        assert client.recv(1 << 12).startswith(b"HTTP/1.1 200 OK")


def test_a_server_forced_to_stop_does_not_wait_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_closed(self: asyncio.Server) -> None:
        """As since Python 3.12, while a connection is open."""
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.Server, "wait_closed", wait_closed)
    server = made()
    server.config.timeout_graceful_shutdown = 60
    thread = ServerThread(server, name="test")
    assert thread.start()
    with socket.create_connection(server._socket.getsockname()) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        server.force_exit = True
        server.stop()
        assert thread.ended.wait(5)


def test_a_thread_logs_why_its_server_ended(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    thread = ServerThread(made(), fail, name="enc-test")
    assert not thread.start()
    thread._server._socket.close()
    assert caplog.messages == ["enc-test has ended: the disk is full"]


PROGRAM = """
import asyncio, os, socket, sys
from enc.runtime.serving.server import *
from enc.runtime.serving.server_config import server_config
from tests.runtime.serving.test_server import app
number, is_twice = int(sys.argv[1]), sys.argv[2] == "2"
class Own(Server):
    async def drain(self):
        if is_twice:
            os.kill(os.getpid(), number)
            await asyncio.sleep(10)
listening = socket.create_server(("127.0.0.1", 0))
ready = lambda: os.kill(os.getpid(), number)
config = server_config(app, lifespan="off")
server = Own(config, listening, ready=ready, on_signal=lambda: print("first"))
asyncio.run(server.run_until_stopped())
print("in order")
"""


def ended(number: int, times: int) -> tuple[int, str]:
    command = [sys.executable, "-c", PROGRAM, str(int(number)), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


@BOTH
def test_the_first_signal_stops_it_in_order(number: int) -> None:
    assert ended(number, 1) == (0, "first\nin order\n")


@BOTH
def test_the_second_signal_ends_the_process(number: int) -> None:
    assert ended(number, 2)[0] == -number


def test_a_second_signal_does_what_the_program_asks_for() -> None:
    done: list[Any] = []
    server = made(on_signal=lambda: done.append("first"), on_second_signal=done.append)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        server.handle_exit(number, None)
    assert done == ["first", signal.SIGINT, signal.SIGTERM]
    assert server.should_exit
    server._socket.close()


def test_signals_stay_with_the_main_thread() -> None:
    server, before = made(), signal.getsignal(signal.SIGTERM)

    async def capture() -> None:
        with server.capture_signals():
            assert signal.getsignal(signal.SIGTERM) is before

    thread = threading.Thread(target=lambda: asyncio.run(capture()))
    thread.start()
    thread.join()
    server._socket.close()


# Sockets


def test_a_url_for_each_kind_of_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
        assert url_of(one) == f"http://127.0.0.1:{port}"
        assert url_of(one, is_tls=True) == f"https://127.0.0.1:{port}"
    with listen_at("[::1]:0", field="listen") as six:
        assert url_of(six) == f"http://[::1]:{six.getsockname()[1]}"
        assert six.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_in_use_names_the_flag_that_gives_another() -> None:
    with listen("127.0.0.1", 0, flag="--port") as first:
        port = first.getsockname()[1]
        why = "Address already in use; stop the program that uses it, or choose another with"
        with pytest.raises(MisuseError) as caught:
            listen("127.0.0.1", port, flag="--port")
        assert caught.value.message == f"cannot listen on 127.0.0.1 port {port}: {why} --port"
        with pytest.raises(MisuseError) as caught:
            listen_at(f"127.0.0.1:{port}", field="listen")
        assert caught.value.message == f"listen: cannot listen on 127.0.0.1:{port}: {why} --listen"


@pytest.mark.parametrize("place", ["", "7700", "host", "host:", ":1", "host:port", "host:65536"])
def test_a_place_that_is_not_host_and_port(place: str) -> None:
    with pytest.raises(MisuseError) as caught:
        listen_at(place, field="--listen")
    assert caught.value.message == f"--listen: expected HOST:PORT, not {place!r}"


def test_an_address_of_another_machine() -> None:
    with pytest.raises(MisuseError, match=r"^listen: cannot listen on 192\.0\.2\.1:0: Cannot assign"):
        listen_at("192.0.2.1:0", field="listen")


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("no certificate")
    with pytest.raises(MisuseError, match=r"^tls: the certificate and key cannot be used: "):
        server_config(app, cert=tmp_path / "cert", field="tls: ")
    with pytest.raises(MisuseError, match=r"^the certificate and key cannot be used: "):
        server_config(app, cert=tmp_path / "missing")
