"""Events signed ahead: one request for a batch, and the same signatures as one by one."""

from collections.abc import Sequence
from typing import Any

import pytest

from enc.core.errors import EncError
from enc.core.machine.state import EnclaveState
from enc.core.primitives.signer import SignerUnavailable
from enc.core.primitives.signing import Alg
from enc.core.primitives.types import Receipt
from enc.node.sequence.sequencer import Sequencer, SequencerSettings
from enc.testing.memory_store import MemoryStore
from tests.client.keys.opaque_signer import OpaqueSigner
from tests.core.world import person
from tests.node.store_host import NODE, Host


class BatchingSigner(OpaqueSigner):
    """`batches`: the number of digests in each request; `is_down`: whether it answers; `left`: after
    how many answers it goes down.
    """

    def __init__(self) -> None:
        super().__init__(NODE)
        self.batches, self.is_down, self.left = list[int](), False, 1 << 30

    def sign(self, alg: Alg, digest: bytes, /) -> bytes:
        self._check()
        return super().sign(alg, digest)

    def sign_all(self, alg: Alg, digests: Sequence[bytes], /) -> list[bytes]:
        self._check()
        self.batches.append(len(digests))
        return [NODE.sign(alg, digest) for digest in digests]

    def ecdh(self, public: bytes, /) -> bytes:
        self._check()
        return super().ecdh(public)

    def _check(self) -> None:
        self.left -= 1
        if self.is_down or self.left < 0:
            raise SignerUnavailable("the signer does not answer", retry_after_ms=1000)


class SignedHost(Host):
    def __init__(self, signer: BatchingSigner, settings: SequencerSettings = SequencerSettings()) -> None:  # noqa: B008
        super().__init__(MemoryStore())
        self.sequencer = Sequencer(
            self.store,
            signer,
            lambda: self.now,
            deliver=self.outcomes.extend,
            publish=self.steps.extend,
            settings=settings,
        )


@pytest.fixture
def signer() -> BatchingSigner:
    return BatchingSigner()


@pytest.fixture
def host(signer: BatchingSigner) -> SignedHost:
    return SignedHost(signer)


def seqs(outcomes: list[Receipt | EncError]) -> list[int | str]:
    return [one.seq if isinstance(one, Receipt) else one.code for one in outcomes]


def test_a_batch_over_several_enclaves_is_one_request(host: SignedHost, signer: BatchingSigner) -> None:
    enclaves = [host.create(meta={"n": n}, bundle={"size": 100, "timeout": 60_000}) for n in range(3)]
    alone = signer.used["schnorr"]
    commits = [host.commit(each, "alice", "message", str(n)) for n in range(4) for each in enclaves]
    assert seqs(host.run(*commits)) == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert (signer.batches, signer.used["schnorr"]) == ([12], alone)


def test_events_have_the_signatures_that_the_key_makes(host: SignedHost) -> None:
    plain = Host(MemoryStore())
    for each in (host, plain):
        enclave = each.create()
        each.run(*[each.commit(enclave, "alice", "message", str(n)) for n in range(5)])
    assert host.store.events(enclave, 0, 10) == plain.store.events(enclave, 0, 10)
    assert host.store.head(enclave, 1) == plain.store.head(enclave, 1) is not None


def test_after_a_rejected_commit_the_rest_is_signed_for_its_real_place(
    host: SignedHost, signer: BatchingSigner
) -> None:
    enclave = host.create(bundle={"size": 100, "timeout": 60_000})
    alone = signer.used["schnorr"]
    first, refused = host.commit(enclave, "alice", "message"), host.commit(enclave, "eve", "message")
    rest = [host.commit(enclave, "alice", "message", str(n)) for n in range(2)]
    assert seqs(host.run(first, refused, *rest)) == [1, "UNAUTHORIZED", 2, 3]
    assert (signer.batches, signer.used["schnorr"] - alone) == ([4], 2)


def test_duplicates_and_single_commits_are_not_signed_ahead(host: SignedHost, signer: BatchingSigner) -> None:
    enclave = host.create(bundle={"size": 100, "timeout": 60_000})
    known = host.commit(enclave, "alice", "message", "known")
    host.run(known)
    assert seqs(host.run(known, host.commit(enclave, "alice", "message"))) == ["DUPLICATE", 2]
    assert signer.batches == []


def test_damaged_enclaves_are_not_read_to_sign_ahead(
    host: SignedHost, signer: BatchingSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged, sound = (host.create(meta={"n": n}, bundle={"size": 100, "timeout": 60_000}) for n in range(2))
    commits = [host.commit(each, "alice", "message", str(n)) for n in range(2) for each in (damaged, sound)]
    host.sequencer._damaged.add(damaged, host.now, "a damaged page")
    host.sequencer.forget(damaged)
    loaded, load = list[bytes](), host.store.load

    def spy(enclave: bytes, *more: Any) -> EnclaveState | None:
        loaded.append(enclave)
        return load(enclave, *more)

    monkeypatch.setattr(host.store, "load", spy)
    assert seqs(host.run(*commits)) == ["UNAVAILABLE", 1, "UNAVAILABLE", 2]
    assert (signer.batches, damaged in loaded) == ([2], False)


def test_nothing_happens_while_the_signer_is_down(host: SignedHost, signer: BatchingSigner) -> None:
    enclave = host.create(bundle={"size": 2, "timeout": 1000})
    commits = [host.commit(enclave, "alice", "message", str(n)) for n in range(3)]
    signer.is_down = True
    for some in (commits, commits[:1]):
        outcomes = host.run(*some)
        assert {one.code for one in outcomes if isinstance(one, EncError)} == {"UNAVAILABLE"}
    with pytest.raises(SignerUnavailable):
        host.sequencer.probe()
    assert len(host.store.events(enclave, 0, 10)) == 1
    signer.is_down = False
    host.sequencer.probe()
    assert seqs(host.run(*commits)) == [1, 2, 3]


def test_an_overdue_bundle_waits_for_the_signer_and_fails_no_commit(host: SignedHost, signer: BatchingSigner) -> None:
    overdue, other = host.create(), host.create(bundle={"size": 100, "timeout": 60_000})
    host.now += 5000
    commit = host.commit(other, "alice", "message")
    signer.left = 1
    assert seqs(host.run(commit)) == [1]
    assert host.store.head(overdue) is None
    signer.left = 100
    host.sequencer._sealer._due = 0.0
    host.run()
    assert host.store.head(overdue) is not None


def test_a_node_whose_store_is_a_copy_has_nothing_signed(signer: BatchingSigner) -> None:
    host = SignedHost(signer, SequencerSettings(is_read_only=True))
    commits = [host.commit(bytes([n]) * 32, "alice", "message") for n in range(3)]
    host.run(*commits)
    assert (signer.batches, signer.used["schnorr"]) == ([], 0)


def test_a_signer_in_this_process_is_asked_one_by_one() -> None:
    assert Host(MemoryStore()).sequencer._ahead is None
    assert person("node").public == NODE.public
