"""What a node admits: who may create enclaves, quotas and rates."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import EncError, EnclaveNotFound, InvalidCommit, InvalidHash, Unavailable
from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.machine.state import EnclaveState
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import CommitLimits, Receipt
from enc.node.config import NodeConfig, RateSettings, RetentionSettings
from enc.node.limits.quota import Quota, StorageRules
from enc.node.sequence.admission import CommitValidator
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome
from enc.node.sequence.sequencer import Sequencer, SequencerSettings
from enc.node.sequence.state_cache import StateCache
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store, Usage
from enc.runtime.rate_limit import RateLimiter
from enc.testing.memory_store import MemoryStore
from tests.core.world import LIFETIME, START, person, pub
from tests.node.admission_setup import admitting, codes, outcome, try_create
from tests.node.served import NODE, SMALL, Clock, Served, bad, good, sqlite
from tests.node.store_host import Host

# Who may create enclaves


@pytest.mark.parametrize(
    ("create", "allow", "may"), [("open", (), "alice bob"), ("allowlist", (pub("bob"),), "bob"), ("closed", (), "")]
)
def test_who_may_create(create: str, allow: tuple[str, ...], may: str) -> None:
    with Served(admitting(create=create, allow=allow)) as node:
        assert good(node.get("/info"))["create"] == create
        for name in ("alice", "bob"):
            found = try_create(node, name)
            if name in may.split():
                assert isinstance(found, Receipt)
            else:
                assert isinstance(found, EncError)
                assert (found.status, found.code) == (403, "UNAUTHORIZED")
                assert bad(node.get(f"/{node.manifest(SMALL, name).enclave.hex()}/sth")).code == "ENCLAVE_NOT_FOUND"


def test_an_allowlist_without_names_and_a_name_without_an_allowlist_allow_nobody() -> None:
    for settings in ({"create": "allowlist"}, {"create": "closed", "allow": (pub("alice"),)}):
        with Served(admitting(**settings)) as node:
            assert codes([try_create(node, "alice")]) == ["UNAUTHORIZED"]


def test_a_node_that_creates_nothing_goes_on_with_what_it_has() -> None:
    store, clock = MemoryStore(), Clock()
    with Served(store=store, clock=clock) as node:
        enclave = node.create(SMALL)
    with Served(admitting(create="closed"), store, clock) as node:
        enclave.node = node
        assert enclave.send("bob", "message", "still here").seq == 1
        assert codes([outcome(node, enclave.manifest)]) == ["DUPLICATE"]
        renewed = build_commit(person("alice"), enclave.id, "Manifest", enclave.manifest.content or "", clock.now)
        assert codes([outcome(node, renewed)]) == ["ENCLAVE_EXISTS"]


class Unloaded(StateCache):
    """A cache of which no state may be loaded."""

    def get(self, enclave: bytes) -> EnclaveState | None:
        raise AssertionError("the state was loaded")


def make_validator(states: StateCache, store: Store) -> CommitValidator:
    return CommitValidator(
        states,
        store,
        lambda: START,
        RateLimiter(0, 1, lambda: 0.0),
        limits=CommitLimits(),
        max_manifest=1 << 18,
        may_create=lambda identity: True,
    )


def test_a_manifest_with_the_id_of_another_enclave_is_rejected_before_that_is_loaded() -> None:
    store = MemoryStore()
    validator = make_validator(Unloaded(store), store)
    commit = build_commit(person("alice"), b"c" * 32, "Manifest", compact_json(SMALL), START + LIFETIME)
    with pytest.raises(InvalidCommit, match="not the id of the enclave"):
        validator.check_before_signature(commit)


def test_no_state_is_loaded_for_a_commit_without_a_signature(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    enclave = Host(store).create()
    validator = make_validator(Unloaded(store), store)
    commit = build_commit(person("alice"), enclave, "message", "hello", START + LIFETIME)
    assert validator.check_before_signature(commit) is None
    with pytest.raises(InvalidHash):
        validator.check_before_signature(replace(commit, exp=commit.exp + 1))
    with pytest.raises(EnclaveNotFound):
        validator.check_before_signature(build_commit(person("alice"), bytes(32), "message", "", START + LIFETIME))
    with pytest.raises(AssertionError, match="the state was loaded"):
        validator.check_after_signature(AdmittedCommit(commit))


def test_the_signature_is_checked_before_the_operators_list() -> None:
    with Served(admitting(create="closed")) as node:
        wire = wire_commit(node.manifest(SMALL))
        assert bad(node.post({**wire, "sig": "00" * 64})).code == "INVALID_SIGNATURE"


# Quotas


def test_a_quota_of_enclaves() -> None:
    with Served(admitting(max_enclaves=2)) as node:
        assert codes([try_create(node, "alice", n) for n in range(3)]) == ["", "", "UNAUTHORIZED"]
        assert codes([try_create(node, "bob")]) == [""]
        enclave = node.create(SMALL, "carol")
        assert enclave.send("alice", "message", "writing creates nothing").seq == 1


def test_who_has_more_enclaves_than_a_lowered_quota_goes_on_writing() -> None:
    clock, store = Clock(), MemoryStore()
    with Served(store=store, clock=clock) as node:
        enclave, _ = node.create(SMALL), node.create(SMALL)
    with Served(admitting(max_enclaves=1), store, clock) as node:
        enclave.node = node
        assert enclave.send("alice", "message", "x").seq == 1
        assert codes([try_create(node, "alice")]) == ["UNAUTHORIZED"]


def test_a_quota_of_enclaves_comes_back_when_one_is_gone() -> None:
    config = replace(admitting(max_enclaves=1), retention=RetentionSettings(purge_after_s=60))
    with Served(config) as node:
        enclave = node.create(SMALL)
        enclave.send("alice", "Terminate")
        assert codes([try_create(node, "alice")]) == ["UNAUTHORIZED"]
        node.clock.tick(61_000)
        node.settle()
        assert codes([try_create(node, "alice")]) == [""]


def test_a_quota_of_events() -> None:
    with Served(admitting(max_events=3)) as node:
        enclave, other = node.create(SMALL), node.create(SMALL, "carol")
        assert [enclave.send("alice", "message", "x").seq, other.send("alice", "message", "y").seq] == [1, 1]
        error = enclave.refused("alice", "message", "z")
        assert (error.status, error.code) == (403, "UNAUTHORIZED")
        assert "quota" in error.message
        assert codes([try_create(node, "alice")]) == ["UNAUTHORIZED"]
        assert enclave.refused("mallory", "message").code == "UNAUTHORIZED"
        assert [enclave.send("bob", "message", "x").seq for _ in range(3)] == [2, 3, 4]


def test_a_quota_of_bytes_counts_contents_in_utf8() -> None:
    clock, store = Clock(), MemoryStore()
    with Served(store=store, clock=clock) as node:
        enclave = node.create(SMALL, "carol")
    with Served(admitting(max_bytes=10), store, clock) as node:
        enclave.node = node
        enclave.send("bob", "message", "ééé")
        assert enclave.refused("bob", "message", "12345").code == "UNAUTHORIZED"
        enclave.send("bob", "message", "1234")
        assert enclave.refused("bob", "message", "1").code == "UNAUTHORIZED"
        enclave.send("bob", "message", "")
        assert store.usage(person("bob").public) == Usage(0, 3, 10)
        assert codes([try_create(node, "dave")]) == ["UNAUTHORIZED"]  # a Manifest has a content too
        assert store.usage(person("dave").public) == Usage()


def test_quotas_hold_after_a_restart(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)
    with Served(admitting(max_events=2), store, clock) as node:
        enclave = node.create(SMALL)
        enclave.send("bob", "message", "x")
    store.close()
    store = sqlite(tmp_path)
    with Served(admitting(max_events=2), store, clock) as node:
        enclave.node = node
        enclave.send("bob", "message", "y")
        assert enclave.refused("bob", "message", "z").code == "UNAUTHORIZED"
    store.close()


@pytest.mark.parametrize(
    ("quota", "accepted"), [(Quota(events=2), 2), (Quota(bytes=5), 5), (Quota(events=3, bytes=2), 2), (Quota(), 6)]
)
def test_quotas_hold_inside_one_batch(quota: Quota, accepted: int) -> None:
    store, outcomes = MemoryStore(), list[CommitOutcome]()
    creation = Sequencer(store, NODE, lambda: START, deliver=outcomes.extend)
    manifest = build_manifest(person("alice"), compact_json(SMALL), START + LIFETIME)
    creation.run_once([AdmittedCommit(manifest)])
    sequencer = Sequencer(
        store,
        NODE,
        lambda: START,
        deliver=outcomes.extend,
        settings=SequencerSettings(storage=StorageRules(quota=quota)),
    )

    def commits(name: str, count: int) -> list[AdmittedCommit]:
        exps = range(START + LIFETIME, START + LIFETIME + count)
        return [AdmittedCommit(build_commit(person(name), manifest.enclave, "message", "x", exp)) for exp in exps]

    outcomes.clear()
    refused = commits("mallory", 3)
    sequencer.run_once([*commits("bob", 6), *refused, *commits("carol", 2)])
    found = [isinstance(result, Receipt) for _, result in outcomes]
    assert found == [True] * accepted + [False] * (6 - accepted) + [False] * 3 + [True] * 2
    assert store.usage(person("bob").public) == Usage(0, accepted, accepted)
    assert store.usage(person("mallory").public) == Usage()


def test_a_quota_of_enclaves_holds_inside_one_batch() -> None:
    store, outcomes = MemoryStore(), list[CommitOutcome]()
    sequencer = Sequencer(
        store,
        NODE,
        lambda: START,
        deliver=outcomes.extend,
        settings=SequencerSettings(storage=StorageRules(quota=Quota(enclaves=2))),
    )
    manifests = [compact_json({**SMALL, "meta": {"n": n}}) for n in range(4)]
    sequencer.run_once([AdmittedCommit(build_manifest(person("alice"), text, START + LIFETIME)) for text in manifests])
    assert [isinstance(result, Receipt) for _, result in outcomes] == [True, True, False, False]


def test_a_batch_that_could_not_be_written_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise Unavailable("no disk")

    with Served(admitting(max_events=2)) as node:
        enclave = node.create(SMALL)
        with monkeypatch.context() as broken:
            broken.setattr(node.store, "write", fail)
            assert enclave.refused("bob", "message").code == "UNAVAILABLE"
        assert [enclave.send("bob", "message").seq for _ in range(2)] == [1, 2]
        assert enclave.refused("bob", "message").code == "UNAUTHORIZED"


# Rates

SLOW = NodeConfig(port=0, rates=RateSettings(identity_per_s=0.5, identity_burst=2, address_per_s=0))


def test_a_rate_for_each_identity() -> None:
    with Served(SLOW) as node:
        enclave = node.create(SMALL)
        enclave.send("alice", "message", "the second")
        error = enclave.refused("alice", "message", "the third")
        assert (error.status, error.code) == (429, "RATE_LIMITED")
        assert 1900 < error.context["retry_after_ms"] <= 2000
        enclave.send("bob", "message", "another's rate is another's")
        node.clock.tick(2000)
        enclave.send("alice", "message", "again")
        assert enclave.refused("alice", "message", "too soon").code == "RATE_LIMITED"


def test_asking_and_writing_draw_on_one_rate() -> None:
    with Served(SLOW) as node:
        enclave = node.create(SMALL, "carol")
        assert enclave.seqs("bob") == [0]
        enclave.send("bob", "message", "x")
        for type_, body in (("Query", {"filter": {}}), ("Bundle_Proof", {"leaf_index": 0}), ("Checkpoint", {})):
            error = enclave.denied("bob", type_, **body)
            assert (error.status, error.code) == (429, "RATE_LIMITED")
        assert enclave.refused("bob", "message").code == "RATE_LIMITED"
        assert enclave.seqs("alice") == [0, 1]


def test_nobody_can_use_up_anothers_rate() -> None:
    with Served(SLOW) as node:
        enclave = node.create(SMALL, "carol")
        forged = wire_commit(enclave.commit("bob", "message", "x"))
        request = enclave.request("bob", "Query", filter={})
        for _ in range(5):
            assert bad(node.post({**forged, "sig": "00" * 64})).code == "INVALID_SIGNATURE"
            assert bad(node.post({**request, "content": "A" * 64})).code == "DECRYPT_FAILED"
            assert bad(node.post({**request, "session": node.session("dave").token.hex()})).code == "INVALID_SESSION"
        assert [enclave.send("bob", "message", text).seq for text in "ab"] == [1, 2]


@pytest.mark.parametrize("path", ["/info", "/health", "/metrics", "/nothing", "/{enclave}/sth"])
def test_a_rate_for_each_address(path: str) -> None:
    config = NodeConfig(port=0, rates=RateSettings(identity_per_s=0, address_per_s=1, address_burst=3))
    with Served(config) as node:
        enclave = node.create(SMALL)
        path = path.format(enclave=enclave.id.hex())
        assert [node.get(path).status_code == 429 for _ in range(4)] == [False, False, True, True]
        assert bad(node.get(path)).context == {"retry_after_ms": 1000}
        for refused in (enclave.refused("bob", "message"), enclave.denied("bob", "Query", filter={})):
            assert (refused.status, refused.code) == (429, "RATE_LIMITED")
        node.clock.tick(1000)
        assert node.get(path).status_code != 429
        assert node.get(path).status_code == 429


def test_development_lifts_the_rates() -> None:
    rates = RateSettings(identity_per_s=1, identity_burst=1, address_per_s=1, address_burst=1)
    with Served(NodeConfig(port=0, dev=True, rates=rates)) as node:
        enclave = node.create(SMALL)
        assert [enclave.send("alice", "message").seq for _ in range(5)] == [1, 2, 3, 4, 5]
