"""Deliveries by real nodes: pushes arrive in order, even if endpoints, senders and nodes fail."""

import json
import os
import select
import signal
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from msgspec import structs

from enc.core.primitives.types import Receipt
from enc.node.config import PushSettings
from enc.node.push import supervisor
from enc.node.push.sender_pipe import Alive
from enc.node.push.supervisor import PushSupervisor
from enc.node.store.push_interface import DeliveryResult, PushResult
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import person, pub
from tests.forked import run
from tests.node import pushing
from tests.node.api.websocket_peer import Room
from tests.node.hooks import PATIENCE_S, Hooks
from tests.node.pushing import CONFIG, PUSHED
from tests.node.running import RunningNode, children
from tests.node.served import NODE, Served
from tests.plain_http import NO_TLS

TURNS = 10_000
"""The number of polls of a node after which an expected change counts as lost."""
QUICK = {
    "ENC_NODE_PUSH_INTERVAL_S": "0.01",
    "ENC_NODE_PUSH_FIRST_RETRY_S": "0.01",
    "ENC_NODE_PUSH_MAX_RETRY_S": "0.05",
    "ENC_NODE_PUSH_TRIES": "100",
}


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    with Hooks() as made:
        yield made


def started(tmp_path: Path, *flags: str, **push: object) -> RunningNode:
    """Start a node with short pauses between tries; `push` are settings of [push]."""
    settings = {f"ENC_NODE_PUSH_{name.upper()}": str(value) for name, value in push.items()}
    return RunningNode(tmp_path / "node", *flags, env=QUICK | settings)


def opened(node: RunningNode, hooks: Hooks, *names: str, trait: str = "dataview") -> Room:
    """Create an enclave whose messages are pushed to these people."""
    room = Room(node, **PUSHED)
    for name in names:
        register(room, hooks, name, trait)
    return room


def register(room: Room, hooks: Hooks, name: str, trait: str = "dataview") -> None:
    room.send("alice", "Grant", {"target": pub(name), "trait": trait, "endpoint": hooks.url(name)})


def say(room: Room, count: int = 1) -> list[Receipt]:
    return [room.post(commit) for commit in room.say(count, "bob")]


class Watched:
    """A process whose end can be awaited."""

    def __init__(self, pid: int) -> None:
        self.pid, self._descriptor = pid, os.pidfd_open(pid)

    def kill(self) -> None:
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def await_end(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1000), "the process has not ended"
        os.close(self._descriptor)


def sender_of(node: RunningNode) -> Watched:
    (pid,) = children(node.pid)
    return Watched(pid)


def metric(node: RunningNode, name: str) -> float:
    lines = httpx.get(f"{node.url}/metrics", trust_env=False, verify=NO_TLS).text.splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
    return float(value)


def comes_to(node: RunningNode, name: str, value: float) -> None:
    """Poll the node's metric until it has this value."""
    for _ in range(TURNS):
        if metric(node, name) == value:
            return
    raise AssertionError(f"{name} never came to {value}")


def entries(node: RunningNode, event: str) -> list[dict[str, Any]]:
    """Return the entries of this event in the node's log."""
    return [entry for line in node.log().splitlines() if (entry := json.loads(line))["event"] == event]


def command(node: RunningNode, *words: str, warning: str = "") -> str:
    done = run(["enc", "node", *words, "--data", str(node.data)], PATIENCE_S, text=True)
    assert (done.returncode, bool(done.stderr)) == (0, bool(warning)), done.stderr
    assert warning in done.stderr
    return done.stdout


def in_full(numbers: list[int]) -> bool:
    """Return whether every number from 1 on is present; some may be repeated."""
    return sorted(set(numbers)) == list(range(1, max(numbers, default=0) + 1))


# What arrives


def test_events_and_notices_arrive_whole_and_in_order(tmp_path: Path, hooks: Hooks) -> None:
    with started(tmp_path) as node:
        room = opened(node, hooks, "vera")
        register(room, hooks, "nick", "watcher")
        sent = say(room, 20)
        hooks.until(lambda: len(hooks.seqs("vera")) == 20)
        hooks.until(lambda: notices(hooks, "nick")[-1:] == [sent[-1].seq])
        assert hooks.seqs("vera") == [receipt.seq for receipt in sent]
        assert hooks.numbers("vera") == list(range(1, len(hooks.numbers("vera")) + 1))
        log = {event.seq: event.id.hex() for event in room.reader("alice").log(node.url)}
        events = [event for push in hooks.pushes["vera"] for event in push.body["push"]["enclaves"][0]["events"]]
        assert all(log[event["seq"]] == event["id"] for event in events)
        assert {push.from_ for push in hooks.pushes["vera"]} == {node.seq_pub}


def notices(hooks: Hooks, name: str) -> list[int]:
    return [each["seq"] for push in hooks.pushes[name] for each in push.body["notify"]["enclaves"]]


def test_a_node_without_endpoints_has_no_sender(tmp_path: Path, hooks: Hooks) -> None:
    with started(tmp_path) as node:
        say(opened(node, hooks), 3)
        httpx.get(f"{node.url}/health", verify=NO_TLS).raise_for_status()
        assert children(node.pid) == []
        say(opened(node, hooks, "vera"))
        hooks.until(lambda: hooks.numbers("vera") == [1])
        assert len(children(node.pid)) == 1


def test_a_sender_stands_back(tmp_path: Path, hooks: Hooks) -> None:
    with started(tmp_path) as node:
        say(opened(node, hooks, "vera"))
        hooks.until(lambda: bool(hooks.numbers("vera")))
        (sender,) = children(node.pid)
        own = os.getpriority(os.PRIO_PROCESS, 0)  # the node inherits it; not 0 if the tests run under `nice`
        assert os.getpriority(os.PRIO_PROCESS, sender) == own + 10
        if len(os.sched_getaffinity(0)) > 1:
            assert not os.sched_getaffinity(sender) & os.sched_getaffinity(node.pid)


def test_what_was_not_delivered_goes_out_after_a_restart_and_numbers_go_on(tmp_path: Path, hooks: Hooks) -> None:
    hooks.answers = lambda name, push_seq: 503
    with started(tmp_path, first_retry_s=600, max_retry_s=600) as node:
        room = opened(node, hooks, "vera")
        sent = say(room)
        hooks.until(lambda: hooks.numbers("vera") == [1])
    hooks.answers = lambda name, push_seq: 200
    with started(tmp_path) as room.node:
        sent += say(room)
        assert command(room.node, "redeliver", "--all") == "0 batches wait again\n1 endpoint is tried again\n"
        hooks.until(lambda: 2 in hooks.numbers("vera"))
    assert hooks.numbers("vera") == [1, 2]


def test_by_https_to_whoever_has_a_certificate(tmp_path: Path) -> None:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with Hooks(tls) as hooks:
        with started(tmp_path, tries=1) as node:
            room = opened(node, hooks, "vera")
            say(room)
            assert any(metric(node, "enc_push_challenges_failed_total") for _ in range(TURNS))
            assert entries(node, "endpoint_failing")[0]["reason"] == "the certificate is not valid"
            assert not hooks.challenges
            assert not hooks.pushes
        with started(tmp_path, ca_file=tmp_path / "ca.pem") as room.node:
            command(room.node, "redeliver", "--all")
            hooks.until(lambda: hooks.numbers("vera") == [1])


# Endpoints that do not answer


def test_an_endpoint_that_fails_and_recovers(tmp_path: Path, hooks: Hooks) -> None:
    hooks.answers = lambda name, push_seq: 503 if len(hooks.pushes[name]) < 4 else 200
    with started(tmp_path) as node:
        room = opened(node, hooks, "vera")
        sent = say(room)
        hooks.until(lambda: len(hooks.pushes["vera"]) == 4)
        comes_to(node, "enc_push_delivered_total", 1)
        assert hooks.numbers("vera") == [1, 1, 1, 1]
        assert hooks.seqs("vera") == [sent[0].seq]
        assert metric(node, "enc_push_failed_total") == 3
        assert metric(node, "enc_push_dead_total") == 0
        (failing,), (recovered,) = entries(node, "endpoint_failing"), entries(node, "endpoint_recovered")
    assert (failing["identity"], failing["host"], failing["reason"]) == (pub("vera"), "127.0.0.1", "status 503")
    assert (recovered["identity"], recovered["host"]) == (pub("vera"), "127.0.0.1")


def test_a_batch_that_fails_waits_while_later_ones_go_on(tmp_path: Path, hooks: Hooks) -> None:
    hooks.answers = lambda name, push_seq: 500 if push_seq == 1 else 200
    with started(tmp_path) as node:
        room = opened(node, hooks, "vera")
        for number in range(1, 5):
            say(room)
            hooks.until(lambda number=number: number in hooks.numbers("vera"))  # type: ignore[misc]
        assert [number for number in hooks.numbers("vera") if number > 1] == [2, 3, 4]


def test_an_endpoint_that_hangs_delays_no_other(tmp_path: Path, hooks: Hooks) -> None:
    hooks.hang("vera")
    with started(tmp_path, connections=4) as node:
        room = opened(node, hooks, "vera", "victor")
        sent = [*say(room)]
        hooks.until(lambda: hooks.numbers("vera") == [1])
        for count in range(2, 6):
            sent += say(room)
            hooks.until(lambda count=count: len(hooks.seqs("victor")) == count)  # type: ignore[misc]
        assert hooks.numbers("vera") == [1]
        hooks.let_go()
        hooks.until(lambda: hooks.seqs("vera") == [receipt.seq for receipt in sent])


def test_an_endpoint_that_does_not_answer_in_time_has_failed(tmp_path: Path, hooks: Hooks) -> None:
    hooks.hang("vera")
    with started(tmp_path, timeout_s=0.1) as node:
        say(opened(node, hooks, "vera"))
        hooks.until(lambda: len(hooks.pushes["vera"]) > 1)
        assert hooks.numbers("vera")[:2] == [1, 1]
        hooks.let_go()
        comes_to(node, "enc_push_delivered_total", 1)
        (failing,) = entries(node, "endpoint_failing")
    assert failing["reason"] == "no answer in time"


def test_sixty_endpoints_half_of_them_hanging(tmp_path: Path, hooks: Hooks) -> None:
    people = [f"hook{i}" for i in range(60)]
    stuck, live = people[::2], people[1::2]
    hooks.hang(*stuck)
    with started(tmp_path, connections=16, timeout_s=0.3) as node:
        room = opened(node, hooks, *people)
        sent = say(room, 3)
        hooks.until(lambda: all(len(hooks.seqs(name)) == 3 for name in live))
        sent += say(room, 3)
        hooks.until(lambda: all(len(hooks.seqs(name)) == 6 for name in live))
        hooks.let_go()
        hooks.until(lambda: all(len(hooks.seqs(name)) == 6 for name in stuck))
    for name in people:
        assert hooks.seqs(name) == [receipt.seq for receipt in sent]
        assert in_full(hooks.numbers(name))


def test_what_hung_before_a_restart_delays_nobody_after_it(tmp_path: Path, hooks: Hooks) -> None:
    """More endpoints hang than there are connections, and none of their tries ends."""
    stuck = [f"hook{i}" for i in range(8)]
    hooks.answers = lambda name, push_seq: 503 if name in stuck else 200
    with started(tmp_path, connections=4, first_retry_s=600, max_retry_s=600) as node:
        room = opened(node, hooks, *stuck, "vera")
        say(room)
        hooks.until(lambda: len(hooks.seqs("vera")) == 1 and all(map(hooks.numbers, stuck)))
    hooks.hang(*stuck)
    with started(tmp_path, connections=4) as room.node:
        sent = say(room)
        hooks.until(lambda: hooks.seqs("vera")[1:] == [sent[0].seq])
        hooks.let_go()


# Dead letters


def test_a_dead_letter_is_told_of_and_sent_again_when_its_operator_says_so(tmp_path: Path, hooks: Hooks) -> None:
    hooks.answers = lambda name, push_seq: 500
    with started(tmp_path, tries=3) as node:
        room = opened(node, hooks, "vera")
        sent = say(room)
        comes_to(node, "enc_push_dead_total", 1)
        assert hooks.numbers("vera") == [1, 1, 1]
        (dead,) = entries(node, "batch_dead")
        expected = {"identity": pub("vera"), "host": "127.0.0.1", "push_seq": 1, "reason": "status 500"}
        assert expected.items() <= dead.items()
        queue = json.loads(command(node, "queues", "--json"))
        assert (queue["waiting"], queue["dead"], queue["last_error"]) == (0, 1, "status 500")
        hooks.answers = lambda name, push_seq: 200
        assert command(node, "redeliver", "--identity", pub("bob"), warning="no such queue") == "0 batches wait again\n"
        found = command(node, "redeliver", "--identity", pub("vera"), "--url", hooks.url("vera"))
        assert found == "1 batch waits again\n1 endpoint is tried again\n"
        comes_to(node, "enc_push_delivered_total", 1)
        assert hooks.numbers("vera") == [1, 1, 1, 1]
        assert hooks.seqs("vera") == [sent[0].seq]


def test_no_log_has_the_contents_or_the_path_of_an_endpoint(tmp_path: Path, hooks: Hooks) -> None:
    hooks.answers = lambda name, push_seq: 500
    with started(tmp_path, "--log-level", "debug", tries=2) as node:
        room = opened(node, hooks, "vera")
        room.send("bob", "message", "a word that nobody else says")
        comes_to(node, "enc_push_dead_total", 1)
        assert "a word" not in node.log()
        assert "/vera" not in node.log()


# Endpoints that are not confirmed, or gone


def test_nothing_is_pushed_before_the_endpoint_has_answered_a_challenge(tmp_path: Path, hooks: Hooks) -> None:
    hooks.confirms = lambda name: False
    with started(tmp_path) as node:
        room = opened(node, hooks, "vera")
        sent = say(room)
        hooks.until(lambda: len(hooks.challenges["vera"]) == 3)
        assert hooks.numbers("vera") == []
        hooks.confirms = lambda name: True
        hooks.until(lambda: hooks.seqs("vera") == [sent[0].seq])
        comes_to(node, "enc_push_confirmed_total", 1)
        before = len(hooks.challenges["vera"])
        sent += say(room)
        hooks.until(lambda: hooks.seqs("vera") == [receipt.seq for receipt in sent])
        assert len(hooks.challenges["vera"]) == before
    with started(tmp_path) as room.node:
        say(room)
        hooks.until(lambda: len(hooks.seqs("vera")) == 3)
        assert len(hooks.challenges["vera"]) == before, "a confirmation is durable"


def test_a_node_that_asks_nobody(tmp_path: Path, hooks: Hooks) -> None:
    with started(tmp_path, require_challenge="false") as node:
        say(opened(node, hooks, "vera"))
        hooks.until(lambda: hooks.numbers("vera") == [1])
    assert not hooks.challenges


def test_an_endpoint_that_is_gone_gets_nothing_until_it_is_resumed(tmp_path: Path, hooks: Hooks) -> None:
    hooks.answers = lambda name, push_seq: 410
    with started(tmp_path) as node:
        room = opened(node, hooks, "vera", "victor")
        hooks.answers = lambda name, push_seq: 410 if name == "vera" else 200
        sent = say(room)
        comes_to(node, "enc_push_suspended_total", 1)
        for count in range(2, 5):
            sent += say(room)
            hooks.until(lambda count=count: len(hooks.seqs("victor")) == count)  # type: ignore[misc]
        assert (len(hooks.challenges["vera"]), hooks.numbers("vera")) == (1, [1])
        (queue,) = [
            each
            for each in map(json.loads, command(node, "queues", "--json").splitlines())
            if each["identity"] == pub("vera")
        ]
        assert (queue["state"], queue["dead"], queue["last_error"]) == ("suspended", 0, "status 410")
        hooks.answers = lambda name, push_seq: 200
        command(node, "redeliver", "--identity", pub("vera"))
        hooks.until(lambda: hooks.seqs("vera") == [receipt.seq for receipt in sent])
        assert len(hooks.challenges["vera"]) == 2


def test_a_new_registration_resumes_an_endpoint(tmp_path: Path, hooks: Hooks) -> None:
    hooks.answers = lambda name, push_seq: 410
    with started(tmp_path) as node:
        room = opened(node, hooks, "vera")
        say(room)
        comes_to(node, "enc_push_suspended_total", 1)
        hooks.answers = lambda name, push_seq: 200
        register(room, hooks, "vera")
        hooks.until(lambda: hooks.numbers("vera") == [1, 1])


# Processes that die


def test_a_sender_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path: Path, hooks: Hooks) -> None:
    hooks.hang("vera")
    with started(tmp_path) as node:
        room = opened(node, hooks, "vera", "victor")
        sent = say(room, 5)
        hooks.until(lambda: bool(hooks.numbers("vera")) and len(hooks.seqs("victor")) == 5)
        sender = sender_of(node)
        sender.kill()
        sender.await_end()
        sent += say(room, 5)
        hooks.until(lambda: len(hooks.seqs("victor")) == 10)
        hooks.let_go()
        hooks.until(lambda: len(hooks.seqs("vera")) == 10)
        assert [pid for pid in children(node.pid) if pid != sender.pid]
        assert entries(node, "sender_failed")[0]["pid"] == sender.pid
    for name in ("vera", "victor"):
        assert hooks.seqs(name) == [receipt.seq for receipt in sent]
        assert in_full(hooks.numbers(name))


def test_a_node_that_is_killed_leaves_no_sender(tmp_path: Path, hooks: Hooks) -> None:
    hooks.hang("vera")
    with started(tmp_path) as node:
        room = opened(node, hooks, "vera")
        sent = say(room, 3)
        hooks.until(lambda: bool(hooks.numbers("vera")))
        sender = sender_of(node)
        node.kill()
        sender.await_end()
    hooks.let_go()
    with started(tmp_path) as room.node:
        sent += say(room, 1)
        hooks.until(lambda: len(hooks.seqs("vera")) == 4)
    assert hooks.seqs("vera") == [receipt.seq for receipt in sent]
    assert in_full(hooks.numbers("vera"))


def test_a_node_stops_in_order_while_an_endpoint_hangs(tmp_path: Path, hooks: Hooks) -> None:
    hooks.hang("vera")
    with started(tmp_path) as node:
        say(opened(node, hooks, "vera"))
        hooks.until(lambda: hooks.numbers("vera") == [1])
        sender = sender_of(node)
        node.stop()
        sender.await_end()
        assert not entries(node, "internal_error")


def test_a_delivery_that_ends_while_the_sender_stops_is_kept(tmp_path: Path, hooks: Hooks) -> None:
    """The sender finishes deliveries in flight, and the node records their results."""
    settled: list[PushResult] = []
    config = structs.replace(CONFIG, data=str(tmp_path), push=PushSettings(interval_s=0.01, require_challenge=False))
    with Served(CONFIG, SqliteStore(config.store_path)) as served:
        enclave = served.create(PUSHED)
        pushing.register(enclave, "vera", "dataview", hooks.url("vera"))
        pushing.say(enclave, "one")
        hooks.hang("vera")
        senders = PushSupervisor(config, NODE, lambda: True, settled.extend)
        senders.start()
        hooks.until(lambda: hooks.numbers("vera") == [1])
        standard_input = Path(f"/proc/{senders.pid}/fd/0")
        closing = threading.Thread(target=senders.close)
        closing.start()
        while os.path.lexists(standard_input):  # until the sender has seen its end
            pass
        hooks.let_go()
        closing.join(PATIENCE_S)
        served.stop()
        served.store.close()
    assert [(each.push_seq, each.error) for each in settled if isinstance(each, DeliveryResult)] == [(1, "")]


def test_a_stopped_sender_is_killed_and_replaced(tmp_path: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pipes stay open: the node notices that it says nothing."""
    monkeypatch.setattr(supervisor, "SILENT_S", 5.0)
    monkeypatch.setattr(supervisor, "ALIVE_S", 0.1)
    config = structs.replace(CONFIG, data=str(tmp_path), push=PushSettings(interval_s=0.01, require_challenge=False))
    with Served(CONFIG, SqliteStore(config.store_path)) as served:
        enclave = served.create(PUSHED)
        pushing.register(enclave, "vera", "dataview", hooks.url("vera"))
        pushing.say(enclave, "one")
        senders = PushSupervisor(config, NODE, lambda: True, served.node._store_results)
        senders.start()
        hooks.until(lambda: hooks.numbers("vera") == [1])
        stopped = senders.pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        pushing.say(enclave, "two")
        hooks.until(lambda: 2 in hooks.numbers("vera"))
        assert senders.failures >= 1
        assert senders.pid != stopped
        senders.close()
        served.stop()
        served.store.close()


def test_a_sender_that_waits_shows_that_it_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "ALIVE_S", 0.02)
    heard, read = threading.Semaphore(0), supervisor._Process.read

    def counted(process: Any) -> Any:
        message = read(process)
        assert isinstance(message, Alive | None)
        heard.release()
        return message

    monkeypatch.setattr(supervisor._Process, "read", counted)
    config = structs.replace(CONFIG, data=str(tmp_path))
    SqliteStore(config.store_path).close()
    senders = PushSupervisor(config, NODE, lambda: True, lambda results: None)
    senders.start()
    for _ in range(5):
        assert heard.acquire(timeout=PATIENCE_S)
    assert senders.failures == 0
    senders.close()


def test_the_sender_is_not_given_the_node_s_key(tmp_path: Path, hooks: Hooks) -> None:
    """The sender asks the node for the key of each recipient."""
    with started(tmp_path) as node:
        say(opened(node, hooks, "vera"))
        hooks.until(lambda: hooks.numbers("vera") == [1])
        secret = (node.data / "node.key").read_text().strip()
        (sender,) = children(node.pid)
        assert secret.encode() not in memory(sender)
        assert bytes.fromhex(secret) not in memory(sender)
        assert node.seq_pub.hex().encode() in memory(sender)
        assert person("vera").public in memory(sender)


def memory(pid: int) -> bytes:
    """Return the contents of a process's writable memory."""
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb", 0) as mem:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, rights, *_ = line.split()
            if rights.startswith("rw") and "[v" not in line:
                start, end = (int(part, 16) for part in where.split("-"))
                mem.seek(start)
                try:
                    parts.append(mem.read(end - start))
                except OSError:
                    continue
    return b"".join(parts)
