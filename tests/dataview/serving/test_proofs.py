"""Verified answers: proofs that let a client check a row, and clear reasons where there is none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from typer.testing import CliRunner

from enc.cli import app
from enc.client import Enclave
from enc.core.log.event import event_from_wire, parse_event
from enc.core.primitives.types import Event
from enc.dataview.serving.columns import Column, ViewSchema
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.proofs import Prover, RowEvent
from enc.dataview.serving.rights import ViewRights
from tests.core.world import withheld
from tests.dataview.logs import small_log
from tests.dataview.served import create_enclave
from tests.dataview.served import serving as node_serving
from tests.dataview.serving.asking import PUBLIC, refused, serving
from tests.dataview.serving.rows import EVENTS, PAIRS, event_row, pairs
from tests.node.served import Served

POSTS = ViewSchema(
    "posts", (Column("enclave", "string"), Column("event_id", "string"), Column("text", "string")), ("event_id",)
)
OPEN = {"events": PUBLIC, "posts": PUBLIC}


def fill(place: str, events: list[Event]) -> None:
    database = ServingDatabase(place)
    database.upsert(EVENTS, map(event_row, events), {events[0].enclave.hex(): len(events)}, index=["id"])
    posts = [
        {"enclave": event.enclave.hex(), "event_id": event.id.hex(), "text": event.content}
        for event in events
        if event.type in ("post", "message")
    ]
    database.upsert(POSTS, posts, {})
    database.close()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "serving.db")


@pytest.fixture
def node() -> Iterator[Served]:
    with node_serving() as node:
        yield node


def taken(enclave: Enclave) -> list[Event]:
    return [item.event for item in enclave.query()]


def checked(proof: Any, tmp_path: Path) -> str:
    """Return what `enc verify` reports, offline."""
    path = tmp_path / "proof.json"
    path.write_bytes(msgspec.json.encode(proof))
    done = CliRunner().invoke(app, ["verify", str(path)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_row_comes_with_a_proof_that_enc_verify_accepts(node: Served, place: str, tmp_path: Path) -> None:
    enclave = create_enclave(node, "proved", posts=3)
    close_bundle(node)
    fill(place, taken(enclave))
    with serving(place, OPEN, node=node.url) as http:
        answer = http.get("/views/posts?verify=1&select=text&text=post 1").json()
        by_seq = http.get("/views/events?verify=1&select=type&seq=2").json()
    assert answer["rows"] == [{"text": "post 1"}]
    (shown,) = answer["proofs"]
    assert (shown["shows"], shown["why"]) == ("inclusion", "")
    assert shown["event"]["content"] == "post 1"
    assert shown["proof"]["event"]["event"] == shown["event"]
    assert "The proof holds." in checked(shown["proof"], tmp_path)
    assert by_seq["proofs"][0]["event"]["seq"] == 2
    shown["proof"]["event"]["event"]["content"] = "post 2"
    with pytest.raises(AssertionError):
        checked(shown["proof"], tmp_path)


def test_the_event_of_a_withheld_content_has_its_statement(place: str) -> None:
    log = small_log()
    note = next(event for event in log.events if event.type == "message")
    held = withheld(note)
    fill(place, [*log.events[: note.seq], held])
    with serving(place, OPEN) as http:
        (shown,) = http.get(f"/views/events?verify=1&seq={note.seq}").json()["proofs"]
    assert shown["shows"] == "signatures"
    assert parse_event(msgspec.json.encode(shown["event"])) == held


def close_bundle(node: Served) -> None:
    """Close the idle bundle, by setting the clock past its timeout."""
    node.clock.tick(6000)
    node.settle()


def test_an_event_of_an_open_bundle_has_its_signatures_only(node: Served, place: str) -> None:
    enclave = create_enclave(node, "pending", posts=1)
    fill(place, taken(enclave))
    with serving(place, OPEN, node=node.url) as http:
        (shown,) = http.get("/views/posts?verify=1").json()["proofs"]
    assert (shown["shows"], shown["proof"]) == ("signatures", None)
    assert shown["why"].startswith("only the signatures of author and sequencer can be shown: EVENT_PENDING")
    event_from_wire(msgspec.convert(shown["event"], type=_wire()))


def _wire() -> Any:
    from enc.core.log.event import WireEvent

    return WireEvent


def test_without_a_node_it_says_that_there_are_signatures_only(place: str) -> None:
    log = small_log(5)
    fill(place, log.events)
    with serving(place, OPEN) as http:
        answer = http.get("/views/events?verify=1&limit=100")
    for shown, event in zip(answer.json()["proofs"], log.events, strict=True):
        assert shown["shows"] == "signatures"
        assert shown["why"].endswith("no node is configured")
        assert parse_event(msgspec.json.encode(shown["event"])) == event
    assert answer.headers["cache-control"] == "public, no-store"
    assert "etag" not in answer.headers


def test_a_node_that_is_gone_is_asked_once_for_a_page(place: str) -> None:
    fill(place, small_log(5).events)
    with serving(place, OPEN, node="http://127.0.0.1:9") as http:
        shown = http.get("/views/posts?verify=1").json()["proofs"]
    assert {each["shows"] for each in shown} == {"signatures"}
    assert "UNREACHABLE" in shown[0]["why"]


def test_a_prover_asks_no_more_of_who_does_not_answer() -> None:
    log, asked = small_log(5), []

    def connect() -> Any:
        from enc.client import Unreachable

        asked.append(1)
        raise Unreachable("gone")

    shown = Prover(connect).prove([RowEvent(event) for event in log.events])
    assert (len(asked), len(shown)) == (1, len(log.events))


def test_a_node_that_is_slow_does_not_hold_a_page_for_long() -> None:
    log, now = small_log(5), [0.0]

    class Slow:
        def enclave(self, enclave: bytes) -> Any:
            from enc.core.errors import EventPending

            now[0] += 4
            raise EventPending("slow")

    shown = Prover(lambda: Slow(), clock=lambda: now[0]).prove([RowEvent(event) for event in log.events])  # type: ignore[arg-type,return-value]
    why = [each["why"] for each in shown]
    assert ["EVENT_PENDING" in each for each in why].count(True) == 3
    assert all(each.endswith("; request fewer") for each in why[3:])


def test_few_verified_answers_are_made_at_once() -> None:
    """The others must retry, so that plain readers find a thread."""
    event, refused_, deep = small_log(2).events[0], list[str](), [0]

    class Nested:
        def enclave(self, enclave: bytes) -> Any:
            from enc.core.errors import EventPending, Unavailable

            deep[0] += 1
            try:
                prover.prove([RowEvent(event)])
            except Unavailable as e:
                refused_.append(e.code)
            raise EventPending("x")

    prover = Prover(lambda: Nested())  # type: ignore[arg-type,return-value]
    prover.prove([RowEvent(event)])
    assert (deep[0], refused_) == (2, ["UNAVAILABLE"])
    assert prover.prove([]) == []


def test_erased_content_stays_erased(place: str) -> None:
    from enc.core.log.event import erase

    log = small_log(2)
    events = [erase(event) if event.type == "message" else event for event in log.events]
    fill(place, events)
    with serving(place, OPEN) as http:
        shown = http.get("/views/posts?verify=1").json()["proofs"]
    assert [(each["shows"], each["event"]["content"]) for each in shown] == [("signatures", None)] * 2


def test_a_row_whose_event_does_not_check_or_is_not_there_shows_nothing(place: str) -> None:
    log = small_log(2)
    fill(place, log.events)
    database = ServingDatabase(place)
    database.upsert(EVENTS, [{**event_row(log.events[5]), "content": "forged"}], {})
    other: list[dict[str, Any]] = [
        {"enclave": "00" * 32, "event_id": "00" * 32, "text": ""},
        {"enclave": None, "event_id": "x", "text": ""},
    ]
    database.upsert(POSTS, other, {})
    database.close()
    with serving(place, OPEN) as http:
        found = http.get("/views/posts?verify=1").json()
    why = {row["event_id"]: shown["why"] for row, shown in zip(found["rows"], found["proofs"], strict=True)}
    assert "is invalid: hash" in why[log.events[5].id.hex()]
    assert why["00" * 32] == "this row's event is not in the view `events`"
    assert why["x"] == "this row does not identify an event"
    assert sorted(shown["shows"] for shown in found["proofs"]) == ["nothing", "nothing", "nothing", "signatures"]
    assert all(shown["event"] is None for shown in found["proofs"] if shown["shows"] == "nothing")


def test_without_the_view_events_nothing_can_be_shown(place: str) -> None:
    database = ServingDatabase(place)
    database.upsert(POSTS, [{"enclave": "00" * 32, "event_id": "00" * 32, "text": ""}], {})
    database.close()
    with serving(place, OPEN) as http:
        (shown,) = http.get("/views/posts?verify=1").json()["proofs"]
    assert (shown["shows"], shown["why"]) == (
        "nothing",
        "the view `events` is not published here, so events cannot be rebuilt",
    )


@pytest.fixture
def http(place: str) -> Iterator[httpx.Client]:
    """Serve the posts to everyone, but not their events."""
    fill(place, small_log(2).events)
    database = ServingDatabase(place)
    database.upsert(PAIRS, pairs(2), {})
    database.close()
    with serving(place, {"posts": PUBLIC, "pairs": ViewRights(public=True, verify=True)}) as client:
        yield client


def test_events_that_are_not_public_do_not_come_out_behind_a_view_that_is(http: httpx.Client) -> None:
    said = refused(http.get("/views/posts?verify=1"), 400, "INVALID_QUERY")
    assert said == "verify: you may not read the events of this view"


def test_unless_the_view_says_that_they_may(place: str) -> None:
    fill(place, small_log(2).events)
    with serving(place, {"posts": ViewRights(public=True, verify=True)}) as http:
        assert len(http.get("/views/posts?verify=1").json()["proofs"]) == 2
        refused(http.get("/views/events"), 401, "UNAUTHENTICATED")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("/views/pairs?verify=1", "does not identify an event"),
        ("/views/pairs?verify=1&format=csv", "needs format json"),
        ("/views/pairs?verify=1&limit=101", "at most 100"),
    ],
)
def test_what_cannot_be_verified(http: httpx.Client, target: str, says: str) -> None:
    assert says in refused(http.get(target), 400, "INVALID_QUERY")
