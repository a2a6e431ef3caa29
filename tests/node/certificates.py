"""A certificate of the test's own authority."""

import os
import ssl
from pathlib import Path

import httpx
import trustme
from msgspec.structs import replace

from enc.node.config import NodeConfig, TlsSettings
from tests.node.served import DEV, PATIENCE_S, Served


class Certificate:
    """The files of a certificate, rewritten by a new authority each time."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "chain.pem", folder / "key.pem"
        self._time = 10**18
        self.write()

    def write(self, *, chain: bool = True, key: bool = True) -> trustme.CA:
        """Write a new pair by a new authority, or only one half of it."""
        authority = trustme.CA()
        made = authority.issue_cert("127.0.0.1", "localhost")
        if chain:
            self.put(0, b"".join(blob.bytes() for blob in made.cert_chain_pems))
        if key:
            self.put(1, made.private_key_pem.bytes())
        self.authority = authority
        return authority

    def put(self, which: int, text: bytes) -> None:
        self._time += 10**9  # a rewrite must be noticed, however soon it follows
        self.files[which].write_bytes(text)
        os.utime(self.files[which], ns=(self._time, self._time))

    @property
    def config(self) -> NodeConfig:
        return replace(DEV, tls=TlsSettings(certificate=str(self.files[0]), key=str(self.files[1])))


def secured(node: Served, authority: trustme.CA) -> httpx.Client:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return httpx.Client(base_url=node.url, verify=context, timeout=PATIENCE_S, trust_env=False)
