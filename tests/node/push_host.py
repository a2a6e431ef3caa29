"""Enclaves with endpoints, over a store."""

from typing import Any

from enc.core.log.commit import build_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event, Receipt
from enc.node.store.push_interface import (
    BatchLimits,
    BatchNotice,
    PushBatch,
)
from enc.node.store.store_interface import Store
from tests.core.world import gated, give, grant, init, path, person, rule
from tests.node.store_host import Host

URL, OTHER = "https://one.example/push", "https://two.example/push"

PUSHED: dict[str, Any] = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "admin(1)", "view(2)", "watch(3)", "ear(4)"],
    "readers": [{"type": "MEMBER", "reads": "*"}],
    "moves": [
        path("OUTSIDER", "MEMBER", "owner"),
        path("MEMBER", "OUTSIDER", "owner", preserve=True),
        path("MEMBER", "OUTSIDER", "admin"),
    ],
    "grants": [
        grant("Grant", ["owner"], "view watch ear admin", "OUTSIDER MEMBER"),
        grant("Revoke", ["owner", "Self"], "view watch ear", "OUTSIDER MEMBER"),
    ],
    "transfers": [{"trait": "owner", "scope": ["MEMBER"]}],
    "slots": [rule("Shared", "MEMBER", "C U D", key="topic")],
    "lifecycle": [rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate", "Migrate")],
    "customs": [
        rule("message", "MEMBER", "C"),
        rule("message", "Sender", "U D"),
        rule("message", "view", "P"),
        rule("message", "watch", "N"),
        rule("note", "Public", "C"),
        rule("note", "watch", "N"),
        rule("gated", "MEMBER", "C"),
        rule("gated", "view", "P", **gated("feed", "owner")),
        rule("mine", "Public", "C"),
        rule("mine", "Sender", "P"),
        rule("Grant", "ear", "P"),
        rule("Revoke", "ear", "N"),
        rule("Terminate", "view", "P"),
        rule("Migrate", "view", "P"),
        rule("silent", "MEMBER", "C"),
    ],
    "init": init(alice="MEMBER owner", bob="MEMBER"),
    "bundle": {"size": 4, "timeout": 1000},
}


def create(host: Host, name: str = "", **changes: Any) -> bytes:
    content = compact_json({**PUSHED, "meta": {"description": name}, **changes})
    commit = build_manifest(person("alice"), content, host.now + 60_000)
    (receipt,) = host.run(commit)
    assert isinstance(receipt, Receipt), receipt
    return commit.enclave


def listen(host: Host, enclave: bytes, name: str, trait: str = "view", url: str = URL) -> Event:
    return host.send(enclave, "alice", "Grant", give(name, trait, endpoint=url))


def say(host: Host, enclave: bytes, count: int, type_: str = "message", by: str = "bob", text: str = "") -> None:
    """Send this many events in one transaction."""
    commits = [host.commit(enclave, by, type_, f"{text}{i}") for i in range(count)]
    assert all(isinstance(outcome, Receipt) for outcome in host.run(*commits))


def all_batches(store: Store, name: str, url: str = URL) -> list[PushBatch]:
    return store.list_batches(person(name).public, url, 0, 1 << 62, 10_000)


def spread(host: Host, limits: BatchLimits = BatchLimits()) -> None:  # noqa: B008
    while host.store.fan_out(host.now, limits):
        pass


def pushed(host: Host, name: str, url: str = URL, enclave: bytes | None = None) -> list[int]:
    """Make batches of all waiting events; return the seqs of a queue's events. Each must be there once and in order."""
    spread(host)
    batches = all_batches(host.store, name, url)
    assert [batch.push_seq for batch in batches] == list(range(1, len(batches) + 1))
    runs = [run for batch in batches for run in batch.runs if enclave in (None, run.enclave)]
    return [seq for run in runs for seq in range(run.first_seq, run.first_seq + run.count)]


def notices(host: Host, name: str, url: str = URL) -> list[BatchNotice]:
    spread(host)
    return [notice for batch in all_batches(host.store, name, url) for notice in batch.notices]


def queued(host: Host, batches: int = 3) -> int:
    """Create a queue with this many batches; return its number."""
    enclave = create(host)
    listen(host, enclave, "vera")
    for _ in range(batches):
        host.now += 10
        say(host, enclave, 2)
        spread(host)
    (report,) = host.store.queue_reports()
    assert (report.push_seq, report.waiting, report.waiting_events) == (batches, batches, 2 * batches)
    return report.queue


def due(host: Host, at: int | None = None) -> list[tuple[int, int]]:
    return [(each.push_seq, each.tries) for each in host.store.due(host.now if at is None else at, 10)]
