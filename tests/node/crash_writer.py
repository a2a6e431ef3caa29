"""A process to be killed: it writes commits to a store as fast as it can and prints each receipt once it has it.

In between it handles queues as a node does: it makes batches, and records their outcomes.
"""

import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from enc.core.log.commit import build_commit
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome
from enc.node.sequence.sequencer import Sequencer
from enc.node.store.push_interface import BatchLimits
from enc.node.store.push_interface import DeliveryResult as Sent
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import START, give, person, pub


def main() -> None:
    store, enclave = SqliteStore(Path(sys.argv[1])), bytes.fromhex(sys.argv[2])
    state = store.load(enclave)
    assert state is not None
    number, now, enc_v = state.seq + 1, max(store.clock(), START), state.policy.enc_v

    def deliver(outcomes: Sequence[CommitOutcome]) -> None:
        for ticket, outcome in outcomes:
            assert isinstance(outcome, Receipt), outcome
            print(ticket.commit.hash.hex(), outcome.seq, outcome.id.hex(), flush=True)

    sequencer = Sequencer(store, person("node"), lambda: now, deliver=deliver)
    for turn in count():
        now += 7
        batch = [
            build_commit(person("alice"), enclave, "message", f"number {number + i}", now + 60_000 + i, enc_v=enc_v)
            for i in range(1 + number % 5)
        ]
        if turn % 3 == 0:
            batch.append(build_commit(person("alice"), enclave, *access(number, enc_v), now + 60_000, enc_v=enc_v))
        number += len(batch)
        sequencer.run_once([AdmittedCommit(commit) for commit in batch])
        if turn % 2:
            store.fan_out(now, BatchLimits(events=4))
        due = store.due(now, 2)
        store.record_results([Sent(each.queue, each.push_seq, now, "x" * (turn % 2), now + 9) for each in due])


def access(number: int, enc_v: int) -> tuple[str, str]:
    """Give somebody an endpoint, replace it, or revoke it."""
    who, trait = ("vera", "view") if number % 2 else ("nick", "watch")
    url, gives = f"https://{number % 3}.example/", number % 7 != 0
    if enc_v == 1:
        role = {"identity": pub(who), "role": "DataView"}
        return ("Grant_Push", compact_json({**role, "endpoint": url})) if gives else ("Revoke", compact_json(role))
    return (
        ("Grant", compact_json(give(who, trait, endpoint=url))) if gives else ("Revoke", compact_json(give(who, trait)))
    )


main()
