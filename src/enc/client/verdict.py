"""What evidence shows, to somebody who trusts nothing but arithmetic."""

from msgspec import Struct

HONEST = "that the key's holder is the node you spoke with: compare the key"


class Verdict(Struct, frozen=True):
    convicts: bool
    """The holder of the sequencer's key, and nobody else, has broken the rules."""
    proved: tuple[str, ...]
    not_proved: tuple[str, ...]
    holds: bool = False
    """What an auditor found is there for everybody to see, though no signature says whose doing it is."""
