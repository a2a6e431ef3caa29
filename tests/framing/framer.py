"""Someone who holds copies of honest logs, all their heads and proofs, and some keys, and who
writes every accusation that can be made of them."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from enc.client import Evidence
from enc.client.evidence.evidence import (
    answer_evidence,
    split_event,
    split_head,
    two_events,
    two_heads,
    unconnected,
    with_cosignature,
)
from enc.client.evidence.log_evidence import log_parts, order_parts, single_parts
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.claim import Claim
from enc.core.machine.fault import FAULT_KINDS
from enc.core.machine.observed_roots import ObservedRoots, contradiction
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event
from enc.core.trees.cosigning import CosignedHead, cosign
from enc.core.trees.tree_head import sign_head
from tests.core.world import person, pub
from tests.framing.scenes import Scene, SignedHead

TYPES = ["message", "Chat_Message", "note", "Move", "Shared", "Reg_Node", "Grant", "Migrate", "Pause"]
HEADED = ["head_not_on_log", "wrong_log_root", "broken_consistency", "old_sequencer"]


class Framer:
    """`keys`: the names of the people and nodes whose keys this one has, besides a node of its
    own."""

    def __init__(self, rng: Random, scene: Scene, other: Scene, keys: Sequence[str]) -> None:
        self.rng, self.scene, self.other = rng, scene, other
        self.names = ["eve", *keys]
        self.own = {person(name).public for name in self.names}
        self.heads = [*scene.heads, *other.heads[:2]]

    def key(self) -> PrivateKey:
        return person(self.rng.choice(self.names))

    # Logs

    def log(self) -> list[Event]:
        """Return a log of the scene after some changes."""
        events = list(self.rng.choice(self.scene.lines))
        for _ in range(self.rng.choice([0, 1, 1, 1, 2, 3])):
            change = self.rng.choice(_CHANGES)
            change(self, events, self.rng.randrange(len(events)) if events else 0)
        return events

    def blank(self, events: list[Event], at: int) -> None:
        events[at : at + 1] = [erase(event) for event in events[at : at + 1]]

    def drop(self, events: list[Event], at: int) -> None:
        del events[at : at + 1]

    def cut(self, events: list[Event], at: int) -> None:
        del events[at + 1 :]

    def repeat(self, events: list[Event], at: int) -> None:
        place = self.rng.choice([0, at, self.rng.randint(0, len(events)), len(events)])
        events[place:place] = events[at : at + 1]

    def move(self, events: list[Event], at: int) -> None:
        moved = events[at : at + 1]
        del events[at : at + 1]
        place = self.rng.choice([at + 1, self.rng.randint(0, len(events))])
        events[place:place] = moved

    def splice(self, events: list[Event], at: int) -> None:
        """Go on as another line of the enclave does, or as another enclave."""
        other = self.rng.choice([*self.scene.lines, *self.scene.lines, *self.other.lines])
        at = self.rng.choice([at, at, 0, 1])
        if self.rng.random() < 0.5:
            events[at:] = other[at:]
        else:
            events[at : at + 1] = other[at : at + 1]

    def sign(self, events: list[Event], at: int) -> None:
        """Finalise an honest commit with a key of one's own, perhaps at another time or seq."""
        for event in events[at : at + 1]:
            shift, step = self.rng.choice([0, 0, 1, 500, -500]), self.rng.choice([0, 0, 1])
            made = finalize(event, self.key(), max(event.timestamp + shift, 0), event.seq + step)
            events[at : at + self.rng.choice([0, 1])] = [made]

    def write(self, events: list[Event], at: int) -> None:
        """Write a commit and finalise it, with keys of one's own."""
        if not 0 < at < len(events):
            return
        before, author = events[at - 1], self.key()
        type_ = self.rng.choice(TYPES)
        content: Any = {"target": pub("dave"), "from": "OUTSIDER", "to": "MEMBER", "key": "topic", "value": 1}
        time = before.timestamp + 1
        commit = build_commit(
            author, self.scene.enclave, type_, compact_json(content), time + 60_000, enc_v=self.scene.enc_v
        )
        events[at : at + self.rng.choice([0, 1])] = [finalize(commit, self.key(), time, at)]

    def migrate(self, events: list[Event], at: int) -> None:
        """Sign a Migrate to some node with the right root, as an owner may, and finalise it."""
        if not 0 < at <= len(events):
            return
        root = replayed(self.scene.enclave, events[:at]).root()
        if root is None:
            return
        to, time = self.rng.choice(["node", "node2", *self.names]), events[at - 1].timestamp + 1
        content = {"new_sequencer": pub(to), "prev_seq": at - 1, "ct_root": root.hex()}
        commit = build_commit(
            self.key(), self.scene.enclave, "Migrate", compact_json(content), time + 60_000, enc_v=self.scene.enc_v
        )
        events[at : at + self.rng.choice([0, 1])] = [finalize(commit, self.key(), time, at)]

    # Accusations

    def accusations(self) -> Iterator[Evidence]:
        """Yield evidence files of every kind, made of one changed log, and of single statements."""
        events = self.log()
        yield from self._of_log(events)
        yield from self._of_heads()
        yield from self._of_events(events)
        yield from self._of_single(events)

    def _evidence(self, kind: Any, key: bytes, parts: dict[str, Any]) -> Evidence:
        return Evidence(kind=kind, enclave=self.scene.enclave, sequencer=key, message="", parts=parts)

    def _of_log(self, events: list[Event]) -> Iterator[Evidence]:
        claims = [self.bent(*pair) for pair in self.scene.claims]
        marks = ObservedRoots(range(64), [claim for claim, _ in claims])
        replay = AuditReplay(self.scene.enclave, on_step=marks.step, check_erasures=self.rng.random() < 0.3)
        for event in events:
            replay.add(event)
        faults = replay.finish()
        marks.end(replay)
        heads = [*self.heads, *self._made(marks)]
        signers = sorted({event.sequencer for event in events})
        for fault in self.rng.sample(faults, min(3, len(faults))):
            at = [event.sequencer for event in events if event.seq == fault.seq]
            over, anchor = self._some(heads), self._fitting(heads, marks)
            for key in sorted({*at, *([over.key] if over and fault.kind in ("gap", "reordering") else [])}):
                head = over.head if over is not None and over.key == key else None
                tied = anchor.head if anchor is not None and anchor.key == key else None
                yield self._evidence("log", key, log_parts(fault.kind, fault.seq, events, head, anchor=tied))
        for fault in faults:
            if fault.kind in ("gap", "reordering") and (fits := self._fitting(heads, marks)):
                yield self._evidence("log", fits.key, log_parts(fault.kind, fault.seq, events, fits.head))
        for over in self.rng.sample(heads, min(4, len(heads))):
            mark, anchor = marks.at(over.head.ts), self._fitting(heads, marks)
            tied = anchor.head if anchor is not None and anchor.key == over.key else None
            kind = self.rng.choice(HEADED)
            if mark is not None:
                parts = log_parts(kind, mark.seq, events, over.head, anchor=tied)  # type: ignore[arg-type]
                yield self._evidence("log", over.key, parts)
        yield from self._of_claims(events, marks, claims)
        kind, key = self.rng.choice(FAULT_KINDS), self.rng.choice(signers or [bytes(32)])
        yield self._evidence("log", key, log_parts(kind, self.rng.randrange(30), events))

    def _of_claims(
        self, events: list[Event], marks: ObservedRoots, claims: Sequence[tuple[Claim, SignedHead]]
    ) -> Iterator[Evidence]:
        for claim, over in claims:
            bundle, place = marks.bundles.get(claim.index), marks.places.get(claim.seq)
            if bundle is None or place is None:
                continue
            found = contradiction(claim, bundle, place.at)
            for kind, seq in [found[:2]] if found else [("wrong_state_root", bundle.last_seq)]:
                yield self._evidence("log", over.key, log_parts(kind, seq, events, over.head, claim))  # type: ignore[arg-type]
            for seq in (bundle.first_seq, bundle.last_seq, bundle.last_seq + 1):
                parts = log_parts("wrong_bundle_boundary", seq, events, over.head, claim)
                yield self._evidence("log", over.key, parts)

    def bent(self, claim: Claim, over: SignedHead) -> tuple[Claim, SignedHead]:
        """Return a proof with another size or index, which may still verify."""
        bent = claim.membership
        if self.rng.random() < 0.5:
            bent = replace(bent, size=max(1, bent.size + self.rng.choice([-1, 1])))
        if self.rng.random() < 0.3:
            bent = replace(bent, ei=max(0, bent.ei + self.rng.choice([-1, 1])))
        return replace(claim, membership=bent), over

    def _made(self, marks: ObservedRoots) -> Iterator[SignedHead]:
        """Sign heads with keys of one's own."""
        for size, mark in list(marks.roots.items())[:3]:
            key, root = self.key(), self.rng.choice([mark.root, self.rng.randbytes(32)])
            yield SignedHead(key.public, sign_head(key, self.scene.enclave, self.rng.randrange(1 << 40), size, root))

    def _some(self, heads: Sequence[SignedHead]) -> SignedHead | None:
        return self.rng.choice(heads) if heads and self.rng.random() < 0.7 else None

    def _fitting(self, heads: Sequence[SignedHead], marks: ObservedRoots) -> SignedHead | None:
        fits = [each for each in heads if (mark := marks.at(each.head.ts)) and mark.root == each.head.r]
        return self.rng.choice(fits) if fits else None

    def _of_heads(self) -> Iterator[Evidence]:
        if len(self.heads) < 2:
            return
        for _ in range(4):
            one, other = self.rng.sample(self.heads, 2)
            first, then = one.head, other.head
            for kind in ("fork", "rollback", "inconsistent"):
                yield self.attested(
                    two_heads(kind, self.scene.enclave, other.key, "", first, then, self._signer(one)), one, other
                )
            proof = self.rng.choice([None, *self.scene.consistency, *self.other.consistency])
            if proof is not None and self.rng.random() < 0.5:
                proof = replace(proof, ts1=first.ts, ts2=then.ts)
            found = unconnected(self.scene.enclave, other.key, "", first, then, proof, self._signer(one))
            yield self.attested(found, one, other)

    def attested(self, evidence: Evidence, *over: SignedHead) -> Evidence:
        """Perhaps add a witness's statement: a true one, a changed one, or one of one's own."""
        pool = [*self.scene.cosigned, *self.other.cosigned]
        if not pool or self.rng.random() < 0.4:
            return evidence
        fitting = [each for each in pool if each.head in [one.head for one in over]]
        found, one = self.rng.choice(fitting or pool), self.rng.choice(over)
        key = self.key()
        changes: list[CosignedHead] = [
            found,
            replace(found, seen=found.seen + 1),
            replace(found, head=one.head),
            replace(found, head=one.head, enclave=self.scene.enclave, sequencer=one.key),
            replace(found, witness=key.public),
            replace(found, sequencer=key.public),
            cosign(key, self.scene.enclave, one.key, one.head, found.seen) if one.head.bound_sig else found,
            replace(cosign(key, self.scene.enclave, one.key, one.head, 0), witness=person("witness").public),
        ]
        return with_cosignature(evidence, self.rng.choice(changes))

    def _signer(self, one: SignedHead) -> bytes | None:
        return self.rng.choice([None, one.key])

    def _of_events(self, events: Sequence[Event]) -> Iterator[Evidence]:
        pool = [*events, *(event for line in self.scene.lines for event in line), *self.other.lines[0][:3]]
        for _ in range(6):
            first = self.rng.choice(pool)
            near = [event for event in pool if abs(event.seq - first.seq) <= 1]
            then = self.rng.choice(near)
            yield two_events(first, then, "")
            yield self._evidence("order", then.sequencer, order_parts(first, then))
        for migrate in [event for event in pool if event.type == "Migrate"][:4]:
            for event in [event for event in pool if 0 <= event.seq - migrate.seq <= 1]:
                yield split_event(migrate, event, "")
            if self.heads:
                over = self.rng.choice(self.heads)
                yield split_head(migrate, over.head.ts - 1, over.head, over.key, "")

    def _of_single(self, events: Sequence[Event]) -> Iterator[Evidence]:
        """Accuse with one altered event, and with answers that nobody signed."""
        for event in self.rng.sample(events, min(2, len(events))):
            wire = wire_event(event)
            field = self.rng.choice(sorted(wire))
            wire[field] = self.rng.choice([None, 0, "00" * 32, wire.get("sig"), wire.get("content")])
            line = compact_json(wire).encode()
            kind = self.rng.choice(["altered_content", "invalid_signature"])
            enc_v = self.rng.choice([1, 2])
            yield self._evidence("event", event.sequencer, single_parts(kind, line, enc_v))  # type: ignore[arg-type]
            yield answer_evidence("answer", self.scene.enclave, event.sequencer, "", line)
            yield answer_evidence("foreign", self.scene.enclave, event.sequencer, "", line)


_CHANGES = [
    Framer.blank, Framer.blank, Framer.drop, Framer.cut, Framer.repeat, Framer.repeat, Framer.move, Framer.splice,
    Framer.sign, Framer.write, Framer.migrate,
]  # fmt: skip


def replayed(enclave: bytes, events: Sequence[Event]) -> AuditReplay:
    replay = AuditReplay(enclave)
    for event in events:
        replay.add(event)
    return replay
