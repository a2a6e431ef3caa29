"""Checks evidence from a log: replays it and must find the same fault in the same place."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from enc.client.evidence.log_attribution import LogAttribution
from enc.client.evidence.log_evidence import MAX_EVENTS
from enc.client.evidence.verdict import KEY_OWNER, Verdict
from enc.core.errors import EncError, InvalidProof, InvalidSignature
from enc.core.log.commit import manifest_version, version_of
from enc.core.log.event import WireEvent, check_event, event_from_wire, parse_event
from enc.core.machine.archive import unpack_events
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.claim import Claim, WireClaim, claim_from_wire, is_proved
from enc.core.machine.fault import Fault, FaultKind
from enc.core.machine.observed_roots import ObservedRoots, contradiction, is_run
from enc.core.primitives.encoding import check_numbers, convert_json
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.tree_head import WireHead, check_bound_head, check_head, head_from_wire

MAX_LOG = 4 << 30
"""Most bytes of a log in evidence, unpacked; it is read line by line."""


MAX_LINE = 4 << 20


_HEAD_KINDS = ("wrong_log_root", "head_not_on_log", "broken_consistency")


_CLAIM_KINDS = ("wrong_bundle_boundary", "wrong_state_root")


_PLACE_KINDS = ("gap", "reordering")


class _Single(Struct):
    fault: FaultKind
    enc_v: int
    line: str


class _Order(Struct):
    events: tuple[WireEvent, WireEvent]


class _Checkpoint(Struct):
    seq: int
    ct_root: str


class _Log(Struct):
    fault: FaultKind
    seq: int
    log: str
    head: WireHead | None = None
    claim: WireClaim | None = None
    checkpoint: _Checkpoint | None = None
    anchor: WireHead | None = None
    """A head of the accused with the log's own root, which ties it to all events under it."""


def check_single(enclave: bytes, sequencer: bytes, parts: Mapping[str, Any]) -> Verdict:
    wire = convert_json(dict(parts), _Single, InvalidProof)
    try:
        event = parse_event(wire.line)
    except EncError as e:
        if wire.fault != "altered_content":
            raise InvalidProof("evidence: the event cannot be read") from None
        return Verdict(False, (f"a line of the log cannot be read as an event: {e.message}",), (_WHO,), holds=True)
    if event.enclave != enclave or event.sequencer != sequencer:
        raise InvalidProof("evidence: event: belongs to another enclave or sequencer")
    finding = _wrong_alone(event, wire.enc_v)
    if finding is None or finding[0] != wire.fault:
        raise InvalidProof("evidence: the event is valid, or has another fault than claimed")
    shown = f"in the given log, event {event.seq} of this enclave is an event that does not verify"
    return Verdict(False, (shown, finding[1]), (_WHO,), holds=True)


_WHO = (
    "who did it: the sequencer signs an author's signature, not the content, so anyone who held this copy of the log "
    "may have altered it; compare it with another copy"
)


def _wrong_alone(event: Event, enc_v: int) -> tuple[FaultKind, str] | None:
    try:
        check_event(event, enc_v)
    except InvalidSignature as e:
        return "invalid_signature", e.message
    except EncError as e:
        return "altered_content", e.message
    return None


def check_order(enclave: bytes, sequencer: bytes, parts: Mapping[str, Any]) -> Verdict:
    wire = convert_json(dict(parts), _Order, InvalidProof)
    first, then = (event_from_wire(event) for event in wire.events)
    for event in (first, then):
        check_event(event, version_of(event))
        if event.enclave != enclave:
            raise InvalidProof("evidence: event: belongs to another enclave")
    if then.sequencer != sequencer or first.seq >= then.seq or first.timestamp <= then.timestamp:
        raise InvalidProof("evidence: the times do not fall, or the later event is another sequencer's")
    proved = (
        f"{first.sequencer.hex()} signed event {first.seq} of this enclave with time {first.timestamp}",
        f"{sequencer.hex()} signed event {then.seq} with time {then.timestamp}, {first.timestamp - then.timestamp} ms "
        "before it: no honest sequencer does",
    )
    if first.sequencer != sequencer:
        return Verdict(False, proved, ("that the first event is in the log: anyone can sign one",), holds=True)
    return Verdict(True, proved, (KEY_OWNER,))


def check_log(enclave: bytes, sequencer: bytes, parts: Mapping[str, Any]) -> Verdict:
    wire = convert_json(dict(parts), _Log, InvalidProof)
    check_numbers(InvalidProof, seq=wire.seq)
    claim = None if wire.claim is None else claim_from_wire(wire.claim)
    heads = _signed(wire.head, enclave, sequencer), _signed(wire.anchor, enclave, sequencer)
    case = _Case(enclave, sequencer, wire, heads, claim)
    case.replay()
    return case.verdict(sequencer)


def _signed(wire: WireHead | None, enclave: bytes, sequencer: bytes) -> TreeHead | None:
    """Return a head of the evidence; raise InvalidProof unless the accused signed it."""
    if wire is None:
        return None
    head = head_from_wire(wire)
    if not sequencer:
        raise InvalidProof("evidence: sequencer: missing, but there is a head")
    if head.bound_sig is None:
        check_head(head, sequencer)
    else:
        check_bound_head(head, sequencer, enclave)
    return head


class _Case:
    """The replayed log of one piece of evidence."""

    def __init__(
        self,
        enclave: bytes,
        sequencer: bytes,
        wire: _Log,
        heads: tuple[TreeHead | None, TreeHead | None],
        claim: Claim | None,
    ) -> None:
        self._wire, self._claim = wire, claim
        self._head, self._anchor = heads
        self._marks = ObservedRoots([head.ts for head in heads if head], [claim] if claim else ())
        asks_why = wire.fault == "erasure_without_cause"
        self._trial = AuditReplay(enclave, on_step=self._marks.step, check_erasures=asks_why)
        self._attribution = LogAttribution(sequencer)
        self._unproved: list[int] = []
        self._shown: list[tuple[int, bytes]] = []
        """Events that show the fault: number and signer. A log may contain one seq twice."""
        self._claimed_ids: list[bytes] = []
        self.faults: list[Fault] = []

    def replay(self) -> None:
        enc_v, sought = None, (self._wire.fault, self._wire.seq)
        run = range(0)
        if self._claim is not None:
            first = self._claim.seq - self._claim.membership.ei
            run = range(first, first + self._claim.membership.size)
        for event in unpack_events(_unpacked(self._wire.log), max_line=MAX_LINE, max_total=MAX_LOG):
            number = self._trial.events
            if number >= MAX_EVENTS:
                raise InvalidProof(f"evidence: a log of over {MAX_EVENTS} events")
            try:
                enc_v = manifest_version(event) if enc_v is None else enc_v
                check_event(event, enc_v)
            except EncError:
                self._unproved.append(event.seq)
            if event.enclave != self._trial.enclave:
                self._unproved.append(event.seq)
            if number in run:
                self._claimed_ids.append(event.id)
            known = len(self._trial.faults)
            self._trial.add(event)
            found = self._trial.faults[known:]
            self._attribution.add(event, found)
            if any((fault.kind, fault.seq) == sought for fault in found):
                self._shown.append((number, event.sequencer))
        self.faults = self._trial.finish()
        self._marks.end(self._trial)
        self._cover()

    def _cover(self) -> None:
        """Tie the accused to the events under the anchor."""
        if self._anchor is None:
            return
        mark = self._marks.at(self._anchor.ts)
        if mark is None or mark.root != self._anchor.r:
            raise InvalidProof("evidence: anchor: the log has another root, or another size")
        if self._anchor.bound_sig is not None:
            self._attribution.cover(mark.end)

    def verdict(self, sequencer: bytes) -> Verdict:
        kind = self._wire.fault
        if kind in _CLAIM_KINDS:
            convicts, proved, open_ = self._claimed(sequencer)
        elif kind in _HEAD_KINDS:
            convicts, proved, open_ = self._headed(sequencer)
        elif kind == "old_sequencer" and self._head is not None:
            convicts, proved, open_ = self._outlived(sequencer, self._head)
        else:
            convicts, proved, open_ = self._faulty(sequencer)
        count = f"the log from its Manifest on, {self._trial.events} events"
        if self._unproved:
            open_ = (
                *open_,
                f"event {self._unproved[0]} of the log, which does not verify, or belongs to another enclave",
            )
            proved = (f"{count}, of which not all verify", *proved)
        else:
            proved = (f"{count}: each with its author's signature and its sequencer's", *proved)
        if self._head is not None and self._head.bound_sig is None:
            convicts, open_ = False, (*open_, "that the head belongs to this enclave: it names no enclave")
        is_sure = convicts and not self._unproved
        return Verdict(is_sure, proved, (*open_, KEY_OWNER) if is_sure else open_, holds=True)

    def _faulty(self, sequencer: bytes) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
        """Judge a fault of the log itself."""
        kind, seq = self._wire.fault, self._wire.seq
        found = next((fault for fault in self.faults if (fault.kind, fault.seq) == (kind, seq)), None)
        if found is None:
            raise InvalidProof(f"evidence: replayed, the log shows no {kind} at {seq}")
        finding = f"event {seq}: {found.what}"
        if kind == "erasure_without_cause":
            return False, (finding,), ("who erased it: contents are not signed by the node that serves them",)
        if kind in _PLACE_KINDS:
            return self._placed(finding, sequencer)
        number = next((number for number, key in self._shown if key == sequencer), None)
        if number is None:
            raise InvalidProof("evidence: the event is another sequencer's")
        open_ = self._attribution.unbound(number)
        words = f"{sequencer.hex()} signed it" + ("" if open_ else " for this place: no honest sequencer does")
        return not open_, (finding, words), open_

    def _placed(self, finding: str, sequencer: bytes) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
        mark = self._marks.at(self._head.ts) if self._head is not None else None
        if self._head is None or mark is None or mark.root != self._head.r or mark.seq <= self._wire.seq:
            return False, (finding,), ("that the node shows this log to others: no signed head covers it",)
        over = f"{sequencer.hex()} signed a head of {self._head.ts} bundles that matches this log"
        if not self._attribution.is_list_faulty(mark.end):
            why = "who caused it: under the head, the log is in order, or an event that pads its bundle is repeated"
            return False, (finding, over), (why,)
        return True, (finding, over), ()

    def _headed(self, sequencer: bytes) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
        """Judge a head that does not match the log."""
        if self._head is None:
            return self._checkpointed()
        mark, head = self._marks.at(self._head.ts), self._head
        is_there = mark is not None and (mark.seq == self._wire.seq or self._wire.fault == "broken_consistency")
        if mark is None or not is_there or mark.root == head.r:
            raise InvalidProof("evidence: the head matches the log, or has another size")
        if self._trial.roots_unknown_from is not None and self._trial.roots_unknown_from <= mark.seq:
            raise InvalidProof("evidence: the log's root cannot be determined")
        proved = (
            f"{sequencer.hex()} signed a head of {head.ts} bundles of this enclave with root {head.r.hex()}",
            f"the log, event by event, has {mark.root.hex()} at that size, after event {mark.seq}",
        )
        if not mark.is_closed:
            return False, proved, (f"that bundle {head.ts - 1} holds no event after {mark.seq}: ask for a later log",)
        if self._attribution.may_be_of_copy(head.ts):
            why = "that the head is of this log: anyone may have sent the accused a copy of the Manifest before"
            return False, proved, (why,)
        open_ = self._attribution.unbound(mark.closed_by)
        return not open_, proved, open_

    def _outlived(self, sequencer: bytes, head: TreeHead) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
        """Judge a matching head from a signer whose term had ended before the head's last event."""
        mark = self._marks.at(head.ts)
        if mark is None or (mark.seq, mark.root) != (self._wire.seq, head.r):
            raise InvalidProof("evidence: the head does not match the log, or has another size")
        end = self._trial.term_end(sequencer)
        if end is None or end > mark.seq:
            raise InvalidProof("evidence: the log was never this sequencer's, or still is")
        proved = (
            f"the log became another sequencer's with event {end}",
            f"{sequencer.hex()} signed a head of {head.ts} bundles that matches this log up to event {mark.seq}",
        )
        return (
            False,
            proved,
            ("that no later Migrate gave the enclave back to it: a current sequencer may sign older sizes",),
        )

    def _checkpointed(self) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
        claimed, root = self._wire.checkpoint, self._trial.root()
        if claimed is None or root is None or (claimed.ct_root, claimed.seq) == (root.hex(), self._wire.seq):
            raise InvalidProof("evidence: neither a head nor a checkpoint that is not the log's")
        proved = f"the archive gives {claimed.ct_root} as checkpoint at {claimed.seq}; its log has {root.hex()}"
        return False, (proved,), ("who wrote it: an archive's checkpoint is not signed",)

    def _claimed(self, sequencer: bytes) -> tuple[bool, tuple[str, ...], tuple[str, ...]]:
        """Judge a bundle or a state that the node proved but that contradicts the log."""
        claim, head = self._claim, self._head
        bundle = self._marks.bundles.get(claim.index) if claim else None
        place = self._marks.places.get(claim.seq) if claim else None
        if claim is None or head is None or bundle is None or place is None:
            raise InvalidProof("evidence: the claim, its head or its event is missing")
        if not is_proved(claim, head, place.id):
            raise InvalidProof("evidence: the claim is not under the head")
        found = contradiction(claim, bundle, place.at)
        if found is None or found[:2] != (self._wire.fault, self._wire.seq):
            raise InvalidProof("evidence: the claim matches the log, or has another fault than claimed")
        unknown = self._trial.roots_unknown_from
        if found[0] == "wrong_bundle_boundary" and not is_run(self._claimed_ids, claim):
            raise InvalidProof("evidence: the claimed bundle does not hold exactly these events")
        if found[0] == "wrong_state_root" and unknown is not None and unknown <= bundle.last_seq:
            raise InvalidProof("evidence: the state cannot be determined")
        under = f"{sequencer.hex()} signed a head of {head.ts} bundles that covers: {found[2]}"
        last = bundle.closed_by if bundle.is_closed else place.at - claim.membership.ei + claim.membership.size
        open_ = self._attribution.unbound(max(last, place.at))
        return not open_, (under,), open_


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidProof("evidence: log: not base64") from None
