"""A process to be killed: writes commits to a store as fast as it can and prints each receipt once it has it."""

import sys
from pathlib import Path

from enc.core.commit import build_commit
from enc.core.types import Receipt
from enc.node.sequencer import Outcome, Sequencer, Ticket
from enc.node.store.sqlite import SqliteStore
from tests.core.world import START, person


def main() -> None:
    store, enclave = SqliteStore(Path(sys.argv[1])), bytes.fromhex(sys.argv[2])
    state = store.load(enclave)
    assert state is not None
    number, now = state.seq + 1, max(store.clock(), START)

    def deliver(outcomes: list[Outcome]) -> None:
        for ticket, outcome in outcomes:
            assert isinstance(outcome, Receipt), outcome
            print(ticket.commit.hash.hex(), outcome.seq, outcome.id.hex(), flush=True)

    sequencer = Sequencer(store, person("node"), lambda: now, deliver=deliver)
    while True:
        now += 7
        batch = [
            build_commit(person("alice"), enclave, "message", f"number {number + i}", now + 60_000 + i)
            for i in range(1 + number % 5)
        ]
        number += len(batch)
        sequencer.run_once([Ticket(commit) for commit in batch])


main()
