"""The folder of `enc up`: everything that a registry, a node and a DataView of one's own keep, and who works in it.

config.toml   a client's profile: ENC_CONFIG names it
me.key        the developer's identity: founds the registry, and reads for the DataView
node/         the node's data and key
enclaves      which enclaves the node has, for the DataView
lake/, serving.db, serve.toml   the DataView's
logs/         what the parts say
up.lock       held while an `enc up` works here
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enc.cli import profiles
from enc.core.errors import MisuseError
from enc.runtime import private_file
from enc.runtime.locks import FileLock, LockHeld

if TYPE_CHECKING:
    from enc.client import Identity

MAX_ENCLAVES = 10_000
"""As many as one source of a DataView takes."""


class House:
    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.config, self.key, self.node = self.home / "config.toml", self.home / "me.key", self.home / "node"
        self.lake, self.database = self.home / "lake", self.home / "serving.db"
        self.serve, self.enclaves = self.home / "serve.toml", self.home / "enclaves"
        self._noted = list[bytes]()

    def log(self, part: str) -> Path:
        return self.home / "logs" / f"{part}.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else works here meanwhile. The kernel lets go of the lock when this process ends, however it does."""
        with self._lock() as lock:
            lock.write_note(f"{os.getpid()}\n".encode())
            yield

    def _lock(self) -> FileLock:
        try:
            private_file.make_directory(self.home / "logs")
            return FileLock(self.home / "up.lock")
        except LockHeld as e:
            who = e.note[:32].decode(errors="replace").strip()
            raise MisuseError(
                f"{self.home}: another `enc up` works there, process {who}: stop it, or give another --home"
            ) from None
        except OSError as e:
            raise MisuseError(f"{self.home}: cannot be written to: {e.strerror}: give another --home") from None

    # Who, and what is known to the client

    def identity(self) -> "Identity":
        """The developer's; made the first time."""
        from enc.client import Identity

        if not self.key.exists():
            Identity.new().save(self.key)
        return Identity.load(self.key)

    def registry(self) -> str | None:
        """The id of the registry that was founded here before."""
        text = profiles.read(self.config).get(profiles.DEFAULT, {}).get("registry", "")
        return text.partition("#")[2].partition(":")[0] or None

    def settle(self, node: str, registry: str) -> None:
        """Tell the client where everything is now. Whatever else its profile says stays."""
        for name, value in (("node", node), ("identity", self.key.name), ("registry", registry)):
            profiles.store(self.config, profiles.DEFAULT, name, value)

    # What the DataView is told

    def note_enclaves(self) -> None:
        """Write down which enclaves the node has, if they are others than before."""
        from enc.node.store.enclave_reader import read_enclaves

        found = read_enclaves(self.node / "enc.db", MAX_ENCLAVES)
        if found != self._noted:
            private_file.write(self.enclaves, "".join(f"{each.hex()}\n" for each in found).encode(), overwrite=True)
            self._noted = found

    def write_serving(self, listen: str, node: str, registry: str, views: Iterable[str]) -> None:
        """Settings of the serving API: it is for one machine, so that whoever reaches it may read everything.

        No web page but its own may: a browser on this machine reaches it for every page that somebody visits.
        """
        settings: dict[str, Any] = {"database": self.database.name, "listen": listen, "origins": []}
        settings |= {"node": node, "registry": registry, "identity": self.key.name}
        lines = ["# Written by `enc up` at each start.", *(f"{name} = {json.dumps(v)}" for name, v in settings.items())]
        for view in views:
            lines += ["", f"[views.{json.dumps(view)}]", "public = true", "verify = true"]
        private_file.write(self.serve, "\n".join([*lines, ""]).encode(), overwrite=True)
