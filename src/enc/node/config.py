"""Settings of a node: every value with its default, its bounds and its meaning.

A value comes from the defaults, a TOML file, the environment or the command line; later sources
win. Each value is checked on its own, so that an error names the source, the setting and what was
expected.

A Config is plain data: only `load_config` touches the disk, to read the file. No setting is a
secret: keys are given by the names of their files, passphrases by the places that hold them.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, structs

from enc.core.errors import MisuseError
from enc.core.primitives.encoding import MAX_INT
from enc.runtime.log_options import Level, LogFormat
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.sites import SiteRules, ascii_name
from enc.runtime.settings import SettingSource, SettingsReader

if TYPE_CHECKING:
    from enc.core.primitives.types import CommitLimits
    from enc.runtime.keys.passphrase_source import PassphraseSource

PREFIX = "ENC_NODE_"
"""Prefix of all variables: ENC_NODE_PORT is `port`, ENC_NODE_LIMITS_CONTENT is `content` of section
`limits`.
"""

CREDENTIAL = "node-passphrase"
"""Name of the credential with the passphrase of the node's key, unless another is set."""
BASE_BYTES = 300 << 20
"""Memory of a node and its processes beside what the settings bound: programs, and the store's caches."""
ADMIN_OFFSET = 10
"""From the public port to the admin listener's, by default."""

AUTO = -1
"""Value of `limits.disk_keep_free_bytes` for a bound by the size of the disk."""

Creation = Literal["open", "allowlist", "closed"]

_KIB, _MIB, _MANY = 1 << 10, 1 << 20, 1 << 20
_LINE = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]*").fullmatch
_SOME = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+").fullmatch
_HEX64 = re.compile(r"[0-9a-f]{64}").fullmatch
_HEX64_OR_NONE = re.compile(r"([0-9a-f]{64})?").fullmatch
_URL = re.compile(r"(https?://[^/\s?#@]+(/[^\s?#]*)?)?").fullmatch
_REGISTRY = re.compile(r"(https?://[^/\s?#@]+(/[^\s?#]*)?#[0-9a-f]{64}(:[0-9a-f]{64})?)?").fullmatch
_ASCII_NAME = re.compile(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?").fullmatch
_FILE_NAME = re.compile(r"[A-Za-z0-9_@:.-]*").fullmatch
_ORIGIN = re.compile(r"\*|https?://[^/\s?#@]+").fullmatch


def _is_name(text: str) -> bool:
    return _ASCII_NAME(ascii_name(text.lower())) is not None


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _meta(meaning: str, expected: str, unit: str = "", **more: Any) -> Meta:
    check = more.pop("check", None)
    return Meta(description=meaning, extra={"expected": expected, "unit": unit, "check": check}, **more)


def _number(meaning: str, low: int, high: int, unit: str = "") -> Meta:
    return _meta(meaning, f"a whole number from {low} to {high}", unit, ge=low, le=high)


def _size(meaning: str, high: int, low: int = 1) -> Meta:
    return _number(meaning, low, high, "bytes")


def _real(meaning: str, low: float, high: float, unit: str) -> Meta:
    return _meta(meaning, f"a number from {low:g} to {high:g}", unit, ge=low, le=high)


def _switch(meaning: str) -> Meta:
    return _meta(meaning, "true or false")


def _choice(meaning: str, names: Any) -> Meta:
    return _meta(meaning, "one of " + ", ".join(get_args(names)))


def _text(meaning: str, expected: str = "text on one line", check: Callable[[str], object] = _LINE) -> Meta:
    return _meta(meaning, expected, check=check, max_length=4096)


def _list(meaning: str, expected: str, check: Callable[[str], object]) -> Meta:
    return _meta(meaning, f"a list of {expected}", check=check, max_length=65_536)


class LimitSettings(Struct, frozen=True, kw_only=True):
    """[limits]: bounds on what peers can make the node hold. Those of a commit may only be lowered."""

    content: Annotated[int, _size("Largest content of a commit.", _MIB)] = _MIB
    manifest: Annotated[int, _size("Largest content of a Manifest.", 256 * _KIB)] = 256 * _KIB
    body: Annotated[int, _size("Largest request body and WebSocket message.", 2 * _MIB, _KIB)] = 2 * _MIB
    commits_per_request: Annotated[int, _number("Most commits of one request to /commits.", 1, 1024)] = 256
    type: Annotated[int, _size("Longest event type; the protocol's own fit in 16.", 64, 16)] = 64
    tags: Annotated[int, _number("Most tags of a commit.", 2, 64)] = 64
    tag_strings: Annotated[int, _number("Most strings of a tag.", 3, 16)] = 16
    tag_string: Annotated[int, _size("Longest string of a tag; an event's id needs 64.", 4096, 64)] = 4096
    page_bytes: Annotated[int, _size("Largest page of a Query's answer.", 8 * _MIB, 64 * _KIB)] = 8 * _MIB
    connections: Annotated[int, _number("Most open connections of all kinds.", 1, _MANY)] = 4096
    connections_per_address: Annotated[
        int, _number("Most open connections of one address; 0: no limit, as behind a proxy.", 0, _MANY)
    ] = 512
    websockets: Annotated[int, _number("Most open WebSockets.", 0, _MANY)] = 4096
    subscriptions_per_connection: Annotated[int, _number("Most subscriptions of one WebSocket.", 1, _MANY)] = 64
    subscriptions: Annotated[int, _number("Most subscriptions of all WebSockets.", 1, _MANY)] = 16_384
    waiting_commits: Annotated[
        int,
        _number(
            "Commits that may wait to become durable, at most half from one address; above it: UNAVAILABLE with "
            "Retry-After.",
            1,
            _MANY,
        ),
    ] = 8192
    subscriber_buffer_bytes: Annotated[
        int,
        _size(
            "Most bytes that wait for one WebSocket; a peer that reads nothing is disconnected.",
            1024 * _MIB,
            _KIB,
        ),
    ] = _MIB
    unsent_bytes: Annotated[
        int,
        _size(
            "Most bytes that wait for all peers together; above it, peers that read nothing are dropped.",
            1 << 40,
            64 * _MIB,
        ),
    ] = 256 * _MIB
    incoming_bytes: Annotated[
        int,
        _size(
            "Most bytes of incomplete requests and messages of all peers; above it, peers are dropped.",
            1 << 40,
            4 * _MIB,
        ),
    ] = 128 * _MIB
    incoming_bytes_per_address: Annotated[
        int, _size("The same for one address; 0: no limit, as behind a proxy.", 1 << 40, 0)
    ] = 32 * _MIB
    disk_keep_free_bytes: Annotated[
        int,
        _number(
            "Free bytes of the disk below which the node rejects what grows: enclaves, imports, contents. 0: no bound; "
            "-1: one hundredth of the disk, from 256 MiB to 1 GiB, at most a tenth of the disk.",
            AUTO,
            1 << 50,
            "bytes",
        ),
    ] = AUTO
    request_timeout_s: Annotated[
        float, _real("Time to send a whole request, or a whole WebSocket message.", 0.1, 3600, "seconds")
    ] = 30.0
    idle_timeout_s: Annotated[
        int, _number("How long a connection may stay open between two requests.", 1, 3600, "seconds")
    ] = 75
    ws_ping_s: Annotated[
        float, _real("Time between pings on a WebSocket, and to answer one.", 0.1, 3600, "seconds")
    ] = 20.0

    def commit_limits(self) -> "CommitLimits":
        """The limits that the kernel checks commits by."""
        from enc.core.primitives.types import CommitLimits

        return CommitLimits(
            content=self.content,
            type=self.type,
            tags=self.tags,
            tag_strings=self.tag_strings,
            tag_string=self.tag_string,
        )


class AdmissionSettings(Struct, frozen=True, kw_only=True):
    """[admission]: who may create enclaves here, and how much one identity, and one enclave, may
    store. A quota of 0 means none.
    """

    create: Annotated[Creation, _choice("Who may create enclaves: anyone, those in `allow`, or nobody.", Creation)] = (
        "open"
    )
    allow: Annotated[
        tuple[str, ...],
        _list(
            "Identities that may create enclaves under `allowlist`.", "identities of 64 lower-case hex digits", _HEX64
        ),
    ] = ()
    max_enclaves: Annotated[int, _number("Most enclaves that one identity may create; 0: no quota.", 0, MAX_INT)] = 0
    max_events: Annotated[int, _number("Most events of one identity; 0: no quota.", 0, MAX_INT)] = 0
    max_bytes: Annotated[int, _number("Most bytes of content of one identity; 0: no quota.", 0, MAX_INT, "bytes")] = 0
    max_events_per_enclave: Annotated[
        int, _number("Most events of one enclave; 0: no quota. Events that free space are accepted.", 0, MAX_INT)
    ] = 0
    max_bytes_per_enclave: Annotated[
        int,
        _number(
            "Most bytes of one enclave's events and tree nodes; 0: no quota. Erased contents do not count.",
            0,
            MAX_INT,
            "bytes",
        ),
    ] = 0


class RateSettings(Struct, frozen=True, kw_only=True):
    """[rates]: how often one identity, and one address, may send requests."""

    identity_per_s: Annotated[
        float, _real("Sustained request rate of one identity; 0: no limit.", 0, 1e9, "per second")
    ] = 100.0
    identity_burst: Annotated[int, _number("Most requests of one identity in a burst.", 1, 10**9)] = 400
    address_per_s: Annotated[
        float, _real("Sustained request rate of one address; 0: no limit.", 0, 1e9, "per second")
    ] = 500.0
    address_burst: Annotated[int, _number("Most requests of one address in a burst.", 1, 10**9)] = 2000


class TlsSettings(Struct, frozen=True, kw_only=True):
    """[tls]: both files, or neither for plain HTTP."""

    certificate: Annotated[str, _text("File with the certificate chain, PEM; empty: no TLS.")] = ""
    key: Annotated[str, _text("File with the certificate's private key, PEM.")] = ""


class ProxySettings(Struct, frozen=True, kw_only=True):
    """[proxy]: which proxies may report a client's address."""

    trusted: Annotated[
        tuple[str, ...],
        _list(
            "Proxies whose X-Forwarded-For header is trusted.",
            "IP addresses or networks (10.0.0.0/8; no bits set beyond the mask)",
            _is_network,
        ),
    ] = ()


class CorsSettings(Struct, frozen=True, kw_only=True):
    """[cors]: which web pages may call the node."""

    origins: Annotated[
        tuple[str, ...],
        _list("Origins whose pages may call the node; * for all.", "origins (https://app.example), or *", _ORIGIN),
    ] = ("*",)


class SequencingSettings(Struct, frozen=True, kw_only=True):
    """[sequencing]: how commits are ordered."""

    seal_idle: Annotated[
        bool, _switch("Close a bundle when its time has passed; false: only when the next event arrives.")
    ] = True
    max_batch: Annotated[int, _number("Most commits that one transaction takes.", 1, 65_536)] = 1024
    verify_processes: Annotated[
        int, _number("Processes that check signatures; 0: the node itself does. One is enough for a node.", 0, 256)
    ] = 1
    one_core: Annotated[
        bool, _switch("Keep the node's own threads on one core, where they switch the interpreter faster.")
    ] = True


class RetentionSettings(Struct, frozen=True, kw_only=True):
    """[retention]: when data is deleted."""

    purge_after_s: Annotated[int, _number("How long a terminated enclave's data is kept.", 0, 10**10, "seconds")] = (
        2_592_000
    )
    sweep_interval_s: Annotated[
        float, _real("Time between two checks for data to erase and bundles to close.", 0.01, 3600, "seconds")
    ] = 1.0


class EndpointSettings(Struct, frozen=True, kw_only=True):
    """[endpoints]: what the node may call."""

    allow_private: Annotated[bool, _switch("Allow push endpoints with http or private addresses; for development.")] = (
        False
    )


class PushSettings(Struct, frozen=True, kw_only=True):
    """[push]: how events are delivered to endpoints."""

    interval_s: Annotated[
        float, _real("Time between two batches of one queue that are not full.", 0.01, 3600, "seconds")
    ] = 1.0
    batch_events: Annotated[int, _number("Most events of a batch.", 1, 500)] = 500
    batch_bytes: Annotated[
        int, _size("Most bytes of a batch's events as JSON; a larger event is sent alone.", 4 * _MIB, _KIB)
    ] = 4 * _MIB
    timeout_s: Annotated[float, _real("Time that an endpoint has to answer a batch.", 0.1, 300, "seconds")] = 30.0
    tries: Annotated[int, _number("Attempts to deliver a batch before it becomes a dead letter.", 1, 100)] = 10
    first_retry_s: Annotated[
        float, _real("Time to the second attempt; it doubles with each further one.", 0.01, 86_400, "seconds")
    ] = 1.0
    max_retry_s: Annotated[float, _real("Longest time between two attempts.", 0.01, 86_400, "seconds")] = 300.0
    connections: Annotated[int, _number("Most batches in flight at one time.", 4, 4096)] = 256
    unsent_bytes: Annotated[int, _size("Memory for all batches in flight.", 1 << 40, 32 * _MIB)] = 128 * _MIB
    host_per_s: Annotated[
        float,
        _real("Most requests to one host, and to one address; 0: no limit.", 0, 1e6, "per second"),
    ] = 100.0
    host_bytes_per_s: Annotated[
        int, _size("Most bytes per second to one host, and to one address; 0: no limit.", 1 << 40, 0)
    ] = 8 * _MIB
    host_connections: Annotated[
        int, _number("Most concurrent requests to one host, and to one address; 0: no limit.", 0, 4096)
    ] = 64
    require_challenge: Annotated[
        bool, _switch("Send batches only to endpoints that have answered a challenge with their recipient's key.")
    ] = True
    confirmed_days: Annotated[
        float, _real("How long a confirmation is valid; it is renewed from half of this time on.", 0.01, 36_500, "days")
    ] = 30.0
    unconfirmed_days: Annotated[
        float,
        _real("How long batches wait for an unconfirmed endpoint before they become dead letters.", 0, 36_500, "days"),
    ] = 7.0
    ca_file: Annotated[str, _text("File with the certificate authorities for endpoints, PEM; empty: the system's.")] = (
        ""
    )
    delivered_days: Annotated[float, _real("How long a delivered batch can be pulled.", 0, 36_500, "days")] = 7.0
    dead_days: Annotated[float, _real("How long a dead letter can be pulled or sent again.", 0, 36_500, "days")] = 30.0


class KeySettings(Struct, frozen=True, kw_only=True):
    """[key]: who holds the node's private key, and where the passphrase of a sealed key file is."""

    signer: Annotated[
        str, _text("Socket of the process that holds the key (`enc node signer`); empty: the key file holds it.")
    ] = ""
    signer_timeout_s: Annotated[
        float, _real("Time that the signer has for an answer; after it, the node is not ready.", 0.01, 60, "seconds")
    ] = 2.0
    passphrase_fd: Annotated[
        int, _number("File descriptor with the passphrase of a sealed key file; -1: none.", -1, 65_535)
    ] = -1
    passphrase_command: Annotated[
        str, _text("Program and arguments that print the passphrase; they must not contain it.")
    ] = ""
    passphrase_credential: Annotated[
        str,
        _text("Name of systemd's credential with the passphrase. The default one may be missing.", check=_FILE_NAME),
    ] = CREDENTIAL

    def passphrase(self) -> "PassphraseSource":
        """Where the passphrase is, if any is set. The credential of the default name need not exist."""
        from enc.runtime.keys.passphrase_source import PassphraseSource, has_credential

        fd = None if self.passphrase_fd < 0 else self.passphrase_fd
        credential = self.passphrase_credential
        if credential == CREDENTIAL and (fd is not None or self.passphrase_command or not has_credential(credential)):
            credential = ""
        return PassphraseSource(fd=fd, command=self.passphrase_command, credential=credential)


class RegistrySettings(Struct, frozen=True, kw_only=True):
    """[registry]: discovery of nodes, enclaves and identities."""

    enclave: Annotated[
        str,
        _text(
            "Id of the registry on this node that answers lookups; empty: none.",
            "an enclave's id of 64 lower-case hex digits, or nothing",
            _HEX64_OR_NONE,
        ),
    ] = ""

    announce_to: Annotated[
        str,
        _text(
            "Registry in which the node registers itself, as URL#ID:KEY (its node, its id, its sequencer's key).",
            "URL#ID or URL#ID:KEY, or nothing",
            _REGISTRY,
        ),
    ] = ""
    endpoints: Annotated[
        tuple[str, ...],
        _list(
            "URLs that the node registers for itself, preferred first; empty: public_url.", "http or https URLs", _URL
        ),
    ] = ()

    @property
    def id(self) -> bytes | None:
        return bytes.fromhex(self.enclave) if self.enclave else None


class ImportSettings(Struct, frozen=True, kw_only=True):
    """[imports]: enclaves that their owners move here from other nodes."""

    at_once: Annotated[int, _number("Most imports at one time; 0: imports are rejected.", 0, 64)] = 2
    archive_bytes: Annotated[int, _size("Largest archive, as uploaded (compressed).", 1 << 50)] = 8 << 30
    total_bytes: Annotated[int, _size("Largest log, as JSON lines.", 1 << 50)] = 64 << 30
    max_ratio: Annotated[
        int, _number("Most bytes of a log for each byte of its archive; a log may always have 8 MiB.", 1, _MANY)
    ] = 100
    uploads: Annotated[int, _number("Most logs at one time, uploaded or fetched, arriving or whole.", 1, 1024)] = 8
    uploads_per_address: Annotated[int, _number("Most of them from one address.", 1, 1024)] = 4
    uploads_bytes: Annotated[int, _size("Most bytes of all of them, as stored (compressed).", 1 << 50)] = 32 << 30
    upload_bytes_per_s: Annotated[
        int, _size("Lowest average speed at which a log must arrive, per second.", 1 << 40)
    ] = 64 << 10
    upload_grace_s: Annotated[float, _real("Time before it must reach that speed.", 0, 3600, "seconds")] = 30.0
    ahead_from: Annotated[
        tuple[str, ...],
        _list("Keys of nodes whose enclaves are copied ahead of moves.", "keys of 64 lower-case hex digits", _HEX64),
    ] = ()
    ahead_enclaves: Annotated[int, _number("Most warm copies: enclaves that are copied ahead of moves.", 0, _MANY)] = (
        1000
    )
    ahead_bytes: Annotated[int, _size("Most bytes of all warm copies in the database, about.", 1 << 50)] = 16 << 30


class AdminSettings(Struct, frozen=True, kw_only=True):
    """[admin]: the listener for operators, with health and metrics."""

    host: Annotated[
        str, _text("Address of the admin listener; empty: none.", "an address, a host's name, or nothing")
    ] = "127.0.0.1"
    port: Annotated[
        int,
        _number(
            "Port of the admin listener; 0: a free one; -1: `port` + 10, or a free one if `port` is 0 or with `dev`.",
            -1,
            65_535,
        ),
    ] = -1
    public_metrics: Annotated[bool, _switch("Also answer /metrics on the public listener; ends with version 0.2.")] = (
        True
    )


class NodeConfig(Struct, frozen=True, kw_only=True):
    """All settings of one node."""

    data: Annotated[str, _text("Directory of the node's data.", "a path", _SOME)] = "./enc-data"
    host: Annotated[str, _text("Address to listen on.", "an address or a host's name", _SOME)] = "127.0.0.1"
    port: Annotated[int, _number("Port to listen on; 0: a free one.", 0, 65_535)] = 7700
    dev: Annotated[
        bool, _switch("For development: allows private endpoints, removes rate limits and limits per address.")
    ] = False
    hosts: Annotated[
        tuple[str, ...],
        _list(
            "Names under which clients reach the node. If set, or on loopback, other values of Host get 421.",
            "names",
            _is_name,
        ),
    ] = ()
    public_url: Annotated[
        str,
        _text("URL of the node from outside; shown in /info.", "an http or https URL, or nothing", _URL),
    ] = ""
    key_file: Annotated[str, _text("File with the node's private key; empty: node.key in the data directory.")] = ""
    host_id: Annotated[
        str,
        _text(
            "Name of the machine, instead of the id in /etc/machine-id. At a start on another machine than before, "
            "the store counts as a copy."
        ),
    ] = ""
    log_level: Annotated[Level, _choice("Lowest level that is logged.", Level)] = "info"
    log_format: Annotated[LogFormat, _choice("Log format: JSON lines, or lines for people.", LogFormat)] = "json"
    access_log: Annotated[bool, _switch("Log each request: its path, status, time and address.")] = False
    limits: LimitSettings = LimitSettings()
    admission: AdmissionSettings = AdmissionSettings()
    rates: RateSettings = RateSettings()
    tls: TlsSettings = TlsSettings()
    proxy: ProxySettings = ProxySettings()
    cors: CorsSettings = CorsSettings()
    sequencing: SequencingSettings = SequencingSettings()
    retention: RetentionSettings = RetentionSettings()
    endpoints: EndpointSettings = EndpointSettings()
    push: PushSettings = PushSettings()
    imports: ImportSettings = ImportSettings()
    registry: RegistrySettings = RegistrySettings()
    admin: AdminSettings = AdminSettings()
    key: KeySettings = KeySettings()

    @property
    def admin_port(self) -> int:
        """Port of the admin listener; 0: a free one."""
        if self.admin.port >= 0:
            return self.admin.port
        return 0 if self.dev or not self.port else self.port + ADMIN_OFFSET

    @property
    def data_path(self) -> Path:
        return Path(self.data)

    @property
    def store_path(self) -> Path:
        return self.data_path / "enc.db"

    @property
    def key_path(self) -> Path:
        return Path(self.key_file) if self.key_file else self.data_path / "node.key"

    @property
    def private_endpoints(self) -> bool:
        """Whether the node may call http URLs and private addresses."""
        return self.dev or self.endpoints.allow_private

    @property
    def effective_rates(self) -> RateSettings:
        """`rates`, without limits if `dev`."""
        return structs.replace(self.rates, identity_per_s=0.0, address_per_s=0.0) if self.dev else self.rates

    @property
    def host_per_s(self) -> float:
        """`push.host_per_s`; 0 (no limit) if `dev`."""
        return 0.0 if self.dev else self.push.host_per_s

    @property
    def host_bytes_per_s(self) -> int:
        """`push.host_bytes_per_s`; 0 (no limit) if `dev`."""
        return 0 if self.dev else self.push.host_bytes_per_s

    @property
    def host_connections(self) -> int:
        """`push.host_connections`; 0 (no limit) if `dev`."""
        return 0 if self.dev else self.push.host_connections

    @property
    def shares_by_address(self) -> bool:
        """Whether each address has a share of the limits for all clients together: not if `dev`, nor if
        one address may have any number of connections and no proxy is trusted.
        """
        return not self.dev and bool(self.limits.connections_per_address or self.proxy.trusted)

    @property
    def memory_bytes(self) -> int:
        """Memory that peers and endpoints may make the node use, and what it needs itself."""
        return BASE_BYTES + self.limits.unsent_bytes + self.limits.incoming_bytes + self.push.unsent_bytes

    @property
    def max_hold_s(self) -> float | None:
        """Longest time that an endpoint is held after failures, if `dev`: developers start receivers
        late and correct URLs.
        """
        return 3.0 if self.dev else None

    @property
    def serving_limits(self) -> ServingLimits:
        """The limits of the node's server; without those of one address if `dev`."""
        limits = self.limits
        return ServingLimits(
            connections=limits.connections,
            connections_per_address=0 if self.dev else limits.connections_per_address,
            unsent_bytes=limits.unsent_bytes,
            incoming_bytes=limits.incoming_bytes,
            incoming_bytes_per_address=0 if self.dev else limits.incoming_bytes_per_address,
            request_timeout_s=limits.request_timeout_s,
            idle_timeout_s=limits.idle_timeout_s,
            max_body=limits.body,
        )

    @property
    def sites(self) -> SiteRules:
        """The values of Host and Origin that the node answers; `private` if it may call private
        addresses.
        """
        return SiteRules(
            hosts=self.hosts,
            public_url=self.public_url,
            origins=self.cors.origins,
            private=self.private_endpoints,
            origins_setting="add the origin to the setting cors.origins",
        )


class Setting(Struct, frozen=True):
    """One setting, as shown to people."""

    key: str
    """Its name, as `port` or `limits.content`."""
    value: Any
    default: Any
    source: SettingSource
    unit: str
    meaning: str

    @property
    def variable(self) -> str:
        return READER.variable(self.key)


_FLAGS = {
    "registry.enclave": "--registry",
    "key.passphrase_fd": "--passphrase-fd",
    "key.passphrase_command": "--passphrase-command",
}
READER = SettingsReader(NodeConfig, prefix=PREFIX, flags=_FLAGS)
FIELDS: Mapping[str, structs.FieldInfo] = READER.fields
SECTIONS: Mapping[str, type[Struct]] = READER.sections


def _meta_of(key: str) -> Meta:
    meta: Meta = get_args(FIELDS[key].type)[1]
    return meta


def load_config(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]) -> NodeConfig:
    """Return the configuration that these sources give together; raise MisuseError for an invalid
    value.

    `flags` maps names like `port` or `limits.content` to values; None means that the flag was not
    given.
    """
    return load_with_sources(path, environ, flags)[0]


def load_with_sources(
    path: Path | None, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> tuple[NodeConfig, Mapping[str, SettingSource]]:
    """Return load_config's result, and the source of each value that is not a default."""
    config, given = READER.load(path, environ, flags)
    for one, other in (("tls.certificate", "tls.key"), ("tls.key", "tls.certificate")):
        if one in given and given[one].value and not (other in given and given[other].value):
            raise given[one].refused(f"expected {other} beside it")
    if config.admin.host and config.admin_port > 65_535:
        raise MisuseError(f"admin.port: set it: by default it would be port + {ADMIN_OFFSET}, which is over 65535")
    return config, {key: found.source for key, found in given.items()}


def describe(config: NodeConfig, sources: Mapping[str, SettingSource] | None = None) -> list[Setting]:
    """Return every setting in order, with its meaning."""
    found = []
    for key, field in FIELDS.items():
        section, _, name = key.rpartition(".")
        value = getattr(getattr(config, section) if section else config, name)
        meta, source = _meta_of(key), (sources or {}).get(key, "default")
        found.append(Setting(key, value, field.default, source, (meta.extra or {})["unit"], meta.description or ""))
    return found
