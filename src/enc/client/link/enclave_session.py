"""A session with a node about one enclave: signs and sends commits, seals requests, verifies heads.

Nothing is accepted on trust: receipts are checked, and a head counts only if it extends the last
one.
"""

import os
from collections.abc import Callable
from secrets import randbelow
from threading import Lock
from typing import Any
from urllib.parse import urlencode

import msgspec

from enc.client.errors import ForeignSequencer, TimedOut, Unreachable
from enc.client.evidence.evidence import answer_evidence
from enc.client.keys.identity import Identity
from enc.client.link.follow_moves import follow_moves
from enc.client.link.interfaces import Locator, Quorum, Registrar
from enc.client.link.node_link import NodeLink
from enc.client.verify.log_verifier import DEFAULT_VERSION, LogVerifier
from enc.client.verify.pins import Pin, Pins
from enc.client.wire.flow import Call, Flow, Pause
from enc.client.wire.single_flight import SingleFlight
from enc.core.errors import (
    Duplicate,
    EncError,
    EnclaveMigrated,
    EnclaveNotFound,
    InvalidRange,
    MisuseError,
    PeerError,
    RateLimited,
    SessionExpired,
    TreeSizeNotFound,
    WorldError,
)
from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.receipt import parse_receipt
from enc.core.primitives.encoding import unhex
from enc.core.primitives.signing import Alg
from enc.core.primitives.types import Commit, ConsistencyProof, Receipt, Tags, TreeHead
from enc.core.rules.dialect import Dialect
from enc.core.rules.dialects import dialect_of
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.session.envelope import RequestType, answer_text, seal_request
from enc.core.session.session import Session, client_keys, open_session
from enc.core.trees.proof import parse_consistency
from enc.core.trees.tree_head import check_bound_head, parse_head

EXPIRY_MS = 600_000
"""How long a node may still accept a commit: as long as its sender may retry."""
SPREAD_MS = 60_000
"""Random spread of that time between commits."""
SESSION_S = 3600
RENEW_S = 300
"""A session with less time left is renewed."""


class EnclaveSession:
    """One enclave through one node, or, with a `locator`, through the node that it moves to.

    `now`: Unix milliseconds. With a `quorum`, only heads that its witnesses confirm are accepted.
    """

    def __init__(
        self,
        node: NodeLink,
        identity: Identity,
        enclave: bytes,
        pins: Pins,
        now: Callable[[], int],
        alg: Alg,
        locator: Locator | None = None,
        quorum: Quorum | None = None,
        registrar: Registrar | None = None,
    ) -> None:
        self.node, self.identity, self.enclave, self.pins, self.now, self.alg = node, identity, enclave, pins, now, alg
        self._locator, self._quorum, self._registrar = locator, quorum, registrar
        self._verifier: LogVerifier | None = None
        self._former_verifier: LogVerifier | None = None
        """Verifier for the node that was just left; still used for its late answers."""
        self._once = SingleFlight()
        self._switch_lock = Lock()
        """Held while node and verifier change; threads may share a session."""
        self._session: Session | None = None
        self._exp = 0

    def verifier(self) -> Flow[LogVerifier]:
        """Return the verifier for the pinned sequencer or its successor.

        Else for the node's own key.
        """
        if self._verifier is None:
            self.pins.check()
            yield from self._once.run("identify", self._identify_node)
        if self._locator is not None and (yield from self._locator.names_other_node(self)):
            left = self.node
            found = yield from self._locator.find(self.enclave, (), left)
            if found is not None:
                self._switch(left, found)
        while self._verifier is None:  # another thread may have switched nodes meanwhile
            yield from self._once.run("identify", self._identify_node)
        return self.known_verifier()

    def _switch(self, left: NodeLink, found: NodeLink) -> None:
        """Switch to another node, unless another user of this session has done so already."""
        with self._switch_lock:
            if self.node is left:
                self._former_verifier = self._verifier or self._former_verifier
                self.node, self._verifier = found, None

    def _identify_node(self) -> Flow[None]:
        seq_pub = yield from self._node_key()
        pin = self.pins.load(self.enclave) or self._registry_pin()
        if pin is not None and pin.sequencer != seq_pub:
            if self._locator is None:
                raise self.foreign_node(pin.sequencer, seq_pub)
            yield from self._locator.adopt_or_switch(self, pin)
            seq_pub = yield from self.node.seq_pub()
        with self._switch_lock:
            if self.node.found == seq_pub:
                self._verifier = self._verifier or LogVerifier(self.enclave, seq_pub, self.pins, url=self.node.url)

    def _node_key(self) -> Flow[bytes]:
        """Return the key of this node. If it is unknown or does not answer at once, switch to another
        one that the enclave's pin helps to find.
        """
        try:
            if self.node.is_unresolved and self._locator is not None:
                self.node = yield from self._locator.locate(self.enclave)
            elif self.node.found is None and self._may_be_elsewhere():
                return (yield from self.node.seq_pub(self.node.without_retries()))
        except (WorldError, RateLimited) as e:
            is_away = isinstance(e, Unreachable | TimedOut)
            is_found = is_away and (yield from self._switch_to_pinned())
            if self.node.is_unresolved and not is_found:
                raise
        return (yield from self.node.seq_pub())

    def _may_be_elsewhere(self) -> bool:
        """Whether there is a source for another node with a key that the pin names."""
        pin = self.pins.load(self.enclave)
        if pin is None or self._locator is None:
            return False
        return self._locator.can_locate or any(url != self.node.url for url in self._locator.recorded(pin))

    def _switch_to_pinned(self) -> Flow[bool]:
        """Switch to another node with a key that the pin names, if one answers; return whether it did."""
        pin, left = self.pins.load(self.enclave), self.node
        if pin is None or self._locator is None:
            return False
        named = [key for key in pin.named if key != left.found]
        urls = self._locator.recorded(pin)
        found = yield from self._locator.find(self.enclave, named, left, urls, is_patient=False)
        if found is not None:
            self._switch(left, found)
        return found is not None

    def _registry_pin(self) -> Pin | None:
        """Return a pin with the first sequencer, if only a registry entry is known of the enclave."""
        origin = None if self._locator is None else self._locator.origin(self.enclave)
        return None if origin is None else Pin(origin, None)

    def foreign_node(self, sequencer: bytes, seq_pub: bytes) -> ForeignSequencer:
        message = f"the node's key is {seq_pub.hex()}, but the enclave's sequencer is {sequencer.hex()}"
        return ForeignSequencer(message, answer_evidence("foreign", self.enclave, sequencer, message, b""))

    # Following

    def follow(self, error: EncError) -> Flow[None]:
        """Switch to the node that has the enclave now, or raise `error`."""
        if self._locator is None:
            raise error
        key = _key(error.context.get("new_sequencer"))
        yield from self._once.run(("follow", error.code, key), lambda: self._follow(error, key))

    def _follow(self, error: EncError, key: bytes | None) -> Flow[None]:
        if isinstance(error, EnclaveMigrated):
            if key is None or key != self.node.found:  # else another user of this session has switched
                yield from self._wait_for_new_node(key, error)
            return
        if self._verifier is not None and (yield from self._switch_to_pinned()):  # else a registry did not answer
            return
        pin = self.pins.load(self.enclave)
        key = self.node.found or (pin.sequencer if pin else None)
        if self._locator is None or not (yield from self._locator.may_have_moved(self.enclave, key)):
            raise error
        yield from self._wait_for_new_node(None, error)

    def _wait_for_new_node(self, sequencer: bytes | None, error: EncError) -> Flow[None]:
        """Retry until the new node is found and switch to it, or raise `error`.

        A Migrate is known before the new node has the log, and before a registry lists it.
        """
        left, backoff = self.node, self.node.caller.backoff()
        while self._locator is not None:
            pin = self.pins.load(self.enclave)
            urls = () if pin is None else self._locator.recorded(pin)
            named = () if sequencer is None else (sequencer,)
            found = yield from self._locator.find(self.enclave, named, left, urls)
            if found is not None:
                self._switch(left, found)
            if self.node is not left:
                return
            if not self._locator.can_locate:
                break
            yield Pause(backoff.wait(error))
        raise error

    def restart(self) -> None:
        """Discard the verifier: the next request asks the node for its key again."""
        with self._switch_lock:
            self._former_verifier, self._verifier = self._verifier or self._former_verifier, None

    @follow_moves
    def current_verifier(self) -> Flow[LogVerifier]:
        """Return the verifier, following the enclave to its current node."""
        return (yield from self.verifier())

    def known_verifier(self) -> LogVerifier:
        """Return the verifier of an earlier request; raise MisuseError before the first."""
        found = self._verifier or self._former_verifier
        if found is None:
            raise MisuseError("no request was sent for this enclave yet")
        return found

    def verifier_of(self, enclave: bytes) -> LogVerifier:
        """Return the verifier for another enclave on the same node."""
        known = self.known_verifier()
        return known if enclave == self.enclave else LogVerifier(enclave, known.sequencer, self.pins)

    # Writing

    def prepare(self, type_: str, content: str, tags: Tags = (), dialect: Dialect | None = None) -> Commit:
        """Return a signed commit, not sent, in the known version of the enclave or in `dialect`."""
        known = self._verifier.dialect if self._verifier else dialect_of(DEFAULT_VERSION)
        return self._sign(type_, content, self._expiry(), tags, dialect or known)

    def resign(self, commit: Commit, dialect: Dialect) -> Commit:
        """Sign the same commit for another version. Repeated calls return the same commit."""
        return self._sign(commit.type, commit.content or "", commit.exp, commit.tags, dialect)

    def _sign(self, type_: str, content: str, exp: int, tags: Tags, dialect: Dialect) -> Commit:
        alg = dialect.alg(self.alg)
        return build_commit(self.identity.key, self.enclave, type_, content, exp, tags, alg=alg, enc_v=dialect.enc_v)

    def create(self, content: str, tags: Tags = ()) -> Flow[Receipt]:
        """Send the Manifest that creates an enclave, and use this session for it."""
        if self.node.is_unresolved:
            raise MisuseError("a node's URL is required: a registry does not say where to create an enclave")
        dialect = parse_manifest(content).dialect
        commit = build_manifest(
            self.identity.key, content, self._expiry(), tags, alg=dialect.alg(self.alg), enc_v=dialect.enc_v
        )
        self.enclave = commit.enclave
        return (yield from self.send(commit))

    @follow_moves
    def send(self, commit: Commit) -> Flow[Receipt]:
        """Send a commit until a receipt arrives; a repeated commit gets its first receipt again.

        A commit names its enclave but no node, and accepted commits move with the log. So the same
        bytes may be sent to every node that the enclave moves to, and become one event.
        """
        if commit.enclave != self.enclave:
            raise MisuseError("the commit is for another enclave")
        verifier = yield from self.verifier()
        return (yield from self.send_to(self.node, verifier, commit))

    def send_to(self, node: NodeLink, verifier: LogVerifier, commit: Commit) -> Flow[Receipt]:
        """Do what `send` does with this node, and no other, whatever other users of this session find."""
        verifier.check_is_current()
        if self._registrar is not None:
            yield from self._registrar.before_send(self, commit)
        receipt = yield from self._submit(node, verifier, commit)
        self.notice(commit, receipt.seq)
        return receipt

    def notice(self, commit: Commit, seq: int) -> None:
        """Tell the registrar of a verified event."""
        if self._registrar is not None:
            self._registrar.notice(self, commit, seq)

    def submit(self, commit: Commit) -> Flow[Receipt]:
        """Send a commit to this node, wherever the enclave is known to be."""
        verifier = yield from self.verifier()
        return (yield from self._submit(self.node, verifier, commit))

    def _submit(self, node: NodeLink, verifier: LogVerifier, commit: Commit) -> Flow[Receipt]:
        try:
            answer = yield from node.caller.request(Call("/", msgspec.json.encode(wire_commit(commit))))
        except Duplicate as e:
            answer = first_receipt(e)
        return verified_receipt(verifier, commit, answer)

    def _expiry(self) -> int:
        """Return an expiry that makes equal contents different commits, also across sessions."""
        self._exp = max(self._exp + 1, self.now() + EXPIRY_MS + randbelow(SPREAD_MS))
        return self._exp

    # Asking

    def transport_session(self) -> Session:
        """Return a session that is valid for a while."""
        now = self.now() // 1000
        if self._session is None or self._session.token.expires < now + RENEW_S:
            self._session = open_session(self.identity.key, now + SESSION_S)
        return self._session

    def renew(self) -> None:
        """Discard the session; the next request opens a new one."""
        self._session = None

    def ask(self, path: str, type_: RequestType, body: dict[str, Any]) -> Flow[bytes]:
        """Return the decrypted answer to a sealed request.

        An answer that none of our keys opens is a Forgery.
        """
        verifier = yield from self.verifier()
        try:
            return (yield from self._ask(verifier, path, type_, body))
        except SessionExpired:  # by the node's clock
            self.renew()
        except Duplicate:  # its answer was lost; sealed again, it is another request
            pass
        return (yield from self._ask(verifier, path, type_, body))

    def _ask(self, verifier: LogVerifier, path: str, type_: RequestType, body: dict[str, Any]) -> Flow[bytes]:
        session = self.transport_session()
        keys = client_keys(session, verifier.sequencer, self.enclave)
        sealed = seal_request(session, verifier.sequencer, self.enclave, type_, body, os.urandom(24))
        answer = yield from self.node.caller.request(Call(path, msgspec.json.encode(sealed)))
        with verifier.blame_node("answer", answer):
            return answer_text(keys, answer)

    # Heads

    @follow_moves
    def head(self) -> Flow[TreeHead]:
        """Return the node's newest head, verified: signed for this enclave, extending the pinned
        one.
        """
        verifier = yield from self.verifier()
        since = verifier.size
        answer = yield from self.node.caller.request(Call(f"/{self.enclave.hex()}/sth"))
        with verifier.blame_node("head", answer):
            head = parse_head(answer)
        yield from self.accept(head, answer, since)
        return head

    def accept(self, head: TreeHead, answer: bytes, since: int) -> Flow[None]:
        """Verify and pin a head that was requested when the log had `since` bundles."""
        yield from self.verify_head(head, answer, since)
        self.known_verifier().pin_head(head)

    def verify_head(self, head: TreeHead, answer: bytes, since: int) -> Flow[None]:
        """Verify a head: signature, consistency with the pinned head, and the witnesses'
        confirmation.
        """
        verifier = yield from self.verifier()
        other = verifier.check_head(head, answer, since)
        while other is not None:
            first, then = sorted((head, other), key=lambda each: each.ts)
            verifier.connect(first, then, (yield from self.consistency(first, then)))
            if verifier.head == other:
                break  # else another client with the same pins has pinned another head meanwhile
            other = verifier.check_head(head, answer, since)
        if self._quorum is not None and head.ts:
            yield from self._quorum.check(self, head)

    def peek(self) -> Flow[TreeHead]:
        """Return the node's current head: signed for this enclave, but not verified against the
        pin.
        """
        verifier = yield from self.verifier()
        answer = yield from self.node.caller.request(Call(f"/{self.enclave.hex()}/sth"))
        with verifier.blame_node("head", answer):
            head = parse_head(answer)
            check_bound_head(head, verifier.sequencer, self.enclave)
        return head

    def consistency(self, first: TreeHead, then: TreeHead, signer: bytes | None = None) -> Flow[ConsistencyProof]:
        """Return the node's unverified consistency proof. `signer`: of `first`, if not the node."""
        verifier = yield from self.verifier()
        query = urlencode({"from": first.ts, "to": then.ts})
        try:
            shown = yield from self.node.caller.request(Call(f"/{self.enclave.hex()}/consistency?{query}"))
        except (InvalidRange, TreeSizeNotFound, EnclaveNotFound) as e:
            raise verifier.unconnected(first, then, e.message, None, signer) from e
        with verifier.blame_node("consistency", shown):
            return parse_consistency(shown)


def first_receipt(error: Duplicate) -> bytes:
    """Return the receipt of a commit that was accepted before; raise the error if it has none."""
    if not isinstance(error.context.get("receipt"), dict):
        raise error
    return msgspec.json.encode(error.context["receipt"])


def verified_receipt(verifier: LogVerifier, commit: Commit, answer: bytes) -> Receipt:
    with verifier.blame_node("receipt", answer):
        receipt = parse_receipt(answer)
    verifier.verify_receipt(receipt, commit, answer)
    return receipt


def _key(text: object) -> bytes | None:
    try:
        return unhex(text, 32, "new_sequencer")
    except PeerError:
        return None
