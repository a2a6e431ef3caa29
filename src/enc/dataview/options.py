"""What `format("enc")` is told: which enclaves, through whom, as whom, from where on.

node                 URL of the node; or
registry             URL of the node that the registry is on, with `registryEnclave` (hex) and, where it is known,
                     `registryKey` (hex): it says where each enclave is
seqPub               the node's key, where it is known (hex)
enclave, enclaves    one id in hex, several with commas between, or `*`: all that the registry knows of, and itself; or
identity             all enclaves of an identity (hex) that the registry knows of
enclavesFile         a file with an id on each line, beside those or alone; it is read again whenever nodes are asked
keyFile              who asks; without one, whoever the enclaves are public for. A sealed one is opened with what
                     the variable ENC_PASSPHRASE holds, on every machine that reads
pins                 directory of what is known of each enclave; without one, each process finds out anew
startingSeq          `earliest` (default), `latest`, or a seq: where a stream begins, and a batch
maxEventsPerTrigger  most events of one micro-batch of a stream (default: 100,000), shared out among the enclaves
eventsPerPartition   most seqs that one task reads (default: 20,000)
type, author         only events of these types, or by these authors, with commas between
notices              directory of a notice board (see `notify`): nodes are only asked when it says so
pollSeconds          how often they are asked all the same, with a notice board (default: 60)
timeout, patience    seconds for one request, and for which it is tried again (default: 10 and 30)
verify               `no` (default): raw rows; `full`: rows of VERIFIED, as `verify.verified` makes them, in one
                     pass; `form`: the same without checks
stage                for the pipeline: the root of a lake into which rows are written as they are read (see `staging`)
onUnreachable        `fail` (default), or `mark`: what cannot be read becomes a row that goes to quarantine
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from enc.client import Client, Identity, Registry
from enc.core.encoding import MAX_INT, unhex
from enc.core.errors import MisuseError, PeerError
from enc.core.filter import MAX_AUTHORS, MAX_TYPES
from enc.dataview.verify import Verify, parse_verify
from enc.dataview.yielding import Yielding

MAX_EVENTS = 100_000
PER_PARTITION = 20_000
MAX_ENCLAVES = 10_000
ALL = "*"
PASSPHRASE = "ENC_PASSPHRASE"  # noqa: S105 (a variable's name)

T = TypeVar("T")


class Options(Struct, frozen=True, kw_only=True):
    """As in the module's words. Frozen and plain, so that executors get the same."""

    node: str | None = None
    registry: str | None = None
    registry_enclave: bytes | None = None
    registry_key: bytes | None = None
    seq_pub: bytes | None = None
    enclaves: tuple[str, ...] = ()
    """Ids, or ALL alone."""
    identity: bytes | None = None
    enclaves_file: str | None = None
    key_file: str | None = None
    pins: str | None = None
    starting_seq: int | Literal["latest"] = 0
    max_events: int = MAX_EVENTS
    per_partition: int = PER_PARTITION
    types: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    notices: str | None = None
    poll_s: float = 60.0
    timeout: float = 10.0
    patience: float = 30.0
    verify: Verify = "no"
    stage: str | None = None
    on_unreachable: Literal["fail", "mark"] = "fail"

    @property
    def yielding(self) -> Yielding:
        return Yielding(self.verify, self.stage)

    @property
    def origin(self) -> str:
        """What rows say of where they come from."""
        return f"node:{self.node}" if self.node else f"registry:{self.registry}"

    def client(self) -> Client:
        """A client for these, of this process alone."""
        return Client(
            self.node,
            self._identity(),
            seq_pub=self.seq_pub,
            pins=None if self.pins is None else Path(self.pins),
            timeout=self.timeout,
            patience=self.patience,
            registry=self._registry(),
        )

    def _identity(self) -> Identity | None:
        if self.key_file is None:
            return None
        return Identity.load(self.key_file, os.environ.get(PASSPHRASE) or None)

    def _registry(self) -> Registry | None:
        if self.registry is None or self.registry_enclave is None:
            return None
        return Registry(url=self.registry, enclave=self.registry_enclave, seq_pub=self.registry_key)


def _hex(text: str, name: str) -> bytes:
    try:
        return unhex(text.strip(), 32, name)
    except PeerError as e:
        raise MisuseError(e.message) from None


def _words(text: str, name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _enclaves(text: str, name: str) -> tuple[str, ...]:
    if text.strip() == ALL:
        return (ALL,)
    found = tuple(dict.fromkeys(_hex(word, name).hex() for word in _words(text, name)))
    if not 1 <= len(found) <= MAX_ENCLAVES:
        raise MisuseError(f"{name}: expected 1 to {MAX_ENCLAVES} ids of enclaves")
    return found


def _starting(text: str, name: str) -> int | Literal["latest"]:
    if text in ("earliest", "latest"):
        return "latest" if text == "latest" else 0
    return _number(text, name, 0)


def _number(text: str, name: str, least: int = 1) -> int:
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= MAX_INT:
        raise MisuseError(f"{name}: expected a number from {least} on, and not {text!r}")
    return int(text)


def _seconds(text: str, name: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86_400:
        raise MisuseError(f"{name}: expected seconds, and not {text!r}")
    return found


def _few_types(text: str, name: str) -> tuple[str, ...]:
    return _at_most(_words(text, name), MAX_TYPES, name)


def _few_authors(text: str, name: str) -> tuple[str, ...]:
    found = tuple(_hex(word, name).hex() for word in _words(text, name))
    return _at_most(found, MAX_AUTHORS, name)


def _at_most(words: tuple[str, ...], most: int, name: str) -> tuple[str, ...]:
    if not 1 <= len(words) <= most:
        raise MisuseError(f"{name}: expected 1 to {most} of them; leave it out to take all, and filter afterwards")
    return words


def _unreachable(text: str, name: str) -> str:
    if text not in ("fail", "mark"):
        raise MisuseError(f"{name}: expected fail or mark, and not {text!r}")
    return text


_READERS: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    "node": ("node", lambda text, _: text),
    "registry": ("registry", lambda text, _: text),
    "registryEnclave": ("registry_enclave", _hex),
    "registryKey": ("registry_key", _hex),
    "seqPub": ("seq_pub", _hex),
    "enclave": ("enclaves", _enclaves),
    "enclaves": ("enclaves", _enclaves),
    "identity": ("identity", _hex),
    "enclavesFile": ("enclaves_file", lambda text, _: text),
    "keyFile": ("key_file", lambda text, _: text),
    "pins": ("pins", lambda text, _: text),
    "startingSeq": ("starting_seq", _starting),
    "maxEventsPerTrigger": ("max_events", _number),
    "eventsPerPartition": ("per_partition", _number),
    "type": ("types", _few_types),
    "author": ("authors", _few_authors),
    "notices": ("notices", lambda text, _: text),
    "pollSeconds": ("poll_s", _seconds),
    "timeout": ("timeout", _seconds),
    "patience": ("patience", _seconds),
    "verify": ("verify", lambda text, _: parse_verify(text)),
    "stage": ("stage", lambda text, _: text),
    "onUnreachable": ("on_unreachable", _unreachable),
}
_NAMES = {name.lower(): name for name in _READERS}


def parse_options(given: Mapping[str, str]) -> Options:
    """Options as Spark hands them over; MisuseError names the one that is wrong, or missing. Case does not count."""
    fields: dict[str, object] = {}
    for key, text in given.items():
        name = _NAMES.get(key.lower())
        if name is None:
            raise MisuseError(f"{key}: no such option; there are {', '.join(_READERS)}")
        field, read = _READERS[name]
        if field in fields:
            raise MisuseError(f"{key}: said twice")
        fields[field] = read(text, name)
    found = Options(**fields)  # type: ignore[arg-type]
    _check(found)
    return found


def _check(options: Options) -> None:
    if options.node is None and options.registry is None:
        raise MisuseError("node: expected a node's URL, or a registry's with the option registry")
    if (options.registry is None) != (options.registry_enclave is None):
        raise MisuseError("registry, registryEnclave: expected both, or none of them")
    ways = bool(options.enclaves) + (options.identity is not None)
    if ways > 1 or not (ways or options.enclaves_file):
        raise MisuseError("enclave, enclaves, identity: expected exactly one of them")
    if options.identity is not None and options.registry is None:
        raise MisuseError("identity: only a registry knows the enclaves of an identity; give the option registry")
    if options.enclaves == (ALL,) and options.registry is None:
        raise MisuseError("enclaves: only a registry knows which there are; name them, or give the option registry")


def key_of(options: Options) -> tuple[tuple[str, object], ...]:
    """What tells one set of options from another."""
    return tuple(sorted(asdict(options).items(), key=lambda pair: pair[0]))
