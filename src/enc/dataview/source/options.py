"""Options of `format("enc")`: which enclaves to read, from which node, as which identity, from
where on.

node                 URL of the node; or
registry             URL of the registry's node, with `registryEnclave` (hex) and, if known,
                     `registryKey` (hex): it tells where each enclave is
seqPub               the node's key, if known (hex)
enclave, enclaves    one id in hex, several separated by commas, or `*`: all that the registry lists,
                     and the registry itself; or
identity             all enclaves of an identity (hex) that the registry lists
enclavesFile         a file with one id per line, in addition or alone; read again whenever nodes are
                     asked
maxEnclaves          most enclaves that the source reads (default: 100,000). More are an error, so that
                     none is left out unnoticed
keyFile              the reader's identity; without one, only public enclaves can be read. A sealed
                     file is opened with the passphrase in the variable ENC_PASSPHRASE, or from the
                     command or credential that it names, on every machine that reads
pins                 directory of what is known about each enclave; without one, each process starts
                     without
startingSeq          `earliest` (default), `latest`, or a seq: where a stream or a batch begins
maxEventsPerTrigger  most events of one micro-batch (default: 100,000), divided among the enclaves
eventsPerPartition   most seqs that one task reads (default: 20,000)
type, author         only events of these types, or by these authors, separated by commas
pushdown             `true`: in a batch, the node evaluates the query's conditions on type, author,
                     timestamp, seq and enclave (default: `false`). Needs the Spark setting
                     `spark.sql.python.filterPushdown.enabled`; load a DataFrame for each query
notices              directory of a notice board (see `notify`): nodes are asked only when it has news
pollSeconds          with a notice board, how often nodes are asked anyway (default: 60)
timeout, patience    seconds for one request, and for all its retries (default: 10 and 30)
verify               `no` (default): raw rows; `full`: rows of VERIFIED, as `verify.verified` makes
                     them, in one pass; `form`: the same without checks
stage                for the pipeline: root of the lake to which rows are written as they are read
                     (see `staging`)
onUnreachable        `fail` (default), or `mark`: events that cannot be read become a row that goes to
                     quarantine
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from msgspec import Struct

from enc.client import Client, Identity, Registry
from enc.core.errors import MisuseError, PeerError
from enc.core.log.filter import MAX_AUTHORS, MAX_TYPES
from enc.core.primitives.encoding import MAX_INT, unhex
from enc.dataview.rows.verify import VerifyMode, parse_verify
from enc.dataview.source.output_mode import OutputMode
from enc.runtime.keys.passphrase_source import from_environment

MAX_EVENTS = 100_000
PER_PARTITION = 20_000
MAX_ENCLAVES = 100_000
ALL = "*"
PASSPHRASE = "ENC_PASSPHRASE"  # noqa: S105 (a variable's name)

T = TypeVar("T")


class SourceOptions(Struct, frozen=True, kw_only=True):
    """Parsed options; see the module. Frozen and plain, so that executors get the same."""

    node: str | None = None
    registry: str | None = None
    registry_enclave: bytes | None = None
    registry_key: bytes | None = None
    seq_pub: bytes | None = None
    enclaves: tuple[str, ...] = ()
    """Ids, or only ALL."""
    identity: bytes | None = None
    enclaves_file: str | None = None
    max_enclaves: int = MAX_ENCLAVES
    key_file: str | None = None
    pins: str | None = None
    starting_seq: int | Literal["latest"] = 0
    max_events: int = MAX_EVENTS
    per_partition: int = PER_PARTITION
    types: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    pushdown: bool = False
    notices: str | None = None
    poll_s: float = 60.0
    timeout: float = 10.0
    patience: float = 30.0
    verify: VerifyMode = "no"
    stage: str | None = None
    on_unreachable: Literal["fail", "mark"] = "fail"

    @property
    def output_mode(self) -> OutputMode:
        return OutputMode(self.verify, self.stage)

    @property
    def origin(self) -> str:
        """The origin that rows carry."""
        return f"node:{self.node}" if self.node else f"registry:{self.registry}"

    def client(self) -> Client:
        """Return a new client for these options, for this process only."""
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
        return Identity.load(self.key_file, from_environment(PASSPHRASE))

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
    if not found:
        raise MisuseError(f"{name}: expected at least one enclave id")
    return found


def _starting(text: str, name: str) -> int | Literal["latest"]:
    if text in ("earliest", "latest"):
        return "latest" if text == "latest" else 0
    return _number(text, name, 0)


def _number(text: str, name: str, least: int = 1) -> int:
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= MAX_INT:
        raise MisuseError(f"{name}: expected a number of at least {least}, not {text!r}")
    return int(text)


def _seconds(text: str, name: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86_400:
        raise MisuseError(f"{name}: expected seconds, not {text!r}")
    return found


def _few_types(text: str, name: str) -> tuple[str, ...]:
    return _at_most(_words(text, name), MAX_TYPES, name)


def _few_authors(text: str, name: str) -> tuple[str, ...]:
    found = tuple(_hex(word, name).hex() for word in _words(text, name))
    return _at_most(found, MAX_AUTHORS, name)


def _at_most(words: tuple[str, ...], most: int, name: str) -> tuple[str, ...]:
    if not 1 <= len(words) <= most:
        raise MisuseError(f"{name}: expected 1 to {most} values; omit it to read all, and filter afterwards")
    return words


def _flag(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise MisuseError(f"{name}: expected true or false, not {text!r}")
    return text.lower() == "true"


def _unreachable(text: str, name: str) -> str:
    if text not in ("fail", "mark"):
        raise MisuseError(f"{name}: expected fail or mark, not {text!r}")
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
    "maxEnclaves": ("max_enclaves", _number),
    "keyFile": ("key_file", lambda text, _: text),
    "pins": ("pins", lambda text, _: text),
    "startingSeq": ("starting_seq", _starting),
    "maxEventsPerTrigger": ("max_events", _number),
    "eventsPerPartition": ("per_partition", _number),
    "type": ("types", _few_types),
    "author": ("authors", _few_authors),
    "pushdown": ("pushdown", _flag),
    "notices": ("notices", lambda text, _: text),
    "pollSeconds": ("poll_s", _seconds),
    "timeout": ("timeout", _seconds),
    "patience": ("patience", _seconds),
    "verify": ("verify", lambda text, _: parse_verify(text)),
    "stage": ("stage", lambda text, _: text),
    "onUnreachable": ("on_unreachable", _unreachable),
}
_NAMES = {name.lower(): name for name in _READERS}


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse options as Spark passes them; names are case-insensitive.

    MisuseError names the option that is wrong or missing.
    """
    fields: dict[str, object] = {}
    for key, text in given.items():
        name = _NAMES.get(key.lower())
        if name is None:
            raise MisuseError(f"{key}: no such option; expected one of {', '.join(_READERS)}")
        field, read = _READERS[name]
        if field in fields:
            raise MisuseError(f"{key}: given twice")
        fields[field] = read(text, name)
    found = SourceOptions(**fields)  # type: ignore[arg-type]
    _check(found)
    return found


def _check(options: SourceOptions) -> None:
    if options.node is None and options.registry is None:
        raise MisuseError("node: expected a node's URL, or a registry's with the option registry")
    if (options.registry is None) != (options.registry_enclave is None):
        raise MisuseError("registry, registryEnclave: expected both or neither")
    check_count(len(options.enclaves), options, "enclaves")
    ways = bool(options.enclaves) + (options.identity is not None)
    if ways > 1 or not (ways or options.enclaves_file):
        raise MisuseError("enclave, enclaves, identity: expected exactly one of them")
    if options.identity is not None and options.registry is None:
        raise MisuseError("identity: only a registry knows the enclaves of an identity; give the option registry")
    if options.enclaves == (ALL,) and options.registry is None:
        raise MisuseError("enclaves: only a registry knows which there are; name them, or give the option registry")


def check_count(count: int, options: SourceOptions, place: str) -> None:
    """Raise MisuseError if a source has more enclaves than it may read. `place`: who names them."""
    if count > options.max_enclaves:
        raise MisuseError(
            f"{place}: more than {options.max_enclaves} enclaves, which is the most that this source reads: "
            "raise its option maxEnclaves, or divide the enclaves among several sources"
        )
