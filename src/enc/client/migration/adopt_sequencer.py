"""Adopts an enclave's next sequencer, if the Migrates and the log that they continue prove it.

The node that claims to continue an enclave is asked by a reader with empty pins. Its answers are then
compared with what was pinned before:

 1. its log holds Migrates that lead from the pinned sequencer to it, each fully checked    ForeignSequencer
 2. a peaceful Migrate ends its bundle, a forced one begins a bundle                        Forgery
 3. its head extends the pinned one, unless pinned bundles lie beyond a Migrate             Fork, LostRange
    (then, if the user accepts the loss, a registry that lists the enclave must have
    accepted that Migrate, or name its author as the holder)                                Forgery
 4. a forced Migrate names the root of the log before it, which the head extends            Forgery
 5. a forced Migrate's author was the owner: according to the pinned head, the Manifest,
    or events that passed ownership on, each signed by the previous owner and ordered by
    the sequencer that was trusted                                                          Forgery
"""

from collections.abc import Callable, Sequence

import msgspec

from enc.client.enclave.combined_reads import blame_for_content
from enc.client.enclave.ownership_history import ownership_history
from enc.client.errors import Forgery, LostRange
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.registry.registry_client import RegistryRecord
from enc.client.verify.pins import Pin, pin_of
from enc.client.verify.sequencer_history import History, Migration
from enc.client.wire.flow import Flow
from enc.core.errors import EnclaveMigrated, InvalidProof
from enc.core.log.event import wire_event
from enc.core.primitives.types import Event, TreeHead
from enc.core.registry.owner_proof import find_passage
from enc.core.rules.content import parse_migrate
from enc.core.rules.policy_types import Policy
from enc.core.trees.merkle_log import check_consistency

RecordLookup = Callable[[bytes], Flow[RegistryRecord | None]]
"""Returns a registry's entry for an enclave; None if no registry lists it."""


def _no_record(enclave: bytes) -> Flow[RegistryRecord | None]:
    return None
    yield


def adopt_sequencer(
    probe: EnclaveReader,
    pin: Pin,
    hints: Sequence[Event] = (),
    *,
    accept_loss: bool = False,
    record: RecordLookup = _no_record,
) -> Flow[Pin | None]:
    """Return the pin for the node that `probe` asks with empty pins.

    None if it does not continue the log. `hints`: Migrates from other sources, for identities that
    may not read them in the log. The pin's own Migrates count too: a node cannot evade them by
    withholding them.
    """
    history = yield from fetch_history(probe.session, [*hints, *(move.event for move in pin.moves)])
    node = probe.session.known_verifier().sequencer
    if history.sequencer != node:
        if not history.knows(node) or pin.history.holds(history):
            return None
        raise EnclaveMigrated("the enclave has left this node too", new_sequencer=(history.sequencer or b"").hex())
    new_moves = _new_moves(history, pin)
    if not new_moves:
        return None
    sizes = pin.history.sizes()
    for move in new_moves:
        sizes[move.event.id] = yield from _term_size(probe, move)
    new_moves = _drop_signed_returns(new_moves, pin, sizes)
    if not new_moves:
        return None
    head = yield from probe.session.head()
    loss = lost_range(history, pin, new_moves[0], sizes[new_moves[0].event.id])
    base = (
        pin.head
        if loss is None
        else (yield from _check_loss_accepted(probe, loss, new_moves[0], record if accept_loss else None))
    )
    if base is not None and base.ts:
        yield from _check_extends(probe, pin.sequencer, base, head)
    for move in new_moves:
        if move.is_forced:
            size = sizes[move.event.id]
            yield from _check_root(probe, move, size, head)
            yield from _check_owner(probe, move, base.ts if base else 0, size)
    return pin_of(node, head, history.sized(sizes))


def _new_moves(history: History, pin: Pin) -> tuple[Migration, ...]:
    """Return the moves since the pinned sequencer's term, or since the last earlier one that both
    know.

    Of several terms of one key, takes the one that the pinned moves lead to, or else the first: the
    pinned sequencer has signed nothing between two of its terms. Returns () without a common term.
    """
    own = [term.sequencer for term in pin.history.terms()]
    end = max((i for i, key in enumerate(own) if key == pin.sequencer), default=0)
    led = {move.event.id for move in pin.moves[:end]}
    shared = [i for i, move in enumerate(history.moves) if move.event.id in led]
    if shared:
        return history.moves[shared[-1] + 1 :]
    keys = [term.sequencer for term in history.terms()]
    for known in reversed(own[: end + 1]):
        if known is not None and known in keys:
            return history.moves[keys.index(known) :]
    return ()


def _drop_signed_returns(new_moves: tuple[Migration, ...], pin: Pin, sizes: dict[bytes, int]) -> tuple[Migration, ...]:
    """Drop the moves up to the last return to the pinned sequencer that it has signed for."""
    size = pin.head.ts if pin.head else 0
    signed = [m.new_sequencer == pin.sequencer and (m.is_forced or sizes[m.event.id] <= size) for m in new_moves]
    return new_moves[len(signed) - signed[::-1].index(True) :] if True in signed else new_moves


def _term_size(probe: EnclaveReader, move: Migration) -> Flow[int]:
    """Return the bundles of the log at the end of the old term: a Migrate closes or opens a bundle."""
    membership, anchor = yield from probe.place(move.event.id)
    with blame_for_content(probe, move.event):
        if membership.ei != (0 if move.is_forced else membership.size - 1):
            raise InvalidProof("Migrate: not at the border of its bundle")
    return anchor.index + (not move.is_forced)


def _check_loss_accepted(
    probe: EnclaveReader, loss: LostRange, move: Migration, record: RecordLookup | None
) -> Flow[TreeHead | None]:
    """Raise the loss unless the user accepts it and the registry confirms the new owner.

    Anyone who continues from a copy is the owner according to that copy, which may be older than a
    Transfer; a registry knows better.
    """
    if record is None:
        raise loss
    known = yield from record(probe.enclave)
    if known is not None and not (yield from _confirms(known, probe, move.event)):
        message = (
            f"Migrate {move.event.seq}: {move.event.from_.hex()} took over from a copy without events seen before, "
            f"but the registry names {known.holder.hex()} as the enclave's owner"
        )
        raise probe.session.known_verifier().forgery(message, msgspec.json.encode(wire_event(move.event)))
    return None


def _confirms(known: RegistryRecord, probe: EnclaveReader, migrate: Event) -> Flow[bool]:
    """Whether a registry entry confirms a Migrate: it is its author's, contains it, or belongs to a
    later owner.

    A later owner got the enclave from the author, in the log of the node that the entry names; then
    an earlier entry has contained the Migrate.
    """
    if known.holder == migrate.from_ or any(link.event.id == migrate.id for link in known.entry.links):
        return True
    if known.sequencer != probe.session.known_verifier().sequencer:
        return False
    rules, events = yield from ownership_history(probe)
    later = [event for event in events if event.seq > migrate.seq]
    return find_passage(rules, later, migrate.from_, known.holder) is not None


def lost_range(history: History, pin: Pin, move: Migration, size: int) -> LostRange | None:
    """Return the error for pinned events that are missing in the log that continued from `size`
    bundles.

    A takeover from a copy counts its last bundle as closed, though it may have had more events.
    """
    head = pin.head
    if history.holds(pin.history):
        if head is None or head.ts < size or (head.ts == size and not move.is_forced):
            return None
        if head.ts == size and head.r == parse_migrate(move.event).ct_root:
            return None
    first, end = size - move.is_forced, max(head.ts if head else 0, size)
    message = (
        f"the log continued with Migrate {move.event.seq} from a copy without events seen here before: what "
        f"{pin.sequencer.hex()} wrote as event {move.event.seq} and later, in bundles {first} to {end - 1}, is lost"
    )
    return LostRange(message, first_seq=move.event.seq, bundles=[first, end])


def _check_extends(probe: EnclaveReader, sequencer: bytes, pinned: TreeHead, head: TreeHead) -> Flow[None]:
    verifier = probe.session.known_verifier()
    if pinned.ts == head.ts:
        if pinned.r != head.r:
            raise verifier.root_mismatch(sequencer, pinned, head)
        return
    proof = yield from probe.session.consistency(pinned, head, sequencer)
    verifier.connect(pinned, head, proof, sequencer)


def _check_root(probe: EnclaveReader, move: Migration, size: int, head: TreeHead) -> Flow[None]:
    """Check the root that a forced Migrate names for the log that it takes over."""
    root = parse_migrate(move.event).ct_root
    proof = yield from probe.session.consistency(TreeHead(0, size, root, b""), head)
    with blame_for_content(probe, move.event):
        if (proof.ts1, proof.ts2) != (size, head.ts):
            raise InvalidProof("consistency: the sizes are not the requested ones")
        check_consistency(proof, root, head.r)


def _check_owner(probe: EnclaveReader, move: Migration, base: int, size: int) -> Flow[None]:
    """Check that the author owned the enclave: by the trusted state after `base` bundles and later
    events.

    The node's own state just before must agree: an owner who gave the enclave away no longer owns
    it.
    """
    rules, events = yield from ownership_history(probe, move.event.seq)
    owner = move.event.from_
    if not (yield from _owns(probe, rules, owner, size)):
        raise _not_owner(probe, move)
    if base == 0:
        manifest = events[0]
        if find_passage(rules, events, manifest.from_, owner) is None:
            raise _not_owner(probe, move)
        return
    for event in [None, *reversed(events)]:
        if event is not None:
            if owner not in rules.new_owners(event):
                continue
            if (yield from probe.place(event.id))[1].index < base:
                break
            owner = event.from_
        if (yield from _owns(probe, rules, owner, base)):
            return
    raise _not_owner(probe, move)


def _owns(probe: EnclaveReader, rules: Policy, identity: bytes, size: int) -> Flow[bool]:
    fact = yield from probe.state_fact("rbac", identity, size)
    return rules.is_owner(int.from_bytes(fact.value or b"", "big"))


def _not_owner(probe: EnclaveReader, move: Migration) -> Forgery:
    message = f"Migrate {move.event.seq}: the author {move.event.from_.hex()} is not proved to be the owner"
    return probe.session.known_verifier().forgery(message, msgspec.json.encode(wire_event(move.event)))
