"""Every worked example of vectors/ that the kernel covers."""

import json
import re
from runpy import run_path
from typing import Any

import msgspec
import pytest

from enc.core.errors import EncError
from enc.core.log.commit import build_commit, check_commit, parse_commit, wire_commit
from enc.core.log.event import check_sequenced, finalize, parse_event, wire_event
from enc.core.machine.enclave import judge
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.machine.state import view
from enc.core.primitives.hashing import EMPTY_HASH, content_hash, enclave_id, log_leaf
from enc.core.primitives.sealing import open_sealed, push_key, seal
from enc.core.primitives.signing import PrivateKey, check_ecdsa
from enc.core.primitives.types import PREDEFINED_V1, Commit
from enc.core.rules.v1.content import OPERATIONS
from enc.core.session.session import check_token, client_keys, node_keys, open_session, parse_token
from enc.core.trees import sparse_merkle
from enc.core.trees.bundle import check_membership, events_root, prove_membership
from enc.core.trees.merkle_log import (
    Edge,
    check_consistency,
    check_inclusion,
    prove_consistency,
    prove_inclusion,
    read_edge,
)
from enc.core.trees.proof import parse_consistency, parse_inclusion, parse_state_proof, wire_state_proof
from enc.core.trees.state_key import LIFECYCLE_KEY, gate_slot, own_slot, shared_slot, tree_key
from enc.core.trees.tree_head import check_head, parse_head, sign_head
from tests.core.stored import memory_of
from tests.core.vectors import FOLDER, KEYS, load

NAME_OF = {key.public.hex(): name for name, key in KEYS.items()}


def test_keys() -> None:
    for name, pair in load("keys").items():
        assert KEYS[name].public.hex() == pair["pub"]
        assert KEYS[name].secret.hex() == pair["priv"]


@pytest.mark.parametrize("example", load("commits"))
def test_commits(example) -> None:
    key = KEYS[NAME_OF[example["from"]]]
    args = (key, bytes.fromhex(example["enclave"]), example["type"], example["content"], example["exp"])
    commit = build_commit(*args, example["tags"], enc_v=example["enc_v"])
    assert commit.hash.hex() == example["hash"]
    assert commit.sig.hex() == example["sig"]
    check_commit(commit, example["enc_v"])
    assert parse_commit(msgspec.json.encode(wire_commit(commit))) == commit
    if "sig_ecdsa" in example:
        signed = build_commit(*args, example["tags"], alg="ecdsa")
        assert signed.sig.hex() == example["sig_ecdsa"]
        check_ecdsa(key.public, commit.hash, signed.sig)


@pytest.mark.parametrize("example", load("enclave_ids"))
def test_enclave_ids(example) -> None:
    digest = content_hash(example["content"])
    found = enclave_id(example["enc_v"], bytes.fromhex(example["from"]), digest, example["tags"])
    assert found.hex() == example["enclave"]


@pytest.mark.parametrize("example", load("events"))
def test_events(example) -> None:
    commit = Commit(
        hash=b"",
        enclave=b"",
        from_=b"",
        type="",
        content="",
        content_hash=b"",
        exp=0,
        tags=(),
        sig=bytes.fromhex(example["sig"]),
    )
    event = finalize(commit, KEYS["node"], example["timestamp"], example["seq"])
    assert event.sequencer.hex() == example["sequencer"]
    assert event.seq_sig.hex() == example["seq_sig"]
    assert event.id.hex() == example["id"]
    check_sequenced(event)


@pytest.mark.parametrize("example", load("bundles"))
def test_bundles(example) -> None:
    ids = [bytes.fromhex(text) for text in example["ids"]]
    root = events_root(ids)
    assert root.hex() == example["events_root"]
    for i, siblings in enumerate(example["siblings"]):
        proof = prove_membership(ids, i)
        assert [sibling.hex() for sibling in proof.s] == siblings
        check_membership(proof, ids[i], root)


def test_ct_log() -> None:
    example, edge, store = load("ct_log"), Edge(), EnclaveMemory()
    roots = [bytes.fromhex(text) for text in example["roots"]]
    for size, leaf in enumerate(example["leaves"]):
        assert edge.root() == roots[size]
        found = log_leaf(bytes.fromhex(leaf["events_root"]), bytes.fromhex(leaf["state_hash"]))
        assert found.hex() == leaf["leaf"]
        edge, nodes = edge.append(found)
        store.log_nodes.update(nodes)
    assert edge.root() == roots[-1]
    assert [read_edge(store, size).root() for size in range(len(roots))] == roots
    for wire in example["inclusion"]:
        inclusion = parse_inclusion(json.dumps(wire))
        assert prove_inclusion(store, inclusion.li, inclusion.ts) == inclusion
        check_inclusion(inclusion, bytes.fromhex(example["leaves"][inclusion.li]["leaf"]), roots[inclusion.ts])
    for wire in example["consistency"]:
        consistency = parse_consistency(json.dumps(wire))
        assert prove_consistency(store, consistency.ts1, consistency.ts2) == consistency
        check_consistency(consistency, roots[consistency.ts1], roots[consistency.ts2])
    head = parse_head(json.dumps(example["sth"]))
    check_head(head, KEYS["node"].public)
    assert sign_head(KEYS["node"], b"", head.t, head.ts, head.r).sig == head.sig


@pytest.mark.parametrize("example", load("smt"))
def test_smt(example) -> None:
    store = EnclaveMemory()
    changes = {bytes.fromhex(leaf["k"]): bytes.fromhex(leaf["v"]) for leaf in example["leaves"]}
    root, store.tree_nodes = sparse_merkle.update(store, EMPTY_HASH, changes)
    assert root.hex() == example["root"]
    for wire in example["members"] + example["absent"]:
        proof = parse_state_proof(json.dumps(wire))
        sparse_merkle.check_state(proof, proof.k, root)
        assert sparse_merkle.prove(store, root, proof.k) == proof
        assert wire_state_proof(proof) == wire


@pytest.mark.parametrize("example", load("kv_keys"))
def test_kv_keys(example) -> None:
    kind, *rest = example["fields"]
    if kind == "Own":
        raw = own_slot(bytes.fromhex(rest[0]), rest[1])
    else:
        raw = {"Shared": shared_slot, "Gate": gate_slot}[kind](rest[0])
    assert raw.hex() == example["raw"]
    assert tree_key("kv", raw).hex() == example["k"]
    if rest == ["lifecycle"]:
        assert LIFECYCLE_KEY.hex() == example["k"]


@pytest.mark.parametrize("example", load("sessions"))
def test_sessions(example) -> None:
    enclave, node = bytes.fromhex(example["enclave"]), KEYS["node"]
    session = open_session(PrivateKey(bytes.fromhex(example["priv"])), example["expires"])
    assert session.from_.hex() == example["from"]
    assert session.token.hex() == example["session"]
    assert session.key.secret.hex() == example["session_priv"]
    check_token(parse_token(example["session"]), session.from_, example["expires"] - 60)
    keys = client_keys(session, node.public, enclave)
    assert node_keys(session.token, node, enclave) == keys
    assert (keys.query.hex(), keys.response.hex()) == (example["query_key"], example["response_key"])
    sealed = seal(keys.query, example["plaintext"].encode(), bytes.fromhex(example["nonce"]))
    assert sealed.hex() == example["query_wire_hex"]
    assert open_sealed(keys.query, sealed).decode() == example["plaintext"]


def test_push_key() -> None:
    example = load("apps")
    assert push_key(KEYS["node"], bytes.fromhex(example["push_to"])).hex() == example["push_key"]
    assert push_key(KEYS["bob"], KEYS["node"].public).hex() == example["push_key"]


@pytest.mark.parametrize("name", ["log", "log_moved", "log_v1"])
def test_logs_event_by_event(name: str) -> None:
    example, replay = load(name), Replay()
    for wire, after in zip(example["events"], example["after_each_event"], strict=True):
        event = parse_event(json.dumps(wire))
        assert json.loads(msgspec.json.encode(wire_event(event))) == wire
        replay.add(event)
        assert replay.state.enclave.hex() == example["enclave"]
        assert {
            "seq": replay.state.seq,
            "state_hash": replay.state_hash().hex(),
            "closed_bundles": replay.state.log.size,
            "ct_root": replay.state.log.root().hex(),
            "checkpoint_root": replay.checkpoint_root().hex(),
        } == after
    state, store = replay.finish(), memory_of(replay)
    assert [
        {"events_root": bundle.events_root.hex(), "state_hash": bundle.state_hash.hex()} for bundle in store.bundles
    ] == example["bundles"]
    assert [{"seq_pub": key.hex(), "from_seq": seq} for key, seq in replay.sequencers] == example["sequencers"]
    root, nodes = sparse_merkle.update(store, state.root, state.pending)
    store.tree_nodes.update(nodes)
    leaves = [{"k": key.hex(), "v": value.hex()} for key, value in sparse_merkle.leaves(store, root)]
    assert leaves == example["final_leaves"]


# A log of version 1


def test_the_roles_after_each_event_of_version_1() -> None:
    example, replay = load("log_v1"), Replay()
    for wire, bitmasks in zip(example["events"], example["bitmasks_after_each_event"], strict=True):
        replay.add(parse_event(json.dumps(wire)))
        draft = view(replay.state, replay.store)
        found = {name: draft.bitmask(bytes.fromhex(example["keys"][name])) for name in bitmasks}
        assert {name: hex(mask) for name, mask in found.items()} == bitmasks


def test_commits_that_version_1_refuses() -> None:
    example, replay = load("log_v1"), Replay()
    for wire in example["events"]:
        replay.add(parse_event(json.dumps(wire)))
        for refused in (item for item in example["refused"] if item["after_seq"] == wire["seq"]):
            commit = parse_commit(json.dumps(refused["commit"]))
            check_commit(commit, 1)
            with pytest.raises(EncError) as caught:
                judge(replay.state, commit, replay.store, sequencer=bytes.fromhex(refused["by"]))
            assert (caught.value.code, caught.value.context) == (refused["code"], refused["context"])


def test_the_log_of_version_1_has_every_type_and_every_code() -> None:
    example = load("log_v1")
    assert len(example["events"]) >= 20
    assert {event["type"] for event in example["events"]} >= PREDEFINED_V1
    operations = [json.loads(e["content"])["operations"] for e in example["events"] if e["type"] == "AC_Bundle"]
    assert {operation["type"] for bundle in operations for operation in bundle} == OPERATIONS
    assert {item["code"] for item in example["refused"]} >= {
        "OWNER_SELF_REVOKE_FORBIDDEN",
        "OWNER_BIT_PROTECTED",
        "BITMASK_MISMATCH",
        "AC_BUNDLE_FAILED",
        "INVALID_ENDPOINT_URL",
        "UNAUTHORIZED",
        "ENCLAVE_PAUSED",
        "INVALID_COMMIT",
    }


def test_a_registry_event_by_event() -> None:
    example = load("registry")
    replay_registry(example, example["keys"])
    assert len(example["refused"]) == 8


@pytest.mark.parametrize("case", ["version 1", "version 2", "a co-owner", "led back"])
def test_takeovers_and_recoveries_event_by_event(case: str) -> None:
    example = load("registry_takeover")
    replay_registry(example["cases"][case], example["keys"])
    holders = [records["enclave"]["holder"] for records in example["cases"][case]["records_after_each_event"][1:]]
    assert holders == [example["keys"][name] for name in ("alice", "bob", "bob", "alice", "alice")]
    assert len(example["cases"][case]["refused"]) == (9 if case == "a co-owner" else 7)


def replay_registry(example: Any, people: dict[str, str]) -> None:
    """Check the enclave's own log too: proofs and links come from it."""
    replay, house = Replay(), Replay()
    for wire in example["enclave_events"]:
        house.add(parse_event(json.dumps(wire)))
    ids = [wire["id"] for wire in example["registry_events"]]
    keys = {"node": people["node"], "identity": people["alice"], "enclave": example["enclave"]}
    told = zip(
        example["registry_events"],
        example["state_hash_after_each_event"],
        example["records_after_each_event"],
        strict=True,
    )
    for wire, state_hash, records in told:
        replay.add(parse_event(json.dumps(wire)))
        assert replay.state_hash().hex() == state_hash
        for kind, fields in records.items():
            record = replay.store.record(kind, bytes.fromhex(keys[kind]))
            entry = None if fields["entry"] is None else bytes.fromhex(ids[fields["entry"]])
            assert record is not None
            assert record.entry == entry
            check_fields(record, {name: value for name, value in fields.items() if name != "entry"})
        for refused in (item for item in example["refused"] if item["after_seq"] == wire["seq"]):
            commit = parse_commit(json.dumps(refused["commit"]))
            check_commit(commit, 2)
            with pytest.raises(EncError) as caught:
                judge(replay.state, commit, replay.store, sequencer=replay.state.sequencer)
            assert (caught.value.code, caught.value.message) == (refused["code"], refused["message"])


def check_fields(record: Any, fields: dict[str, Any]) -> None:
    for left, values in zip(getattr(record, "forced_from", ()), fields.pop("forced_from", ()), strict=True):
        check_fields(left, dict(values))
    for name, value in fields.items():
        found = getattr(record, name)
        assert (found.hex() if isinstance(found, bytes) else found) == value, name


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("make_log_v1", "log_v1"),
        ("make_registry", "registry"),
        ("make_takeover", "registry_takeover"),
        ("make_personal", "personal"),
        ("make_witness", "witness"),
        ("make_withheld", "withheld"),
        ("make_evacuation", "evacuation"),
        ("make_contacts", "contacts"),
    ],
)
def test_the_generator_makes_the_same_bytes(program: str, name: str) -> None:
    assert run_path(str(FOLDER / f"{program}.py"))["text"]() == (FOLDER / f"{name}.json").read_text()


@pytest.mark.parametrize(
    "program",
    [
        "make_log_v1",
        "make_registry",
        "make_takeover",
        "sealing_by_hand",
        "make_personal",
        "make_witness",
        "make_withheld",
        "make_evacuation",
        "make_contacts",
    ],
)
def test_the_generator_shares_nothing_with_the_kernel(program: str) -> None:
    assert "enc" not in re.findall(r"^(?:from|import) (\w+)", (FOLDER / f"{program}.py").read_text(), re.MULTILINE)
