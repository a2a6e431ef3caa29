"""A damaged page in one enclave's data stops no other enclave."""

import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import Unavailable
from enc.core.log.commit import build_commit
from enc.core.machine import enclave as machine
from enc.core.primitives.types import Receipt
from enc.node.ops import retention
from enc.node.ops.retention import RetentionSweeper
from enc.node.sequence import sealing
from enc.node.sequence.damage import FIRST_PAUSE_MS, MAX_PAUSE_MS, DamagedEnclaves, write_in_parts
from enc.node.store.damage import DamagedData
from enc.node.store.sqlite.connection import PAGE_BYTES
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step
from enc.testing.memory_store import MemoryStore
from tests.core.world import person
from tests.node.store_host import MANIFEST, Host

NAMES = ("first", "third", "victim")
"""In this order the last page of the victim's events has no others."""
AUTO_DELETE_MS = 90_000


def is_damaged(store: SqliteStore, enclave: bytes, seq: int) -> bool:
    try:
        store.events(enclave, seq, 1)
    except DamagedData:
        return True
    return False


class World:
    """A store with three enclaves, whose contents are their names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(SqliteStore(path)) as store:
            host = Host(store)
            self.enclaves = {name: host.create(meta={"description": name}) for name in NAMES}
            for n in range(1, 41):
                for name, enclave in self.enclaves.items():
                    when = str(host.now + AUTO_DELETE_MS)
                    host.send(enclave, "alice", "message", f"{name} {n} " * 200, ("auto-delete", when))
            self.now = host.now

    def damage(self, seq: int) -> None:
        """Damage the page of an event of the victim, which has no event of another enclave."""
        raw, text = self.path.read_bytes(), f"victim {seq} ".encode() * 200
        for at in range(0, len(raw), PAGE_BYTES):
            page = raw[at : at + PAGE_BYTES]
            if text in page and b"first " not in page and b"third " not in page:
                self.path.write_bytes(raw[:at] + b"\xff" * 8 + raw[at + 8 :])
                with closing(SqliteStore(self.path)) as store:
                    if is_damaged(store, self.enclaves["victim"], seq):
                        return
        raise AssertionError("no page has the event")  # only pages that are not in use any more

    def host(self, store: SqliteStore) -> Host:
        host = Host(store)
        host.now = self.now
        return host

    def send(self, host: Host) -> dict[str, str]:
        """Send a commit to each enclave, in one batch; return the results' codes."""
        host.now += 1
        commits = [
            build_commit(person("alice"), enclave, "message", "later", host.now + 60_000)
            for enclave in self.enclaves.values()
        ]
        return dict(zip(NAMES, (getattr(each, "code", "") for each in host.run(*commits)), strict=True))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "enc.db")


SOUND = {"first": "", "victim": "UNAVAILABLE", "third": ""}


def test_the_others_commit_read_and_seal_and_the_node_restarts(world: World) -> None:
    world.damage(40)  # where the victim's next event belongs
    for _ in range(2):
        with closing(SqliteStore(world.path)) as store:
            host = world.host(store)
            assert world.send(host) == SOUND
            before = {name: store.load(enclave) for name, enclave in world.enclaves.items()}
            host.now += 5_000
            host.run()
            for name, enclave in world.enclaves.items():
                state, sealed = before[name], store.load(enclave)
                assert state is not None
                assert sealed is not None
                if name == "victim":
                    assert state.seq == 40
                    with pytest.raises(DamagedData):
                        store.events(enclave, 0, 100)
                else:
                    assert len(store.events(enclave, 0, 100)) == state.seq + 1
                    assert sealed.bundle is None
            world.now = host.now


def test_a_page_in_the_middle_stops_only_its_own_events(world: World) -> None:
    world.damage(20)
    with closing(SqliteStore(world.path)) as store:
        assert set(world.send(world.host(store)).values()) == {""}
        victim = world.enclaves["victim"]
        assert len(store.events(victim, 0, 2)) == 2
        with pytest.raises(DamagedData):
            store.events(victim, 0, 100)


def test_a_damaged_enclave_disturbs_one_batch_and_is_tried_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.damage(40)
    with closing(SqliteStore(world.path)) as store:
        host, writes, write = world.host(store), list[int](), store.write

        def counted(steps: Sequence[Step], clock: int) -> None:
            writes.append(len(steps))
            write(steps, clock)

        monkeypatch.setattr(store, "write", counted)
        assert world.send(host) == SOUND
        assert len(writes) > 1
        writes.clear()
        assert world.send(host) == SOUND
        assert len(writes) == 1
        assert {step.transition.state.enclave for step in host.steps} == {
            enclave for name, enclave in world.enclaves.items() if name != "victim"
        }
        host.now += FIRST_PAUSE_MS
        writes.clear()
        assert world.send(host) == SOUND
        assert len(writes) > 1


def test_a_bundle_that_cannot_be_closed_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, seal, tries = world.enclaves["victim"], machine.seal, list[bytes]()

    def fail(state: Any, now: int, reader: Any) -> Any:
        tries.append(state.enclave)
        if state.enclave == victim:
            raise DamagedData("damaged", retry_after_ms=1)
        return seal(state, now, reader)

    monkeypatch.setattr(machine, "seal", fail)
    monkeypatch.setattr(sealing, "SEAL_S", math.inf)
    with closing(SqliteStore(world.path)) as store:
        host = world.host(store)
        host.now += 5_000
        host.run()
        assert [store.load(each).bundle is None for each in world.enclaves.values()] == [True, True, False]  # type: ignore[union-attr]
        for later, count in ((1, 0), (FIRST_PAUSE_MS, 1), (FIRST_PAUSE_MS, 0)):
            tries.clear()
            host.now += later
            host.run()
            assert tries.count(victim) == count


def test_contents_that_can_be_erased_are_erased(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = world.enclaves["victim"]
    with closing(SqliteStore(world.path)) as store:
        erase = store.erase

        def fail(due: Sequence[tuple[bytes, bytes]]) -> None:
            if any(enclave == victim for enclave, _ in due):
                raise DamagedData("damaged", retry_after_ms=1)
            erase(due)

        monkeypatch.setattr(store, "erase", fail)
        RetentionSweeper(store, 0, 1000).run_if_due(world.now + AUTO_DELETE_MS)
        for name, enclave in world.enclaves.items():
            is_erased = [event.content is None for event in store.events(enclave, 1, 40)]
            assert any(is_erased) == all(is_erased) == (name != "victim")


def test_what_is_due_is_erased_in_the_others(world: World) -> None:
    world.damage(40)
    with closing(SqliteStore(world.path)) as store:
        RetentionSweeper(store, 0, 1000).run_if_due(world.now + AUTO_DELETE_MS)
        for name in ("first", "third"):
            assert all(event.content is None for event in store.events(world.enclaves[name], 1, 40))


def test_more_contents_that_cannot_be_erased_than_one_call_erases(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_ERASED", 4)
    victim = world.enclaves["victim"]
    with closing(SqliteStore(world.path)) as store:
        erase = store.erase

        def fail(due: Sequence[tuple[bytes, bytes]]) -> None:
            if any(enclave == victim for enclave, _ in due):
                raise DamagedData("damaged", retry_after_ms=1)
            erase(due)

        monkeypatch.setattr(store, "erase", fail)
        sweeper = RetentionSweeper(store, 0, 1000)
        for _ in range(40):  # it goes on at once while there is more
            sweeper.run_if_due(world.now + AUTO_DELETE_MS)
        assert all(event.content is None for event in store.events(world.enclaves["third"], 1, 40))
        assert all(event.content is not None for event in store.events(victim, 1, 40))


def test_an_enclave_whose_id_cannot_be_read_stops_no_bundle_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "SEAL_S", math.inf)
    path = tmp_path / "enc.db"
    with closing(SqliteStore(path)) as store:
        host = Host(store)
        enclaves = [host.create(meta={"text": f"{n} " + "x" * 3_000}) for n in range(40)]
        now = host.now + 5_000
    raw = path.read_bytes()
    names = [each for each in range(0, len(raw), PAGE_BYTES) if b'"text":"20 xxx' in raw[each : each + PAGE_BYTES]]
    for at in names:  # with rows of `enclaves` or of `events`
        path.write_bytes(raw[:at] + b"\xff" * 8 + raw[at + 8 :])
        with closing(SqliteStore(path)) as store:
            host = Host(store)
            host.now = now
            assert len(store.overdue(now, 100)) >= 36
            page = raw[at : at + PAGE_BYTES]
            elsewhere = [each for n, each in enumerate(enclaves) if f'"text":"{n} xxx'.encode() not in page]
            assert isinstance(host.run(host.commit(elsewhere[0], "alice", "message", "one"))[0], Receipt)
            sealed = store.load(elsewhere[1])
            assert sealed is not None
            assert sealed.log.size == 1
        path.write_bytes(raw)
        path.with_name("enc.db-wal").unlink(missing_ok=True)
    assert len(names) >= 2


def test_the_others_are_purged(world: World) -> None:
    with closing(SqliteStore(world.path)) as store:
        host = world.host(store)
        for name in ("victim", "third"):
            host.send(world.enclaves[name], "alice", "Terminate")
        world.now = host.now
    world.damage(5)
    with closing(SqliteStore(world.path)) as store:
        sweeper = RetentionSweeper(store, 0, 0)
        for i in range(6):
            sweeper.run_if_due(world.now + 1 + i)
        assert store.is_purged(world.enclaves["third"])
        assert store.events(world.enclaves["third"], 0, 1) == []


def test_only_the_commits_that_cannot_be_looked_up_fail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteStore(world.path)) as store:
        host, find = world.host(store), store.committed_among

        def fail(commits: Any) -> Any:
            if any(commit.enclave == world.enclaves["victim"] for commit in commits):
                raise DamagedData("damaged", retry_after_ms=1)
            return find(commits)

        monkeypatch.setattr(store, "committed_among", fail)
        assert world.send(host) == SOUND
        monkeypatch.setattr(store, "committed_among", find)
        assert set(world.send(host).values()) == {""}


class Brittle(MemoryStore):
    """A store in which the data of some enclaves is damaged."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged, self.writes = set[bytes](), 0
        self.tried = list[list[Step]]()
        self.is_full, self.full_after = False, 1 << 30
        """Whether the disk is full, and how many more writes fit on it."""

    def write(self, steps: Sequence[Step], clock: int) -> None:
        self.writes += 1
        self.tried.append(list(steps))
        if self.is_full or self.full_after == 0:
            raise Unavailable("the disk is full", retry_after_ms=1)
        if any(step.transition.state.enclave in self.damaged for step in steps):
            raise DamagedData("damaged", retry_after_ms=1)
        self.full_after -= 1
        super().write(steps, clock)


def test_a_batch_is_divided_until_the_damaged_ones_are_alone() -> None:
    store = Brittle()
    host = Host(store)
    enclaves = [host.create(**MANIFEST, meta={"n": n}) for n in range(16)]
    host.steps.clear()
    for enclave in enclaves:
        host.send(enclave, "alice", "message", "one")
    steps, store.damaged = list(host.steps), {enclaves[3], enclaves[11]}
    store.writes = 0
    found = write_in_parts(store, [step for step in steps if step.event is not None], host.now)
    assert found.keys() == store.damaged
    assert store.writes <= 2 * 2 * 4 + 1


def test_the_pause_of_a_damaged_enclave_grows() -> None:
    damaged, now = DamagedEnclaves(), 0
    for expected in (FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS):
        assert damaged.add(bytes(32), now, "damaged").context["retry_after_ms"] == expected
        assert damaged.has(bytes(32), now + expected - 1)
        now += expected
        assert not damaged.has(bytes(32), now)
    for _ in range(20):
        damaged.add(bytes(32), now, "damaged")
    assert damaged.has(bytes(32), now + MAX_PAUSE_MS - 1)
    assert not damaged.has(bytes(32), now + MAX_PAUSE_MS)


def test_a_read_that_fails_once_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Brittle()
    host = Host(store)
    enclave, write, failures = host.create(), store.write, [1]

    def fail(steps: Sequence[Step], clock: int) -> None:
        if failures:
            failures.pop()
            raise DamagedData("damaged", retry_after_ms=1)
        write(steps, clock)

    monkeypatch.setattr(store, "write", fail)
    assert isinstance(host.run(host.commit(enclave, "alice", "message", "one"))[0], Receipt)


def made_steps(store: "Brittle", count: int) -> tuple[Host, list[Step]]:
    """Return a step for each of so many enclaves, which is not written yet."""
    host = Host(store)
    enclaves = [host.create(**MANIFEST, meta={"n": n}) for n in range(count)]
    store.is_full = True
    host.run(*[host.commit(enclave, "alice", "message", "one") for enclave in enclaves])
    store.is_full, store.writes = False, 0
    return host, store.tried[-1]


def test_damage_that_all_enclaves_share_is_a_failure_of_the_store() -> None:
    store = Brittle()
    host, steps = made_steps(store, 64)
    store.damaged = {step.transition.state.enclave for step in steps}
    with pytest.raises(Unavailable) as caught:
        write_in_parts(store, steps, host.now)
    assert not isinstance(caught.value, DamagedData)
    assert store.writes < 30


def test_what_was_written_before_the_store_failed_is_answered() -> None:
    store = Brittle()
    host, steps = made_steps(store, 16)
    damaged, store.full_after = steps[11].transition.state.enclave, 2
    store.damaged = {damaged}
    found = write_in_parts(store, steps, host.now)
    written = {step.transition.state.enclave for step in steps} - found.keys()
    assert written
    assert all(store.load(each).seq == 1 for each in written)  # type: ignore[union-attr]
    assert {type(error) for enclave, error in found.items() if enclave != damaged} == {Unavailable}
    assert all(store.load(each).seq == 0 for each in found)  # type: ignore[union-attr]


def test_another_failure_is_that_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Brittle()
    host = Host(store)
    enclave = host.create()

    def fail(steps: Sequence[Step], clock: int) -> None:
        raise Unavailable("no disk", retry_after_ms=1)

    commit = host.commit(enclave, "alice", "message", "one")
    with monkeypatch.context() as patch:
        patch.setattr(store, "write", fail)
        assert [type(each) for each in host.run(commit)] == [Unavailable]
    assert [type(each) for each in host.run(commit)] == [Receipt]
