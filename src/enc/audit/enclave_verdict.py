"""The verdict on one enclave: findings, and how much was checked."""

from msgspec import Struct, field

from enc.audit.finding import Finding
from enc.core.machine.fault import FaultKind
from enc.core.primitives.types import Withheld


class EnclaveVerdict(Struct, kw_only=True):
    """The verdict on one enclave."""

    enclave: bytes
    findings: list[Finding] = field(default_factory=list)
    counts: dict[FaultKind, int] = field(default_factory=dict)
    """Findings by kind, including unlisted ones."""
    problems: list[str] = field(default_factory=list)
    """What could not be checked."""
    events: int = 0
    """Events of the longest log."""
    checked: int = 0
    """Events of all archives whose signatures were checked."""
    bundles: int = 0
    archives: int = 0
    heads: int = 0
    on_log: int = 0
    beyond: int = 0
    """Heads larger than the archives, or after a fault that makes their roots unknown."""
    unsigned: int = 0
    """Heads that none of the log's sequencers signed."""
    sequencers: list[bytes] = field(default_factory=list)
    days: dict[int, int] = field(default_factory=dict)
    withheld: list[tuple[int, Withheld]] = field(default_factory=list)
    """Contents that nodes of the log withhold, by seq, with their statements: remarks, no findings."""

    def add_read(self, read: "EnclaveVerdict") -> None:
        """Add what was read of an enclave. Its heads, including the one it was read under, are
        known.
        """
        self.events, self.bundles = max(self.events, read.events), max(self.bundles, read.bundles)
        self.checked += read.checked
        self.withheld = sorted({**dict(read.withheld), **dict(self.withheld)}.items())
        shown = min(read.on_log, self.beyond)
        self.on_log, self.beyond = self.on_log + shown, self.beyond - shown
