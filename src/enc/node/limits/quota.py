"""Limits what one identity may use of a node, and how large one enclave may become."""

from msgspec import Struct, field

from enc.core.errors import Unauthorized
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Commit
from enc.node.limits.disk_space import DiskSpace
from enc.node.limits.growth import ALLOWED, is_ending, is_growth, size_of
from enc.node.store.store_interface import Store, Usage

HEAD_BYTES = 1024
"""Upper bound of the bytes of an event without its content and tags."""
RESERVE = 8
"""Commits that let people leave are accepted until an enclave exceeds its quota by one part in this
many, plus MIN_RESERVE.
"""
MIN_RESERVE = {"events": 100, "bytes": 1 << 20}


class Quota(Struct):
    """What one identity may use of this node; 0 means no limit. A node changes its own while it runs."""

    enclaves: int = 0
    events: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        return any((self.enclaves, self.events, self.bytes))


class EnclaveQuota(Struct):
    """How large one enclave may become on this node; 0 means no limit. A node changes its own while it runs."""

    events: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        return any((self.events, self.bytes))

    def check(self, events: int, size: int, commit: Commit | None = None) -> None:
        """Raise Unauthorized if an enclave of this size is too large. `commit`: the one that makes it so
        large, which may be one that is accepted nevertheless.
        """
        for name, used in (("events", events), ("bytes", size)):
            most = getattr(self, name)
            if most and used > most and not self._is_accepted(commit, used - most, name):
                raise Unauthorized(
                    f"the enclave is over this node's quota: admission.max_{name}_per_enclave is {most}; "
                    f"the node still accepts {ALLOWED}"
                )

    def _is_accepted(self, commit: Commit | None, over: int, name: str) -> bool:
        if commit is None or is_growth(commit):
            return False
        return is_ending(commit) or over <= getattr(self, name) // RESERVE + MIN_RESERVE[name]


class StorageRules(Struct, frozen=True):
    """What bounds the data that a node stores."""

    quota: Quota = field(default_factory=Quota)
    enclave_quota: EnclaveQuota = field(default_factory=EnclaveQuota)
    disk: DiskSpace = field(default_factory=DiskSpace)


class Spending:
    """What a batch adds to the stored usage, so that quotas also hold within a batch."""

    def __init__(self, store: Store, rules: StorageRules) -> None:
        self._store, self._quota, self._enclave_quota, self._disk = store, rules.quota, rules.enclave_quota, rules.disk
        self._used: dict[bytes, Usage] = {}
        self._sizes: dict[bytes, int] = {}

    def check(self, commit: Commit, state: EnclaveState | None) -> None:
        """Raise if the commit may not be stored. `state`: that of its enclave, None for a new one."""
        if self._disk.is_low and is_growth(commit):
            raise self._disk.error()
        self._check_identity(commit)
        if self._enclave_quota:
            events = 1 if state is None else state.seq + 2
            self._enclave_quota.check(events, self._size(commit.enclave) + _most_bytes(commit), commit)

    def _check_identity(self, commit: Commit) -> None:
        if not self._quota:
            return
        if commit.from_ not in self._used:
            self._used[commit.from_] = self._store.usage(commit.from_)
        used = _sum(self._used[commit.from_], commit)
        for name in ("enclaves", "events", "bytes"):
            most = getattr(self._quota, name)
            if most and getattr(used, name) > most and (name != "enclaves" or commit.type == "Manifest"):
                raise Unauthorized(f"this identity has used up its quota of {name} on this node: {most}")

    def _size(self, enclave: bytes) -> int:
        """Return the enclave's bytes, with those of this batch; 0 if its bytes are not limited."""
        if self._enclave_quota.bytes and enclave not in self._sizes:
            self._sizes[enclave] = self._store.size(enclave)
        return self._sizes.get(enclave, 0)

    def charge(self, commit: Commit) -> None:
        if commit.from_ in self._used:
            self._used[commit.from_] = _sum(self._used[commit.from_], commit)
        if commit.enclave in self._sizes:
            self._sizes[commit.enclave] += _most_bytes(commit)


def _sum(used: Usage, commit: Commit) -> Usage:
    is_manifest = commit.type == "Manifest"
    size = len(commit.content.encode()) if commit.content else 0
    return Usage(used.enclaves + is_manifest, used.events + 1, used.bytes + size)


def _most_bytes(commit: Commit) -> int:
    """Return a bound of the bytes that the commit's event takes in the store."""
    return HEAD_BYTES + size_of(commit)
