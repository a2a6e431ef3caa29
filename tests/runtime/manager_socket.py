"""A service manager's socket, as systemd binds one."""

import socket


class Heard:
    """A service manager's socket. `address` is for NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)

    def wait_for(self, message: str, seconds: float = 60) -> None:
        """Receive messages until this one comes."""
        self.socket.settimeout(seconds)
        while self.socket.recv(4096).decode() != message:
            pass
        self.socket.setblocking(False)

    def messages(self) -> list[str]:
        found = list[str]()
        while True:
            try:
                found.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return found
