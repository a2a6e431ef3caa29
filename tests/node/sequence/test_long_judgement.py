"""A commit that changes many leaves: its tree is stored early, and it is judged again if its enclave changed."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import EncError, Unavailable
from enc.core.machine import enclave as machine
from enc.core.machine.early_tree import MAX_PENDING
from enc.core.primitives.types import Commit, Receipt
from enc.node.limits.quota import Quota, Spending, StorageRules
from enc.node.sequence.admitted import AdmittedCommit, Judgement
from enc.node.sequence.long_judgement import MARGIN_MS, MAX_TRIES, MIN_EARLY, NODES_PER_WRITE, LongJudgement
from enc.node.sequence.sequencer import Sequencer, SequencerSettings
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import pub
from tests.node.fsck.stores import check
from tests.node.store_host import NODE, Host
from tests.steps import run_steps

MOVES = [
    {"event": "Move", "operator": "owner", "ops": ["C"], "from": before, "to": after}
    for before, after in (("OUTSIDER", "MEMBER"), ("MEMBER", "OUTSIDER"))
]


class Watched(SqliteStore):
    """A store that counts the nodes which are written early, and those of whole steps."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.early, self.late, self.is_full = list[int](), 0, False

    def write_nodes(self, enclave: bytes, nodes: Any) -> None:
        if self.is_full:
            raise Unavailable("no disk", retry_after_ms=1000)
        super().write_nodes(enclave, nodes)
        self.early.append(len(nodes))

    def write(self, steps: Any, clock: int) -> None:
        super().write(steps, clock)
        self.late += sum(len(step.transition.tree_nodes) for step in steps)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Watched]:
    with closing(Watched(tmp_path / "enc.db")) as store:
        yield store


def judge(host: Host, quota: Quota = Quota()) -> LongJudgement:  # noqa: B008
    sequencer = host.sequencer
    accepts, spending = sequencer._check_accepts, partial(Spending, host.store, StorageRules(quota=quota))
    return LongJudgement(host.store, NODE.public, sequencer._states, sequencer._cache, accepts, spending)


def bundle(host: Host, enclave: bytes, size: int, first: int = 0, name: str = "alice") -> Commit:
    targets = [pub(f"guest {i}") for i in range(first, first + size)]
    operations = [{"type": "Move", "target": each, "from": "OUTSIDER", "to": "MEMBER"} for each in targets]
    commit: Commit = host.commit(enclave, name, "AC_Bundle", {"operations": operations})
    return commit


def send(host: Host, commit: Commit, judgement: Judgement) -> Receipt:
    host.outcomes.clear()
    host.sequencer.run_once([AdmittedCommit(commit, judgement=judgement)])
    ((_, result),) = host.outcomes
    assert isinstance(result, Receipt), result
    return result


def checked(store: Watched) -> list[Any]:
    return list(check(store).differences)


@pytest.mark.parametrize(("size", "count"), [(1, 2 * MIN_EARLY), (99, MAX_PENDING + 1)])
def test_the_nodes_are_stored_in_small_writes_before_the_event(store: Watched, size: int, count: int) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": size, "timeout": 60_000})
    store.late = 0
    commit = bundle(host, enclave, count)
    judgement = run_steps(judge(host).judge(AdmittedCommit(commit)))
    assert sum(store.early) >= count
    assert max(store.early) <= NODES_PER_WRITE
    assert store.late == 0
    send(host, commit, judgement)
    assert store.late == 0
    assert checked(store) == []


def test_few_changes_are_written_with_the_event(store: Watched) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    commit = bundle(host, enclave, MIN_EARLY - 1)
    send(host, commit, run_steps(judge(host).judge(AdmittedCommit(commit))))
    assert store.early == []
    assert checked(store) == []


def test_nodes_of_a_commit_that_never_became_an_event_are_no_damage(store: Watched) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    run_steps(judge(host).judge(AdmittedCommit(bundle(host, enclave, 2 * MIN_EARLY))))
    assert store.early
    host.send(enclave, "alice", "message", "another")
    assert checked(store) == []


@pytest.mark.parametrize("why", ["quota", "repeated", "late", "soon late", "held", "damaged", "copied"])
def test_nothing_is_stored_for_a_commit_that_would_be_rejected(store: Watched, why: str) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    commit = bundle(host, enclave, 2 * MIN_EARLY)
    if why == "repeated":
        host.run(commit)
        back = {"target": pub("guest 0"), "from": "MEMBER", "to": "OUTSIDER"}
        operations = [{**back, "type": "Move", "target": pub(f"guest {i}")} for i in range(2 * MIN_EARLY)]
        host.run(host.commit(enclave, "alice", "AC_Bundle", {"operations": operations}))
    if why == "late":
        host.now = commit.exp + 60_001
    if why == "soon late":
        host.now = commit.exp + 60_001 - MARGIN_MS
    if why == "held":
        host.sequencer.checkpoint(enclave, 10_000)
    if why == "damaged":
        host.sequencer._damaged.add(enclave, host.now, "x")
    if why == "copied":
        settings = SequencerSettings(is_read_only=True)
        host.sequencer = Sequencer(store, NODE, lambda: host.now, deliver=host.outcomes.extend, settings=settings)
    quota = Quota(events=1) if why == "quota" else Quota()
    assert isinstance(run_steps(judge(host, quota).judge(AdmittedCommit(commit))).result, EncError)
    assert store.early == []


def test_nothing_more_is_stored_once_the_commit_would_be_rejected(store: Watched) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    steps = judge(host).judge(AdmittedCommit(bundle(host, enclave, 4 * MIN_EARLY)))
    while not store.early:
        next(steps)
    host.sequencer.checkpoint(enclave, 10_000)
    assert isinstance(run_steps(steps).result, Unavailable)
    assert len(store.early) == 1


def test_it_is_judged_again_if_its_enclave_changed(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    commit = bundle(host, enclave, 2 * MIN_EARLY)

    def meanwhile() -> None:
        host.run(bundle(host, enclave, 3, first=1000))

    judgement = run_steps(judge(host).judge(AdmittedCommit(commit)), meanwhile)
    monkeypatch.setattr(machine, "judge", None)
    send(host, commit, judgement)
    assert checked(store) == []


def test_the_nodes_are_stored_once(store: Watched) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    steps = judge(host).judge(AdmittedCommit(bundle(host, enclave, 2 * MIN_EARLY)))
    while not store.early:
        next(steps)
    for first in (1000, 2000):
        host.run(bundle(host, enclave, 3, first=first))
        next(steps)
    run_steps(steps)
    assert sum(store.early) < 3 * 2 * MIN_EARLY


def test_an_enclave_that_always_changes_is_left_to_the_sequencer(store: Watched) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    commit = bundle(host, enclave, 2 * MIN_EARLY)
    tries = list[int]()
    states = host.sequencer._states
    get = states.get

    def changing(enclave: bytes) -> Any:
        tries.append(0)
        states.forget(enclave)
        return get(enclave)

    states.get = changing  # type: ignore[method-assign]
    run_steps(judge(host).judge(AdmittedCommit(commit)))
    assert len(tries) == 2 * MAX_TRIES


def test_a_full_disk_is_the_answer(store: Watched) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    store.is_full = True
    judgement = run_steps(judge(host).judge(AdmittedCommit(bundle(host, enclave, 2 * MIN_EARLY))))
    assert isinstance(judgement.result, Unavailable)


def test_the_sequencer_stores_early_by_itself(store: Watched) -> None:
    host = Host(store)
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 60_000})
    settings = SequencerSettings(storage=StorageRules(quota=Quota(events=2)))
    host.outcomes.clear()
    sequencer = Sequencer(store, NODE, lambda: host.now, deliver=host.outcomes.extend, settings=settings)
    commits = [bundle(host, enclave, 2 * MIN_EARLY, first) for first in (0, 500)]
    for commit in commits:
        sequencer.submit([AdmittedCommit(commit)])
    sequencer.start()
    sequencer.stop()
    assert [type(result).__name__ for _, result in host.outcomes] == ["Receipt", "Unauthorized"]
    assert sum(store.early) < 4 * (2 * MIN_EARLY)
