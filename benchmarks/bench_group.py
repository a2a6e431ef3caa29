"""A group's keys: the cost of an epoch for its author and the others as the group grows, and of opening a conversation.

One admin makes every epoch after the first, while members leave and join. Floors are bare calls in the same run: to
make an epoch, the ECDH, key pairs, HKDF and ciphers of its wraps and keys; to follow and open one, points, and the
same for what is opened; for both, SHA-256 over the members. Wraps, bytes and time must grow as log N.
"""

import gc
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from unittest.mock import patch

import msgspec
from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from floors import Work, best_by_turns, raw_sha256, report, verdict
from msgspec import Struct

from enc.apps.group import GroupFold, Keys, group_manifest
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import finalize
from enc.core.primitives.encoding import compact_json, strict_json, unb64
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event
from enc.core.sealed_forms import group_message, group_state
from enc.core.sealed_forms.group_envelope import Envelope, parse_envelope
from enc.core.sealed_forms.group_message import SenderChain, check_place, open_message, read_sealed, seal_message
from enc.core.sealed_forms.group_opening import consume
from enc.core.sealed_forms.group_ratchet import accept, propose
from enc.core.sealed_forms.group_state import NO_EPOCH, PublicGroupState, Randomness, Secrets, epoch_secret

_SHA256, _DRAWN = SHA256(), random.Random(7)
SIZES = (8, 64, 512, 4096)
CHURN = 60
"""The number of epochs after the first: a leave, a join, and so on."""
LOG_N = 1.5
"""The factor by which the largest group may exceed the cost of one of 64, scaled by log N."""
MESSAGES, SENDERS, EPOCHS = 10_000, 100, 50
TIMED = 1_000
"""The number of messages that are timed: few enough that many rounds run without interruption."""
CLOCK, EXP = 1_790_000_000_000, 1_790_000_060_000


def forever(size: int) -> Iterator[bytes]:
    while True:
        yield os.urandom(size)


def chance() -> Randomness:
    return Randomness(os.urandom(32), new_key(), forever(32), forever(12))


def new_key() -> PrivateKey:
    """Return a key that is the same in every run, so that all runs have the same trees."""
    return PrivateKey(_DRAWN.randbytes(32))


# Bare calls


def raw_calls(multiplications: int, keys: int, derivations: int, ciphers: int, points: int = 0) -> Work:
    """Return a work of only ECDH, key pairs, HKDF, ChaCha20-Poly1305 over 32 bytes and points lifted from x."""
    ctx, secret, nonce, box = GLOBAL_CONTEXT.ctx, os.urandom(32), os.urandom(12), os.urandom(32)
    public, public_x = ffi.new("secp256k1_pubkey *"), new_key().public
    assert lib.secp256k1_ec_pubkey_create(ctx, public, secret)
    pair, lifted, shared = ffi.new("secp256k1_keypair *"), ffi.new("secp256k1_xonly_pubkey *"), ffi.new("char[32]")

    def work() -> None:
        for _ in range(multiplications):
            lib.secp256k1_ecdh(ctx, ffi.cast("unsigned char *", shared), public, secret, ffi.NULL, ffi.NULL)
        for _ in range(keys):
            lib.secp256k1_keypair_create(ctx, pair, secret)
        for _ in range(points):
            lib.secp256k1_xonly_pubkey_parse(ctx, lifted, public_x)
        for _ in range(derivations):
            raw_hkdf(secret)
        for _ in range(ciphers):
            ChaCha20Poly1305(secret).encrypt(nonce, box, None)

    return work


def raw_hkdf(secret: bytes, label: bytes = b"enc:mls:wrap") -> bytes:
    return HKDF(_SHA256, 32, None, label).derive(secret)


# Epochs


class Step(Struct, frozen=True):
    """One epoch of the churn."""

    before: PublicGroupState
    after: PublicGroupState
    envelope: Envelope
    held: Secrets
    """The bystander's secrets before this epoch."""

    @property
    def wraps(self) -> int:
        return 1 + 2 * len(self.envelope.fill) + len(self.envelope.path)


def churn(size: int) -> tuple[PrivateKey, PrivateKey, list[Step]]:
    """Return an admin, a member who stays, and the epochs."""
    rng, keys = random.Random(size), [new_key() for _ in range(size)]
    admin, bystander = keys[:2]
    members, others, steps = frozenset(key.public for key in keys), [key.public for key in keys[2:]], list[Step]()
    envelope, _, state = propose(NO_EPOCH, members, admin.public, chance())
    held = consume(state, admin.public, envelope, bystander).secrets
    for i in range(CHURN):
        if i % 2:
            others.append(new_key().public)
        else:
            members -= {others.pop(rng.randrange(len(others)))}
        members |= frozenset(others)
        envelope, _, after = propose(state, members, admin.public, chance())
        steps.append(Step(state, after, envelope, held))
        held = consume(after, admin.public, envelope, bystander, held).secrets
        state = after
    return admin, bystander, steps


def mean_best(works: list[tuple[Work, Work]]) -> tuple[float, float]:
    """Return the mean of the best times of all works, and of their floors."""
    times = [best_by_turns(*pair, rounds=10) for pair in works]
    return sum(t[0] for t in times) / len(times), sum(t[1] for t in times) / len(times)


def making(admin: PrivateKey, step: Step) -> tuple[Work, Work]:
    nodes = len(step.envelope.fill) + len(step.envelope.path)
    hashed = raw_sha256(1, bytes(34 * len(step.after.members)))
    calls = raw_calls(step.wraps, nodes + 1, step.wraps + nodes + len(step.envelope.path) - 1, step.wraps)
    return lambda: propose(step.before, step.after.members, admin.public, chance()), both(calls, hashed)


def following(admin: PrivateKey, step: Step) -> tuple[Work, Work]:
    """Return the work of everyone who follows the log, members or not, from the event's JSON."""
    wire = msgspec.json.encode(step.envelope).decode()
    lifted = raw_calls(0, 0, 0, 0, points=1 + len(step.envelope.fill) + len(step.envelope.path))
    floor = both(lifted, raw_sha256(1, bytes(34 * len(step.after.members))))
    return lambda: accept(step.before, step.after.members, admin.public, parse_envelope(strict_json(wire))), floor


def opening(admin: PrivateKey, member: PrivateKey, step: Step) -> tuple[Work, Work]:
    opened = consume(step.after, admin.public, step.envelope, member, step.held).secrets
    learnt = len(opened.keys() - step.held.keys())
    pubs = {fill.pub for fill in step.envelope.fill}
    filled = sum(public.hex() in pubs for public in opened.keys() - step.held.keys())
    unwrapped, climbed = filled + 1, learnt - filled - 1
    floor = raw_calls(unwrapped, learnt, unwrapped + learnt + climbed, unwrapped)
    return lambda: consume(step.after, admin.public, step.envelope, member, step.held), floor


def both(*works: Work) -> Work:
    def work() -> None:
        for each in works:
            each()

    return work


class Figures(Struct, frozen=True):
    wraps: float
    bytes: float
    make: float
    consume: float


def bench_epochs(size: int) -> Figures:
    admin, bystander, steps = churn(size)
    makes, made = mean_best([making(admin, step) for step in steps])
    follows, followed = mean_best([following(admin, step) for step in steps])
    opens, opened = mean_best([opening(admin, bystander, step) for step in steps])
    wraps = sum(step.wraps for step in steps) / CHURN
    sent = sum(len(msgspec.json.encode(step.envelope)) for step in steps) / CHURN
    print(f"{size} members: {wraps:.1f} wraps and {sent:,.0f} bytes an epoch")
    report(f"  make one, {size}", makes, made, "its bare calls", 2)
    report(f"  follow and open one, {size}", follows + opens, followed + opened, "its bare calls", 3)
    return Figures(wraps, sent, makes, follows + opens)


def check_growth(found: dict[int, Figures]) -> None:
    small, large = SIZES[1], SIZES[-1]
    grown = math.log2(large) / math.log2(small)
    for name in Figures.__struct_fields__:
        ratio = getattr(found[large], name) / getattr(found[small], name)
        ok = verdict(f"growth of {name}", ratio <= LOG_N * grown)
        print(
            f"{name} from {small} to {large} members: x {ratio:.2f}; log N: x {grown:.2f}, at most {LOG_N} of it: {ok}"
        )


# A conversation


class Log:
    """A group's log as a node would write it: an owner, the senders, an epoch, messages, the next epoch, …"""

    def __init__(self) -> None:
        self._node, self._rng = new_key(), random.Random(1)
        self.people = [new_key() for _ in range(SENDERS)]
        self.owner = self.people[0]
        manifest = build_manifest(self.owner, compact_json(group_manifest(self.owner.public)), EXP)
        self.enclave, self.events = manifest.enclave, [finalize(manifest, self._node, CLOCK, 0)]
        self.state, self.roots = NO_EPOCH, list[bytes]()
        self.starts, self.said = list[int](), list[Event]()
        """The seq of each epoch; the sealed messages."""
        for person in self.people[1:]:
            self._send(self.owner, "Move", {"target": person.public.hex(), "from": "OUTSIDER", "to": "MEMBER"})
        for n in range(EPOCHS):
            self._talk(n)

    def _send(self, who: PrivateKey, type_: str, content: object) -> Event:
        seq, text = len(self.events), content if isinstance(content, str) else compact_json(content)
        commit = build_commit(who, self.enclave, type_, text, EXP + seq)
        self.events.append(finalize(commit, self._node, CLOCK + seq, seq))
        return self.events[-1]

    def _talk(self, n: int) -> None:
        members = frozenset(person.public for person in self.people)
        envelope, epoch, self.state = propose(self.state, members, self.owner.public, chance())
        self.starts.append(self._send(self.owner, "rotate", {"epoch": msgspec.to_builtins(envelope)}).seq)
        self.roots.append(epoch.root_secret)
        chains = {person.public: SenderChain(epoch.secret, person.public) for person in self.people}
        counts = dict.fromkeys(chains, 0)
        for i in range(MESSAGES // EPOCHS):
            who = self._rng.choice(self.people)
            text = f"message {i} of epoch {n}, and a few more words to say"
            sealed = seal_message(chains[who.public], n, counts[who.public], text, os.urandom(12))
            self.said.append(self._send(who, "message", sealed))
            counts[who.public] += 1

    def open_all(self, first: int = MESSAGES) -> list[str]:
        """Open the first messages with the kernel alone."""
        chains, found, secrets = (
            dict[tuple[int, bytes], SenderChain](),
            list[str](),
            list(map(epoch_secret, self.roots)),
        )
        for event in self.said[:first]:
            sealed = read_sealed(event.content or "")
            check_place(sealed, event.seq, self.starts[sealed.epoch])
            chain = chains.get((sealed.epoch, event.from_))
            if chain is None:
                chain = chains[sealed.epoch, event.from_] = SenderChain(secrets[sealed.epoch], event.from_)
            found.append(open_message(chain, sealed))
        return found

    def fold(self) -> list[str | None]:
        """Open the messages as the app does: judge every event and consume every epoch, without signatures."""
        fold = GroupFold(Keys(self.people[1].public, self.people[1]), self.enclave)
        for event in self.events:
            fold.apply(event)
        return [entry.text for entry in fold.messages.all()]


class Needed(Struct, frozen=True):
    """The unavoidable work of opening one message: derivations (secret and label), and one box to open."""

    derivations: tuple[tuple[bytes, bytes], ...]
    key: bytes
    nonce: bytes
    box: bytes


def needed(log: Log) -> list[Needed]:
    links, found, secrets = dict[tuple[int, bytes], bytes](), list[Needed](), list(map(epoch_secret, log.roots))
    for event in log.said:
        sealed = read_sealed(event.content or "")
        chain = (sealed.epoch, event.from_)
        if chain in links:
            link = (links[chain], b"enc:mls:ratchet:advance")
        else:
            link = (secrets[sealed.epoch], f"enc:mls:sender:{event.from_.hex()}".encode())
        links[chain] = raw_hkdf(*link)
        last, raw = (links[chain], b"enc:mls:ratchet:message"), unb64(sealed.ciphertext, "ciphertext")
        found.append(Needed((link, last), raw_hkdf(*last), raw[:12], raw[12:]))
    return found


def bench_conversation() -> None:
    log = Log()
    steps = needed(log)

    def floor() -> None:
        for step in steps[:TIMED]:
            for secret, label in step.derivations:
                raw_hkdf(secret, label)
            ChaCha20Poly1305(step.key).decrypt(step.nonce, step.box, None)

    print(f"open {MESSAGES:,} messages of {SENDERS} senders in {EPOCHS} epochs:")
    least = Calls(EPOCHS + sum(len(step.derivations) for step in steps), len(steps))
    for what, work in (("the kernel", log.open_all), ("the app", log.fold)):
        calls = counted(work)
        ok = verdict(f"calls of {what}", calls.hkdf <= 1.5 * least.hkdf and calls.aead <= 1.5 * least.aead)
        print(
            f"  {what}: {calls.hkdf:,} derivations and {calls.aead:,} decryptions, "
            f"{least.hkdf:,} and {least.aead:,} are needed, at most half as many again: {ok}"
        )
    gc.collect()
    gc.freeze()  # the log is not garbage: the collector must not walk it while the clock runs
    cost, bare = best_by_turns(lambda: log.open_all(TIMED), floor)
    folded = best_by_turns(log.fold, rounds=5)[0] / MESSAGES
    gc.unfreeze()
    report("  one of them", cost / TIMED, bare / TIMED, "its HKDF and AEAD calls", 1.5)
    print(f"  one of them in the app, with the group's rules: {folded * 1e6:.1f} us")


class Calls(Struct, frozen=True):
    hkdf: int
    aead: int


def counted(work: Work) -> Calls:
    """Return how many keys a work derives between an epoch and a message, and how many messages it opens."""
    counts = Counter[str]()

    def counting(call: Callable[..., bytes], name: str, only: str = "") -> Callable[..., bytes]:
        def work(*args: object) -> bytes:
            counts[name] += not only or only in args
            return call(*args)

        return work

    with (
        patch.object(group_message, "hkdf", counting(group_message.hkdf, "hkdf")),
        patch.object(group_state, "hkdf", counting(group_state.hkdf, "hkdf", "enc:mls:epoch")),
        patch.object(group_message, "open_short", counting(group_message.open_short, "aead")),
    ):
        assert len(work()) == MESSAGES  # type: ignore[arg-type]
    return Calls(counts["hkdf"], counts["aead"])


def main() -> None:
    check_growth({size: bench_epochs(size) for size in SIZES})
    bench_conversation()
