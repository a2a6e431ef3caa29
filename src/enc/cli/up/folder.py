"""The folder of `enc up`: the files of a registry, a node and a DataView.

config.toml   a client's profile, for ENC_CONFIG
me.key        the developer's identity: creates the registry, and reads for the DataView
node/         the node's data and key
enclaves      the node's enclaves, for the DataView
lake/, serving.db, serve.toml   the DataView's files
logs/         logs of the processes
up.lock       locked while an `enc up` uses the folder
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enc.cli.common import passphrase, profiles
from enc.core.errors import MisuseError
from enc.runtime import private_file
from enc.runtime.locks import FileLock, LockHeld

if TYPE_CHECKING:
    from enc.client import Identity

MAX_ENCLAVES = 10_000
"""Maximum for one source of a DataView."""


class UpFolder:
    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.config, self.key, self.node = self.home / "config.toml", self.home / "me.key", self.home / "node"
        self.lake, self.database = self.home / "lake", self.home / "serving.db"
        self.serve, self.enclaves = self.home / "serve.toml", self.home / "enclaves"
        self._written = list[bytes]()

    def log(self, part: str) -> Path:
        return self.home / "logs" / f"{part}.log"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against another `enc up`. The kernel releases the lock whenever this process ends."""
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
                f"{self.home}: in use by another `enc up`, process {who}: stop it, or give another --home"
            ) from None
        except OSError as e:
            raise MisuseError(f"{self.home}: not writable: {e.strerror}: give another --home") from None

    # The client's profile

    def identity(self) -> "Identity":
        """Return the developer's identity; the first call creates it, sealed if a passphrase is given.

        The passphrase goes into this process's environment, for the processes that it starts.
        """
        from enc.client import Identity, PassphraseNeeded

        if not self.key.exists():
            chosen = passphrase.optional()
            Identity.new().save(self.key, chosen)
            passphrase.share(chosen)
        try:
            return Identity.load(self.key, passphrase.given())
        except PassphraseNeeded:
            passphrase.share(passphrase.for_key_file(self.key))
            return Identity.load(self.key, passphrase.given())

    def registry(self) -> str | None:
        """Return the id of the registry that an earlier start created, or None."""
        text = profiles.read(self.config).get(profiles.DEFAULT, {}).get("registry", "")
        return text.partition("#")[2].partition(":")[0] or None

    def write_profile(self, node: str, registry: str) -> None:
        """Write the node, the identity and the registry to the client's profile; other settings stay."""
        for name, value in (("node", node), ("identity", self.key.name), ("registry", registry)):
            profiles.store(self.config, profiles.DEFAULT, name, value)

    # Files for the DataView

    def write_enclaves(self) -> None:
        """Write the list of the node's enclaves, if it has changed."""
        from enc.node.store.sqlite.enclave_list import read_enclaves

        found = read_enclaves(self.node / "enc.db", MAX_ENCLAVES)
        if found != self._written:
            private_file.write(self.enclaves, "".join(f"{each.hex()}\n" for each in found).encode(), overwrite=True)
            self._written = found

    def write_serving(self, listen: str, node: str, registry: str, views: Iterable[str]) -> None:
        """Write the settings of the serving API. All views are public: only this machine can reach it.

        No other web page may read them: a browser on this machine sends requests for every page it visits.
        """
        settings: dict[str, Any] = {"database": self.database.name, "listen": listen, "origins": []}
        settings |= {"node": node, "registry": registry, "identity": self.key.name}
        lines = ["# Written by `enc up` at each start.", *(f"{name} = {json.dumps(v)}" for name, v in settings.items())]
        for view in views:
            lines += ["", f"[views.{json.dumps(view)}]", "public = true", "verify = true"]
        private_file.write(self.serve, "\n".join([*lines, ""]).encode(), overwrite=True)
