"""Warm copies: who may order and fetch them, what they are never used for, and imports that go on with them."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.json import decode

from enc.core.errors import EnclaveMigrated, EnclaveNotFound, InvalidQuery, Unauthorized
from enc.core.machine.replay import Replay
from enc.node.fsck import check_store
from enc.node.imports import source_node
from enc.node.imports.warm_copies import ERASE_S, KEEP_S
from enc.node.imports.warm_copy import WarmCopy
from tests.core.world import person
from tests.node.evacuation.leaving import NEW, Pair, group, pair, perform, wait_for
from tests.node.moving import ExportNode, done, ended, failure, log_of, migrate_commit, order
from tests.node.served import bad

DEAD = "http://127.0.0.1:1"
"""Where no node listens."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as found:
        found.evacuate()
        yield found
        report = check_store(found.new.store, NEW.public, None, lambda events: None)
        assert report.differences == []


def test_a_copy_is_invisible(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.warm(enclave)
    assert isinstance(bad(nodes.new.get(f"/{enclave.id.hex()}/sth")), EnclaveNotFound)
    assert isinstance(enclave.at(nodes.new).denied("alice", "Query", filter={}), EnclaveNotFound)
    assert isinstance(enclave.at(nodes.new).denied("alice", "Export", from_seq=0, limit=9), EnclaveNotFound)
    assert nodes.new.store.load(enclave.id) is None
    assert list(nodes.new.store.enclaves()) == []
    assert nodes.new.store.usage(person("alice").public).events == 0


def test_an_import_goes_on_with_the_copy_and_needs_the_old_node_no_more(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.warm(enclave)
    nodes.old.submit(migrate_commit(enclave, nodes.new))
    log = log_of(enclave)
    done(nodes.new, log[-1], DEAD)
    assert log_of(enclave.at(nodes.new)) == log
    assert nodes.new.store.usage(person("alice").public).events == len(log)
    assert nodes.new.node.warm_copies.counts == {"warm": 0, "copying": 0, "failed": 0}
    enclave.at(nodes.new).send("bob", "message", "here")


def test_a_suspended_enclave_is_copied_unless_nobody_gets_its_content(nodes: Pair) -> None:
    one, two = group(nodes.old), group(nodes.old)
    perform(nodes.old, "suspend", enclave=one.id.hex(), reason="abuse")
    perform(nodes.old, "suspend", enclave=two.id.hex(), reason="abuse", is_full=True)
    nodes.warm(one)
    nodes.order(two)
    nodes.new.until(lambda: nodes.new.node.warm_copies.counts["failed"] == 1)
    (found,) = nodes.order(two).json()["copies"]
    assert (found["status"], found["events"]) == ("failed", 0)
    assert found["reason"].endswith("ENCLAVE_SUSPENDED")


def test_an_import_fetches_only_what_the_copy_lacks(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.warm(enclave)
    had = len(log_of(enclave))
    for n in range(5):
        enclave.send("bob", "message", f"later {n}")
    nodes.old.submit(migrate_commit(enclave, nodes.new))
    log = log_of(enclave)
    with ExportNode(nodes.old.key, log, now=lambda: nodes.old.clock.now / 1000) as source:
        done(nodes.new, log[-1], source.url)
        assert source.asked == [had]
    assert log_of(enclave.at(nodes.new)) == log


def test_an_enclave_without_a_copy_moves_as_before(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.old.submit(migrate_commit(enclave, nodes.new))
    log = log_of(enclave)
    done(nodes.new, log[-1], nodes.old.url)
    assert log_of(enclave.at(nodes.new)) == log


def test_only_nodes_that_the_operator_names_may_order(tmp_path: Path) -> None:
    with pair(tmp_path, ahead_from=()) as nodes:
        enclave = group(nodes.old)
        error = bad(nodes.order(enclave))
        assert isinstance(error, Unauthorized)
        assert "imports.ahead_from" in error.message
        assert nodes.new.node.warm_copies.counts == {"warm": 0, "copying": 0, "failed": 0}


def test_orders_that_the_node_did_not_sign_for_this_one_are_rejected(nodes: Pair) -> None:
    enclave = group(nodes.old)
    assert isinstance(bad(nodes.order(enclave, key=person("carol"))), Unauthorized)
    assert isinstance(bad(nodes.order(enclave, to_key=person("carol").public)), Unauthorized)
    assert isinstance(bad(nodes.order(enclave, at=1)), Unauthorized)
    assert isinstance(bad(nodes.new.post(b"{}", "/warm-copies")), InvalidQuery)


def test_a_node_that_accepts_no_imports_makes_no_copies(tmp_path: Path) -> None:
    with pair(tmp_path, at_once=0) as nodes:
        assert "accepts no imports" in bad(nodes.order(group(nodes.old))).message


def test_only_the_destination_may_fetch_whole_logs_and_only_while_the_node_is_evacuated(nodes: Pair) -> None:
    enclave = group(nodes.old)
    assert len(enclave.ask("node", "Export", from_seq=0, limit=100)["events"]) == 22
    assert isinstance(enclave.denied("carol", "Export", from_seq=0, limit=100), Unauthorized)
    assert isinstance(enclave.denied("node", "Query", filter={}), Unauthorized)
    nodes.old.node.statement.stop()
    assert isinstance(enclave.denied("node", "Export", from_seq=0, limit=100), Unauthorized)


def test_a_copy_is_not_made_if_the_source_does_not_allow_it(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.old.node.statement.stop()
    nodes.order(enclave)
    nodes.new.until(lambda: nodes.new.node.warm_copies.counts["failed"] == 1)
    (found,) = nodes.order(enclave).json()["copies"]
    assert (found["status"], found["events"]) == ("failed", 0)
    assert "UNAUTHORIZED" in found["reason"]


def test_a_source_that_cannot_be_reached_holds_up_no_move(nodes: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_node, "PAUSES_S", (3600,))
    enclave = group(nodes.old, 5)
    wait_for(lambda: nodes.order(enclave, source=DEAD).json()["copies"][0]["status"] == "failed")
    (found,) = nodes.order(enclave, source=DEAD).json()["copies"]
    assert found["reason"] == "seq 0: the node cannot be reached"
    nodes.warm(enclave)  # from the right source, at once


def test_a_checkpoint_is_confirmed_once_the_copy_has_it(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.warm(enclave)
    enclave.send("bob", "message", "one more")
    checkpoint = nodes.checkpoint(enclave)
    seq, root = checkpoint["seq"], checkpoint["ct_root"]
    assert nodes.confirmed(enclave, seq, root).json() == {"confirmed": True}  # it has caught up
    assert nodes.confirmed(enclave, seq, "00" * 32).json() == {"confirmed": False}
    assert nodes.confirmed(enclave, seq - 1, root).json() == {"confirmed": False}
    assert nodes.confirmed(enclave, seq + 9, root).json() == {"confirmed": False}
    assert isinstance(bad(nodes.confirmed(group(nodes.old), 0, root)), EnclaveNotFound)


def test_copies_are_bounded_in_number(tmp_path: Path) -> None:
    with pair(tmp_path, ahead_enclaves=1) as nodes:
        nodes.evacuate()
        first, second = group(nodes.old), group(nodes.old)
        nodes.warm(first)
        (found,) = nodes.order(second).json()["copies"]
        assert (found["status"], found["reason"]) == ("refused", "this node has 1 warm copies (imports.ahead_enclaves)")


def test_copies_are_bounded_in_bytes(tmp_path: Path) -> None:
    with pair(tmp_path, ahead_bytes=2000) as nodes:
        nodes.evacuate()
        enclave = group(nodes.old)
        nodes.order(enclave)
        nodes.new.until(lambda: nodes.new.node.warm_copies.counts["failed"] == 1)
        (found,) = nodes.order(enclave).json()["copies"]
        assert "imports.ahead_bytes" in found["reason"]
        assert nodes.new.node.warm_copies.stored_bytes == 0


def test_a_copy_that_nobody_orders_any_more_is_dropped(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.warm(enclave)
    nodes.new.clock.tick(int(KEEP_S * 1000) + 1)
    nodes.new.on_loop(nodes.new.node.warm_copies.sweep)
    assert isinstance(bad(nodes.confirmed(enclave, 0, "00" * 32)), EnclaveNotFound)
    nodes.new.until(lambda: nodes.new.node.warm_copies.stored_bytes == 0)  # once its last step has ended


def test_contents_in_a_copy_are_erased_when_their_time_has_come(nodes: Pair) -> None:
    enclave = group(nodes.old)
    due = nodes.new.clock.now + int(ERASE_S * 1000)
    enclave.send("bob", "message", "soon gone", ("auto-delete", str(due)))
    nodes.warm(enclave)
    place = nodes.new.node.warm_copies._places[enclave.id]
    nodes.new.until(lambda: not place.lock.locked())
    copy = place.copy
    assert copy is not None
    staged = nodes.new.store._staged[copy.staged.staging.name]  # type: ignore[attr-defined]
    assert staged.events[-1].content == "soon gone"
    nodes.new.clock.tick(int(ERASE_S * 1000) + 1)
    assert nodes.order(enclave).status_code == 200
    nodes.new.until(lambda: staged.events[-1].content is None)
    assert staged.events[-2].content == "message 19"


def test_the_end_of_an_evacuation_drops_the_copies(nodes: Pair) -> None:
    first, second = group(nodes.old), group(nodes.old)
    for each in (first, second):
        nodes.warm(each)
    nodes.order(first, ends=True)
    assert nodes.new.node.warm_copies.counts["warm"] == 1
    nodes.order(ends=True)
    assert nodes.new.node.warm_copies.counts["warm"] == 0


def test_an_enclave_that_moves_elsewhere_is_not_imported_from_its_copy(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.warm(enclave)
    replay = Replay()
    for event in log_of(enclave):
        replay.add(event)
    to = person("carol").public.hex()
    content = {"new_sequencer": to, "prev_seq": replay.state.seq, "ct_root": replay.checkpoint_root().hex()}
    enclave.send("alice", "Migrate", content)
    assert isinstance(enclave.refused("bob", "message", "late"), EnclaveMigrated)
    assert order(nodes.new, log_of(enclave)[-1], DEAD).status_code == 400
    assert nodes.new.store.load(enclave.id) is None


def test_a_copy_of_an_enclave_that_is_created_here_meanwhile_gives_way(nodes: Pair) -> None:
    """Anyone may send its Manifest to this node."""
    enclave = group(nodes.old)
    nodes.warm(enclave)
    nodes.new.submit(enclave.manifest)
    (found,) = nodes.order(enclave).json()["copies"]
    assert (found["status"], found["reason"]) == ("refused", "this node holds a log of the enclave already")
    nodes.old.submit(migrate_commit(enclave, nodes.new))
    done(nodes.new, log_of(enclave)[-1], nodes.old.url)


def test_a_failed_import_leaves_nothing_of_the_copy(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.warm(enclave)
    enclave.send("bob", "message", "one more")
    nodes.old.submit(migrate_commit(enclave, nodes.new))
    log = log_of(enclave)
    with ExportNode(nodes.old.key, log[:-1], seq=len(log) - 1, now=lambda: nodes.old.clock.now / 1000) as source:
        assert failure(nodes.new, log[-1], source.url)["code"]
    assert nodes.new.store.load(enclave.id) is None
    assert decode(order(nodes.new, log[-1], nodes.old.url).content)["status"] in ("running", "done")
    done(nodes.new, log[-1], nodes.old.url)
    assert log_of(enclave.at(nodes.new)) == log


def test_no_copy_is_made_or_kept_of_an_enclave_that_the_operator_has_purged(nodes: Pair) -> None:
    first, second = group(nodes.old), group(nodes.old)
    nodes.warm(first)
    for enclave in (first, second):
        nodes.new.submit(enclave.manifest)
        perform(nodes.new, "purge", enclave=enclave.id.hex())
    nodes.new.on_loop(nodes.new.node.warm_copies.sweep)
    assert nodes.new.node.warm_copies.stored_bytes == 0
    (found,) = nodes.order(second).json()["copies"]
    assert found["status"] == "refused"
    assert found["reason"] == "the operator of this node has deleted this enclave"
    assert nodes.new.node.warm_copies.counts == {"warm": 0, "copying": 0, "failed": 0}


def test_a_copy_that_is_dropped_while_it_begins_is_discarded(nodes: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    copies, begun, closed = nodes.new.node.warm_copies, list[WarmCopy](), list[WarmCopy]()
    begin, close = copies._begun, WarmCopy.close

    def begin_and_drop(enclave: bytes) -> WarmCopy:
        nodes.order(ends=True)
        begun.append(begin(enclave))
        return begun[0]

    def note(copy: WarmCopy) -> None:
        closed.append(copy)
        close(copy)

    monkeypatch.setattr(copies, "_begun", begin_and_drop)
    monkeypatch.setattr(WarmCopy, "close", note)
    nodes.order(group(nodes.old))
    nodes.new.until(lambda: bool(closed))
    assert closed == begun
    assert copies.stored_bytes == 0


def test_strangers_who_ask_for_confirmations_cause_one_fetch_at_a_time(nodes: Pair) -> None:
    enclaves = [group(nodes.old, 2) for _ in range(6)]  # more than the logs that one node may send at a time
    for enclave in enclaves:
        nodes.warm(enclave)
        enclave.send("bob", "message", "one more")
    copies = nodes.new.node.warm_copies

    async def ask() -> None:
        await asyncio.gather(*(copies.confirm(each.id, 9, bytes(32)) for each in enclaves for _ in range(10)))

    nodes.new.run(ask)
    assert copies.counts == {"warm": 6, "copying": 0, "failed": 0}


def test_an_import_that_another_source_outran_discards_its_copy(nodes: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    enclave, go_on, closed, close = group(nodes.old), threading.Event(), list[WarmCopy](), WarmCopy.close
    nodes.warm(enclave)
    copy = nodes.new.node.warm_copies._places[enclave.id].copy
    enclave.send("bob", "message", "one more")
    nodes.old.submit(migrate_commit(enclave, nodes.new))
    log = log_of(enclave)

    def note(copy: WarmCopy) -> None:
        closed.append(copy)
        close(copy)

    def answer(n: int) -> None:
        go_on.wait(30)

    monkeypatch.setattr(WarmCopy, "close", note)
    with ExportNode(nodes.old.key, log, answer=answer, now=lambda: nodes.old.clock.now / 1000) as source:
        order(nodes.new, log[-1], source.url)
        nodes.new.until(lambda: enclave.id not in nodes.new.node.warm_copies._places)
        done(nodes.new, log[-1], nodes.old.url)
        go_on.set()
        nodes.new.until(lambda: closed == [copy])


def test_an_import_waits_for_its_copy_without_being_slow(nodes: Pair) -> None:
    enclave = group(nodes.old)
    nodes.warm(enclave)
    nodes.old.submit(migrate_commit(enclave, nodes.new))
    log, place = log_of(enclave), nodes.new.node.warm_copies._places[enclave.id]
    nodes.new.run(place.lock.acquire)
    begun = decode(order(nodes.new, log[-1], nodes.old.url).content)
    nodes.new.until(lambda: bool(place.lock._waiters))
    nodes.new.clock.tick(60_000)
    nodes.new.on_loop(nodes.new.node.uploads.drop_slow)
    nodes.new.on_loop(place.lock.release)
    assert ended(nodes.new, begun["import"])["status"] == "done"
