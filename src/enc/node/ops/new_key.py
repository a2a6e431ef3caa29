"""Prepares moves of a restored node's enclaves to a new key, which has signed nothing yet.

For each enclave an archive of what the store has, and for its owner one command: a forced Migrate
from that archive (docs/protocol.md, 15.3). The restored node signs nothing for it.
"""

from collections.abc import Iterator
from pathlib import Path

from enc.core.errors import EncError, MisuseError, Unavailable
from enc.core.machine.archive import write_archive
from enc.core.machine.archive_check import header_of
from enc.core.machine.replay import Replay
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event
from enc.node.ops import key_file
from enc.node.store.store_interface import Store
from enc.runtime.clock import utc_time
from enc.runtime.files import atomic_file, write_atomic

PAGE = 1000
"""Events that are read at a time."""

GUIDE = """\
# Moves to the node with the key {key}.
# Start that node on this directory, at {url}: enc node run --data {folder}
# Send each owner the archive and the command below it. Owners who have a newer archive of their own
# (enc archive pull) use that one. Events that the archive lacks are lost: the command says so, and
# --accept-loss accepts it.
"""


def prepare_moves(store: Store, seq_pub: bytes, folder: Path, url: str) -> str:
    """Write a new node's key, archives and commands into a new directory; return what to do next."""
    try:
        folder.mkdir(mode=0o700)
        (folder / "archives").mkdir(mode=0o700)
    except OSError as e:
        raise MisuseError(f"--new-key: {folder}: {e.strerror}") from None
    key = key_file.load_or_create(folder / "node.key").public.hex()
    url = url or "URL"
    lines, archived, failed = [GUIDE.format(key=key, url=url, folder=folder)], 0, 0
    for state in _enclaves(store, seq_pub):
        try:
            lines.append(_command(store, state, folder, url))
            archived += 1
        except Unavailable:
            raise
        except EncError as e:  # damage in one enclave must not stop the others
            lines.append(f"# {state.enclave.hex()}: not archived: {e.message}\n")
            failed += 1
    moves = folder / "moves.txt"
    write_atomic(moves, "\n".join(lines).encode())
    more = f", {failed} could not be archived" if failed else ""
    count = "1 enclave" if archived == 1 else f"{archived} enclaves"
    return f"{count} can move to the key {key}{more}: {moves} says how"


def _enclaves(store: Store, seq_pub: bytes) -> Iterator[EnclaveState]:
    """Yield the states of the enclaves that the node sequences and that can move."""
    for enclave in store.enclaves():
        state = store.load(enclave)
        if state is not None and state.sequencer == seq_pub and state.lifecycle != "terminated":
            yield state


def _command(store: Store, state: EnclaveState, folder: Path, url: str) -> str:
    """Write an enclave's archive; return its owner's command."""
    enclave, replay = state.enclave.hex(), Replay(state.enclave)
    for event in _events(store, state):
        replay.add(event)
    header = header_of(replay, store.head(state.enclave) if state.log.size else None)
    (first,), (last,) = store.events(state.enclave, 0, 1), store.events(state.enclave, state.seq, 1)
    try:
        with atomic_file(folder / "archives" / f"{enclave}.enc", private=True) as file:
            for piece in write_archive(header, _events(store, state)):
                file.write(piece)
    except OSError as e:
        raise Unavailable(f"{folder}: cannot be written: {e.strerror or e}") from None
    about = f"# created by {first.from_.hex()}; {header.events} events, the last of {utc_time(last.timestamp)}"
    return f"{about}\nenc migrate {enclave} --force --archive archives/{enclave}.enc --to {url}\n"


def _events(store: Store, state: EnclaveState) -> Iterator[Event]:
    for first in range(0, state.seq + 1, PAGE):
        yield from store.events(state.enclave, first, min(PAGE, state.seq + 1 - first))
