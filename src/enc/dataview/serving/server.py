"""The server: runs in the foreground until a signal, or in a thread for the duration of a block."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from enc.core.errors import Unavailable
from enc.dataview.serving.api import ServingApi
from enc.dataview.serving.config import ServingConfig
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.proofs import Prover
from enc.runtime.serving.descriptors import raise_file_limit
from enc.runtime.serving.listening import listen_at
from enc.runtime.serving.server import Server
from enc.runtime.serving.server_config import server_config
from enc.runtime.serving.server_thread import ServerThread
from enc.runtime.serving.sites import SiteRules

if TYPE_CHECKING:
    from enc.client import Client

PROOF_TIMEOUT_S = 5.0
"""Time limit for one request to a node, including retries."""


class ServingServer:
    """The server behind one listening socket. `url` is known at once, even if the port is 0."""

    def __init__(self, config: ServingConfig, *, cert: Path | None = None, key: Path | None = None) -> None:
        rights = config.rights()
        prover = Prover(_connect(config))
        found = rights.session_pub
        self.session_pub = None if found is None else found.hex()
        raise_file_limit(config.connections)
        self._socket = listen_at(config.listen, field="listen")
        try:
            self._database = ServingDatabase(config.database, patience_s=config.query_timeout_s)
        except BaseException:
            self._socket.close()
            raise
        self._api = ServingApi(self._database, rights, prover, config.origins)
        settings = server_config(self._api, limits=config.limits, cert=cert, key=key, lifespan="off")
        sites = SiteRules(hosts=config.hosts, origins=config.origins)
        self._server = Server(settings, self._socket, sites=sites, on_second_signal=self._force)
        self.url = self._server.url

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until a signal or `stop`; `ready` is called once the server answers."""
        self._server.ready = ready
        try:
            asyncio.run(self._server.run_until_stopped())
        finally:
            self._socket.close()
            self._api.close()
            self._database.close()

    def stop(self) -> None:
        self._server.stop()

    def _force(self, number: int) -> None:
        """At a second Ctrl-C, stop without waiting for connections."""
        self._server.force_exit = number == signal.SIGINT or self._server.force_exit

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Serve in a thread of its own while the block runs; yields the URL."""
        thread = ServerThread(self._server, self.run, name="enc-serving")
        try:
            if not thread.start():
                raise Unavailable("the server did not start")
            yield self.url
        finally:
            thread.stop()


def _connect(config: ServingConfig) -> "Callable[[], Client] | None":
    """Return how to connect for proofs; None if no node is configured. Invalid settings raise at
    once.
    """
    if not config.node and not config.registry:
        return None
    from enc.client import Client, Identity, Registry
    from enc.client.enclave.writes import as_bytes
    from enc.client.wire.transport import base_url

    url = base_url(config.node) if config.node else None
    identity = Identity.load(config.identity) if config.identity else None
    registry = None
    if config.registry:
        where, _, rest = config.registry.partition("#")
        id_, _, seq_pub = rest.partition(":")
        pinned = as_bytes(seq_pub, "registry: key") if seq_pub else None
        registry = Registry(url=base_url(where), enclave=as_bytes(id_, "registry: id"), seq_pub=pinned)
    timeout = PROOF_TIMEOUT_S
    return lambda: Client(url, identity, pins=None, timeout=timeout, patience=timeout, registry=registry)
