"""A move during a conversation: a subscriber and a sender share one session, in two threads."""

import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

from enc.client import Identity
from enc.core.errors import EncError, Unauthorized
from tests.client.moved import Town, create_team, town

PATIENCE_S = 60


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town"), "a", "b", "c") as found:
        yield found


def test_one_thread_follows_and_another_sends_while_the_enclave_moves(place: Town, tmp_path: Path) -> None:
    """The thread that finds the new node second uses the session that the first has switched."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a", patience=20) as his:
        team = create_team(mine)
        team.register()
        team.move(bob.public, "OUTSIDER", "MEMBER")
        shared = his.enclave(team.id)
        seen: Queue[str | EncError] = Queue()
        sent: list[str] = []
        is_over, ahead = threading.Event(), threading.Semaphore(4)

        def follow() -> None:
            try:
                for item in live:
                    seen.put(item.content or "")
                    ahead.release()
            except EncError as e:
                seen.put(e)

        def send() -> None:
            try:
                while not is_over.is_set():
                    ahead.acquire(timeout=PATIENCE_S)
                    shared.commit("message", str(len(sent)))
                    sent.append(str(len(sent)))
            except EncError as e:
                seen.put(e)

        with shared.subscribe(type="message") as live:
            threads = [threading.Thread(target=work, daemon=True) for work in (follow, send)]
            for thread in threads:
                thread.start()
            got = [seen.get(timeout=PATIENCE_S)]
            for to in ("b", "c", "a"):
                team.migrate(place.nodes[to].url, tmp_path / "moves")
                count = len(sent)
                while len(got) < count + 3:
                    got.append(seen.get(timeout=PATIENCE_S))
                    assert isinstance(got[-1], str), got[-1]
            is_over.set()
            threads[1].join(PATIENCE_S)
            got += [seen.get(timeout=PATIENCE_S) for _ in sent[len(got) :]]
        assert got == sent


def test_who_was_put_out_at_the_new_node_is_told_so_there(place: Town, tmp_path: Path) -> None:
    """The old node names the new one in its last Migrate; the new one does not let the client read."""
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a", patience=1) as his:
        team = create_team(mine)
        team.register()
        team.move(bob.public, "OUTSIDER", "MEMBER")
        shared = his.enclave(team.id)
        shared.commit("message", "hello")
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        team.move(bob.public, "MEMBER", "OUTSIDER")
        list(shared.query())
        shared.follow()
        with pytest.raises(Unauthorized):
            list(shared.query())
