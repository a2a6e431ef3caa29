"""What a restored store finds newer elsewhere, by heads, moves and events."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from enc.core.errors import InvalidArchive, InvalidSignature
from enc.core.primitives.types import Event
from enc.node.ops import adoption
from enc.node.ops.adoption import LogAsCopied, StoreComparison
from enc.node.store.restrictions import Restriction
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import pub
from tests.node.push_host import create
from tests.node.store_host import NODE, Host, live

OURS, OTHER = NODE.public, bytes.fromhex(pub("node2"))
UNKNOWN = bytes(32)


class Scene:
    """A store with an enclave of seven events, two closed bundles and an open one; and the same store
    with one more event.
    """

    def __init__(self, folder: Path) -> None:
        self.store, self.later = SqliteStore(folder / "enc.db"), SqliteStore(folder / "later.db")
        self.host = Host(self.store)
        self.id, self.events = live(self.host)
        self.elsewhere = StoreComparison(self.store, OURS)

    def head(self, size: int) -> bytes:
        head = self.store.head(self.id, size)
        assert head is not None
        return head.r

    def signed(self, count: int) -> list[Event]:
        """Return the log of a node that went on: this store's, and further events."""
        for number in range(count):
            self.host.send(self.id, "alice", "message", f"later {number}")
        return self.store.events(self.id, 0, 100)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    with closing(scene.store), closing(scene.later):
        yield scene


def moved(host: Host) -> bytes:
    enclave = create(host)
    end = host.sequencer.checkpoint(enclave, 0)
    target = {"new_sequencer": OTHER.hex(), "prev_seq": end.seq, "ct_root": end.ct_root.hex()}
    host.send(enclave, "alice", "Migrate", target)
    return enclave


# Heads


def test_a_head_that_the_store_has(scene: Scene) -> None:
    for size in (1, 2):
        assert scene.elsewhere.check_root(scene.id, OURS, size, scene.head(size)) is None
        assert scene.elsewhere.check_root(scene.id, OURS, size, None) is None
    assert scene.elsewhere.check_root(scene.id, OURS, 0, None) is None


def test_a_larger_log(scene: Scene) -> None:
    assert scene.elsewhere.check_root(scene.id, OURS, 3, bytes(32)) == "a log of 3 bundles; this store has 2"
    assert scene.elsewhere.check_root(scene.id, OTHER, 3, bytes(32)) == "a log of 3 bundles; this store has 2"


def test_another_log_of_the_same_size(scene: Scene) -> None:
    assert scene.elsewhere.check_root(scene.id, OURS, 2, bytes(32)) == "another log of 2 bundles"
    assert scene.elsewhere.check_root(scene.id, OURS, 1, scene.head(2)) == "another log of 1 bundles"


def test_an_enclave_that_the_store_lacks(scene: Scene) -> None:
    assert scene.elsewhere.check_root(UNKNOWN, OURS, 1, bytes(32)) == "an enclave that this store lacks"
    assert scene.elsewhere.check_root(UNKNOWN, OTHER, 1, bytes(32)) is None
    assert [scene.elsewhere.concerns(UNKNOWN, key) for key in (OURS, OTHER)] == [True, False]
    assert scene.elsewhere.concerns(scene.id, OTHER)


def test_an_enclave_that_had_moved_away_counts_only_if_the_node_signed_more(scene: Scene) -> None:
    enclave = moved(scene.host)
    assert scene.elsewhere.check_root(enclave, OTHER, 9, bytes(32)) is None
    assert scene.elsewhere.check_root(enclave, OURS, 9, bytes(32)) == "a log of 9 bundles; this store has 1"


def test_an_enclave_that_was_purged_by_order(scene: Scene) -> None:
    scene.store.purge_by_order(scene.id, Restriction(kind="purge", target=scene.id.hex(), made_at=0))
    assert scene.elsewhere.check_events(scene.id, scene.events) is None


def test_an_enclave_whose_data_is_purged(scene: Scene) -> None:
    scene.host.send(scene.id, "alice", "Terminate")
    scene.store.purge(scene.id)
    assert scene.elsewhere.check_root(scene.id, OURS, 9, bytes(32)) is None
    assert scene.elsewhere.check_events(scene.id, scene.events) is None
    assert scene.elsewhere.extent() == LogAsCopied(0, 0, 0)


# Moves


def test_a_move_that_the_store_lacks(scene: Scene) -> None:
    for moved_at in (-1, 3, 7, 100):
        assert scene.elsewhere.check_move(scene.id, OTHER, moved_at) == f"a move to {OTHER.hex()}"


def test_a_sequencer_that_the_store_knows(scene: Scene) -> None:
    assert scene.elsewhere.check_move(scene.id, OURS, -1) is None
    enclave = moved(scene.host)
    assert scene.elsewhere.check_move(enclave, OURS, -1) is None
    assert scene.elsewhere.check_move(UNKNOWN, OURS, -1) == "an enclave that this store lacks"


def test_a_registry_that_names_the_sequencer_before(scene: Scene) -> None:
    """The owner has not registered the last move."""
    enclave = moved(scene.host)
    there = StoreComparison(scene.store, OTHER)
    assert there.check_move(enclave, OURS, -1) is None
    assert there.check_move(enclave, OURS, 0) == f"a move to {OURS.hex()}"
    assert there.check_move(enclave, bytes.fromhex(pub("dave")), -1) == f"a move to {pub('dave')}"


# Events


def test_an_archive_of_the_same_log_or_of_its_beginning(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in (1000, 3):
        monkeypatch.setattr(adoption, "PAGE", page)
        for count in (7, 6, 1):
            assert scene.elsewhere.check_events(scene.id, scene.events[:count]) is None


def test_an_archive_with_more_events(tmp_path: Path, scene: Scene) -> None:
    whole = scene.signed(3)
    copy = Scene(tmp_path_of(tmp_path))
    with closing(copy.store), closing(copy.later):
        assert copy.elsewhere.check_events(copy.id, whole) == "event 7; this store has events up to 6"
    assert StoreComparison(scene.later, OURS).check_events(scene.id, whole) == "event 0; this store has no such enclave"
    assert StoreComparison(scene.later, OTHER).check_events(scene.id, whole) is None


def tmp_path_of(folder: Path) -> Path:
    (folder / "copy").mkdir()
    return folder / "copy"


def test_an_archive_with_another_event(tmp_path: Path, scene: Scene) -> None:
    copy = Scene(tmp_path_of(tmp_path))
    with closing(copy.store), closing(copy.later):
        copy.host.send(copy.id, "alice", "message", "this store's")
        assert copy.elsewhere.check_events(copy.id, scene.signed(2)) == "another event 7"


def test_an_archive_that_is_forged_or_damaged(scene: Scene) -> None:
    forged = replace(scene.events[6], id=bytes(32), seq_sig=bytes(64))
    with pytest.raises(InvalidSignature):
        scene.elsewhere.check_events(scene.id, [*scene.events[:6], forged])
    with pytest.raises(InvalidArchive, match="event 6: expected event 5"):
        scene.elsewhere.check_events(scene.id, [*scene.events[:5], forged])


# Extent


def test_what_the_store_has(scene: Scene) -> None:
    moved(scene.host)
    newest = scene.store.events(scene.id, 6, 1)[0].timestamp
    assert scene.elsewhere.extent() == LogAsCopied(1, 1, newest)
    scene.host.now += 10_000
    scene.host.run()
    assert scene.elsewhere.extent() == LogAsCopied(1, 0, newest)
    assert StoreComparison(scene.later, OURS).extent() == LogAsCopied(0, 0, 0)
