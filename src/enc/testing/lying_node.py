"""A node in memory that lies on request: it gives all answers of a real node, without sockets, threads or a clock.

    node = LyingNode(Clock(), PrivateKey(secret))
    httpx.Client(transport=httpx.MockTransport(node))

It is honest by default. `lie(kind, alter)` alters every answer of one kind, before it is sealed;
`wire` alters the bytes on the wire, and `arrives` may raise for a request that is lost. `copy` returns
a second node with the same key and the same events, which may then continue differently; `successor`
returns one with another key, to which an enclave has moved, or which claims that.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol, get_args

import httpx
from msgspec.json import decode, encode
from msgspec.structs import replace
from starlette.requests import Request as HttpRequest

from enc.core.errors import EncError, EnclaveNotFound, MisuseError
from enc.core.log.commit import build_commit, check_commit, manifest_version, parse_commit
from enc.core.log.event import finalize
from enc.core.log.receipt import wire_receipt
from enc.core.machine import enclave as machine
from enc.core.primitives.encoding import compact_json, unhex
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit, Event, Receipt, TreeHead
from enc.core.rules.policy_types import Effects
from enc.core.session.envelope import RequestType, answer_text, open_request, parse_request, seal_answer
from enc.core.session.session import node_keys
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head
from enc.node.api.registry import RegistryApi
from enc.node.read.proofs import Proofs
from enc.node.read.request_handlers import SealedHandlers
from enc.node.read.steps import finish
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome
from enc.node.sequence.sequencer import Sequencer
from enc.node.sequence.state_cache import StateCache
from enc.node.store.steps import Step
from enc.runtime.rate_limit import RateLimiter
from enc.testing.clock import Clock
from enc.testing.memory_store import MemoryStore

Json = dict[str, Any]
Alter = Callable[[Any], Any]
"""Takes the honest answer (or error) and returns the answer to send; None: it was altered in place."""

MAX_PAGE = 8 << 20
LIMITS = {"commits_per_request": 256, "body": 2 << 20}
"""What /info says of its limits."""
LOOKUPS = {"nodes": "seq_pub", "enclaves": "enclave_id", "resolve": "enclave_id", "identity": "id_pub"}
"""A registry's lookups, with the parameter of each."""
KINDS = (
    *("info", "sth", "consistency", "Receipt", "commits", "Event", "filter", "messages"),
    *get_args(RequestType),
    *LOOKUPS,
)
"""The kinds of answers that can be altered."""


class Subscriber(Protocol):
    """A WebSocket connection. `received`: messages from the client; `waiting`: not yet read by it."""

    received: list[Json]
    waiting: deque[Json]

    def deliver(self, event: Event) -> None: ...

    def end(self, reason: str) -> None: ...


class LyingNode:
    """`asked`: the last sealed request, decrypted; `commit`: the last commit; `calls`: every path."""

    commit: Commit
    registry: bytes | None = None
    """The registry that it serves."""

    def __init__(self, clock: Clock, key: PrivateKey, store: MemoryStore | None = None) -> None:
        self.clock, self.key, self.store = clock, key, store or MemoryStore()
        self.calls, self.asked, self.sockets = list[str](), Json(), list[Subscriber]()
        self.arrives: Callable[[httpx.Request], None] = lambda request: None
        self.wire: Callable[[httpx.Request, httpx.Response], httpx.Response] = lambda request, response: response
        self._lies: dict[str, Alter] = {}
        self._outcomes: list[CommitOutcome] = []
        self._states = StateCache(self.store)
        self.sequencer = Sequencer(
            self.store, key, self._now, deliver=self._outcomes.extend, publish=self._publish, states=self._states
        )
        free = RateLimiter(0, 1, lambda: 0.0)
        self.answers = SealedHandlers(
            self._states, self.store, key, self._now, free, self.sequencer.checkpoint, MAX_PAGE
        )

    def _now(self) -> int:
        return self.clock.now

    # Lying

    def lie(self, kind: str, alter: Alter) -> None:
        """Alter answers of this kind: `info`, `sth`, `consistency`, `Receipt`, `commits`, a sealed request's type; for
        subscriptions: the `filter` to search by, an `Event`, or the `messages` of a Query; or a registry's lookup."""
        if kind not in KINDS:
            raise MisuseError(f"lie: {kind!r} is not a kind of answer; expected one of {', '.join(KINDS)}")
        self._lies[kind] = alter

    def be_honest(self) -> None:
        self._lies.clear()

    def apply_lie(self, kind: str, answer: Any) -> Any:
        alter = self._lies.get(kind)
        altered = answer if alter is None else alter(answer)
        return answer if altered is None else altered

    def _say(self, kind: str, work: Callable[[], bytes]) -> Any:
        """Return the honest answer or error, or the lie instead."""
        try:
            answer = decode(work())
        except EncError as e:
            if kind not in self._lies:
                raise
            answer = e
        return self.apply_lie(kind, answer)

    def copy(self) -> "LyingNode":
        return LyingNode(self.clock, self.key, deepcopy(self.store))

    def migrate(self, enclave: bytes, author: PrivateKey, to: PrivateKey, **changes: Any) -> Commit:
        """Return the Migrate that the enclave needs now, signed by any author."""
        found = self.sequencer.checkpoint(enclave, 0)
        content = {"new_sequencer": to.public.hex(), "prev_seq": found.seq, "ct_root": found.ct_root.hex(), **changes}
        return build_commit(author, enclave, "Migrate", compact_json(content), self.clock.now + 600_000)

    def successor(self, enclave: bytes, key: PrivateKey, takes: Commit | None = None) -> "LyingNode":
        """Return a node that continues this one's log: after its Migrate, or with a forced one of any author."""
        twin = LyingNode(self.clock, key, deepcopy(self.store))
        kept = twin.store._all[enclave]
        if takes is not None:
            event = finalize(takes, key, max(self.clock.now, kept.state.min_timestamp), kept.state.seq + 1)
            effects = Effects(lifecycle="migrated", new_sequencer=key.public)
            transition = machine.apply(kept.state, event, effects, kept.memory)
            twin.store.write(
                [Step(transition=transition, event=event, effects=effects, subject="Migrate")], self.clock.now
            )
        kept.heads = list(_heads(key, kept))
        twin._states.forget(enclave)
        return twin

    def head(self, enclave: bytes, ts: int, root: bytes, t: int | None = None) -> TreeHead:
        """Return any head, with valid signatures."""
        return sign_head(self.key, enclave, self.clock.now if t is None else t, ts, root)

    def event(self, commit: Commit, seq: int, timestamp: int | None = None) -> Event:
        """Return any event, with valid signatures."""
        return finalize(commit, self.key, self.clock.now if timestamp is None else timestamp, seq)

    def proofs(self, enclave: bytes) -> Proofs:
        """Return all proofs of an enclave."""
        return Proofs(self.store, self.key, self.answers.state(enclave), self.clock.now)

    def doctor(self, enclave: bytes, leaves: Mapping[bytes, bytes | None]) -> None:
        """Put a value into the state that no event has set."""
        state = self.answers.state(enclave)
        self.store._all[enclave].state = replace(state, pending={**state.pending, **leaves})
        self._states.forget(enclave)

    # HTTP

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.arrives(request)
        self.calls.append(request.url.path)
        try:
            response = httpx.Response(200, content=self._answer(request))
        except EncError as e:
            response = httpx.Response(e.status, content=encode(e.to_wire()))
        return self.wire(request, response)

    def _answer(self, request: httpx.Request) -> bytes:
        body, parts = request.read(), request.url.path.strip("/").split("/")
        if parts == ["commits"]:
            return encode(self.apply_lie("commits", {"results": [self._result(line) for line in body.split(b"\n")]}))
        if request.method == "POST":
            return self._take(parse_commit(body)) if b'"exp"' in body else self._open(body)
        if parts == ["info"]:
            return encode(self.apply_lie("info", {"seq_pub": self.key.public.hex(), "limits": LIMITS}))
        if parts[0] in LOOKUPS:
            return encode(self._say(parts[0], lambda: self._look(request, *parts)))
        return self._public(unhex(parts[0], 32, "enclave", EnclaveNotFound), parts[1], request.url.params)

    def _look(self, request: httpx.Request, kind: str, key: str = "") -> bytes:
        """Answer a lookup in the registry, if this node serves one."""
        api = RegistryApi(self.store, self.answers, self.key.public, self.registry)
        looks = {"nodes": api._node, "enclaves": api._enclave, "resolve": api._resolve, "identity": api._identity}
        params = {"type": "http", "query_string": request.url.query, "headers": [], "path_params": {LOOKUPS[kind]: key}}
        asked = HttpRequest(params)
        return finish(api._with_optional_proof(looks[kind])(asked) if key else api._list(asked))

    def _public(self, enclave: bytes, kind: str, asked: httpx.QueryParams) -> bytes:
        def work(proofs: Proofs) -> Json:
            return proofs.sth() if kind == "sth" else proofs.consistency(int(asked["from"]), int(asked["to"]))

        return encode(self._say(kind, lambda: self.answers.public(enclave, work)))

    def _take(self, commit: Commit) -> bytes:
        state = self._states.get(commit.enclave)
        check_commit(commit, state.policy.enc_v if state else manifest_version(commit))
        self.commit, result = commit, self.take(commit)
        if isinstance(result, EncError):
            raise result
        return encode(self.apply_lie("Receipt", wire_receipt(result)))

    def _result(self, line: bytes) -> Any:
        """Return the answer to one of several commits."""
        try:
            return decode(self._take(parse_commit(line)))
        except EncError as e:
            return e.to_wire()

    def take(self, commit: Commit) -> Receipt | EncError:
        """Return the result of a commit, by the rules of a node."""
        self._outcomes.clear()
        self.sequencer.run_once([AdmittedCommit(commit)])
        return self._outcomes[0][1]

    def settle(self) -> None:
        """Close the bundles whose time has passed."""
        self.sequencer.run_once([])

    def _open(self, body: bytes) -> bytes:
        request = parse_request(body)
        self.asked = open_request(request, self.key, self.clock.now // 1000).body
        keys = node_keys(request.token, self.key, request.enclave)
        answer = self._say(request.type, lambda: answer_text(keys, finish(self.answers.answer(request))))
        return encode(seal_answer(keys, answer, os.urandom(NONCE_SIZE)))

    # Subscriptions

    def _publish(self, steps: Sequence[Step]) -> None:
        for step in steps:
            for socket in self.sockets:
                if step.event is not None:
                    socket.deliver(step.event)
                if step.effects.lifecycle == "migrated":
                    socket.end("enclave_migrated")


def _heads(key: PrivateKey, kept: Any) -> Iterator[TreeHead]:
    """Yield a head of this key for every size of a log."""
    log, state = Edge(), kept.state
    for bundle in kept.memory.bundles:
        log = log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
        last = kept.events[bundle.first_seq + bundle.count - 1].timestamp
        yield sign_head(key, state.enclave, last, log.size, log.root())
