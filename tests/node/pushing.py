"""An enclave whose events are pushed, and batches that a test makes on demand.

alice owns it, bob writes, vera is pushed messages and one slot, nick gets notices of messages.
"""

from typing import Any

from msgspec import structs

from enc.node.config import NodeConfig, PushSettings
from enc.node.store.push_interface import BatchLimits, PushResult, QueueReport
from tests.core.world import person, pub
from tests.node.served import DEV, PATIENCE_S, SMALL, Enclave, Json, Served

URL, OTHER_URL = "https://hooks.example/push", "https://hooks.example/other"

CONFIG: NodeConfig = structs.replace(DEV, push=PushSettings(interval_s=3600))
"""Settings of a node that makes batches only when a test calls `spread`."""

_FEED = {"alias": "feed", "gate": {"operator": ["owner"]}}
_WHERE = {"scope": ["OUTSIDER", "MEMBER"], "trait": ["dataview", "watcher", "helper"]}

PUSHED: Json = {
    **SMALL,
    "traits": ["owner(0)", "admin(1)", "dataview(2)", "watcher(3)", "helper(4)"],
    "grants": [
        {"event": "Grant", "operator": "admin", **_WHERE},
        {"event": "Revoke", "operator": "admin", **_WHERE},
    ],
    "slots": [
        {"event": "Shared", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": "topic"},
        {"event": "Shared", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": "plans"},
        {"event": "Shared", "operator": "dataview", "ops": ["P"], "key": "topic"},
        {"event": "Shared", "operator": "helper", "ops": ["P"], "key": "plans"},
    ],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "Sender", "ops": ["U", "D"]},
        {"event": "message", "operator": "dataview", "ops": ["P"], **_FEED},
        {"event": "message", "operator": "watcher", "ops": ["N"]},
        {"event": "note", "operator": "MEMBER", "ops": ["C"]},
        {"event": "note", "operator": ["helper", "watcher"], "ops": ["N"]},
        {"event": "secret", "operator": "MEMBER", "ops": ["C"]},
    ],
}


def room(node: Served, **changes: Any) -> Enclave:
    """Create the enclave, with an endpoint for vera and one for nick."""
    enclave = node.create(PUSHED, **changes)
    register(enclave, "vera", "dataview")
    register(enclave, "nick", "watcher")
    return enclave


def register(enclave: Enclave, name: str, trait: str, url: str = URL) -> None:
    enclave.send("alice", "Grant", {"target": pub(name), "trait": trait, "endpoint": url})


def grant(enclave: Enclave, name: str, trait: str) -> None:
    enclave.send("alice", "Grant", {"target": pub(name), "trait": trait})


def revoke(enclave: Enclave, name: str, trait: str) -> None:
    enclave.send("alice", "Revoke", {"target": pub(name), "trait": trait})


def say(enclave: Enclave, *texts: str, type_: str = "message") -> list[int]:
    """Send messages by bob, which become one batch for each recipient; return their seqs."""
    seqs = [enclave.send("bob", type_, text).seq for text in texts]
    spread(enclave.node)
    return seqs


def spread(node: Served) -> None:
    """Make batches of the waiting events."""
    node.node.sequencer.call(lambda: node.store.fan_out(node.clock.now, BatchLimits())).result(PATIENCE_S)


def settle(node: Served, *outcomes: PushResult) -> None:
    node.node.sequencer.call(lambda: node.store.record_results(outcomes)).result(PATIENCE_S)


def report(node: Served, name: str, url: str = URL) -> QueueReport:
    (found,) = [each for each in node.store.queue_reports(identity=person(name).public) if each.url == url]
    return found


def pull(enclave: Enclave, name: str, push_seq: Any, url: str = URL, /, **more: Any) -> list[Json]:
    found: list[Json] = enclave.ask(name, "Pull", url=url, push_seq=push_seq, **more)
    return found


def numbers(batches: list[Json]) -> list[int]:
    return [batch["push_seq"] for batch in batches]


def seqs(batch: Json, enclave: Enclave) -> list[int]:
    """Return the seqs of an enclave's events in a batch."""
    found = [each for each in batch.get("push", {"enclaves": []})["enclaves"] if each["enclave"] == enclave.id.hex()]
    return [event["seq"] for each in found for event in each["events"]]
