"""A receiver, and a simulated node whose pushes a test makes by hand."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import encode

from enc.client import (
    Identity,
    PushReceiver,
    ReceiverSettings,
)
from enc.client.receive.inbox_file import Db
from enc.core.errors import (
    EncError,
)
from enc.core.log.commit import build_commit
from enc.core.log.event import wire_event
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event
from enc.core.session.envelope import seal_push
from enc.runtime.backoff import RetryPauses
from enc.testing.lying_node import Json, LyingNode
from tests.client.stage import URL, Stage
from tests.core.world import LIFETIME, person
from tests.node.served import NODE

HOOK = "https://bob.test/hook"
TURNS = 20_000
"""How often to poll the delivery worker before an expected event counts as lost."""
SCHEMA = "CREATE TABLE IF NOT EXISTS seen (n INTEGER PRIMARY KEY, enclave TEXT, seq INTEGER)"
AT_ONCE = RetryPauses(first_s=0.0, max_s=0.0)


def note(event: Event, db: Db) -> None:
    """Handle an event: record it in the handler's own table."""
    db.execute("INSERT INTO seen (enclave, seq) VALUES (?, ?)", (event.enclave.hex(), event.seq))


class Post:
    """Bob's pushes. `send`: the node's side; `seen`: delivered events; `lies`: reported lies."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.stage = Stage("sync", directory, patch)
        self.state, self.lies, self.gaps = directory / "inbox.db", list[Any](), list[Any]()
        self.now = 1000.0
        self._open: list[PushReceiver] = []

    @property
    def node(self) -> LyingNode:
        return self.stage.node

    def close(self) -> None:
        for receiver in self._open:
            receiver.close()
        self.stage.close()

    def enclave(self, texts: Iterable[str] = (), **changes: Any) -> tuple[Event, ...]:
        """Return the events of a new enclave: its Manifest, and a message for each text."""
        enclave = self.stage.create(meta={"n": os.urandom(4).hex()}, **changes)
        for text in texts:
            enclave.commit("message", text)
        return self.log(enclave.id)

    def log(self, enclave: bytes) -> tuple[Event, ...]:
        ids = self.node.store.ids(enclave, 0, 1000)
        found = [self.node.store.event(enclave, id_) for id_ in ids]
        return tuple(each.event for each in found if each is not None)

    def message(self, first: Event, text: str, seq: int, **how: Any) -> Event:
        """Return any event of an enclave, with valid signatures: the node signs everything."""
        key = how.pop("by", NODE)
        commit = build_commit(person("bob"), first.enclave, "message", text, self.stage.clock.now + LIFETIME)
        return LyingNode(self.stage.clock, key).event(commit, seq, **how)

    # The receiver

    def receiver(self, handle: Callable[..., Any] = note, **more: Any) -> PushReceiver:
        more = {
            "schema": SCHEMA,
            "pins": self.stage.pins,
            "retries": AT_ONCE,
            "on_distrust": self.lies.append,
            "on_gap": self.gaps.append,
            "nodes": {NODE.public: URL},
            "clock": lambda: self.now,
            **more,
        }
        nodes, identity = more.pop("nodes"), Identity(person(more.pop("identity", "bob")))
        fields = {name: more.pop(name) for name in ReceiverSettings.__struct_fields__ if name in more}
        url, state = more.pop("url", HOOK), more.pop("state", self.state)
        made = PushReceiver(identity, url, nodes, state, handle, settings=ReceiverSettings(**fields), **more)
        self._open.append(made)
        return made

    def started(self, handle: Callable[..., Any] = note, **more: Any) -> PushReceiver:
        receiver = self.receiver(handle, **more)
        receiver.start()
        return receiver

    def seen(self, receiver: PushReceiver) -> list[tuple[str, int]]:
        """Return the delivered events, once nothing more can be delivered."""
        settle(receiver)
        rows: list[tuple[str, int]] = receiver.worker.submit(lambda: rows_of(receiver)).result()
        return rows

    def seqs(self, receiver: PushReceiver) -> list[int]:
        return [seq for _, seq in self.seen(receiver)]


def rows_of(receiver: PushReceiver) -> list[tuple[str, int]]:
    return list(receiver.inbox.db.execute("SELECT enclave, seq FROM seen ORDER BY n"))


def until(receiver: PushReceiver, holds: Callable[[], Any]) -> None:
    """Poll until this holds on the delivery worker's thread."""
    for _ in range(TURNS):
        if receiver.worker.submit(holds).result():
            return
    raise AssertionError("it never happened")


def settle(receiver: PushReceiver) -> None:
    """Wait until nothing more can be delivered now."""
    sql = "SELECT count(*) FROM enc_events JOIN enc_queues USING (seq_pub) WHERE push_seq < next"
    until(receiver, lambda: not receiver.inbox.db.execute(sql).fetchone()[0])


def body(push_seq: int, *events: Event, notices: Iterable[Json] = ()) -> Json:
    """Return the body of a push: events by enclave."""
    enclaves: dict[bytes, list[Json]] = {}
    for event in events:
        enclaves.setdefault(event.enclave, []).append(wire_event(event))
    pushed = [{"enclave": enclave.hex(), "events": found} for enclave, found in enclaves.items()]
    wire: Json = {"push_seq": push_seq}
    if pushed:
        wire["push"] = {"enclaves": pushed}
    if notices:
        wire["notify"] = {"enclaves": list(notices)}
    return wire


def sealed(wire: Json, key: PrivateKey = NODE, to: str = "bob", url: str = HOOK) -> bytes:
    return encode(seal_push(key, person(to).public, url, wire, os.urandom(NONCE_SIZE)))


def push(push_seq: int, *events: Event, **how: Any) -> bytes:
    return sealed(body(push_seq, *events, notices=how.pop("notices", ())), **how)


OTHER = person("node2")


def refused(post: Post, receiver: PushReceiver, error: type[EncError], what: bytes) -> EncError:
    """Check that the push is rejected and changes nothing: a valid batch may still have the number."""
    with pytest.raises(error) as found:
        receiver.take(what)
    assert type(found.value) is error
    assert receiver.worker.submit(lambda: receiver.inbox.position(NODE.public)).result().next == 1
    assert post.seen(receiver) == []
    return found.value


def fails(event: Event, db: Db) -> None:
    raise RuntimeError("not now")


def unreachable(request: Any) -> None:
    raise httpx.ConnectError("cut")


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "enc.client.receiver"]


def keeps(post: Post, *batches: Json, page: int = 100) -> list[Json]:
    """Let the node have these batches, `page` per answer; return the requested selections."""
    asked = list[Json]()

    def pull(_: Any) -> list[Json]:
        wanted = post.node.asked["push_seq"]
        asked.append(wanted)
        first, last = wanted.get("start_after", 0) + 1, wanted.get("end_at", 2**53)
        return [batch for batch in batches if first <= batch["push_seq"] <= last][:page]

    post.node.lie("Pull", pull)
    return asked


def handed(receiver: PushReceiver, *seqs: int) -> None:
    until(receiver, lambda: [seq for _, seq in rows_of(receiver)] == list(seqs))
