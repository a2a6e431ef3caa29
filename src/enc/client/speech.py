"""How to speak with a node about one enclave: commits signed and sent, requests sealed, answers opened, heads believed.

Nothing here is taken on trust: receipts are checked, and a head counts once it extends the one before.
"""

import os
from collections.abc import Callable
from secrets import randbelow
from typing import Any
from urllib.parse import urlencode

import msgspec

from enc.client.errors import ForeignSequencer
from enc.client.evidence import said
from enc.client.flow import Call, Flow
from enc.client.identity import Identity
from enc.client.node_link import NodeLink
from enc.client.pins import Pins
from enc.client.witness import UNTOLD, Witness
from enc.core.commit import build_commit, build_manifest, wire_commit
from enc.core.dialect import Dialect
from enc.core.dialects import dialect_of
from enc.core.envelope import RequestType, answer_text, seal_request
from enc.core.errors import (
    Duplicate,
    EnclaveNotFound,
    InvalidRange,
    MisuseError,
    SessionExpired,
    TreeSizeNotFound,
)
from enc.core.manifest import parse_manifest
from enc.core.proof import parse_consistency
from enc.core.receipt import parse_receipt
from enc.core.session import Session, client_keys, open_session
from enc.core.signing import Alg
from enc.core.tree_head import parse_head
from enc.core.types import Commit, Receipt, Tags, TreeHead

EXPIRY_MS = 600_000
"""How long a commit may still be taken: as long as its sender may try again."""
SPREAD_MS = 60_000
"""By how much that time differs, at random, from commit to commit."""
SESSION_S = 3600
RENEW_S = 300
"""A session with less left is replaced by a new one."""


class Speech:
    """One enclave through one node. `now` is Unix milliseconds."""

    def __init__(
        self, node: NodeLink, identity: Identity, enclave: bytes, pins: Pins, now: Callable[[], int], alg: Alg
    ) -> None:
        self.node, self.identity, self.enclave, self._pins, self.now, self.alg = (
            node,
            identity,
            enclave,
            pins,
            now,
            alg,
        )
        self._witness: Witness | None = None
        self._session: Session | None = None
        self._exp = 0

    def witness(self) -> Flow[Witness]:
        """Who the sequencer is: the pinned one for good; else the node, once it has signed anything for the enclave."""
        if self._witness is None:
            self._pins.check()
            seq_pub = yield from self.node.seq_pub()
            pin = self._pins.load(self.enclave)
            if pin is not None and pin.sequencer != seq_pub:
                message = f"the node's key is {seq_pub.hex()}, and the enclave's sequencer is {pin.sequencer.hex()}"
                raise ForeignSequencer(message, said("foreign", self.enclave, pin.sequencer, message, b""))
            self._witness = self._witness or Witness(self.enclave, seq_pub, self._pins)
        return self._witness

    def known_witness(self) -> Witness:
        """The witness, once a flow has asked for it."""
        if self._witness is None:
            raise MisuseError("nothing was asked of this enclave yet")
        return self._witness

    def neighbour(self, enclave: bytes) -> Witness:
        """Who judges another enclave of the same node, by what is pinned of it."""
        known = self.known_witness()
        return known if enclave == self.enclave else Witness(enclave, known.sequencer, self._pins)

    # Writing

    def prepare(self, type_: str, content: str, tags: Tags = (), dialect: Dialect | None = None) -> Commit:
        """A signed commit, not sent yet; by the enclave's version as far as it is known, unless one is given."""
        known = self._witness.dialect if self._witness else dialect_of(UNTOLD)
        return self._sign(type_, content, self._expiry(), tags, dialect or known)

    def said_again(self, commit: Commit, dialect: Dialect) -> Commit:
        """The same commit by another version: one, however often it is said again."""
        return self._sign(commit.type, commit.content or "", commit.exp, commit.tags, dialect)

    def _sign(self, type_: str, content: str, exp: int, tags: Tags, dialect: Dialect) -> Commit:
        alg = dialect.alg(self.alg)
        return build_commit(self.identity.key, self.enclave, type_, content, exp, tags, alg=alg, enc_v=dialect.enc_v)

    def found(self, content: str, tags: Tags = ()) -> Flow[Receipt]:
        """Send the Manifest that founds an enclave, which this link is about from then on."""
        dialect = parse_manifest(content).dialect
        commit = build_manifest(
            self.identity.key, content, self._expiry(), tags, alg=dialect.alg(self.alg), enc_v=dialect.enc_v
        )
        self.enclave = commit.enclave
        return (yield from self.send(commit))

    def send(self, commit: Commit) -> Flow[Receipt]:
        """Send a commit until it has a receipt. One that was taken before, its answer lost, gets the same again."""
        if commit.enclave != self.enclave:
            raise MisuseError("the commit is for another enclave")
        witness = yield from self.witness()
        call = Call("/", msgspec.json.encode(wire_commit(commit)))
        try:
            answer = yield from self.node.courier.request(call)
        except Duplicate as e:
            if not isinstance(e.context.get("receipt"), dict):
                raise
            answer = msgspec.json.encode(e.context["receipt"])
        with witness.judging("receipt", answer):
            receipt = parse_receipt(answer)
        witness.take_receipt(receipt, commit, answer)
        return receipt

    def _expiry(self) -> int:
        """The same words said twice are two commits, by this link or by others of one identity at the same moment."""
        self._exp = max(self._exp + 1, self.now() + EXPIRY_MS + randbelow(SPREAD_MS))
        return self._exp

    # Asking

    def session(self) -> Session:
        """A session that still holds for a while."""
        now = self.now() // 1000
        if self._session is None or self._session.token.expires < now + RENEW_S:
            self._session = open_session(self.identity.key, now + SESSION_S)
        return self._session

    def renew(self) -> None:
        """Use this session no more."""
        self._session = None

    def ask(self, path: str, type_: RequestType, body: dict[str, Any]) -> Flow[bytes]:
        """The answer to a sealed request, opened. One that opens under no key of ours is a forgery."""
        witness = yield from self.witness()
        try:
            return (yield from self._ask(witness, path, type_, body))
        except SessionExpired:  # by the node's clock
            self.renew()
            return (yield from self._ask(witness, path, type_, body))

    def _ask(self, witness: Witness, path: str, type_: RequestType, body: dict[str, Any]) -> Flow[bytes]:
        session = self.session()
        keys = client_keys(session, witness.sequencer, self.enclave)
        sealed = seal_request(session, witness.sequencer, self.enclave, type_, body, os.urandom(24))
        answer = yield from self.node.courier.request(Call(path, msgspec.json.encode(sealed)))
        with witness.judging("answer", answer):
            return answer_text(keys, answer)

    # Heads

    def head(self) -> Flow[TreeHead]:
        """The node's newest head: signed, of this enclave, and an extension of the one that is pinned."""
        witness = yield from self.witness()
        since = witness.size
        answer = yield from self.node.courier.request(Call(f"/{self.enclave.hex()}/sth"))
        with witness.judging("head", answer):
            head = parse_head(answer)
        yield from self.accept(head, answer, since)
        return head

    def accept(self, head: TreeHead, answer: bytes, since: int) -> Flow[None]:
        """Believe a head, asked for when the log's size was `since`."""
        yield from self._judge(head, answer, since)
        self.known_witness().believe(head)

    def _judge(self, head: TreeHead, answer: bytes, since: int) -> Flow[None]:
        """A head is good: signed, and the node has shown that the larger of it and the pinned one extends the other."""
        witness = yield from self.witness()
        other = witness.check_head(head, answer, since)
        if other is None:
            return
        first, then = sorted((head, other), key=lambda each: each.ts)
        query = urlencode({"from": first.ts, "to": then.ts})
        try:
            shown = yield from self.node.courier.request(Call(f"/{self.enclave.hex()}/consistency?{query}"))
        except (InvalidRange, TreeSizeNotFound, EnclaveNotFound) as e:
            raise witness.unconnected(first, then, e.message) from e
        with witness.judging("consistency", shown):
            proof = parse_consistency(shown)
        witness.connect(first, then, proof)
