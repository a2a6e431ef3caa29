"""What a command works with: its settings, a client of the node, and its output."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enc.cli.common import known_ids, passphrase, settings
from enc.cli.common.book import followed_nodes
from enc.cli.common.output import Output, fields, format_time
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.client import Client, Enclave, Identity, Registry
    from enc.core.primitives.types import Receipt
    from enc.core.registry.evacuation import Evacuation

TIMEOUT_S = 10.0


class CommandContext(Output):
    """Gives a command its settings, clients and output.

    `flags` are the shared flags as given on the command line. The client package is imported only
    when it is used.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        super().__init__(bool(flags.get("as_json")))
        self._flags = flags
        self._identity: Identity | None = None
        self._clients: list[Client] = []
        self._noted_nodes: set[bytes] = set()
        self.moving_to: str | None = None
        """The node to which the command moves enclaves: what asks for just that is not shown."""

    @cached_property
    def settings(self) -> settings.ProfileSettings:
        witnesses = " ".join(self._flags.get("witness") or ()) or None
        return settings.load({**self._flags, "witnesses": witnesses}, os.environ)

    @property
    def has_registry(self) -> bool:
        return self.settings.values["registry"].value is not None

    def registry(self) -> "Registry | None":
        """Return the registry that is set, if any."""
        text = self.settings.values["registry"].value
        return None if text is None else parse_registry(text)

    def is_given(self, flag: str) -> bool:
        """Return whether the flag is on the command line itself, not in a profile or the environment."""
        return self._flags.get(flag) is not None

    @property
    def timeout(self) -> float:
        return float(self._flags.get("timeout") or TIMEOUT_S)

    def identity(self) -> "Identity":
        """Return the identity in the key file, opened with its passphrase if it has one."""
        if self._identity is None:
            self._identity = passphrase.load_identity(self.settings.get("identity"))
        return self._identity

    def identity_at_hand(self) -> "Identity | None":
        """Return the identity if its key opens without asking anybody for a passphrase."""
        from enc.client import Identity

        if self._identity is None:
            with suppress(MisuseError):
                self._identity = Identity.load(self.settings.get("identity"), passphrase.given())
        return self._identity

    def public_key(self) -> bytes:
        """Return the identity's public key. A sealed key file names it: nobody is asked for a passphrase."""
        from enc.client import Identity, PassphraseNeeded

        try:
            self._identity = self._identity or Identity.load(self.settings.get("identity"), passphrase.given())
        except PassphraseNeeded as e:
            return bytes.fromhex(e.context["public"])
        return self._identity.public

    @contextmanager
    def client(self, *, anonymous: bool = False) -> Iterator["Client"]:
        """Yield a client of the node that acts as the identity, or with `anonymous` as no one."""
        with self.client_as(None if anonymous else self.identity()) as client:
            yield client

    @contextmanager
    def client_as(self, identity: "Identity | None", *, accept_loss: bool = False, **more: Any) -> Iterator["Client"]:
        """Yield a client of the node, or of the registry alone if no node is set."""
        from enc.client import Client, ClientSettings

        registry, timeout = self.registry(), self.timeout
        if "url" not in more:
            more["url"] = self.settings.get("node") if registry is None else self.settings.values["node"].value
        more["registry"] = registry
        # A node on the command line is the one that the user means, not one where its key has answered before.
        uses_recorded = not self.is_given("node")
        settings = ClientSettings(accept_loss=accept_loss, uses_recorded=uses_recorded, **self._witnesses())
        with Client(identity=identity, timeout=timeout, settings=settings, **{"patience": timeout, **more}) as client:
            self._clients.append(client)
            try:
                yield client
            finally:
                for line in self.new_evacuations():
                    self.note(line)

    def new_evacuations(self) -> list[str]:
        """Return a line for each node that asks owners to move their enclaves, each node once."""
        found = {node: each for client in self._clients for node, each in client.evacuations.items()}
        new = [each for node, each in found.items() if node not in self._noted_nodes and each.to != self.moving_to]
        self._noted_nodes |= found.keys()
        return [evacuation_line(each) for each in new]

    def _witnesses(self) -> dict[str, Any]:
        """Return the client's witnesses and how many of them must agree, as fields of ClientSettings."""
        text, needed = self.settings.values["witnesses"].value, self._flags.get("needed")
        if text is None:
            if needed is not None:
                raise MisuseError("--witnesses: no witness is set: give --witness URL=KEY")
            return {}
        from enc.client.witness.witnesses import parse_witnesses

        witnesses, k = parse_witnesses(text)
        return {"witnesses": witnesses, "k": needed or k}

    def enclave_id(self, given: str | None = None) -> str:
        """Return the id of the enclave that an argument names, else of the one that is set."""
        return known_ids.enclave(given or self.settings.get("enclave"))

    @contextmanager
    def enclave(self, *, anonymous: bool = False) -> Iterator["Enclave"]:
        enclave = self.enclave_id()
        nodes = followed_nodes(enclave)
        more: dict[str, Any] = {"nodes": nodes} if nodes else {}
        with self.client_as(None if anonymous else self.identity(), **more) as client:
            yield client.enclave(enclave)

    def note_if_moved(self, enclave: "Enclave") -> None:
        """Print a note if the answers came from a node that the enclave is known to have left."""
        from enc.client.verify.pins import FilePins, default_directory

        pin = FilePins(default_directory()).load(enclave.id)
        move = None if pin is None else pin.history.departure(enclave.sequencer())
        if move is not None:
            self.note(
                f"the enclave has left {enclave.url} for the node with the key {move.new_sequencer.hex()}, which may "
                f"have newer events; to follow it: enc follow {enclave.hex} --at URL"
            )

    def print_receipt(self, enclave: "Enclave", receipt: "Receipt") -> None:
        """Print the receipt of a commit."""
        from enc.core.log.receipt import wire_receipt

        text = fields(seq=receipt.seq, id=receipt.id.hex(), time=format_time(receipt.timestamp))
        self.emit({**wire_receipt(receipt), "enclave": enclave.hex}, text)


def evacuation_line(found: "Evacuation") -> str:
    """Return what a node asks of owners, with the commands that do it."""
    by = f" by {format_time(found.deadline)}" if found.deadline else ""
    to = shlex.quote(found.to)
    return (
        f"the node with the key {found.node.hex()} asks owners to move their enclaves to {found.to}{by}: "
        f"enc migrate ENCLAVE --to {to}, or for all of yours: enc migrate --all --to {to}"
    )


def parse_registry(text: str) -> "Registry":
    """Parse URL#ID or URL#ID:KEY: a registry's node, its enclave, and its sequencer's key."""
    from enc.client.registry.registry_client import parse_registry

    return parse_registry(text)


def content(text: str | None, file: Path | None) -> str:
    """Return the content to write: an argument, stdin for `-`, or a file; unchanged, with its last newline."""
    if (text is None) == (file is None):
        raise MisuseError("give the content as an argument, - to read stdin, or --file FILE")
    if text is not None and text != "-":
        return text
    try:
        return read(file).decode()
    except UnicodeDecodeError as e:
        raise MisuseError(f"{file or 'stdin'}: not UTF-8: {e.reason}") from None


def read(file: Path | None) -> bytes:
    """Return the bytes of a file, or of stdin for None and `-`."""
    if file is None or str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as e:
        raise MisuseError(f"{file}: cannot be read: {e.strerror}") from None
