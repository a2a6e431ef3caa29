"""Compare the push queues of a store with its logs: every recipient has each event once, in order, and no other events.

The recipients of every event are judged again from the log alone, which the check assumes to be valid.
"""

from collections import Counter, defaultdict
from typing import Literal

from enc.core.machine.enclave import apply, apply_manifest, judge, judge_manifest
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.state import view
from enc.core.rules.content import revised_id
from enc.core.rules.policy_types import recipients
from enc.node.store.push_interface import Endpoints, register
from enc.node.store.store_interface import Store

Queue = tuple[bytes, str]
SeqsByQueue = dict[Queue, dict[bytes, list[int]]]
"""Seqs by queue and enclave."""


class Expected:
    """The queues and counts that follow from the logs."""

    def __init__(self, store: Store) -> None:
        self.pushed: SeqsByQueue = defaultdict(lambda: defaultdict(list))
        self.notified: SeqsByQueue = defaultdict(lambda: defaultdict(list))
        self.counts: dict[tuple[bytes, int], int] = {}
        """type_seq of each event."""
        self.types: dict[tuple[bytes, int], str] = {}
        for enclave in store.enclaves():
            if not store.is_purged(enclave):
                self._replay(store, enclave)

    def _replay(self, store: Store, enclave: bytes) -> None:
        memory, state, endpoints, counts = EnclaveMemory(), None, Endpoints(), Counter[str]()
        for event in store.events(enclave, 0, 1 << 30):
            if state is None:
                policy, effects = judge_manifest(event)
                transition = apply_manifest(event, policy, effects)
            else:
                effects = judge(state, event, memory, sequencer=event.sequencer, takeover=True)
                transition = apply(state, event, effects, memory)
            memory.put(event, transition)
            state = transition.state
            counts[event.type] += 1
            self.counts[enclave, event.seq], self.types[enclave, event.seq] = counts[event.type], event.type
            target = memory.target(revised_id(event)) if event.type in ("Update", "Delete") else None
            draft = view(state, memory)
            bitmasks = {identity: draft.bitmask(identity) for identity, _ in endpoints}
            subject = state.policy.subject(event, target)
            rights: dict[bytes, Literal["P", "N"]] = recipients(
                state.policy, subject, event.from_, bitmasks, draft.closed_gates, state.sequencer
            )
            for queue in {(identity, url) for (identity, _), url in endpoints.items() if identity in rights}:
                of_recipient = self.pushed if rights[queue[0]] == "P" else self.notified
                of_recipient[queue][enclave].append(event.seq)
            register(endpoints, effects)
        assert store.endpoints(enclave) == endpoints


def check_queues(store: Store) -> int:
    """Make batches of all waiting events, and check every queue. Return how many events were pushed.

    No batch may be retired yet.
    """
    while store.fan_out(store.clock()):
        pass
    expected, total = Expected(store), 0
    seen: set[Queue] = set()
    for report in store.queue_reports():
        queue = (report.identity, report.url)
        seen.add(queue)
        batches = store.list_batches(*queue, 0, 1 << 62, 1 << 30)
        assert [batch.push_seq for batch in batches] == list(range(1, report.push_seq + 1))
        pushed = defaultdict[bytes, list[int]](list)
        for batch in batches:
            for run in batch.runs:
                pushed[run.enclave] += range(run.first_seq, run.first_seq + run.count)
            for notice in batch.notices:
                if not store.is_purged(notice.enclave):
                    check_notice(expected, queue, notice.enclave, notice.seq, notice.type_seq)
        kept = {enclave: seqs for enclave, seqs in pushed.items() if not store.is_purged(enclave)}
        assert kept == expected.pushed.get(queue, {})
        total += sum(map(len, kept.values()))
        notified = {notice.enclave: notice.seq for batch in batches for notice in batch.notices}
        for enclave, seqs in expected.notified.get(queue, {}).items():
            assert notified[enclave] == seqs[-1]
    assert seen >= expected.pushed.keys() | expected.notified.keys()
    return total


def check_notice(expected: Expected, queue: Queue, enclave: bytes, seq: int, type_seq: dict[str, int]) -> None:
    of_recipient = [each for each in expected.notified[queue][enclave] if each <= seq]
    assert of_recipient[-1] == seq
    latest = {expected.types[enclave, each]: expected.counts[enclave, each] for each in of_recipient}
    assert type_seq.items() <= latest.items()
    assert expected.types[enclave, seq] in type_seq
