"""A source that trickles."""

import socket
import threading

from enc.node import migration

from .moving import order
from .served import Clock, Served
from .test_import import moved


def test_a_source_that_trickles_does_not_keep_the_node_from_stopping() -> None:
    """One byte after the other, each within the timeout, and never the last."""
    made, began, over = moved(), threading.Event(), threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def trickle() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 30000000\r\n\r\n")
            began.set()
            try:
                while not over.wait(0.01):
                    connection.sendall(b" ")
            except OSError:
                return

    threading.Thread(target=trickle, daemon=True).start()
    node = Served(clock=Clock())
    order(node, made.events[-1], f"http://127.0.0.1:{server.getsockname()[1]}")
    assert began.wait(30)
    node.begin_stop()
    stopping = threading.Thread(target=node.stop)
    stopping.start()
    stopping.join(20)
    is_stuck = stopping.is_alive()
    over.set()
    stopping.join()
    server.close()
    assert not is_stuck
    assert node.store.load(made.state.enclave) is None


def test_slices_are_bounded_by_tags_too() -> None:
    class Big:
        content = ""
        tags = (("r", "x" * 4096),) * 512

    sizes = [len(s) for s in migration._slices([Big()] * 64)]  # type: ignore[list-item]
    assert max(sizes) <= 4
