"""Counts from the logs what each identity has used, and compares it with the store."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from enc.core.primitives.types import Event
from enc.node.store.sqlite.check import WRONG, identities
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Charge, Store


class Used(Struct):
    """What an identity has used, as far as the logs show: an erased content has lost its size."""

    enclaves: int = 0
    events: int = 0
    bytes: int = 0
    is_erased: bool = False


class UsageTally(Struct):
    """Counts over all enclaves."""

    used: dict[bytes, Used] = {}
    purged: int = 0
    is_complete: bool = True
    """Whether every log was replayed to its end."""

    def count(self, event: Event, charges: Sequence[Charge]) -> None:
        payer = next((c.identity for c in charges if c.first_seq <= event.seq <= c.last_seq), event.from_)
        used = self.used.setdefault(payer, Used())
        used.enclaves += event.type == "Manifest"
        used.events += 1
        used.bytes += len((event.content or "").encode())
        used.is_erased |= event.content is None

    def add(self, other: "UsageTally") -> None:
        """Add the counts over other enclaves."""
        self.purged += other.purged
        for identity, more in other.used.items():
            used = self.used.setdefault(identity, Used())
            used.enclaves += more.enclaves
            used.events += more.events
            used.bytes += more.bytes
            used.is_erased |= more.is_erased


def check_usage(store: Store, tally: UsageTally) -> Iterator[str]:
    """Yield identities that have used less than the logs show, or more, unless missing data could
    explain it.
    """
    everybody = {*tally.used, *(identities(store) if isinstance(store, SqliteStore) else ())}
    for identity in sorted(everybody):
        used, stored = tally.used.get(identity, Used()), store.usage(identity)
        # A purge subtracts the enclave, not its events; an erased content took its size along.
        tells_all = {
            "enclaves": tally.is_complete,
            "events": tally.is_complete and not tally.purged,
            "bytes": tally.is_complete and not tally.purged and not used.is_erased,
        }
        for name, tells in tells_all.items():
            more = getattr(stored, name) - getattr(used, name)
            if more < 0 or (tells and more):
                yield f"usage of {identity.hex()}: {name}: {WRONG}"
