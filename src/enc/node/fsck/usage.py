"""What each identity has used, counted from the logs and compared with what is stored."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from enc.core.types import Event
from enc.node.store.base import Charge, Store
from enc.node.store.sqlite import SqliteStore
from enc.node.store.sqlite_check import WRONG, identities


class Used(Struct):
    """What an identity has used, as far as the logs still tell: an erased content has lost its size."""

    enclaves: int = 0
    events: int = 0
    bytes: int = 0
    is_erased: bool = False


class Tally(Struct):
    """What is counted over all enclaves."""

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


def check_usage(store: Store, tally: Tally) -> Iterator[str]:
    """Nobody has used less than the logs tell, nor more, unless something is gone that could have told."""
    everybody = {*tally.used, *(identities(store) if isinstance(store, SqliteStore) else ())}
    for identity in sorted(everybody):
        used, stored = tally.used.get(identity, Used()), store.usage(identity)
        # A purge gives back the enclave, not its events; an erased content took its size along.
        tells_all = {
            "enclaves": tally.is_complete,
            "events": tally.is_complete and not tally.purged,
            "bytes": tally.is_complete and not tally.purged and not used.is_erased,
        }
        for name, tells in tells_all.items():
            more = getattr(stored, name) - getattr(used, name)
            if more < 0 or (tells and more):
                yield f"usage of {identity.hex()}: {name}: {WRONG}"
