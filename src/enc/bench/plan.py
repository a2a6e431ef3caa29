"""The parameters of an enclave, drawn before its first event: small, and sent between processes."""

from random import Random

from msgspec import Struct

from enc.bench.fault_kinds import Kind
from enc.bench.people import NODES

MAX_MOVES = 3
EARLIER_UP_TO = 20_000
"""Largest log that may also have an earlier archive."""
MANY = 100
"""Smallest log that may have migrations and an earlier archive."""


class Plant(Struct, frozen=True):
    """A fault to plant: at this place of the log, or as soon after it as possible."""

    kind: Kind
    place: int


class Plan(Struct, frozen=True, kw_only=True):
    seed: int
    number: int
    """The enclave's number in its fleet."""
    events: int
    population: int
    enc_v: int
    bundle_size: int
    bundle_timeout: int
    gap_ms: int
    """Average time between two events while people write."""
    nodes: tuple[int, ...]
    """The sequencers, in order."""
    moves: tuple[int, ...] = ()
    """Rising places of the Migrates, one for each node after the first."""
    earlier: int | None = None
    """The last place of an archive that was pulled earlier."""
    is_sealed: bool = True
    """Whether the last bundle is closed by its timeout."""
    plant: Plant | None = None

    def random(self, purpose: str) -> Random:
        """Return a separate random source for each purpose, so that draws do not affect each
        other.
        """
        return Random(f"enc-bench:{self.seed}:{self.number}:{purpose}")

    @property
    def quiet_from(self) -> int:
        """The place from which there is no Pause, so that none is near a planted event."""
        return self.plant.place - 3 if self.plant else self.events - 1


def draw_plan(seed: int, number: int, events: int, population: int) -> Plan:
    """Draw the plan of an honest enclave."""
    rng = Random(f"enc-bench:{seed}:{number}:plan")
    is_large, is_long = events > 10_000, events >= MANY
    places = range(MANY // 2, events - 1)
    moves = sorted(rng.sample(places, rng.randint(1, MAX_MOVES))) if is_long and rng.random() < 0.2 else []
    return Plan(
        seed=seed,
        number=number,
        events=events,
        population=population,
        enc_v=1 if rng.random() < 0.08 else 2,
        bundle_size=256 if is_large else rng.choice([8, 16, 64, 256, 256]),
        bundle_timeout=5000 if is_large else rng.choice([1000, 5000, 5000, 60_000]),
        gap_ms=min(1500, max(20, 3_000_000 // events)),
        nodes=tuple(rng.sample(range(NODES), len(moves) + 1)),
        moves=tuple(moves),
        earlier=rng.choice(places) if is_long and events <= EARLIER_UP_TO and rng.random() < 0.25 else None,
        is_sealed=rng.random() < 0.7,
    )
