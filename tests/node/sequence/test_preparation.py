"""Commits that take long are prepared in slices, in turn with those of other senders."""

from collections.abc import Callable, Generator
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import EncError
from enc.core.log.commit import build_commit, build_manifest
from enc.core.machine import enclave as machine
from enc.core.machine.state import EnclaveState
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit, Receipt
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Effects
from enc.core.trees import sparse_merkle
from enc.node.sequence.admitted import AdmittedCommit, Judgement
from enc.node.sequence.preparation import BASE_SIZE, MAX_RULES, MIN_SIZES, READY_SIZE, SLICE_S, Preparation
from enc.node.sequence.state_cache import StateCache
from enc.node.store.stored_enclave_reader import StoredEnclaveReader
from enc.testing.memory_store import MemoryStore
from tests.core.world import START, person, pub
from tests.node.store_host import MANIFEST, Host

MOVES = [{"event": "Move", "operator": "owner", "ops": ["C"], "from": "OUTSIDER", "to": "MEMBER"}]
Prepared = list[AdmittedCommit]


class Work(StateCache):
    """Judgements of so many steps, each of which takes a third of a slice.

    Also a cache whose `cold` states take `load_s` to load.
    """

    def __init__(self, **steps: int) -> None:
        self.now, self._steps, self.cold, self.load_s = 0.0, steps, set[bytes](), 0.0
        self.begun = list[AdmittedCommit]()
        self.preparation = Preparation(self._judge, self, lambda: self.now)

    def __contains__(self, enclave: bytes) -> bool:
        return enclave not in self.cold

    def get(self, enclave: bytes) -> EnclaveState | None:
        self.cold.remove(enclave)
        self.now += self.load_s
        return None

    def _judge(self, admitted: AdmittedCommit) -> Generator[None, None, Judgement]:
        commit = admitted.commit
        self.begun.append(admitted)
        for _ in range(self._steps[commit.type if commit.type == "Manifest" else commit.tags[0][0]]):
            self.now += SLICE_S / 3
            yield
        return Judgement(None, None, EncError("judged"))

    def order(self) -> list[str]:
        """Return the names of the commits in the order in which they are ready."""
        found = list[str]()
        while self.preparation:
            found += [each.sender for each in self.preparation.advance()]
            self.preparation.settle()
        return found


class Unreadable(Work):
    """A cache whose cold states cannot be loaded."""

    def get(self, enclave: bytes) -> EnclaveState | None:
        raise OSError("the disk cannot be read")


def waiting(
    name: str,
    sender: str,
    address: str = "a",
    *,
    long: bool = True,
    size: int = READY_SIZE,
    enclave: bytes = bytes(32),
) -> AdmittedCommit:
    content, type_ = ("x" * size, "AC_Bundle") if long else ("", "note")
    commit = build_commit(person(sender), enclave, type_, content, START, ((name[:4], ""),))
    return AdmittedCommit(commit, name, address)


def test_only_large_ones_and_those_behind_them_wait() -> None:
    work = Work(long=3)
    commits = [waiting("short", "bob", long=False), waiting("long", "alice"), waiting("next", "alice", long=False)]
    assert [each.sender for each in work.preparation.sort(commits)] == ["short"]
    assert [each.sender for each in work.preparation.sort([waiting("more", "bob", long=False)])] == ["more"]
    assert work.order() == ["long", "next"]
    assert [each.sender for each in work.preparation.sort([waiting("last", "alice", long=False)])] == ["last"]


def test_a_slice_ends_a_turn_and_one_large_commit_at_most_is_ready_after_it() -> None:
    work = Work(long=7, brief=1)
    work.preparation.sort([waiting("long", "alice"), waiting("brief", "bob"), waiting("brief", "carol")])
    ready = list[list[str]]()
    while work.preparation:
        before = work.now
        ready.append([each.sender for each in work.preparation.advance()])
        assert work.now - before <= SLICE_S * 1.01
        work.preparation.settle()
    assert [len(each) for each in ready] == [0, 1, 1, 0, 1]
    assert ready[-1] == ["long"]


def test_short_ones_are_ready_together_up_to_a_size() -> None:
    work = Work(tiny=0)
    least = MIN_SIZES["AC_Bundle"]
    work.preparation.sort([waiting(f"tiny{i}", f"m{i}", size=least) for i in range(20)])
    ready = list[int]()
    while work.preparation:
        ready.append(len(work.preparation.advance()))
        work.preparation.settle()
    assert ready == [7, 7, 6]
    assert 6 * (least + BASE_SIZE) < READY_SIZE <= 7 * (least + BASE_SIZE)


def test_a_flood_of_short_ones_does_not_delay_another_address() -> None:
    work, before = Work(tiny=0), 0
    least = MIN_SIZES["AC_Bundle"]
    work.preparation.sort([waiting(f"tiny{i}", f"m{i}", "mallory", size=least) for i in range(1000)])
    work.preparation.sort([waiting("tiny of bob", "bob", "bob's", size=least)])
    while "tiny of bob" not in (ready := [each.sender for each in work.preparation.advance()]):
        before += len(ready)
        work.now += len(ready) * SLICE_S
        work.preparation.settle()
    assert before <= 7


def test_the_time_to_sequence_is_charged_by_size() -> None:
    work, order = Work(some=0), list[str]()
    for sender, size in (("large", READY_SIZE // 2), ("small", MIN_SIZES["AC_Bundle"])):
        work.preparation.sort([waiting(f"some{i}", sender, sender, size=size) for i in range(12)])
    while work.preparation:
        ready = work.preparation.advance()
        order += [each.address for each in ready]
        work.now += sum(len(each.commit.content or "") for each in ready)
        work.preparation.settle()
    assert order[:12].count("small") >= 8


def test_commits_of_states_that_left_memory_are_ready_one_by_one_and_are_charged_for_the_loading() -> None:
    work, order = Work(), list[list[str]]()
    work.load_s = 10 * SLICE_S
    commits = [waiting(f"mallory {i}", "mallory", "m", long=False, enclave=bytes([i]) * 32) for i in range(5)]
    commits += [waiting(f"bob {i}", "bob", "b", long=False, enclave=b"b" * 32) for i in range(5)]
    work.cold = {each.commit.enclave for each in commits}
    assert work.preparation.sort(commits) == []
    while work.preparation:
        order.append([each.sender for each in work.preparation.advance()])
        work.preparation.settle()
    assert all(sum(name.startswith("mallory") for name in ready) <= 1 for ready in order)
    ready = [name for names in order for name in names]
    assert ready.index("bob 4") < ready.index("mallory 4")


def test_a_state_that_cannot_be_loaded_leaves_its_commit_and_the_others_to_the_sequencer() -> None:
    work = Unreadable()
    commits = [waiting("alice", "alice", long=False, enclave=b"a" * 32), waiting("bob", "bob", long=False)]
    work.cold = {b"a" * 32}
    assert [each.sender for each in work.preparation.sort(commits)] == ["bob"]
    assert work.order() == ["alice"]


def test_commits_that_wait_hold_a_bounded_amount_of_rules() -> None:
    work = Work(Manifest=1)
    policy = replace(parse_manifest(compact_json(MANIFEST)), size=MAX_RULES // 2)  # type: ignore[type-var]
    judgement = Judgement(None, policy, Effects())
    commit = build_manifest(person("alice"), compact_json({**MANIFEST, "meta": "x" * READY_SIZE}), START)
    found = AdmittedCommit(commit, policy=policy, judgement=judgement)
    for _ in range(2):  # what is ready holds none any more
        work.begun.clear()
        assert work.preparation.sort([found] * 3) == []
        work.order()
        assert [each.judgement for each in work.begun] == [judgement, judgement, None]
        assert [each.policy for each in work.begun] == [policy, policy, None]


def test_addresses_share_the_time_whatever_the_number_of_their_identities() -> None:
    work, ready = Work(many=6, one=6), list[str]()
    work.preparation.sort([waiting("many", f"m{i}", "mallory") for i in range(20)])
    work.preparation.sort([waiting("one", "bob", "bob's")])
    while "one" not in ready:
        ready += [each.sender for each in work.preparation.advance()]
        work.preparation.settle()
    assert work.now <= 5.01 * SLICE_S


def test_the_commits_of_a_sender_stay_in_order() -> None:
    work = Work(aaaa=9, bbbb=1)
    work.preparation.sort([waiting("aaaa", "alice"), waiting("bbbb", "alice"), waiting("cccc", "alice", long=False)])
    assert work.order() == ["aaaa", "bbbb", "cccc"]


def test_a_fault_while_judging_leaves_the_commit_to_the_sequencer() -> None:
    def fail(admitted: AdmittedCommit) -> Generator[None, None, Judgement]:
        raise KeyError("a node of the tree is missing")
        yield

    preparation = Preparation(fail, Work())
    preparation.sort([waiting("long", "alice")])
    assert [each.judgement for each in preparation.advance()] == [None]
    assert not preparation


# In a sequencer


def bundle(host: Host, enclave: bytes, name: str, size: int = 60, first: int = 0) -> Commit:
    operations = [
        {"type": "Move", "target": pub(f"guest {i}"), "from": "OUTSIDER", "to": "MEMBER"}
        for i in range(first, first + size)
    ]
    commit: Commit = host.commit(enclave, name, "AC_Bundle", {"operations": operations})
    return commit


def prepared(host: Host, commit: Commit) -> Prepared:
    """Prepare a commit against the present state, without sequencing it."""
    preparation = host.sequencer._preparation
    assert preparation.sort([AdmittedCommit(commit)]) == []
    found = Prepared()
    while preparation:
        found += preparation.advance()
    preparation.settle()
    return found


def outcome(host: Host, ready: Prepared) -> Receipt | EncError:
    host.outcomes.clear()
    host.sequencer.run_once(ready)
    ((_, result),) = host.outcomes
    return result


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types of the commits that the sequencer judges in one piece."""
    found = list[str]()

    def watch(judge: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            found.append(next(each.type for each in args if isinstance(each, Commit)))
            return judge(*args, **kwargs)

        return counted

    monkeypatch.setattr("enc.node.sequence.sequencer.machine.judge", watch(machine.judge))
    return found


def test_a_prepared_bundle_has_the_effects_of_one_that_is_not(judged: list[str]) -> None:
    roots = list[Any]()
    for prepares in (False, True):
        host = Host(MemoryStore())
        enclave = host.create(moves=MOVES)
        commit = bundle(host, enclave, "alice")
        result = outcome(host, prepared(host, commit) if prepares else [AdmittedCommit(commit)])
        assert isinstance(result, Receipt)
        state = host.store.load(enclave)
        assert state is not None
        roots.append((result, machine.state_hash(state, StoredEnclaveReader(host.store, enclave))))
    assert roots[0] == roots[1]
    assert judged == ["AC_Bundle"]


def test_its_leaves_are_hashed_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(MemoryStore())
    enclave = host.create(moves=MOVES, bundle={"size": 1, "timeout": 1000})
    sparse_merkle._leaf_at_mark.cache_clear()
    ready = prepared(host, bundle(host, enclave, "alice"))
    before = sparse_merkle._leaf_at_mark.cache_info().misses
    assert isinstance(outcome(host, ready), Receipt)
    assert sparse_merkle._leaf_at_mark.cache_info().misses - before <= 1


def test_what_only_extends_the_log_meanwhile_does_not_matter(judged: list[str]) -> None:
    host = Host(MemoryStore())
    enclave = host.create(moves=MOVES)
    ready = prepared(host, bundle(host, enclave, "alice"))
    host.send(enclave, "bob", "note", "hello")
    assert isinstance(outcome(host, ready), Receipt)
    assert judged == ["note"]


def test_what_changes_a_right_meanwhile_is_judged_anew(judged: list[str]) -> None:
    host = Host(MemoryStore())
    enclave = host.create(moves=MOVES)
    ready = prepared(host, bundle(host, enclave, "alice"))
    host.send(enclave, "alice", "Move", {"target": pub("guest 7"), "from": "OUTSIDER", "to": "MEMBER"})
    result = outcome(host, ready)
    assert isinstance(result, EncError)
    assert result.context["failed_index"] == 7
    assert judged == ["Move", "AC_Bundle"]


def test_a_long_slot_waits_for_its_turn_and_is_judged_then(judged: list[str]) -> None:
    host = Host(MemoryStore())
    enclave = host.create()
    slot = host.commit(enclave, "alice", "Shared", {"key": "topic", "value": "x" * MIN_SIZES["Shared"]})
    (ready,) = prepared(host, slot)
    assert ready.judgement is None
    assert isinstance(outcome(host, [ready]), Receipt)
    assert judged == ["Shared"]


def test_a_rejection_is_prepared_too(judged: list[str]) -> None:
    host = Host(MemoryStore())
    enclave = host.create(moves=MOVES)
    result = outcome(host, prepared(host, bundle(host, enclave, "eve")))
    assert isinstance(result, EncError)
    assert (result.code, judged) == ("AC_BUNDLE_FAILED", [])


def test_a_prepared_commit_twice_is_a_duplicate() -> None:
    host = Host(MemoryStore())
    enclave = host.create(moves=MOVES)
    commit = bundle(host, enclave, "alice")
    ready = prepared(host, commit) + prepared(host, commit)
    host.sequencer.run_once(ready)
    assert [getattr(result, "code", "ok") for _, result in host.outcomes[1:]] == ["ok", "DUPLICATE"]


def test_a_manifest_with_many_members(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(MemoryStore())
    people = [{"identity": pub(f"guest {i}"), "state": "MEMBER", "traits": []} for i in range(60)]
    content = compact_json({**MANIFEST, "init": [*MANIFEST["init"], *people]})
    manifest = build_manifest(person("alice"), content, host.now + 60_000)
    ready = prepared(host, manifest)
    monkeypatch.setattr("enc.node.sequence.sequencer.machine.judge_manifest", None)
    assert isinstance(outcome(host, ready), Receipt)
    again = prepared(host, build_manifest(person("alice"), content, host.now + 60_001))
    result = outcome(host, again)
    assert isinstance(result, EncError)
    assert result.code == "ENCLAVE_EXISTS"


def test_the_thread_prepares_and_finishes_before_it_stops() -> None:
    host = Host(MemoryStore())
    enclave = host.create(moves=MOVES)
    host.outcomes.clear()
    commits = [bundle(host, enclave, "alice", first=60 * i) for i in range(3)]
    for commit in commits:
        host.sequencer.submit([AdmittedCommit(commit)])
    host.sequencer.start()
    host.sequencer.stop()
    assert [each.commit for each, _ in host.outcomes] == commits
    assert all(isinstance(result, Receipt) for _, result in host.outcomes)


def test_what_is_not_prepared_is_short() -> None:
    host = Host(MemoryStore())
    assert len(bundle(host, bytes(32), "alice", size=5).content or "") > MIN_SIZES["AC_Bundle"]
    assert MIN_SIZES["AC_Bundle"] < len(compact_json(MANIFEST)) < MIN_SIZES["Manifest"]
