"""Copies of an enclave's Manifest that strangers sent to the node to which the enclave then moves."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from enc.client.evidence.check_evidence import check_evidence
from enc.client.evidence.evidence import Evidence, EvidenceKind
from enc.core.errors import InvalidProof, ReplayFailed, Unavailable
from enc.core.log.commit import wire_commit
from enc.core.log.event import wire_event
from enc.core.primitives.types import Event
from enc.node.fsck import check_store
from enc.node.imports.copied_manifest import CopiedManifest
from enc.node.store.sqlite.staging import SqliteStaging
from tests.core.world import LIFETIME, person
from tests.node.moving import archive_of, done, failure, force, log_of, migrate_commit
from tests.node.moving import move as move_to
from tests.node.served import SMALL, Clock, Enclave, Json, Served, bad, good, sqlite

Nodes = tuple[Served, Served, Served]
TIMEOUT = SMALL["bundle"]["timeout"]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    clock, found = Clock(), list[Served]()
    with ExitStack() as stack:
        for name in ("node", "node2", "node3"):
            (tmp_path / name).mkdir()
            store = sqlite(tmp_path / name)
            stack.callback(store.close)
            found.append(stack.enter_context(Served(store=store, clock=clock, key=person(name))))
        yield found[0], found[1], found[2]
        for node in found:
            node.settle()
            assert check_store(node.store, node.key.public, None, lambda events: None).differences == []


def talk(enclave: Enclave, count: int) -> None:
    for n in range(count):
        enclave.send("bob", "message", f"message {n}")


def head(node: Served, enclave: Enclave) -> Json:
    return good(node.get(f"/{enclave.id.hex()}/sth"))


def copy_manifest(enclave: Enclave, to: Served, *, is_sealed: bool = True) -> list[Json]:
    """Send a copy of the Manifest to a node; return the heads that it signs of it."""
    to.submit(enclave.manifest)
    heads = [head(to, enclave)]
    if is_sealed:
        to.clock.tick(TIMEOUT)
        to.settle()
        heads.append(head(to, enclave))
    assert [each["ts"] for each in heads] == list(range(len(heads)))
    return heads


def heads_of(enclave: Enclave) -> list[Json]:
    """Return the newest head, and those of all other sizes that the node has."""
    found = [head(enclave.node, enclave)]
    for size in range(1, found[0]["ts"]):
        response = enclave.ask_raw("alice", "Inclusion_Proof", leaf_index=0, tree_size=size)
        if response.status_code == 200:
            found.append(enclave.ask("alice", "Inclusion_Proof", leaf_index=0, tree_size=size)["sth"])
        else:
            assert "TREE_SIZE_NOT_FOUND" in response.text
    return found


def nothing_convicts(node: Served, enclave: Enclave, heads: Sequence[Json], events: Sequence[Event]) -> None:
    """Check that no two of the node's statements are evidence against it."""
    signed = [wire_event(event) for event in events if event.sequencer == node.key.public]
    cases: list[tuple[EvidenceKind, Json]] = []
    for pair in permutations(heads, 2):
        cases += [("fork", {"heads": pair}), ("rollback", {"heads": pair})]
    for couple in permutations(signed, 2):
        cases += [("equivocation", {"events": couple}), ("order", {"events": couple})]
    assert cases
    for kind, parts in cases:
        evidence = Evidence(kind=kind, enclave=enclave.id, sequencer=node.key.public, message="", parts=parts)
        try:
            assert not check_evidence(evidence).convicts, (kind, parts)
        except InvalidProof:
            continue  # it shows nothing


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("how", ["peaceful", "forced"])
def test_a_copy_gives_way_to_the_log_that_the_owner_moves(nodes: Nodes, how: str, is_sealed: bool) -> None:
    """No statement of the node about the copy contradicts one about the log."""
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 9)
    a.clock.tick(LIFETIME // 2)  # so the copy is later than all bundles of the log so far
    signed: list[Any] = copy_manifest(at_a, b, is_sealed=is_sealed)
    copied = b.store.events(at_a.id, 0, 1)
    assert copied[0].sequencer == b.key.public
    at_b = move_to(at_a, b) if how == "peaceful" else force(at_a, b)
    log = log_of(at_b)
    assert log[0].sequencer == a.key.public
    talk(at_b, 5)
    heads = heads_of(at_b)
    assert min(each["ts"] for each in heads) > len(signed) - 1
    nothing_convicts(b, at_a, [*signed, *heads], [*copied, *log_of(at_b)])
    assert b.store.count() == 1
    assert b.store.usage(person("alice").public).enclaves == 1


@pytest.mark.parametrize("size", [0, 1])
def test_the_last_head_is_not_earlier_than_the_copy_s(size: int) -> None:
    """The Migrate may be: the copy may come after it, or the old node's clock may be behind."""
    copy = CopiedManifest(size, 5000)
    assert copy.head_time(size, 9000, is_last=True) is None
    assert copy.head_time(2, 4999, is_last=False) is None
    assert copy.head_time(2, 4999, is_last=True) == 5000
    assert copy.head_time(2, 6000, is_last=False) == 6000


def test_a_log_with_more_than_a_copied_manifest_is_not_replaced(nodes: Nodes) -> None:
    """The node has acknowledged an event that the other log does not have."""
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 5)
    b.submit(at_a.manifest)
    at_a.at(b).send("bob", "message", "only here")
    a.submit(migrate_commit(at_a, b))
    error = failure(b, log_of(at_a)[-1], a.url)
    assert (error["code"], error["seq"]) == ("ENCLAVE_EXISTS", 0)
    assert [event.sequencer for event in b.store.events(at_a.id, 0, 9)] == [b.key.public] * 2


def test_a_log_that_is_no_longer_than_the_signed_head_is_refused(nodes: Nodes) -> None:
    """The node could sign no head of it."""
    a, b, _ = nodes
    at_a = a.create(SMALL)
    a.submit(migrate_commit(at_a, b))
    assert head(a, at_a)["ts"] == 1
    copy_manifest(at_a, b)
    error = failure(b, log_of(at_a)[-1], a.url)
    assert (error["code"], "a head of size 1" in error["message"]) == ("ENCLAVE_EXISTS", True)
    assert b.store.events(at_a.id, 0, 9)[0].sequencer == b.key.public


def test_a_log_that_this_node_has_signed_before_replaces_no_copy() -> None:
    key = person("node").public
    with pytest.raises(ReplayFailed, match="has signed another event 0"):
        CopiedManifest(1, 0).check_imported(9, 5, [person("node2").public, key], key)


def test_a_manifest_of_another_commit_is_no_copy(nodes: Nodes) -> None:
    """The owner has signed the Manifest twice: the node has acknowledged the other one."""
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 5)
    a.clock.tick(1)
    again = b.manifest({**SMALL, "meta": {"n": 1}})
    assert (again.enclave, again.hash != at_a.manifest.hash) == (at_a.id, True)
    b.submit(again)
    assert failure(b, migrate_commit(at_a, b), archive=archive_of(log_of(at_a)))["code"] == "ENCLAVE_EXISTS"


def test_no_head_of_the_copy_s_sizes_is_signed_when_the_enclave_comes_back(nodes: Nodes) -> None:
    a, b, c = nodes
    at_a = a.create(SMALL)
    talk(at_a, 9)
    signed = copy_manifest(at_a, b)
    copied = b.store.events(at_a.id, 0, 1)
    at_b = move_to(at_a, b)
    talk(at_b, 3)
    back = move_to(move_to(at_b, c), b)
    talk(back, 5)
    nothing_convicts(b, at_a, [*signed, *heads_of(back)], [*copied, *log_of(back)])


def test_a_copy_that_comes_during_the_import_is_replaced_by_the_next_try(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 9)
    a.submit(migrate_commit(at_a, b))
    copy_manifest(at_a, b)
    done(b, log_of(at_a)[-1], a.url)
    assert b.store.events(at_a.id, 0, 1)[0].sequencer == a.key.public


def test_a_log_whose_adoption_fails_after_it_reached_the_disk_is_there(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 9)
    copy_manifest(at_a, b)
    a.submit(migrate_commit(at_a, b))
    adopt, is_failing = SqliteStaging._adopt, list[bool]()

    def fail_after(*args: Any) -> Any:
        after_commit = adopt(*args)
        assert after_commit() is None
        return lambda: fail()

    def fail() -> None:
        is_failing.append(True)
        raise Unavailable("the disk went away", retry_after_ms=1000)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStaging, "_adopt", fail_after)
        assert failure(b, log_of(at_a)[-1], a.url)["code"] == "UNAVAILABLE"
    assert is_failing
    at_b = at_a.at(b)
    talk(at_b, 1)
    assert log_of(at_b)[0].sequencer == a.key.public
    repeated = at_b.commit("bob", "message", "once")
    b.submit(repeated)
    assert bad(b.post(wire_commit(repeated))).code == "DUPLICATE"
