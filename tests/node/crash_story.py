"""Nodes that die, and checks of later nodes against every answer that clients have received.

Clients commit to several enclaves, over HTTP connections and a WebSocket that also subscribes.
`Outside` records the answers: receipts, signed heads, events of the subscription. The node dies, is
started again without a fault, and is checked against all of them. It continues with the same data,
so each crash acts on the result of the one before.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import httpx
from msgspec.json import decode, encode
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.receipt import build_receipt, check_receipt, parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import open_text
from enc.core.primitives.types import Commit, Receipt, TreeHead
from enc.core.session.envelope import seal_request
from enc.core.session.session import TransportKeys, client_keys, open_session
from enc.core.trees.merkle_log import check_consistency
from enc.core.trees.proof import parse_consistency
from enc.core.trees.tree_head import check_bound_head, parse_head
from enc.node.fsck import check_store
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import give, grant, person, rule
from tests.node.crash_node import (
    Launched,
    Launcher,
)
from tests.node.push_audit import check_queues
from tests.node.small_v1 import SMALL_V1
from tests.node.store_host import MANIFEST
from tests.plain_http import NO_TLS
from tests.tiers import rounds


class NodeProcess(Protocol):
    """A node in another process, of either launcher: its address, its key and its data directory."""

    url: str
    seq_pub: bytes
    data: Path


PUSH_RIGHTS = {
    "traits": ["owner(0)", "admin(1)", "watch(2)"],
    "grants": [grant(type_, "owner", "admin watch", "OUTSIDER MEMBER") for type_ in ("Grant", "Revoke")],
    "customs": [*MANIFEST["customs"], rule("message", "admin", "P"), rule("message", "watch", "N")],
}
"""The parts of a manifest that give some people pushes of messages, and others only notices of them."""
CONNECTIONS = 3
"""The number of HTTP connections, beside one WebSocket."""
WINDOW = 4
"""Commits in flight on the WebSocket."""
MOST = 100
"""The number of commits on one connection within which a node should have died."""
LIFETIME_MS = 600_000
"""How long a commit is valid."""
LANES, KILLS = (1, 2), rounds(5)
"""Seeds of the stories that run in parallel, and the number of random kills in each."""
PATIENCE_S = 30
AUDIT_EVERY = 5


def client(node: NodeProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=node.url, timeout=PATIENCE_S, verify=NO_TLS, trust_env=False)


class Outside:
    """The clients' knowledge of a node: the commits that they sent, and the answers that they received."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.ahead_ms = 0
        self.lifetime_ms: int | None = None
        """The time after which message contents are to be deleted; None if never."""
        self.enclaves: list[bytes] = []
        self._versions: dict[bytes, int] = {}
        self.commits: dict[bytes, Commit] = {}
        self.receipts: dict[bytes, Receipt] = {}
        self.shown: dict[bytes, bytes] = {}
        """Events of subscriptions: id to commit hash."""
        self.heads: dict[bytes, list[TreeHead]] = {}
        """Heads that were not yet compared with a later one."""
        self._number = 0
        self._gone: set[bytes] = set()
        """Hashes of commits that are not checked any more."""
        self._acknowledged: list[Commit] = []
        """Commits acknowledged since the last check."""
        self._free: dict[bytes, list[bytes]] = {}
        """Messages that were neither updated nor deleted."""

    # Commits

    def sign(self, enclave: bytes, type_: str, content: Any, *tags: tuple[str, ...], by: str = "alice") -> Commit:
        text = content if isinstance(content, str) else compact_json(content)
        exp = self._exp()
        if self.lifetime_ms is not None and type_ == "message":
            tags = (*tags, ("auto-delete", str(exp + self.lifetime_ms)))
        enc_v = self._versions[enclave]
        return self._keep(build_commit(person(by), enclave, type_, text, exp, tags, enc_v=enc_v))

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def _exp(self) -> int:
        return self.now() + LIFETIME_MS

    def forget(self, enclave: bytes, before: set[bytes]) -> list[Commit]:
        """Stop checking this enclave. Return the commits that were sent to it since `before`."""
        gone = [commit for commit in self.commits.values() if commit.enclave == enclave and commit.hash not in before]
        self.enclaves.remove(enclave)
        self.heads.pop(enclave, None)
        for commit in gone:
            del self.commits[commit.hash], self.receipts[commit.hash]
        self._acknowledged = [commit for commit in self._acknowledged if commit.enclave != enclave]
        self._gone |= {commit.hash for commit in gone}
        return gone

    def _keep(self, commit: Commit) -> Commit:
        self._number += 1
        self.commits[commit.hash] = commit
        return commit

    def manifest(self) -> Commit:
        """Build a Manifest: every third closes bundles by the clock, others by size; every second is of version 1."""
        number = self._number
        bundle = {"size": 100, "timeout": 20} if number % 3 == 2 else {"size": 3, "timeout": 60_000}
        with_pushes = {**MANIFEST, **PUSH_RIGHTS}
        content = {**(SMALL_V1 if number % 2 else with_pushes), "bundle": bundle, "meta": {"number": number}}
        enc_v = content["enc_v"]
        commit = build_manifest(person("alice"), compact_json(content), self._exp(), enc_v=enc_v)
        self._versions[commit.enclave] = enc_v
        return self._keep(commit)

    def any_commit(self) -> Commit:
        rng, number = self.rng, self._number
        enclave, free = (found := rng.choice(self.enclaves)), self._free[found]
        kind = rng.randrange(30)
        if kind == 0:
            return self.manifest()
        if kind < 6 and free:
            return self.sign(enclave, "Update", f"<again {number}>", ("r", free.pop().hex()))
        if kind < 9 and free:
            return self.sign(enclave, "Delete", {"reason": "author"}, ("r", free.pop().hex()))
        if kind < 12:
            return self.sign(enclave, "Shared", {"key": "topic", "value": number})
        if kind < 15:
            return self.sign(enclave, "note", f"<note {number}>", by="bob")
        if kind < 18:
            return self.access(enclave, "Grant" if kind < 17 else "Revoke")
        return self.sign(enclave, "message", f"<message {number}>", ("r", "ab"), ("k", str(number % 7)))

    def access(self, enclave: bytes, type_: str) -> Commit:
        """Give somebody an endpoint, or revoke the right that it depends on."""
        number = ("n", str(self._number))  # the tag makes two commits of one millisecond different
        who, trait = self.rng.choice([("vera", "admin"), ("nick", "watch"), ("carol", "admin")])
        url = {"endpoint": f"https://{self.rng.randrange(3)}.example/"} if type_ == "Grant" else {}
        if self._versions[enclave] == 1:
            role = {"identity": person(who).public.hex(), "role": "DataView", **url}
            return self.sign(enclave, "Grant_Push" if url else type_, role, number)
        return self.sign(enclave, type_, give(who, trait, **url), number)

    # Answers

    def take_receipt(self, commit: Commit, wire: Any, seq_pub: bytes) -> None:
        receipt = parse_receipt(encode(wire))
        check_receipt(receipt, commit, seq_pub)
        assert self.receipts.setdefault(commit.hash, receipt) == receipt, "two receipts for one commit"
        self._acknowledged.append(commit)
        if commit.type == "Manifest":
            self.enclaves.append(commit.enclave)
            self._free[commit.enclave] = []
        elif commit.type == "message":
            self._free[commit.enclave].append(receipt.id)

    def take_head(self, enclave: bytes, data: bytes, seq_pub: bytes) -> None:
        head = parse_head(data)
        check_bound_head(head, seq_pub, enclave)
        self.heads.setdefault(enclave, []).append(head)

    def take_event(self, wire: Any) -> None:
        event_id, commit_hash = bytes.fromhex(wire["id"]), bytes.fromhex(wire["hash"])
        assert event_id not in self.shown, "an event was shown twice"
        self.shown[event_id] = commit_hash

    # Checks after a crash

    async def check(self, node: NodeProcess) -> int:
        """Check every answer again; send commits without an answer again, which must get a receipt.

        Return how many of those the node had already accepted.
        """
        checked, self._acknowledged = self._acknowledged, []
        checked += self.rng.sample(list(self.commits.values()), min(5, len(self.commits)))
        unanswered = [commit for commit in self.commits.values() if commit.hash not in self.receipts]
        async with connect(node.url.replace("http", "ws"), ping_interval=None) as ws:
            taken = 0
            for commit in unanswered:
                answer = await send(ws, commit)
                taken += answer["type"] == "Error"
                assert answer["type"] == "Receipt" or answer["code"] == "DUPLICATE", answer
                self.take_receipt(commit, answer.get("receipt", answer), node.seq_pub)
            for commit in {commit.hash: commit for commit in checked + unanswered}.values():
                answer = await send(ws, commit)
                assert answer["code"] == "DUPLICATE", answer
                assert parse_receipt(encode(answer["receipt"])) == self.receipts[commit.hash]
        self._acknowledged = []
        async with client(node) as http:
            for enclave, heads in self.heads.items():
                await check_heads(http, enclave, heads, node.seq_pub)
        self.heads = {}
        return taken

    def audit(self, node: Launched) -> None:
        """Check the store of a dead node: its logs are valid, and each commit is there once, as its receipt states."""
        store = SqliteStore(node.data / "enc.db")
        try:
            report = check_store(store, node.seq_pub, None, lambda more: None)
            assert not report.differences, report.differences
            check_queues(store)
            events = [event for enclave in store.enclaves() for event in store.events(enclave, 0, 1 << 30)]
        finally:
            store.close()
        found = {event.hash: event for event in events}
        assert len(found) == len(events), "a commit is stored twice"
        assert found.keys() <= self.commits.keys() | self._gone
        for commit_hash, receipt in self.receipts.items():
            assert build_receipt(found[commit_hash]) == receipt
        for event_id, commit_hash in self.shown.items():
            assert found[commit_hash].id == event_id


async def send(ws: ClientConnection, commit: Commit) -> Any:
    """Send a commit, and return the node's answer."""
    await ws.send(encode(wire_commit(commit)).decode())
    async with asyncio.timeout(PATIENCE_S):
        answer = decode(await ws.recv())
    assert answer["hash"] == commit.hash.hex(), answer
    return answer


async def check_heads(http: httpx.AsyncClient, enclave: bytes, heads: list[TreeHead], seq_pub: bytes) -> None:
    """Check that each of these heads is the head of a prefix of the log."""
    answer = await http.get(f"/{enclave.hex()}/sth")
    now = parse_head(answer.content)
    check_bound_head(now, seq_pub, enclave)
    for head in {head.ts: head for head in heads if head.ts}.values():
        assert all(other.r == head.r for other in heads if other.ts == head.ts), "two roots for one size"
        answer = await http.get(f"/{enclave.hex()}/consistency?from={head.ts}&to={now.ts}")
        check_consistency(parse_consistency(answer.content), head.r, now.r)


class Load:
    """All clients at once, until the node has died.

    `report` is called for each commit that is "sent", "acknowledged" or, where the node may be unavailable, "refused".
    """

    def __init__(
        self,
        outside: Outside,
        node: NodeProcess,
        report: Callable[[str], None] = lambda what: None,
        most: int = MOST,
        may_refuse: bool = False,
    ) -> None:
        self._outside, self._node, self._report, self._most = outside, node, report, most
        self._may_refuse = may_refuse
        self._listens_only = False
        """Whether the WebSocket only receives, because the node has announced its end."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._until_gone(self._post))
            group.create_task(self._until_gone(self._talk))

    async def _until_gone(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except httpx.TimeoutException:
            raise
        except (httpx.TransportError, WebSocketException, OSError):
            pass

    async def _post(self) -> None:
        async with client(self._node) as http:
            for _ in range(self._most):
                commit = self._outside.any_commit()
                self._report("sent")
                answer = await http.post("/", content=encode(wire_commit(commit)))
                self._take(commit, answer.json())
                if self._outside.rng.random() < 0.2:
                    enclave = self._outside.rng.choice(self._outside.enclaves)
                    answer = await http.get(f"/{enclave.hex()}/sth")
                    self._outside.take_head(enclave, answer.content, self._node.seq_pub)

    def _take(self, commit: Commit, answer: Any) -> None:
        if answer["type"] == "Receipt":
            self._outside.take_receipt(commit, answer, self._node.seq_pub)
            self._report("acknowledged")
        else:
            assert (self._may_refuse, answer["code"]) == (True, "UNAVAILABLE"), answer
            self._report("refused")

    async def _talk(self) -> None:
        waiting: dict[str, Commit] = {}
        async with connect(self._node.url.replace("http", "ws"), ping_interval=None) as ws:
            keys = await self.subscribe(ws)
            with suppress(ConnectionClosed):
                for _ in range(self._most):
                    if self._listens_only:
                        break
                    commit = self._outside.any_commit()
                    waiting[commit.hash.hex()] = commit
                    self._report("sent")
                    await ws.send(encode(wire_commit(commit)).decode())
                    while len(waiting) >= WINDOW:
                        self.take_message(decode(await ws.recv()), waiting, keys)
            while waiting:  # answers that were sent before the end
                self.take_message(decode(await ws.recv()), waiting, keys)

    async def subscribe(self, ws: ClientConnection, **more: str) -> TransportKeys:
        """Subscribe to events after all that are stored; return the keys of the session."""
        session = open_session(person("alice"), self._outside.now() // 1000 + 600)
        enclave, seq_pub = self._outside.enclaves[0], self._node.seq_pub
        body = {"filter": {"timestamp": {"start_at": self._outside.now()}}}
        request = seal_request(session, seq_pub, enclave, "Query", body, os.urandom(24))
        await ws.send(encode({**request, **more}).decode())
        while decode(await ws.recv())["type"] != "EOSE":
            pass
        return client_keys(session, seq_pub, enclave)

    def take_message(self, message: Any, waiting: dict[str, Commit], keys: TransportKeys) -> None:
        if "hash" in message:
            self._take(waiting.pop(message["hash"]), message)
        elif message["type"] == "Event":
            self._outside.take_event(decode(open_text(keys.response, message["event"]))["event"])
        else:
            expected = ("Notice", "Closed", "Error") if self._may_refuse else ("Notice", "Closed")
            assert message["type"] in expected, message
            self._listens_only = True


class Story:
    """One data directory, and the nodes that die on it."""

    def __init__(self, launcher: Launcher, data: Path, seed: int = 0, **order: Any) -> None:
        self._launcher, self.data, self._order = launcher, data, order
        self.outside = Outside(seed)
        self._kills = 0

    def start(self, **order: Any) -> Launched:
        return self._launcher.start(self.data, **{**self._order, **order})

    def send(self, node: Launched, *commits: Commit) -> None:
        """Send these commits in turn; the node must accept each."""

        async def run() -> None:
            async with connect(node.url.replace("http", "ws"), ping_interval=None) as ws:
                for commit in commits:
                    self.outside.take_receipt(commit, await send(ws, commit), node.seq_pub)

        asyncio.run(run())

    def create(self, enclaves: int = 3) -> None:
        """Create some enclaves on a node without a fault, and kill it."""
        node = self.start()
        assert node.url, node.log()
        manifests = [self.outside.manifest() for _ in range(enclaves)]
        self.send(node, *manifests)
        self.send(node, *(self.outside.access(each.enclave, "Grant") for each in manifests))
        node.kill()
        self._last = node

    def die(self, node: Launched) -> None:
        """Check that the node was killed, and check the next one against its answers."""
        assert node.wait() == -signal.SIGKILL, node.log()
        self.recover()
        self._kills += 1
        if self._kills % AUDIT_EVERY == 0:
            self.audit()

    def recover(self) -> None:
        """Check a node without a fault against all answers so far, and kill it too."""
        node = self._last = self.start()
        assert node.url, node.log()
        self.check(node)
        node.kill()

    def check(self, node: Launched) -> int:
        return asyncio.run(self.outside.check(node))

    def audit(self) -> None:
        self.outside.audit(self._last)

    def log(self) -> str:
        """Return the log that all nodes of this data directory have written."""
        return self._last.log()

    def turn(self, node: Launched, times: int) -> None:
        """Let the sequencer run this many rounds; in each it also does the work that is due."""
        with httpx.Client(base_url=node.url, timeout=PATIENCE_S, verify=NO_TLS, trust_env=False) as http:
            for _ in range(times):
                assert http.get("/health").status_code == 200
