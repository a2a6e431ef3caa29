"""The framing of messages over a Unix socket: a message is its length in four bytes, and its body."""

import socket
from struct import Struct

LENGTH = Struct(">I")


class NotAFrame(ValueError):
    """The other end does not send messages of this form, or sends one that is too long."""


def framed(body: bytes) -> bytes:
    """Return the message with this body."""
    return LENGTH.pack(len(body)) + body


def take(data: bytearray, most: int) -> bytes | None:
    """Remove the first message from the data and return its body; None while it is incomplete.

    Raises NotAFrame if the body is empty or has more than `most` bytes.
    """
    if len(data) < LENGTH.size:
        return None
    end = LENGTH.size + _checked(LENGTH.unpack_from(data)[0], most)
    if len(data) < end:
        return None
    body = bytes(data[LENGTH.size : end])
    del data[:end]
    return body


def exchange(connection: socket.socket, body: bytes, most: int) -> bytes:
    """Send a message over a blocking socket, and return the body of the answer.

    Raises NotAFrame as `take` does, EOFError if the other end closes the connection, and OSError;
    TimeoutError after the socket's timeout.
    """
    connection.sendall(framed(body))
    length = LENGTH.unpack(_receive(connection, LENGTH.size))[0]
    return bytes(_receive(connection, _checked(length, most)))


def _checked(length: int, most: int) -> int:
    if not 1 <= length <= most:
        raise NotAFrame(f"a message of {length} bytes: expected 1 to {most}")
    return length


def _receive(connection: socket.socket, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
