"""Proof files: they state what they prove and what they do not, and any change is detected."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.client.verify import proof_file as module
from enc.client.verify.facts import Anchor, EventFact, StateFact, check_anchor, status_of
from enc.client.verify.proof_file import Proof, check_proof, load_proof
from enc.client.verify.sequencer_history import Migration, history_of
from enc.core.errors import InvalidProof, MisuseError
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import EMPTY_HASH, log_leaf, sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event, InclusionProof
from enc.core.trees import sparse_merkle
from enc.core.trees.bundle import events_root, prove_membership
from enc.core.trees.merkle_log import Edge
from enc.core.trees.proof import LogLeaf
from enc.core.trees.state_key import shared_slot, tree_key
from enc.core.trees.tree_head import sign_head
from tests.client.scene import TOPIC, Scene
from tests.client.stage import Stage
from tests.client.tampering import leaves, tampered
from tests.core.world import START, person, pub, withheld
from tests.node.served import NODE


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch:
        stage = Stage("sync", tmp_path_factory.mktemp("proofs"), patch)
        yield Scene(stage)
        stage.close()


@pytest.fixture(scope="module")
def proofs(scene: Scene) -> dict[str, Proof]:
    e = scene.enclave
    facts: dict[str, EventFact | StateFact] = {
        "active": e.proof(scene.id("one")),
        "updated": e.proof(scene.id("two")),
        "padded": e.proof(scene.id("games")),
        "of a page": next(e.query(proof=True, id=scene.id("one"))).fact,
        "without a status": replace(e.proof(scene.id("one")), status_fact=None),
        "value": e.state("kv", TOPIC),
        "old value": e.state("kv", TOPIC, tree_size=1),
        "nothing": e.state("kv", shared_slot("agenda")),
        "bitmask": e.state("rbac", person("bob").public),
        "deletion": deleted(scene),
    }
    return {name: Proof(e.id, NODE.public, fact) for name, fact in facts.items()}


def deleted(scene: Scene) -> StateFact:
    e = scene.enclave
    receipt = e.commit("message", "not for long")
    e.delete(receipt.id)
    scene.stage.close_bundle()
    fact: StateFact = e.state("event_status", receipt.id)
    return fact


NAMES = [
    "active",
    "updated",
    "padded",
    "of a page",
    "without a status",
    "value",
    "old value",
    "nothing",
    "bitmask",
    "deletion",
]
by_name = pytest.mark.parametrize("name", NAMES)


@by_name
def test_a_proof_goes_through_a_file(proofs: dict[str, Proof], name: str, tmp_path: Path) -> None:
    (tmp_path / "proof.json").write_bytes(proofs[name].json())
    again = load_proof((tmp_path / "proof.json").read_bytes())
    assert again == proofs[name]
    assert check_proof(again) == check_proof(proofs[name])


def test_what_the_proof_of_an_event_says(proofs: dict[str, Proof], scene: Scene) -> None:
    fact = proofs["active"].fact
    assert isinstance(fact, EventFact)
    event, node, e = fact.event, NODE.public.hex(), scene.enclave.hex
    assert check_proof(proofs["active"]).proved == (
        f"{event.from_.hex()} signed an event of type message for enclave {e}",
        f"{node} made it event 1 at 2026-09-21T14:13:20.000Z",
        "it is in bundle 0 of the log",
        "its content is: one",
        "after bundle 1 it is active",
        f"all of it is under a head of 2 bundles that {node} signed for this enclave at 2026-09-21T14:13:25.000Z",
    )
    assert event.timestamp == 1_790_000_000_000


def test_what_the_proof_of_an_updated_event_says(proofs: dict[str, Proof]) -> None:
    says = check_proof(proofs["updated"]).proved
    assert says[4:6] == (
        "after bundle 1 it is updated",
        f"{pub('alice')} replaced it with Update 5 at 2026-09-21T14:13:20.000Z, whose content is: more",
    )


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ('{"what":"tea"}', 'is: {"what":"tea"}'),
        ("two\nlines", r'is: "two\nlines"'),
        ("all of it\u2028is proved", 'is: "all of it\u2028is proved"'),
        (None, "was erased"),
    ],
)
def test_contents_take_one_line_each(content: str | None, shown: str) -> None:
    event = update_of(placed(3, NODE), content or "gone")
    fact = in_a_log(placed(3, NODE), HERE)
    says = module._update_says(event if content is not None else erase(event), frozenset())
    assert says.endswith(f", whose content {shown}")
    if content is not None:
        said = finalize(build_commit(person("bob"), HERE, "message", content, START + 60_000), NODE, START, 1)
        assert module._event_says(replace(fact, event=said), frozenset())[3] == f"its content {shown}"


def test_a_withheld_content_names_the_node_and_its_reason() -> None:
    fact, update = in_a_log(withheld(placed(3, NODE)), HERE), withheld(update_of(placed(3, NODE), "more"))
    shown = f"is withheld by {NODE.public.hex()} since 2026-09-21T14:13:20.000Z (court_order)"
    says = module._event_says(replace(fact, update=update), frozenset({NODE.public}))
    assert says[3] == f"its content {shown}; a copy can be checked against content_hash"
    assert says[-1].endswith(f"whose content {shown}")
    assert module._event_says(fact, frozenset())[3].startswith("its content was erased; ")


def test_times_after_the_year_9999_are_numbers() -> None:
    assert module.time_text(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert module.time_text(253_402_300_800_000) == "253402300800000 (Unix milliseconds)"


def test_what_the_proof_of_an_erased_event_says(proofs: dict[str, Proof]) -> None:
    proved = check_proof(proofs["updated"]).proved
    assert "its content was erased; a copy can be checked against content_hash" in proved
    assert "after bundle 1 it is updated" in proved


def update_of(
    event: Event,
    content: str,
    *,
    type_: str = "Update",
    key: PrivateKey = NODE,
    seq: int = 4,
    enclave: bytes | None = None,
) -> Event:
    tags = (("r", event.id.hex()),)
    return finalize(
        build_commit(person("alice"), enclave or HERE, type_, content, START + 60_000, tags), key, START, seq
    )


def with_update(event: Event, update: Event, value: bytes | None = None) -> Proof:
    """Return the proof of an event whose status names an Update, in a log of one bundle."""
    key = tree_key("event_status", event.id)
    nodes = dict[bytes, bytes]()
    tree = SimpleNamespace(read_node=nodes.__getitem__)
    state, found = sparse_merkle.update(tree, EMPTY_HASH, {key: value or update.id})
    nodes.update(found)
    leaf = LogLeaf(events_root([event.id]), state)
    root = Edge().append(log_leaf(leaf.events_root, leaf.state_hash))[0].root()
    anchor = Anchor(leaf, InclusionProof(1, 0, ()), sign_head(C, HERE, START, 1, root))
    status = StateFact("event_status", event.id, sparse_merkle.prove(tree, state, key), anchor)
    return Proof(HERE, C.public, EventFact(event, prove_membership([event.id], 0), anchor, status, update))


def test_an_update_is_the_one_that_the_status_names() -> None:
    event = placed(3, C)
    check_proof(with_update(event, update_of(event, "new", key=C)))
    for wrong, why in (
        (with_update(event, update_of(event, "new", key=C), sha256(b"other")), "not the Update that the status names"),
        (with_update(event, update_of(event, "new", type_="message", key=C)), "not an Update in this enclave"),
        (with_update(event, update_of(event, "new", key=C, enclave=sha256(b"other"))), "not an Update in this enclave"),
        (with_update(event, update_of(placed(2, C), "new", key=C)), "replaces another event"),
    ):
        with pytest.raises(InvalidProof, match=f"^update: {why}$"):
            check_proof(wrong)
    bare = with_update(event, update_of(event, "new", key=C))
    assert isinstance(bare.fact, EventFact)
    with pytest.raises(InvalidProof, match="not the Update that the status names"):
        check_proof(replace(bare, fact=replace(bare.fact, status_fact=None)))


def test_migrates_give_the_signer_of_the_update() -> None:
    event = placed(3, A)
    for seq, key in ((4, A), (6, B), (10, C)):
        check_proof(replace(with_update(event, update_of(event, "x", key=key, seq=seq)), moves=MOVES))
        wrong = replace(with_update(event, update_of(event, "x", key=STRANGER, seq=seq)), moves=MOVES)
        with pytest.raises(InvalidProof, match=r"^update: not signed by the sequencer that the Migrates give"):
            check_proof(wrong)


def test_a_known_sequencer_is_not_listed_as_unproved(proofs: dict[str, Proof]) -> None:
    for proof in proofs.values():
        known, unknown = check_proof(proof, NODE.public), check_proof(proof)
        assert known.proved == unknown.proved
        assert known.not_proved == unknown.not_proved[1:]
        with pytest.raises(InvalidProof, match=r"signed by .*, not by"):
            check_proof(proof, B.public)


def test_save_writes_valid_files_only(proofs: dict[str, Proof], tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    for proof in proofs.values():
        assert proof.save(path) == check_proof(load_proof(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(InvalidProof):
        replace(proofs["active"], sequencer=B.public).save(path)
    assert path.read_bytes() == before
    with pytest.raises(MisuseError, match="cannot write the proof: No such file"):
        proofs["active"].save(tmp_path / "none" / "proof.json")


def test_what_a_proof_without_a_status_says(proofs: dict[str, Proof]) -> None:
    assert not any("it is active" in line for line in check_proof(proofs["without a status"]).proved)


def test_what_the_proof_of_a_state_says(proofs: dict[str, Proof]) -> None:
    def says(name: str) -> str:
        return check_proof(proofs[name]).proved[0]

    value, old = proofs["value"].fact, proofs["old value"].fact
    assert isinstance(value, StateFact)
    assert isinstance(old, StateFact)
    assert says("value") == f"after bundle 1 the value at kv {TOPIC.hex()} is {(value.value or b'').hex()}"
    assert says("old value") == f"after bundle 0 the value at kv {TOPIC.hex()} is {(old.value or b'').hex()}"
    assert value.value != old.value
    assert says("nothing").endswith(" is nothing")
    assert says("deletion").endswith(" is 00")


@by_name
def test_what_no_proof_says(proofs: dict[str, Proof], name: str) -> None:
    assert check_proof(proofs[name]).not_proved == (
        "that this key is the enclave's sequencer: compare it with what you know",
        "that nothing has changed since: a proof shows one point in time",
        "that everyone sees this log: compare heads with others",
    )


def test_the_status_of_a_fact(proofs: dict[str, Proof]) -> None:
    def status(name: str) -> str | None:
        fact = proofs[name].fact
        assert isinstance(fact, EventFact)
        return fact.status

    found = [status(name) for name in ("active", "updated", "without a status")]
    assert found == ["active", "updated", None]
    deletion = proofs["deletion"].fact
    assert isinstance(deletion, StateFact)
    assert status_of(deletion) == "deleted"


def test_an_anchor_is_signed_by_the_sequencer_for_the_enclave(proofs: dict[str, Proof]) -> None:
    proof = proofs["active"]
    check_anchor(proof.fact.anchor, proof.enclave, proof.sequencer)
    for enclave, key in ((proof.enclave, person("node2").public), (sha256(b"other"), proof.sequencer)):
        with pytest.raises(InvalidProof, match="sth"):
            check_anchor(proof.fact.anchor, enclave, key)


def refused(data: bytes) -> None:
    with pytest.raises(InvalidProof):
        check_proof(load_proof(data))


SIZE = ("event", "membership", "size")


@by_name
def test_every_text_and_number_of_a_proof_counts(proofs: dict[str, Proof], name: str) -> None:
    data = proofs[name].json()
    paths = list(leaves(json.loads(data)))
    assert len(paths) > 12
    for path in paths:
        if path != SIZE:
            refused(tampered(data, path))


@by_name
def test_every_part_of_a_proof_is_needed(proofs: dict[str, Proof], name: str) -> None:
    """Except the tags of an event without tags, and the status, without which the proof states less."""
    data = proofs[name].json()
    for path in leaves(json.loads(data)):
        whole = json.loads(data)
        inner = whole
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        refused(json.dumps(whole).encode())


@by_name
def test_a_proof_of_another_form_is_refused(proofs: dict[str, Proof], name: str) -> None:
    data = proofs[name].json()
    for path in leaves(json.loads(data)):
        for wrong in (None, [], {}, True, -1, 1.5, "", "zz", 2**60):  # type: ignore[var-annotated]
            if path[-1] != "v" or wrong is not None:
                refused(tampered(data, path, lambda _, wrong=wrong: wrong))  # type: ignore[misc]


def test_the_size_of_a_bundle_is_not_bound_and_so_not_spoken_of(proofs: dict[str, Proof]) -> None:
    """docs/protocol.md, section 8.3: a padded bundle fits more than one size."""
    four = load_proof(tampered(proofs["padded"].json(), SIZE, lambda size: size + 1))
    assert check_proof(four) == check_proof(proofs["padded"])
    for size in (0, 1, 2, 5):
        refused(tampered(proofs["padded"].json(), SIZE, lambda _, size=size: size))  # type: ignore[misc]


def test_a_value_is_not_taken_away(proofs: dict[str, Proof]) -> None:
    for name in ("value", "bitmask", "deletion"):
        refused(tampered(proofs[name].json(), ("state", "proof", "v"), lambda _: None))


# Parts of two proofs in one


def mixed(one: Proof, other: Proof, *path: str) -> bytes:
    """Return one proof with a part of another."""
    whole, source = json.loads(one.json()), json.loads(other.json())
    inner = whole
    for key in path[:-1]:
        inner, source = inner[key], source[key]
    inner[path[-1]] = source[path[-1]]
    return json.dumps(whole).encode()


@pytest.mark.parametrize("part", ["event", "membership", "anchor", "status"])
def test_a_part_of_another_event_s_proof(proofs: dict[str, Proof], part: str) -> None:
    refused(mixed(proofs["active"], proofs["padded"], "event", part))


@pytest.mark.parametrize("part", ["key", "proof", "namespace"])
def test_a_part_of_another_state_s_proof(proofs: dict[str, Proof], part: str) -> None:
    refused(mixed(proofs["value"], proofs["bitmask"], "state", part))
    if part != "namespace":
        refused(mixed(proofs["value"], proofs["nothing"], "state", part))


def test_an_older_value_under_a_newer_leaf(proofs: dict[str, Proof]) -> None:
    refused(mixed(proofs["value"], proofs["old value"], "state", "proof"))
    refused(mixed(proofs["value"], proofs["old value"], "state", "anchor"))


def test_a_status_from_before_the_event(proofs: dict[str, Proof], scene: Scene) -> None:
    fact = proofs["padded"].fact
    assert isinstance(fact, EventFact)
    before = scene.enclave.state("event_status", fact.event.id, tree_size=1)
    refused(Proof(scene.enclave.id, NODE.public, replace(fact, status_fact=before)).json())


def test_a_status_of_another_event(proofs: dict[str, Proof], scene: Scene) -> None:
    one, padded = proofs["active"].fact, proofs["padded"].fact
    assert isinstance(one, EventFact)
    assert isinstance(padded, EventFact)
    refused(Proof(scene.enclave.id, NODE.public, replace(one, status_fact=padded.status_fact)).json())


def test_an_event_that_is_not_in_the_log(proofs: dict[str, Proof], scene: Scene) -> None:
    """Both have signed the event, but it is in no bundle."""
    fact = proofs["active"].fact
    assert isinstance(fact, EventFact)
    false = finalize(scene.commit("false"), NODE, fact.event.timestamp, fact.event.seq)
    refused(Proof(scene.enclave.id, NODE.public, replace(fact, event=false)).json())


def test_an_event_of_another_enclave(proofs: dict[str, Proof], scene: Scene) -> None:
    fact = proofs["without a status"].fact
    assert isinstance(fact, EventFact)
    other = scene.stage.create(meta={"n": 2})
    refused(Proof(other.id, NODE.public, fact).json())
    refused(Proof(scene.enclave.id, person("node2").public, fact).json())


def in_a_log(event: Event, enclave: bytes, key: PrivateKey = NODE) -> EventFact:
    """Return the proof of an event that a node has put, alone, into its log of an enclave."""
    leaf = LogLeaf(events_root([event.id]), sha256(b"state"))
    root = Edge().append(log_leaf(leaf.events_root, leaf.state_hash))[0].root()
    anchor = Anchor(leaf, InclusionProof(1, 0, ()), sign_head(key, enclave, START, 1, root))
    return EventFact(event, prove_membership([event.id], 0), anchor)


def test_an_event_of_another_enclave_in_this_one_s_log() -> None:
    """A node may put anything into its bundles."""
    enclave, other = sha256(b"one"), sha256(b"other")
    event = finalize(build_commit(person("bob"), other, "message", "x", START + 60_000), NODE, START, 1)
    fact = in_a_log(event, enclave)
    with pytest.raises(InvalidProof, match="another enclave"):
        check_proof(Proof(enclave, NODE.public, fact))
    with pytest.raises(InvalidProof):
        check_proof(Proof(other, NODE.public, fact))


# Migrates


A, B, C = (person(name) for name in ("node", "node2", "node3"))
STRANGER = person("carol")
AT = "2026-09-21T14:13:20.000Z"
HERE = sha256(b"an enclave that moves")


def placed(seq: int, key: PrivateKey, type_: str = "message", to: PrivateKey | None = None) -> Event:
    content = {"new_sequencer": to.public.hex(), "prev_seq": seq - 1, "ct_root": "ab" * 32} if to else {}
    commit = build_commit(person("alice"), HERE, type_, compact_json(content), START + 60_000)
    return finalize(commit, key, START + seq, seq)


MOVES = history_of(None, [placed(5, A, "Migrate", B), placed(9, C, "Migrate", C)], HERE).moves
LINES = tuple(
    f"Migrate {move.event.seq}, signed by {pub('alice')}, hands over to {move.new_sequencer.hex()}" for move in MOVES
)


def moved(event: Event, *, key: PrivateKey = C, moves: tuple[Migration, ...] = MOVES) -> Proof:
    return Proof(HERE, key.public, in_a_log(event, HERE, key), moves)


@pytest.mark.parametrize(("seq", "key"), [(3, A), (5, A), (6, B), (9, C), (10, C)])
def test_migrates_in_a_proof_give_the_signer_of_each_event(seq: int, key: PrivateKey) -> None:
    proof = moved(placed(seq, key) if seq not in (5, 9) else MOVES[seq == 9].event)
    again = load_proof(proof.json())
    assert again == proof
    assert check_proof(again).proved[4:6] == LINES
    assert check_proof(moved(placed(seq, key), moves=())).proved[4:] == (
        f"all of it is under a head of 1 bundles that {C.public.hex()} signed for this enclave at {AT}",
    )
    for other in {A, B, C} - {key}:
        with pytest.raises(InvalidProof, match="not signed by the sequencer that the Migrates give for its seq"):
            check_proof(moved(placed(seq, other)))


def test_migrates_in_a_proof_lead_to_the_signer_of_its_head() -> None:
    for key in (A, B):
        with pytest.raises(InvalidProof, match="they lead to another sequencer"):
            check_proof(moved(placed(3, A), key=key))


def test_an_event_before_a_first_takeover_may_be_anybody_s() -> None:
    """The Migrate of a takeover does not name the sequencer before it."""
    forced = history_of(None, [placed(9, C, "Migrate", C)], HERE).moves
    assert check_proof(moved(placed(3, A), moves=forced)).proved[4] == LINES[1]


def test_migrates_in_a_file_are_a_chain() -> None:
    wire = json.loads(moved(placed(3, A)).json())
    wire["migrates"].reverse()
    with pytest.raises(InvalidProof, match=r"^migrates: Migrate 5: "):
        load_proof(json.dumps(wire).encode())


def test_the_proof_of_a_state_has_migrates_too(proofs: dict[str, Proof], scene: Scene) -> None:
    content = {"new_sequencer": NODE.public.hex(), "prev_seq": 4, "ct_root": "ab" * 32}
    commit = build_commit(person("alice"), scene.enclave.id, "Migrate", compact_json(content), START + 60_000)
    moves = history_of(None, [finalize(commit, B, START, 5)], scene.enclave.id).moves
    with_moves = replace(proofs["value"], moves=moves)
    assert check_proof(with_moves).proved[1].startswith("Migrate 5, signed by ")
    assert load_proof(with_moves.json()) == with_moves


@pytest.mark.parametrize("path", [("enclave",), ("sequencer",), ("state", "key")])
def test_a_malformed_field_of_a_proof_is_named(proofs: dict[str, Proof], path: tuple[str, ...]) -> None:
    with pytest.raises(InvalidProof, match=f"^{path[-1]}: expected 64 lower-case hex"):
        load_proof(tampered(proofs["value"].json(), path, lambda _: "zz"))


def test_a_file_holds_one_fact(proofs: dict[str, Proof]) -> None:
    both = {**json.loads(proofs["active"].json()), **json.loads(proofs["value"].json())}
    refused(json.dumps(both).encode())
    neither = {key: both[key] for key in ("format", "version", "enclave", "sequencer")}
    refused(json.dumps(neither).encode())


# Hostile files


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b"{}", b"{" * 100_000, b"[" * 1_000_000, b"\xff", b'{"format": "enc-evidence"}'],
    ids=range(8),
)
def test_a_hostile_file_is_refused(data: bytes) -> None:
    refused(data)


@by_name
def test_a_nested_file_does_no_harm(proofs: dict[str, Proof], name: str) -> None:
    data = proofs[name].json().rstrip()
    for depth in [*range(960, 1005), 100_000]:
        deep = b"[" * depth + b"]" * depth
        for place in (b'"anchor": {', b'"proof": {', b'"membership": {'):
            with suppress(InvalidProof):
                check_proof(load_proof(data.replace(place, place + b'"x": %b,' % deep)))


def test_a_huge_file_is_refused_before_it_is_read(proofs: dict[str, Proof], monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.MAX_PROOF == 64 * 1024 * 1024  # docs/protocol.md, section 28.1
    data = proofs["active"].json()
    monkeypatch.setattr(module, "MAX_PROOF", len(data))
    check_proof(load_proof(data))
    monkeypatch.setattr(module, "MAX_PROOF", len(data) - 1)
    with pytest.raises(InvalidProof, match="over"):
        load_proof(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(NAMES), value=json_values, data=st.data())
def test_any_value_in_any_place_does_no_harm(
    proofs: dict[str, Proof], name: str, value: Any, data: st.DataObject
) -> None:
    whole = proofs[name].json()
    path = data.draw(st.sampled_from(list(leaves(json.loads(whole)))))
    with suppress(InvalidProof):
        check_proof(load_proof(tampered(whole, path, lambda _: value)))
