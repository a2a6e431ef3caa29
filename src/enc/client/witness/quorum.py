"""The quorum of witnesses that a client asks to confirm heads.

A witness follows an enclave's heads as this client does, and co-signs those that extend what it saw
before. So a node that shows this client a different log must show it to `k` of the witnesses too, and
then everyone sees it. Rules:

 1. a witness's answer is its co-signature of a head that the sequencer signed for this enclave;
    any other answer does not count
 2. the node proves its head consistent with each witness's head, whichever is older    Fork
 3. the node shows at least as much as a witness saw before it was asked                Rollback
 4. `k` witnesses answer                                                                NotWitnessed
 5. a head that they have not seen yet is accepted for `lag` seconds, counted from the
    head's own date and from when this client first saw a log that they had not seen    NotWitnessed
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec.json import encode

from enc.client.errors import Distrust, Fork, NotWitnessed, Rollback
from enc.client.evidence.evidence import two_heads, with_cosignature
from enc.client.link.enclave_session import EnclaveSession
from enc.client.verify.log_verifier import LogVerifier
from enc.client.wire.flow import Call, Flow, Pause
from enc.client.wire.retrying_caller import RetryingCaller
from enc.client.wire.single_flight import SingleFlight
from enc.client.wire.transport import base_url
from enc.client.witness.witnesses import Witness, Witnessed
from enc.core.errors import EncError, MisuseError, PeerError, WorldError
from enc.core.primitives.types import TreeHead
from enc.core.trees.cosigning import CosignedHead, check_cosigned, parse_cosigned
from enc.core.trees.tree_head import wire_head

T = TypeVar("T")

MAX_WITNESSES = 16
MAX_REASON = 200
"""Most characters of a witness's reason for not answering."""
MAX_KNOWN = 1024
"""Most enclaves for which answers of witnesses are remembered."""
REUSE_S = 1.0
"""How long an answer of witnesses that lag behind is used without asking again."""
SKIP_S = 60.0
"""How long a witness that did not answer is skipped if the others suffice."""


class WitnessQuorum:
    """`caller`: returns one for a URL. `clock`: seconds; `now`: Unix milliseconds."""

    def __init__(
        self,
        witnesses: Sequence[Witness],
        k: int | None,
        lag: float,
        caller: Callable[[str], RetryingCaller],
        clock: Callable[[], float],
        now: Callable[[], int],
    ) -> None:
        self._k = len(witnesses) if k is None else k
        _check(witnesses, self._k, lag)
        self._members = [(each, caller(base_url(each.url))) for each in witnesses]
        self._lag, self._clock, self._now = lag, clock, now
        self._known: OrderedDict[bytes, tuple[Witnessed, float]] = OrderedDict()
        """By enclave: the last accepted head, and when to ask again."""
        self._ahead: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        """By enclave: the smallest log shown here that `k` witnesses had not seen, and since when."""
        self._asking = SingleFlight()
        self._skip_until: dict[bytes, float] = {}
        """By witness: until when it may be skipped."""

    def known(self, enclave: bytes, head: TreeHead) -> Witnessed | None:
        """Return the confirmation of a head that was accepted lately."""
        found = self._known.get(enclave)
        return found[0] if found and found[0].head == head else None

    def check(self, session: EnclaveSession, head: TreeHead) -> Flow[Witnessed]:
        """Check that enough witnesses confirm a verified head; retries for a while, then raises."""
        known = self._known.get(session.enclave)
        if known and known[0].head == head and (known[0].is_whole or self._clock() < known[1]):
            return known[0]
        return (yield from self._asking.run((session.enclave, head), lambda: self._confirm(session, head)))

    def _confirm(self, session: EnclaveSession, head: TreeHead) -> Flow[Witnessed]:
        backoff = session.node.caller.backoff()
        while True:
            found, why = yield from self._ask(session, head)
            error = self._quorum_error(session.enclave, found, why)
            if error is None:
                _remember(self._known, session.enclave, (found, self._clock() + REUSE_S))
                return found
            yield Pause(backoff.wait(error))

    def _ask(self, session: EnclaveSession, head: TreeHead) -> Flow[tuple[Witnessed, list[str]]]:
        """Ask the witnesses.

        Those that did not answer lately come last, or are skipped if not needed.
        """
        answers, why = list[CosignedHead](), list[str]()
        for member, caller in sorted(self._members, key=lambda each: self._may_skip(each[0])):
            if self._may_skip(member) and self._witnessed(head, answers).is_whole:
                continue
            try:
                cosigned = yield from self._latest(member, caller, session.enclave)
            except (PeerError, WorldError) as e:
                why.append(f"{member.url}: {e.message[:MAX_REASON]}")
                continue
            reason = yield from self._connect(session, head, cosigned, caller)
            if reason is None:
                answers.append(cosigned)
            else:
                why.append(f"{member.url}: {reason}")
        return self._witnessed(head, answers), why

    def _may_skip(self, member: Witness) -> bool:
        return self._clock() < self._skip_until.get(member.key, 0.0)

    def _witnessed(self, head: TreeHead, answers: Sequence[CosignedHead]) -> Witnessed:
        by_size = sorted(answers, key=lambda each: each.head.ts, reverse=True)
        return Witnessed(head, tuple(by_size), self._k, len(self._members))

    def _latest(self, member: Witness, caller: RetryingCaller, enclave: bytes) -> Flow[CosignedHead]:
        try:
            body = yield from caller.request(Call(f"/heads/{enclave.hex()}"))
        except WorldError:
            self._skip_until[member.key] = self._clock() + SKIP_S
            raise
        self._skip_until.pop(member.key, None)
        cosigned = parse_cosigned(body)
        check_cosigned(cosigned, member.key, enclave)
        return cosigned

    def _connect(
        self, session: EnclaveSession, head: TreeHead, cosigned: CosignedHead, caller: RetryingCaller
    ) -> Flow[str | None]:
        """Return why a witness's answer does not count, if nobody lied.

        Reports a lie to the witness.
        """
        seen, verifier = cosigned.head, session.known_verifier()
        signer = None if cosigned.sequencer == verifier.sequencer else cosigned.sequencer
        if signer is not None and (not verifier.history.knows(signer) or seen.ts > head.ts):
            return f"it follows the enclave at another sequencer, {signer.hex()}"
        try:
            yield from _compare(session, head, cosigned, signer)
        except Distrust as e:
            yield from _report_head(caller, session.enclave, verifier.sequencer, head)
            before = (yield from _of_size(caller, cosigned, head.ts)) if seen.ts > head.ts else None
            if before is not None:
                _check_root(verifier, head, before, None)
            raise type(e)(e.message, with_cosignature(e.evidence, cosigned)) from e
        return None

    def _quorum_error(self, enclave: bytes, found: Witnessed, why: list[str]) -> EncError | None:
        """Return the error for a violation of rule 4 or 5, if any."""
        answers, details = len(found.cosigned), f" ({'; '.join(why)})" if why else ""
        if answers < self._k:
            message = f"{answers} of {found.n} witnesses confirm the log, but {self._k} are needed{details}"
            return NotWitnessed(message, witnessed=answers, needed=self._k)
        if found.is_whole:
            return None
        size, since = self._ahead.get(enclave, (found.head.ts, self._clock()))
        if found.size >= size:  # the witnesses have caught up; what they lack now is new
            size, since = found.head.ts, self._clock()
        _remember(self._ahead, enclave, (size, since))
        if self._clock() - since <= self._lag and self._now() - found.head.t <= self._lag * 1000:
            return None
        message = (
            f"{found.count} of {found.n} witnesses have seen the log of {found.head.ts} bundles, but {self._k} are "
            f"needed; {self._k} have seen {found.size}, for longer than {self._lag:g} seconds{details}"
        )
        return NotWitnessed(message, witnessed=found.count, needed=self._k)


def witnessed(session: EnclaveSession, quorum: WitnessQuorum | None, head: TreeHead | None) -> Flow[Witnessed | None]:
    """Return the witnesses' confirmation of a verified head, or of the newest if `head` is None."""
    if quorum is None:
        return None
    if head is None:
        head = yield from session.head()
    else:
        yield from session.verifier()
    known = quorum.known(session.enclave, head)
    return known or (yield from quorum.check(session, head))


def _check(witnesses: Sequence[Witness], k: int, lag: float) -> None:
    if len(witnesses) > MAX_WITNESSES:
        raise MisuseError(f"witnesses: at most {MAX_WITNESSES}")
    if len({each.key for each in witnesses}) < len(witnesses):
        raise MisuseError("witnesses: two have the same key")
    if not 1 <= k <= len(witnesses):
        raise MisuseError(f"k: expected 1 to {len(witnesses)}, the number of witnesses")
    if lag < 0:
        raise MisuseError("lag: expected a number of seconds, 0 or more")


def _remember(memory: OrderedDict[bytes, tuple[T, float]], enclave: bytes, what: tuple[T, float]) -> None:
    memory[enclave] = what
    memory.move_to_end(enclave)
    if len(memory) > MAX_KNOWN:
        memory.popitem(last=False)


def _compare(session: EnclaveSession, head: TreeHead, cosigned: CosignedHead, signer: bytes | None) -> Flow[None]:
    """Apply rules 2 and 3. `signer`: of the witness's head, if it is a former sequencer."""
    seen, verifier = cosigned.head, session.known_verifier()
    if seen.ts == head.ts:
        _check_root(verifier, head, cosigned, signer)
    elif seen.ts < head.ts:
        verifier.connect(seen, head, (yield from session.consistency(seen, head, signer)), signer)
    else:
        yield from _check_shown(session, verifier, seen)
        verifier.connect(head, seen, (yield from session.consistency(head, seen)))


def _check_root(verifier: LogVerifier, head: TreeHead, cosigned: CosignedHead, signer: bytes | None) -> None:
    if cosigned.head.r != head.r:
        message = f"the sequencer showed a witness another log of {head.ts} bundles"
        shown = two_heads("fork", verifier.enclave, verifier.sequencer, message, cosigned.head, head, signer)
        raise Fork(message, with_cosignature(shown, cosigned))


def _of_size(caller: RetryingCaller, cosigned: CosignedHead, size: int) -> Flow[CosignedHead | None]:
    """Return the witness's head of this size, if any: two heads of one size convict the signer."""
    try:
        body = yield from caller.request(Call(f"/heads/{cosigned.enclave.hex()}?size={size}"))
        found = parse_cosigned(body)
        check_cosigned(found, cosigned.witness, cosigned.enclave)
    except EncError:
        return None
    return found if (found.head.ts, found.sequencer) == (size, cosigned.sequencer) else None


def _report_head(caller: RetryingCaller, enclave: bytes, sequencer: bytes, head: TreeHead) -> Flow[None]:
    """Report the head shown here to the witness, for everyone who asks it; ignores failures."""
    brought = {"enclave": enclave.hex(), "sequencer": sequencer.hex(), "sth": wire_head(head)}
    with suppress(EncError):
        yield from caller.request(Call("/heads", encode(brought)))


def _check_shown(session: EnclaveSession, verifier: LogVerifier, seen: TreeHead) -> Flow[None]:
    """Ask the node again: it must show at least what the witness saw, which may be newer."""
    newest = yield from session.peek()
    if newest.ts < seen.ts:
        message = f"the node shows {newest.ts} bundles, but a witness has seen {seen.ts} before"
        shown = two_heads("rollback", verifier.enclave, verifier.sequencer, message, seen, newest)
        raise Rollback(message, shown)
