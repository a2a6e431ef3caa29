"""Epochs of a group: the worked examples, random histories, and each condition for an epoch to count broken alone."""

import json
from collections.abc import Iterator
from hashlib import sha256
from itertools import count

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enc.core.errors import DecryptFailed, EncError, InvalidCommit, MisuseError
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.encoding import b64
from enc.core.primitives.signing import CURVE_ORDER, PrivateKey
from enc.core.sealed_forms.group_envelope import Envelope, open_short, parse_envelope, seal_short
from enc.core.sealed_forms.group_message import (
    SenderChain,
    check_place,
    open_message,
    parse_sealed,
    read_sealed,
    seal_message,
)
from enc.core.sealed_forms.group_opening import consume, consume_handoff
from enc.core.sealed_forms.group_ratchet import accept, propose
from enc.core.sealed_forms.group_state import (
    NO_EPOCH,
    HeldEpoch,
    PublicGroupState,
    Randomness,
    Secrets,
    epoch_secret,
    node_key,
    tree_for,
)
from enc.core.sealed_forms.group_tree import Inner, MemberLeaf, Tree, set_id
from tests.core.vectors import load

GROUP = load("group")
PEOPLE = {name: PrivateKey(bytes.fromhex(pair["priv"])) for name, pair in GROUP["people"].items()}


def sub_key(key: PrivateKey) -> PrivateKey:
    number = int.from_bytes(hkdf(key.secret, "enc:sub-key"), "big") % CURVE_ORDER
    return PrivateKey(number.to_bytes(32, "big"))


def unhexed(texts: list[str]) -> Iterator[bytes]:
    return (bytes.fromhex(text) for text in texts)


def test_every_epoch_of_the_worked_example() -> None:
    state = NO_EPOCH
    held: dict[str, Secrets] = {name: {} for name in PEOPLE}
    subs = {sub_key(key).public.hex(): key.public for key in PEOPLE.values()}
    for example in GROUP["epochs"]:
        members = frozenset(PEOPLE[name].public for name in example["members"])
        author = PEOPLE[example["committer"]].public
        chance = Randomness(
            bytes.fromhex(example["fresh_secret"]),
            PrivateKey(bytes.fromhex(example["eph_priv"])),
            unhexed(example["fills"]),
            unhexed(example["nonces"]),
        )
        wanted = [wrap["to"] for wrap in example["envelope"].get("or_wraps", ())]
        made, epoch, after = propose(state, members, author, chance, {subs[to]: bytes.fromhex(to) for to in wanted})
        assert json.loads(msgspec.json.encode(made)) == example["envelope"]
        assert epoch.root_secret.hex() == example["root_secret"]
        assert epoch.secret.hex() == example["epoch_secret"]
        envelope = parse_envelope(example["envelope"])
        assert accept(state, members, author, envelope) == after
        for name in example["members"]:
            opened = consume(after, author, envelope, PEOPLE[name], held[name])
            assert opened.root_secret == epoch.root_secret
            held[name] = opened.secrets
        for name, keys in example["message_keys"].items():
            chain = SenderChain(epoch.secret, PEOPLE[name].public)
            assert [chain.key(i).hex() for i in range(3)] == keys
        state = after


def test_the_sealed_message_of_the_worked_example_opens() -> None:
    example = GROUP["epochs"][0]
    key = SenderChain(bytes.fromhex(example["epoch_secret"]), PEOPLE["p0"].public).key(0)
    assert open_short(key, example["sealed"], "ciphertext") == b"hello group"
    nonce = bytes.fromhex(example["nonces"][0])
    assert seal_short(key, b"hello group", nonce) == example["sealed"]


# A group in memory


def key_of(i: int) -> PrivateKey:
    return PrivateKey(sha256(b"person %d" % i).digest())


CROWD = [key_of(i) for i in range(12)]
KEY_OF = {key.public: key for key in CROWD}
_numbers = count()


def fresh() -> bytes:
    return sha256(b"random %d" % next(_numbers)).digest()


def chance() -> Randomness:
    return Randomness(fresh(), PrivateKey(fresh()), iter(fresh, b""), (fresh()[:12] for _ in count()))


class Group:
    """Everyone's view of one group; each person keeps every secret that they ever saw."""

    def __init__(self) -> None:
        self.state: PublicGroupState = NO_EPOCH
        self.held: dict[bytes, dict[bytes, bytes]] = {public: {} for public in KEY_OF}
        self.ever: dict[bytes, dict[bytes, bytes]] = {public: {} for public in KEY_OF}

    def commit(self, author: bytes, members: frozenset[bytes]) -> tuple[Envelope, HeldEpoch]:
        made, epoch, after = propose(self.state, members, author, chance())
        envelope = parse_envelope(json.loads(msgspec.json.encode(made)))
        assert accept(self.state, members, author, envelope) == after
        self.ever[author] |= epoch.secrets
        for member in members:
            opened = consume(after, author, envelope, KEY_OF[member], self.held[member])
            assert opened.root_secret == epoch.root_secret
            self.held[member] = dict(opened.secrets)
            self.ever[member] |= opened.secrets
        self.state = after
        return envelope, epoch


sets = st.sets(st.integers(0, len(CROWD) - 1), min_size=1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(sets, st.integers(0, 99)), min_size=1, max_size=8))
def test_members_agree_and_who_is_gone_opens_nothing(history: list[tuple[set[int], int]]) -> None:
    group = Group()
    made: dict[bytes, list[bytes]] = {public: [] for public in KEY_OF}
    for chosen, pick in history:
        members = frozenset(CROWD[i].public for i in chosen)
        author = sorted(members)[pick % len(members)]
        before = group.state
        drawn: list[bytes] = []
        luck = chance()
        luck = Randomness(luck.secret, luck.eph, _noted(luck.fills, drawn), luck.nonces)
        sent, epoch, after = propose(before, members, author, luck)
        made[author] += [*drawn, luck.secret]
        envelope = parse_envelope(json.loads(msgspec.json.encode(sent)))
        assert accept(before, members, author, envelope) == after
        assert envelope.members == set_id(members).hex()
        for member in members:
            opened = consume(after, author, envelope, KEY_OF[member], group.held[member])
            assert opened.root_secret == epoch.root_secret
            group.held[member] = dict(opened.secrets)
            group.ever[member] |= opened.secrets
        for outsider in set(KEY_OF) - members:
            known = group.ever[outsider] | {node_key(s).public: s for s in made[outsider]}
            check_closed(envelope, KEY_OF[outsider], known, epoch.root_secret)
        group.state = after


def _noted(secrets: Iterator[bytes], into: list[bytes]) -> Iterator[bytes]:
    for secret in secrets:
        into.append(secret)
        yield secret


def check_closed(envelope: Envelope, key: PrivateKey, known: dict[bytes, bytes], root_secret: bytes) -> None:
    """Check that no wrap of the envelope is sealed to a key that the outsider holds."""
    tos = {wrap.to for fill in envelope.fill for wrap in fill.wraps} | {rung.wrap.to for rung in envelope.path}
    assert key.public.hex() not in tos | {envelope.self_.to}
    assert not {public.hex() for public in known} & tos
    assert root_secret not in known.values()


def keyed_nodes(tree: Tree | None) -> list[Inner]:
    if tree is None or isinstance(tree, MemberLeaf):
        return []
    return [*keyed_nodes(tree.left), *keyed_nodes(tree.right), *([tree] if tree.key is not None else [])]


def under(tree: Tree) -> frozenset[bytes]:
    return frozenset({tree.key}) if isinstance(tree, MemberLeaf) else under(tree.left) | under(tree.right)


def taints(tree: Tree | None) -> frozenset[bytes]:
    return frozenset().union(*(node.taint for node in all_inner(tree)))


Known = dict[frozenset[bytes], tuple[str, frozenset[bytes]]]
"""Key and taint of each keyed node, by the members under it: the state as the document defines it, without sharing."""


def by_definition(state: Known, members: frozenset[bytes], author: bytes, envelope: Envelope) -> Known:
    nodes = {under(node): node for node in all_inner(tree_for(NO_EPOCH, members))}
    known: Known = {below: found for below, found in state.items() if below in nodes and found[1] <= members}
    taint_of = lambda below: known[below][1] if below in known else frozenset()  # noqa: E731
    path = sorted((below for below in nodes if author in below), key=len)
    fills, inside, lower = iter(envelope.fill), frozenset({author}), frozenset[bytes]()
    for below in path:
        beside = below - inside
        for blank in in_order(nodes, beside):
            if blank not in known:
                left, right = under(nodes[blank].left), under(nodes[blank].right)
                known[blank] = next(fills).pub, frozenset({author}) | taint_of(left) | taint_of(right)
        inside = below
    inside = frozenset({author})
    for below, rung in zip(path, envelope.path, strict=True):
        lower = frozenset({author}) | taint_of(below - inside) | lower
        known[below] = rung.pub, lower
        inside = below
    return known


def in_order(nodes: dict[frozenset[bytes], Inner], below: frozenset[bytes]) -> list[frozenset[bytes]]:
    """Yield the inner nodes of a subtree, children before parents, left before right."""
    if below not in nodes:
        return []
    node = nodes[below]
    return [*in_order(nodes, under(node.left)), *in_order(nodes, under(node.right)), below]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(sets, st.integers(0, 99)), min_size=2, max_size=7))
def test_the_state_is_what_the_definition_says(history: list[tuple[set[int], int]]) -> None:
    group, known = Group(), dict[frozenset[bytes], tuple[str, frozenset[bytes]]]()
    for chosen, pick in history:
        members = frozenset(CROWD[i].public for i in chosen)
        author = sorted(members)[pick % len(members)]
        envelope, _ = group.commit(author, members)
        known = by_definition(known, members, author, envelope)
        tree = group.state.tree
        assert {under(node): ((node.key or b"").hex(), node.taint) for node in keyed_nodes(tree)} == known
        for node in all_inner(tree):
            assert node.key is not None
            assert node.taint == taints(node)
        for member in members:
            assert len(group.held[member]) <= len(known)
            assert set(group.held[member]) <= {node.key for node in keyed_nodes(tree) if member in under(node)}


def all_inner(tree: Tree | None) -> list[Inner]:
    if tree is None or isinstance(tree, MemberLeaf):
        return []
    return [*all_inner(tree.left), *all_inner(tree.right), tree]


# Which epochs count


def world() -> tuple[Group, frozenset[bytes], bytes, dict]:
    """Return six members, an epoch by the first, and the next one by another, after a join: with fill and path."""
    group = Group()
    members = frozenset(key.public for key in CROWD[:6])
    group.commit(CROWD[0].public, members)
    grown = members | {CROWD[6].public, CROWD[7].public}
    for author in sorted(members):
        made, _, _ = propose(group.state, grown, author, chance())
        wire = json.loads(msgspec.json.encode(made))
        if wire["fill"] and len(wire["path"]) > 1:
            return group, grown, author, wire
    raise AssertionError("nobody has something to fill")


POINTLESS = "ff" * 32
OTHER = key_of(99).public.hex()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.update(n=w["n"] + 1), "epoch.n"),
        (lambda w: w.update(n=w["n"] - 1), "epoch.n"),
        (lambda w: w.update(members=set_id([b"x" * 32]).hex()), "epoch.members"),
        (lambda w: w.update(eph=POINTLESS), "epoch.eph"),
        (lambda w: w["self"].update(to=OTHER), "epoch.self.to"),
        (lambda w: w["fill"].pop(), "epoch.fill"),
        (lambda w: w["fill"].append(w["fill"][0]), "epoch.fill"),
        (lambda w: w["fill"][0].update(pub=POINTLESS), "epoch.fill[0].pub"),
        (lambda w: w["fill"][0]["wraps"].reverse(), "epoch.fill[0].wraps"),
        (lambda w: w["fill"][0]["wraps"][1].update(to=OTHER), "epoch.fill[0].wraps"),
        (lambda w: w["path"].pop(), "epoch.path"),
        (lambda w: w["path"].append(w["path"][-1]), "epoch.path"),
        (lambda w: w["path"][0].update(pub=POINTLESS), "epoch.path[0].pub"),
        (lambda w: w["path"][1]["wrap"].update(to=OTHER), "epoch.path[1].wrap.to"),
    ],
)
def test_each_condition_broken_alone_makes_it_count_for_nobody(change, message: str) -> None:
    group, members, author, wire = world()
    accept(group.state, members, author, parse_envelope(wire))
    change(wire)
    with pytest.raises(InvalidCommit) as caught:
        accept(group.state, members, author, parse_envelope(wire))
    assert caught.value.message.startswith(message)


def test_it_is_the_authors_and_the_members_it_says() -> None:
    group, members, author, wire = world()
    envelope = parse_envelope(wire)
    with pytest.raises(InvalidCommit, match="not a member"):
        accept(group.state, members - {author}, author, envelope)
    with pytest.raises(InvalidCommit, match=r"epoch\.members"):
        accept(group.state, members - {next(iter(members - {author}))}, author, envelope)
    with pytest.raises(InvalidCommit, match=r"epoch\.self"):
        accept(group.state, members, next(iter(members - {author})), envelope)


@pytest.mark.parametrize("n", [-1, 2**53, "0", None, True, 0.5])
def test_n_is_a_number_that_every_reader_holds(n) -> None:
    *_, wire = world()
    wire["n"] = n
    with pytest.raises(InvalidCommit):
        parse_envelope(wire)


@pytest.mark.parametrize("gone", ["n", "eph", "members", "self", "fill", "path"])
def test_every_part_must_be_there(gone: str) -> None:
    *_, wire = world()
    del wire[gone]
    with pytest.raises(InvalidCommit):
        parse_envelope(wire)


# What cannot be opened


def opened_by(index: int, wire: dict, group: Group, members: frozenset[bytes], author: bytes) -> HeldEpoch:
    envelope = parse_envelope(wire)
    after = accept(group.state, members, author, envelope)
    key = CROWD[index]
    return consume(after, author, envelope, key, group.held[key.public])


def test_a_wrong_secret_counts_but_does_not_open() -> None:
    """Others cannot see what is sealed: the epoch counts, and the cheated member reports it."""
    group, members, author, wire = world()
    eph = PrivateKey(fresh())
    wire["eph"] = eph.public.hex()
    failures = 0
    for i in range(8):
        if CROWD[i].public != author:
            with pytest.raises(DecryptFailed):
                opened_by(i, wire, group, members, author)
            failures += 1
    assert failures == 7


def test_a_secret_must_give_the_announced_key() -> None:
    group, members, author, wire = world()
    wire["path"][-1]["pub"] = OTHER
    for i in range(8):
        with pytest.raises(DecryptFailed, match="announced"):
            opened_by(i, wire, group, members, author)


@pytest.mark.parametrize("ct", ["", "!", b64(b"x"), b64(bytes(60)), b64(bytes(61))])
def test_a_broken_wrap_is_refused(ct: str) -> None:
    group, members, author, wire = world()
    wire["self"]["ct"] = ct
    with pytest.raises(DecryptFailed):
        opened_by(CROWD.index(KEY_OF[author]), wire, group, members, author)


def test_a_handoff_must_be_the_root_secret() -> None:
    group = Group()
    envelope, epoch = group.commit(CROWD[0].public, frozenset(key.public for key in CROWD[:3]))
    assert consume_handoff(envelope, epoch.root_secret).secret == epoch_secret(epoch.root_secret)
    with pytest.raises(DecryptFailed):
        consume_handoff(envelope, fresh())


def test_only_members_make_and_open_epochs() -> None:
    group, members, author, wire = world()
    with pytest.raises(MisuseError):
        propose(group.state, members, CROWD[9].public, chance())
    envelope = parse_envelope(wire)
    after = accept(group.state, members, author, envelope)
    with pytest.raises(MisuseError):
        consume(after, author, envelope, CROWD[9])


def test_a_newcomer_opens_its_own_epoch_with_its_identity_alone() -> None:
    group, members, author, wire = world()
    envelope = parse_envelope(wire)
    after = accept(group.state, members, author, envelope)
    newcomer = consume(after, author, envelope, CROWD[6])
    assert newcomer.root_secret == consume(after, author, envelope, CROWD[0], group.held[CROWD[0].public]).root_secret


def test_wraps_grow_as_the_depth() -> None:
    """After the first fill, with one admin making every change: at most one wrap a level and a few for the newcomer."""
    crowd = [key_of(1000 + i) for i in range(257)]
    admin = crowd[0].public
    members = frozenset(key.public for key in crowd[:256])
    _, _, state = propose(NO_EPOCH, members, admin, chance())
    for key in crowd[1:20]:
        members -= {key.public}
        envelope, _, state = propose(state, members, admin, chance())
        assert 1 + len(envelope.path) + 2 * len(envelope.fill) <= 4 * 16
        members |= {key.public}
        envelope, _, state = propose(state, members, admin, chance())
        assert 1 + len(envelope.path) + 2 * len(envelope.fill) <= 4 * 16


@given(st.binary(max_size=64))
def test_garbage_never_opens(raw: bytes) -> None:
    with pytest.raises(EncError):
        open_short(bytes(32), b64(raw), "ciphertext")


# Messages


def test_a_message_opens_with_its_own_key_alone() -> None:
    chain, other = SenderChain(fresh(), CROWD[0].public), SenderChain(fresh(), CROWD[0].public)
    content = json.loads(seal_message(chain, 3, 5, "grüße", fresh()[:12]))
    assert (content["epoch"], content["sender_seq"]) == (3, 5)
    sealed = parse_sealed(content)
    assert open_message(chain, sealed) == "grüße"
    for chain_, changed in ((other, sealed), (chain, msgspec.structs.replace(sealed, sender_seq=4))):
        with pytest.raises(DecryptFailed):
            open_message(chain_, changed)


def test_what_is_sealed_is_text() -> None:
    chain = SenderChain(fresh(), CROWD[0].public)
    sealed = parse_sealed({"epoch": 0, "sender_seq": 0, "ciphertext": seal_short(chain.key(0), b"\xff", fresh()[:12])})
    with pytest.raises(InvalidCommit, match="not UTF-8 text"):
        open_message(chain, sealed)


def test_a_counter_beyond_the_log_is_refused_before_anything_is_derived() -> None:
    sealed = parse_sealed({"epoch": 0, "sender_seq": 3, "ciphertext": ""})
    check_place(sealed, 14, 10)
    with pytest.raises(InvalidCommit, match="sender_seq"):
        check_place(sealed, 13, 10)


@pytest.mark.parametrize("field", ["epoch", "sender_seq"])
@pytest.mark.parametrize("number", [-1, 2**53, "1", None, True])
def test_the_numbers_of_a_message_are_bounded(field: str, number) -> None:
    with pytest.raises(InvalidCommit):
        parse_sealed({"epoch": 0, "sender_seq": 0, "ciphertext": "", field: number})


@given(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1), st.binary(max_size=90))
def test_a_content_is_read_as_its_json_is(epoch: int, sender_seq: int, raw: bytes) -> None:
    sealed = {"epoch": epoch, "sender_seq": sender_seq, "ciphertext": b64(raw)}
    for content in (json.dumps(sealed), json.dumps(sealed, sort_keys=True, separators=(",", ":"))):
        assert read_sealed(content) == parse_sealed(sealed)


@pytest.mark.parametrize(
    ("epoch", "sender_seq", "ciphertext"),
    [
        ("01", "0", ""),
        ("0", "00", ""),
        ("-1", "0", ""),
        ("9007199254740992", "0", ""),
        ("0", "99999999999999999", ""),
        ("٣", "0", ""),
        ("1.0", "0", ""),
        ("1", "0", '","epoch":"1'),
        ("1", "0", "\\ud800"),
    ],
)
def test_a_content_that_is_not_strict_is_refused(epoch: str, sender_seq: str, ciphertext: str) -> None:
    with pytest.raises(InvalidCommit):
        read_sealed(f'{{"ciphertext":"{ciphertext}","epoch":{epoch},"sender_seq":{sender_seq}}}')


@pytest.mark.parametrize("end", ["\n", " ", "x"])
def test_only_white_space_may_stand_around_a_content(end: str) -> None:
    content = '{"ciphertext":"","epoch":0,"sender_seq":0}' + end
    if end == "x":
        with pytest.raises(InvalidCommit):
            read_sealed(content)
    else:
        assert read_sealed(content) == parse_sealed(json.loads(content))
