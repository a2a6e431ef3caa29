"""Import orders: who may import, and what the operator decides before anything is fetched."""

import socket
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.json import decode, encode
from msgspec.structs import replace

from enc.core.errors import EnclaveNotFound
from enc.core.log.commit import wire_commit
from enc.core.log.event import wire_event
from enc.node.config import AdmissionSettings, ImportSettings, NodeConfig, RateSettings
from enc.node.imports import source_node as source_module
from tests.core.world import LIFETIME, World, pub
from tests.node.imports.import_orders import NEW, OLD, forced, moved, nothing_is_kept, refused, world
from tests.node.metrics_page import figures
from tests.node.moving import WITH_ARCHIVE, ExportNode, archive_of, done, ended, failure, imported, order
from tests.node.served import DEV, Served, bad

# Orders


def test_a_peaceful_move_is_pulled_page_by_page(node: Served) -> None:
    made = moved()
    with ExportNode(OLD, made.events, page=3) as source:
        status = done(node, made.events[-1], source.url)
        assert source.asked == [0, 3, 6]
    assert status["events"] == status["total"] == 9
    assert status["receipt"]["seq"] == 8
    assert bytes.fromhex(status["receipt"]["sequencer"]) == OLD.public
    assert node.store.load(made.state.enclave) == made.state


def test_imports_are_counted(node: Served) -> None:
    def counts() -> list[float]:
        found = figures(node)
        states = ("fetching", "waiting", "running")
        ended = [found["enc_imports_total", outcome] for outcome in ("done", "failed")]
        return [*ended, *(found["enc_imports_open", state] for state in states)]

    made, before = moved(), counts()
    with ExportNode(OLD, made.events) as source:
        with node.held_up():
            assert order(node, made.events[-1], source.url).status_code == 202
            assert sum(counts()[2:]) == 1
        done(node, made.events[-1], source.url)
    assert counts() == [before[0] + 1, *before[1:]]
    made = world()
    order(node, forced(made), archive=b"not an archive")
    ended(node, forced(made).hash.hex())
    assert counts()[1] == before[1] + 1


def test_a_forced_move_is_finalised_here(node: Served) -> None:
    made = world()
    commit = forced(made)
    status = done(node, commit, archive=archive_of(made.events))
    assert bytes.fromhex(status["receipt"]["sequencer"]) == NEW.public
    assert bytes.fromhex(status["import"]) == commit.hash
    state = node.store.load(made.state.enclave)
    assert state is not None
    assert (state.seq, state.sequencer, state.migrated) == (8, NEW.public, True)


@pytest.mark.parametrize("has_migrate", [True, False])
def test_a_final_migrate_may_come_with_an_archive(node: Served, has_migrate: bool) -> None:
    made = moved()
    events = made.events if has_migrate else made.events[:-1]
    done(node, made.events[-1], archive=archive_of(events))
    assert node.store.load(made.state.enclave) == made.state


def test_the_same_order_again_is_done_already(node: Served) -> None:
    made = world()
    commit, archive = forced(made), archive_of(made.events)
    first = done(node, commit, archive=archive)
    again = order(node, commit, archive=archive)
    assert (again.status_code, decode(again.content)) == (200, first)
    node.clock.tick(10_000_000)  # long past exp
    assert decode(order(node, commit, archive=b"anything").content) == first


def test_the_same_order_while_it_runs_joins_it(node: Served) -> None:
    made = moved()
    with ExportNode(OLD, made.events) as source:
        with node.held_up():
            first = order(node, made.events[-1], source.url)
            second = order(node, made.events[-1], source.url)
            assert first.status_code == second.status_code == 202
            assert decode(first.content) == decode(second.content)
            assert decode(first.content)["status"] == "running"
            assert decode(node.get(f"/import/{made.events[-1].hash.hex()}").content)["total"] == 9
        assert ended(node, made.events[-1].hash.hex())["status"] == "done"
        assert source.asked == [0]


def test_a_failed_order_may_be_given_again(node: Served) -> None:
    made = moved()
    with ExportNode(OLD, made.events[:-1], seq=7) as source:
        assert failure(node, made.events[-1], source.url)["code"] == "INVALID_ARCHIVE"
    nothing_is_kept(node, made)
    with ExportNode(OLD, made.events) as source:
        done(node, made.events[-1], source.url)


def test_an_import_that_nobody_ordered(node: Served) -> None:
    assert isinstance(bad(node.get("/import/" + "ab" * 32)), EnclaveNotFound)
    assert isinstance(bad(node.get("/import/xyz")), EnclaveNotFound)


def test_orders_that_do_not_prove_themselves(node: Served) -> None:
    made = moved()
    migrate = made.events[-1]
    wire = wire_event(migrate)
    for wrong, code, message in [
        ({**wire, "sig": "00" * 64}, "INVALID_SIGNATURE", "sig"),
        ({**wire, "seq_sig": "00" * 64}, "INVALID_SIGNATURE", "seq_sig"),
        ({**wire, "seq": 7}, "INVALID_SIGNATURE", "seq_sig"),
        ({**wire, "id": "00" * 32}, "INVALID_HASH", "id"),
        ({**wire, "exp": wire["exp"] + 1}, "INVALID_HASH", "hash"),
        ({**wire, "enclave": "00" * 32}, "INVALID_HASH", "hash"),
        (wire_event(made.events[0]), "INVALID_COMMIT", "expected a Migrate"),
        (wire_event(made.events[2]), "INVALID_COMMIT", "expected a Migrate"),
        ({"type": "Migrate"}, "INVALID_COMMIT", "hash"),
        (5, "INVALID_QUERY", "object"),
    ]:
        error = refused(node, wrong)
        assert (error.code, message in error.message) == (code, True), error
    unsigned = {**wire_commit(forced(world())), "sig": "00" * 64}
    assert refused(node, unsigned, archive=b"x").code == "INVALID_SIGNATURE"
    elsewhere = world()
    elsewhere.send("alice", "Migrate", elsewhere.migrate("node3"))
    error = refused(node, wire_event(elsewhere.events[-1]))
    assert (error.code, error.message) == ("INVALID_COMMIT", "migrate: new_sequencer: expected this node's key")


def test_orders_without_a_log_or_with_two(node: Served) -> None:
    made = moved()
    wire, commit = wire_event(made.events[-1]), wire_commit(forced(world()))
    assert refused(node, wire, None).code == "INVALID_QUERY"
    assert "finalised" in refused(node, commit).message
    both = encode({"migrate": wire, "source": "http://127.0.0.1:1"}) + b"\nx"
    assert bad(node.post(both, "/import", headers=WITH_ARCHIVE)).code == "INVALID_QUERY"
    assert bad(node.post(encode({"migrate": wire}), "/import", headers=WITH_ARCHIVE)).code == "INVALID_QUERY"
    assert bad(node.post(b"{", "/import")).code == "INVALID_QUERY"
    unknown = {"migrate": wire, "source": "http://127.0.0.1:1", "more": 1}
    assert bad(node.post(unknown, "/import")).code == "INVALID_QUERY"
    assert node.node.importer._jobs == {}


def test_an_order_over_the_limit(node: Served) -> None:
    too_long = b'{"migrate":"' + b"x" * (2 << 20)
    for headers in ({}, WITH_ARCHIVE):
        assert bad(node.post(too_long, "/import", headers=headers)).status == 413


def test_an_expired_migrate_is_refused_before_its_archive_is_read(node: Served) -> None:
    made = world()
    commit = forced(made)
    node.clock.tick(LIFETIME * 2)
    assert refused(node, wire_commit(commit), archive=b"anything").code == "EXPIRED"


# What the operator decides, before anything is fetched


def not_asked(config: NodeConfig, made: World, code: str, part: str) -> None:
    with ExportNode(OLD, made.events) as source, Served(config) as node:
        error = refused(node, wire_event(made.events[-1]), source.url)
        assert (error.code, part in error.message) == (code, True), error
        assert source.asked == []
        assert node.node.importer._jobs == {}


def test_who_may_not_create_enclaves_may_not_bring_any() -> None:
    made = moved()
    closed = replace(DEV, admission=AdmissionSettings(create="closed"))
    not_asked(closed, made, "UNAUTHORIZED", "does not create enclaves")
    listed = replace(DEV, admission=AdmissionSettings(create="allowlist", allow=(pub("bob"),)))
    not_asked(listed, made, "UNAUTHORIZED", "does not create enclaves")
    allowed = replace(DEV, admission=AdmissionSettings(create="allowlist", allow=(pub("alice"),)))
    with ExportNode(OLD, made.events) as source, Served(allowed) as node:
        done(node, made.events[-1], source.url)


def test_quotas_are_asked_before_anything_is_fetched() -> None:
    made = moved()
    few = replace(DEV, admission=AdmissionSettings(max_events=8))
    not_asked(few, made, "UNAUTHORIZED", "quota of events on this node: 8")
    with ExportNode(OLD, made.events) as source:
        with Served(replace(DEV, admission=AdmissionSettings(max_events=9, max_enclaves=1))) as node:
            done(node, made.events[-1], source.url)
            other = moved(world(meta={"n": 2}))
            error = refused(node, wire_event(other.events[-1]), source.url)
            assert "quota of enclaves" in error.message
        size = sum(len(event.content or "") for event in made.events)
        with Served(replace(DEV, admission=AdmissionSettings(max_bytes=size - 1))) as node:
            error = failure(node, made.events[-1], source.url)
            assert (error["code"], "quota of bytes" in error["message"]) == ("UNAUTHORIZED", True)
            nothing_is_kept(node, made)


def test_a_quota_of_bytes_ends_an_import_as_soon_as_it_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.node.imports.replay.SLICE_EVENTS", 1)
    made = moved()
    most = len(made.events[0].content or "") + 1
    with (
        ExportNode(OLD, made.events) as source,
        Served(replace(DEV, admission=AdmissionSettings(max_bytes=most))) as node,
    ):
        status = imported(node, made.events[-1], source.url)
        assert (status["status"], status["events"]) == ("failed", 1)


def test_rates_are_the_owner_s() -> None:
    made = moved()
    rates, admission = RateSettings(identity_per_s=0.001, identity_burst=1), AdmissionSettings(create="closed")
    with Served(NodeConfig(port=0, rates=rates, admission=admission)) as node:
        for code in ("UNAUTHORIZED", "RATE_LIMITED"):
            assert refused(node, wire_event(made.events[-1]), "https://example.com/").code == code


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://[::1]/",
        "https://user@example.com/",
        "https://example.com:80/",
        "ftp://example.com/",
    ],
)
def test_a_source_obeys_the_rules_for_endpoints(url: str) -> None:
    made = moved()
    with Served(NodeConfig(port=0)) as node:
        assert refused(node, wire_event(made.events[-1]), url).code == "INVALID_ENDPOINT_URL"


def test_a_source_s_name_is_judged_by_its_addresses_each_time_it_is_called() -> None:
    made = moved()
    answers = iter([["93.184.216.34"], ["93.184.216.34", "127.0.0.1"]])

    inner = socket.getaddrinfo

    def resolve(host: str, port: int, *args: Any, **more: Any) -> list[Any]:
        if host != "moves.example":
            return inner(host, port, *args, **more)
        return [(2, 1, 6, "", (address, port)) for address in next(answers)]

    with Served(NodeConfig(port=0)) as node, patch("enc.runtime.endpoints.socket.getaddrinfo", resolve):
        error = failure(node, made.events[-1], "https://moves.example/")
        assert error["code"] == "INVALID_ENDPOINT_URL"
        nothing_is_kept(node, made)


def test_a_source_whose_name_is_nowhere(node: Served) -> None:
    made = moved()
    error = refused(node, wire_event(made.events[-1]), "https://nowhere.invalid/")
    assert (error.code, error.status) == ("UPSTREAM_UNREACHABLE", 502)


def test_a_source_that_does_not_answer(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSES_S", (0, 0))
    made = moved()
    with ExportNode(OLD, made.events) as source:
        pass
    error = failure(node, made.events[-1], source.url)
    assert error["code"] == "UPSTREAM_UNREACHABLE"
    nothing_is_kept(node, made)


def test_a_source_that_is_busy_is_asked_again(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSES_S", (0, 0))
    busy = encode({"type": "Error", "code": "UNAVAILABLE", "message": "busy", "retry_after_ms": 1})
    made = moved()
    with ExportNode(OLD, made.events, answer=lambda n: (503, busy) if n < 2 else None) as source:
        done(node, made.events[-1], source.url)
        assert source.asked == [-1, -1, 0]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (403, encode({"type": "Error", "code": "UNAUTHORIZED", "message": "<b>secret</b>"}), "UNAUTHORIZED"),
        (400, encode({"type": "Error", "code": "<b>", "message": ""}), "an error"),
        (200, b"{}", "cannot open the source's answer"),
        (200, encode({"type": "Response", "content": "AAAA"}), "cannot open the source's answer"),
        (302, b"", "status 302"),
    ],
)
def test_a_source_that_answers_something_else(
    node: Served, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, said: str
) -> None:
    monkeypatch.setattr(source_module, "PAUSES_S", ())
    made = moved()
    with ExportNode(OLD, made.events, answer=lambda n: (status, body)) as source:
        error = failure(node, made.events[-1], source.url)
    assert said in error["message"]
    assert "secret" not in error["message"]
    nothing_is_kept(node, made)


def test_an_answer_that_does_not_end(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSES_S", ())
    monkeypatch.setattr(source_module, "MAX_PAGE_BYTES", 1000)
    made = moved()
    with ExportNode(OLD, made.events) as source:
        assert "over 1000 bytes" in failure(node, made.events[-1], source.url)["message"]


def test_a_log_that_is_larger_than_this_node_takes() -> None:
    made = moved()
    with ExportNode(OLD, made.events) as source, Served(replace(DEV, imports=ImportSettings(total_bytes=3000))) as node:
        assert "size limit" in failure(node, made.events[-1], source.url)["message"]
        nothing_is_kept(node, made)
