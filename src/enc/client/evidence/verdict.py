"""The verdict on evidence, for a reader who trusts only what can be recomputed."""

from msgspec import Struct

KEY_OWNER = "that this key belongs to the node you used: compare the key"


class Verdict(Struct, frozen=True):
    convicts: bool
    """Whether the holder of the sequencer's key, and no one else, has broken the rules."""
    proved: tuple[str, ...]
    not_proved: tuple[str, ...]
    holds: bool = False
    """Whether an auditor's finding is visible to everyone, though no signature shows who caused it."""
