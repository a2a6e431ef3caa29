"""What a replay stored, for tests that look into it."""

from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay


def memory_of(replay: Replay) -> EnclaveMemory:
    """Return the replay's store, which is the default one in memory."""
    assert isinstance(replay.store, EnclaveMemory)
    return replay.store
