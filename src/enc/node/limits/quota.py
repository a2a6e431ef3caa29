"""Limits what one identity may use of a node."""

from msgspec import Struct

from enc.core.errors import Unauthorized
from enc.core.primitives.types import Commit
from enc.node.store.store_interface import Store, Usage


class Quota(Struct):
    """What one identity may use of this node; 0 means no limit. A node changes its own while it runs."""

    enclaves: int = 0
    events: int = 0
    bytes: int = 0

    def __bool__(self) -> bool:
        return any((self.enclaves, self.events, self.bytes))


class Spending:
    """What a batch adds to the stored usage, so that a quota also holds within a batch."""

    def __init__(self, store: Store, quota: Quota) -> None:
        self._store, self._quota = store, quota
        self._used: dict[bytes, Usage] = {}

    def check(self, commit: Commit) -> None:
        if not self._quota:
            return
        if commit.from_ not in self._used:
            self._used[commit.from_] = self._store.usage(commit.from_)
        used = _sum(self._used[commit.from_], commit)
        for name in ("enclaves", "events", "bytes"):
            most = getattr(self._quota, name)
            if most and getattr(used, name) > most and (name != "enclaves" or commit.type == "Manifest"):
                raise Unauthorized(f"this identity has used up its quota of {name} on this node: {most}")

    def charge(self, commit: Commit) -> None:
        if commit.from_ in self._used:
            self._used[commit.from_] = _sum(self._used[commit.from_], commit)


def _sum(used: Usage, commit: Commit) -> Usage:
    is_manifest = commit.type == "Manifest"
    size = len(commit.content.encode()) if commit.content else 0
    return Usage(used.enclaves + is_manifest, used.events + 1, used.bytes + size)
