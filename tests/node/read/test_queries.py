"""Queries: filters against the log, read rights, erased contents, restarts."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from enc.core.log.event import check_event, parse_event
from enc.core.log.filter import parse_filter
from enc.core.trees.state_key import shared_slot, tree_key
from enc.core.trees.tree_head import parse_head
from tests.core.world import init, move, person, pub, rule
from tests.node.read.enclave_history import Life, check_ground, checked_value, sth
from tests.node.served import SMALL, Clock, Enclave, Json, Served, about, bad, sqlite

# Filters


def filters(life: Life) -> list[Json]:
    ids = [event.id.hex() for event in life.events]
    times = [event.timestamp for event in life.events]
    mid = times[6]
    bounds = [
        {low: x, high: y}
        for low in ("start_at", "start_after")
        for high in ("end_at", "end_before")
        for x, y in [(2, 9)]
    ]
    return [
        {},
        {"id": ids[3]},
        {"id": [ids[1], ids[2], ids[7], "00" * 32]},
        {"seq": 1},
        {"seq": [0, 2, 3, 3, 77]},
        *({"seq": bound} for bound in bounds),
        *({"seq": {name: 5}} for name in ("start_at", "start_after", "end_at", "end_before")),
        {"seq": {}},
        {"seq": {"start_at": 9, "end_at": 3}},
        {"seq": {"end_before": 0}},
        *({"timestamp": {name: mid}} for name in ("start_at", "start_after", "end_at", "end_before")),
        {"timestamp": {"start_at": mid, "end_at": mid}},
        {"timestamp": {"start_at": times[4], "end_before": times[9], "end_at": times[12]}},
        {"type": "message"},
        {"type": ["message", "Update", "Own", "none"]},
        {"from": pub("bob")},
        {"from": [pub("alice"), pub("carol"), pub("nobody")]},
        {"tags": {"r": "ab"}},
        {"tags": {"r": ["ab", life.sent["m0"].id.hex()]}},
        {"tags": {"k": True}},
        {"tags": {"r": True, "n": ["0", "2"]}},
        {"tags": {"none": True}},
        {"from": pub("bob"), "type": ["message", "Update"], "seq": {"start_at": 2}, "tags": {"r": True}},
        {"id": ids, "type": "message", "timestamp": {"end_at": mid}},
        {"seq": [1, 2, 3], "from": pub("alice")},
    ]


@pytest.mark.parametrize("reverse", [False, True])
def test_every_filter_gives_what_matches_in_order(life: Life, reverse: bool) -> None:
    gone = {life.sent["m1"].seq, life.sent["m3"].seq}
    for wire in filters(life):
        filter_ = parse_filter(wire)
        expected = [event.seq for event in life.events if filter_.matches(event) and event.seq not in gone]
        found = life.enclave.seqs("bob", **wire, reverse=reverse)
        assert found == expected[:: -1 if reverse else 1], wire


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_by_seq_give_every_event_once(life: Life, limit: int, reverse: bool) -> None:
    found = paged(life.enclave, "bob", limit, reverse)
    assert [item["event"]["seq"] for item in found] == life.enclave.seqs("bob", limit=1000, reverse=reverse)


def paged(enclave: Enclave, name: str, limit: int, reverse: bool = False, **filter_: Any) -> list[Json]:
    """Return everything, page by page; a page with `more` is full, and another follows it."""
    found, range_ = list[Json](), Json()
    while True:
        answer = enclave.ask(name, "Query", filter={**filter_, "limit": limit, "reverse": reverse, "seq": range_})
        found += answer["events"]
        if "more" not in answer:
            return found
        assert len(answer["events"]) == limit
        range_ = {"end_before" if reverse else "start_after": found[-1]["event"]["seq"]}


def test_events_are_served_as_they_were_sent(life: Life) -> None:
    for item in life.enclave.query("bob"):
        event = parse_event(encode(item["event"]))
        assert event == life.events[event.seq]
        check_event(event, 2)


def test_statuses(life: Life) -> None:
    found = {item["event"]["seq"]: (item["status"], item.get("updated_by")) for item in life.enclave.query("bob")}
    sent = life.sent
    assert found.pop(sent["m0"].seq) == ("updated", sent["u1"].id.hex())
    assert found.pop(sent["m2"].seq) == ("updated", sent["u3"].id.hex())
    assert {sent["m1"].seq, sent["m3"].seq}.isdisjoint(found)
    assert set(found.values()) == {("active", None)}


# Read rights


CLUB: Json = {
    "enc_v": 2,
    "states": ["MEMBER", "GUEST"],
    "traits": ["owner(0)", "clerk(1)"],
    "readers": [
        {"type": "MEMBER", "reads": "*"},
        {"type": "GUEST", "reads": ["news"]},
        {"type": "Sender", "reads": ["letter"]},
    ],
    "moves": [
        {"event": "Move", "from": "GUEST", "to": "OUTSIDER", "operator": "owner", "ops": ["C"]},
        {"event": "Move", "from": "OUTSIDER", "to": "GUEST", "operator": "owner", "ops": ["C"]},
    ],
    "slots": [
        rule("Shared", "owner", "C U D", key="rules"),
        rule("Shared", "owner", "C U D", key="ledger"),
        rule("Shared", "GUEST", "R", key="rules"),
    ],
    "customs": [
        rule("chat", "MEMBER", "C U D"),
        rule("news", "MEMBER", "C U D"),
        rule("letter", "Public", "C"),
        rule("letter", "Sender", "U D"),
        rule("secret", "MEMBER", "C"),
        rule("secret", "clerk", "_R"),
    ],
    "init": init(alice="MEMBER owner", bob="MEMBER", carol="GUEST", erin="MEMBER clerk"),
    "bundle": {"size": 64, "timeout": 5000},
}


@pytest.fixture(scope="module")
def club(node: Served) -> Enclave:
    enclave = node.create(CLUB)
    for i in range(60):
        type_ = "news" if i % 10 == 0 else "chat"
        enclave.send("bob", type_, f"{i}")
        if i % 15 == 0:
            enclave.send("mallory", "letter", f"from mallory {i}")
            enclave.send("dave", "letter", f"from dave {i}")
            enclave.send("alice", "secret", f"{i}")
            enclave.send("alice", "Shared", {"key": "rules", "value": i})
            enclave.send("alice", "Shared", {"key": "ledger", "value": i})
    return enclave


def types(items: list[Json]) -> set[str]:
    return {item["event"]["type"] for item in items}


def test_who_reads_a_few_of_many_gets_full_pages(club: Enclave) -> None:
    first = club.ask("carol", "Query", filter={"limit": 4})
    assert (len(first["events"]), first["more"]) == (4, True)
    found = paged(club, "carol", 4)
    assert types(found) == {"news", "Shared"}
    assert {item["event"]["content"][7:12] for item in found if item["event"]["type"] == "Shared"} == {'"rule'}
    assert len(found) == 6 + 4
    assert found == paged(club, "carol", 1000)
    assert found[::-1] == paged(club, "carol", 3, reverse=True)


def test_who_reads_one_key_of_a_type_is_not_shown_the_others(club: Enclave) -> None:
    shared = paged(club, "carol", 2, type="Shared")
    assert len(shared) == 4
    ledger = [item for item in club.query("bob", type="Shared", limit=1000) if '"ledger"' in item["event"]["content"]]
    assert len(ledger) == 4
    for item in ledger:
        assert club.query("carol", id=item["event"]["id"]) == []
        assert club.query("carol", seq=item["event"]["seq"]) == []


def test_who_reads_what_they_wrote(club: Enclave) -> None:
    for name in ("mallory", "dave"):
        found = paged(club, name, 2)
        assert types(found) == {"letter"}
        assert {item["event"]["from"] for item in found} == {pub(name)}
        assert len(found) == 4
        assert found == club.query(name, **{"from": [pub("mallory"), pub("dave"), pub("bob")]})
    assert club.query("mallory", **{"from": pub("dave")}) == []
    assert len(club.query("bob", type="letter")) == 8


def test_a_denial_outweighs_a_right_to_everything(club: Enclave) -> None:
    assert types(club.query("bob", limit=1000)) - types(club.query("erin", limit=1000)) == {"secret"}
    assert club.query("erin", type="secret") == []
    assert len(club.query("bob", type="secret")) == 4


def test_who_may_read_something_gets_an_empty_page_where_it_is_not_theirs(club: Enclave) -> None:
    assert club.ask("carol", "Query", filter={"type": "chat"}) == {"events": []}
    assert club.ask("carol", "Query", filter={"type": "Manifest"}) == {"events": []}
    assert club.ask("nobody", "Query", filter={}) == {"events": []}  # could have written a letter


def test_edits_are_read_by_whoever_reads_what_they_edit(node: Served) -> None:
    enclave = node.create(CLUB)
    news, chat = enclave.send("bob", "news", "n"), enclave.send("bob", "chat", "c")
    gone = enclave.send("bob", "news", "g")
    update = enclave.send("alice", "Update", "n2", about(news))
    enclave.send("alice", "Update", "c2", about(chat))
    delete = enclave.send("alice", "Delete", {"reason": "moderator"}, about(gone))
    assert enclave.seqs("carol") == [news.seq, update.seq, delete.seq]
    letter = enclave.send("mallory", "letter", "l")
    edit = enclave.send("mallory", "Update", "l2", about(letter))
    assert enclave.seqs("mallory") == [letter.seq, edit.seq]
    assert enclave.seqs("dave") == []


def test_rights_are_those_of_now_also_for_old_events(node: Served) -> None:
    enclave = node.create(CLUB)
    enclave.send("bob", "news", "n")
    assert enclave.seqs("carol") == [1]
    enclave.send("alice", "Move", move("carol", "GUEST", "OUTSIDER"))
    assert enclave.seqs("carol") == []
    enclave.send("alice", "Move", move("carol", "OUTSIDER", "GUEST"))
    enclave.send("bob", "news", "m")
    assert enclave.seqs("carol") == [1, 4]


def test_a_closed_gate_takes_reading_away(node: Served) -> None:
    gate = {"alias": "window", "gate": {"operator": ["owner"]}}
    manifest = {**CLUB, "readers": [{"type": "GUEST", "reads": "news", **gate}, {"type": "MEMBER", "reads": "*"}]}
    enclave = node.create({**manifest, "slots": [], "customs": CLUB["customs"][:2]})
    enclave.send("bob", "news", "n")
    assert enclave.seqs("carol") == [1]
    enclave.send("alice", "Gate", {"alias": "window", "state": "closed"})
    assert enclave.denied("carol", "Query", filter={}).code == "UNAUTHORIZED"
    enclave.send("alice", "Gate", {"alias": "window", "state": "open"})
    assert enclave.seqs("carol") == [1]


# Identities without read rights


def test_anyone_may_ask_what_the_enclave_says_of_themselves_and_for_that_leaf(life: Life) -> None:
    """At every leaf: the answer about their own state contains what the inclusion proof reveals."""
    enclave, own = life.enclave, {"namespace": "rbac", "key": pub("mallory")}
    for size in range(1, life.size + 1):
        inclusion = enclave.ask("mallory", "Inclusion_Proof", leaf_index=size - 1)
        check_ground(life, inclusion, inclusion["sth"])
        answer = enclave.ask("mallory", "State_Proof", **own, tree_size=size)
        value = checked_value(life, tree_key("rbac", person("mallory").public), answer)
        assert value in (None, (1).to_bytes(32, "big"))
        assert {**answer["inclusion"], "sth": answer["sth"]} == inclusion
    for more in ({}, {"mode": "current"}):
        assert enclave.ask("mallory", "State_Proof", **own, **more)["v"] == f"{1:064x}"
        assert len(enclave.ask("mallory", "State_Batch", keys=[own, own], **more)["proofs"]) == 2


def test_but_nothing_else(life: Life) -> None:
    enclave = life.enclave
    stranger = "trent"
    own = {"namespace": "rbac", "key": pub(stranger)}
    others = [
        {"namespace": "rbac", "key": pub("alice")},
        {"namespace": "event_status", "key": pub(stranger)},
        {"namespace": "kv", "key": pub(stranger)},
        {"namespace": "event_status", "key": life.events[0].id.hex()},
    ]
    for key in others:
        for when in ({}, {"mode": "current"}, {"tree_size": 1}):
            assert enclave.denied(stranger, "State_Proof", **key, **when).code == "UNAUTHORIZED"
            assert enclave.denied(stranger, "State_Batch", keys=[own, key], **when).code == "UNAUTHORIZED"
    assert enclave.denied(stranger, "Query", filter={}).code == "UNAUTHORIZED"
    assert enclave.denied(stranger, "Query", filter={}, proof=True).code == "UNAUTHORIZED"
    assert enclave.denied(stranger, "Bundle_Proof", leaf_index=life.size - 1).code == "UNAUTHORIZED"
    assert enclave.denied(stranger, "Bundle_Proof", event_id=life.events[0].id.hex()).code == "UNAUTHORIZED"
    assert enclave.denied(stranger, "Bundle_Proof", event_id="00" * 32).code == "UNAUTHORIZED"
    assert enclave.denied(stranger, "Checkpoint").code == "UNAUTHORIZED"
    assert enclave.denied(stranger, "Inclusion_Proof", leaf_index=life.size).code == "LEAF_NOT_FOUND"


def test_who_was_sent_away_reads_no_more(node: Served) -> None:
    enclave = node.create(SMALL)
    for text in "abc":
        enclave.send("bob", "message", text)
    assert enclave.ask("bob", "Bundle_Proof", leaf_index=0)["first_seq"] == 0
    enclave.send("alice", "Move", move("bob", "MEMBER", "OUTSIDER"))
    assert enclave.denied("bob", "Query", filter={}).code == "UNAUTHORIZED"
    assert enclave.denied("bob", "Bundle_Proof", leaf_index=0).code == "UNAUTHORIZED"
    assert enclave.ask("bob", "State_Proof", namespace="rbac", key=pub("bob"), mode="current")["v"] is None


# Erased contents


def contents(enclave: Enclave) -> dict[int, str | None]:
    """Return events as served, each verified; an erased one still has its content's hash."""
    found = {}
    for item in enclave.query("bob", limit=1000):
        check_event(parse_event(encode(item["event"])), 2)
        assert ("content_hash" in item["event"]) == (item["event"]["content"] is None)
        found[item["event"]["seq"]] = item["event"]["content"]
    return found


def test_updates_and_deletes_take_contents_away(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        enclave = node.create(SMALL)
        first, second, third = (enclave.send("bob", "message", text) for text in "abc")
        one, two = (
            enclave.send("bob", "Update", text, about(first)) for text in ("an edit that goes", "the last edit")
        )
        gone = enclave.send("bob", "Update", "an edit of what goes", about(second))
        enclave.send("bob", "Delete", {"reason": "author", "note": "sorry"}, about(second))
        before = contents(enclave)
        assert (before[first.seq], before[one.seq], before[two.seq]) == (None, None, "the last edit")
        assert (before[gone.seq], before[third.seq]) == (None, "c")
        assert second.seq not in before
    store.close()
    store = sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        enclave.node = node
        assert contents(enclave) == before
        status = {item["event"]["seq"]: item for item in enclave.query("bob")}
        assert (status[first.seq]["status"], status[first.seq]["updated_by"]) == ("updated", two.id.hex())
    store.close()
    disk = (tmp_path / "enc.db").read_bytes()
    assert (b"an edit that goes" in disk, b"an edit of what goes" in disk, b"the last edit" in disk) == (
        False,
        False,
        True,
    )


def test_contents_go_when_their_time_comes(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)
    when = clock.now + 3_600_000
    with Served(store=store, clock=clock) as node:
        enclave = node.create(SMALL)
        first = enclave.send("bob", "message", "for an hour", ("auto-delete", f"{when}"))
        lasting = enclave.send("bob", "message", "for good")
        edited = enclave.send("bob", "message", "for an hour too", ("auto-delete", f"{when}"))
        update = enclave.send("bob", "Update", "goes with it", about(edited))
        short = enclave.send("bob", "Update", "only the edit goes", about(lasting), ("auto-delete", f"{when}"))
        slot = enclave.send("bob", "Shared", {"key": "topic", "value": 1}, ("auto-delete", f"{when}"))
        later = enclave.send("bob", "message", "for longer", ("auto-delete", f"{when + 2_000}"))
        clock.tick(when - clock.now - 1)
        node.settle()
        assert contents(enclave)[first.seq] == "for an hour"
        clock.tick(1_001)
        node.settle()
        found = contents(enclave)
        erased = {first.seq, edited.seq, update.seq, short.seq, lasting.seq}
        assert {seq for seq, content in found.items() if content is None} == erased
        assert (found[slot.seq], found[later.seq]) == ('{"key":"topic","value":1}', "for longer")
        statuses = {item["event"]["seq"]: item["status"] for item in enclave.query("bob")}
        assert (statuses[first.seq], statuses[edited.seq]) == ("active", "updated")
        answer = enclave.ask("bob", "Query", filter={"seq": first.seq}, proof=True)
        (item,) = answer["events"]
        assert item["proof"]["status"]["v"] is None
    store.close()
    clock.tick(2_000)
    store = sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:  # overdue contents are erased before the first answer
        enclave.node = node
        assert contents(enclave) == {**found, later.seq: None}
    store.close()


# After a restart


def test_heads_and_proofs_are_the_same_bytes_after_a_restart(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)

    def asked(enclave: Enclave, fresh: Enclave) -> list[Any]:
        url = f"/{enclave.id.hex()}/consistency?from="
        return [
            *(sth(each) for each in (enclave, fresh)),
            *(enclave.node.get(f"{url}{size}").content for size in (1, 2)),
            enclave.ask("bob", "Query", filter={}, proof=True),
            *(enclave.ask("bob", "Inclusion_Proof", leaf_index=0, tree_size=size) for size in (1, 2)),
            *(enclave.ask("bob", "State_Proof", namespace="rbac", key=pub("bob"), tree_size=size) for size in (1, 2)),
            enclave.ask("bob", "State_Proof", namespace="kv", key=shared_slot("topic").hex(), mode="current"),
            enclave.ask("alice", "Checkpoint"),
        ]

    with Served(store=store, clock=clock) as node:
        enclave, fresh = node.create(SMALL), node.create(SMALL)
        for text in "abcdef":
            enclave.send("bob", "message", text)
        clock.tick(2_000)
        enclave.send("bob", "message", "the second bundle is full")
        enclave.send("bob", "Shared", {"key": "topic", "value": "pending"})
        before = asked(enclave, fresh)
        clock.tick(1_000)
        assert asked(enclave, fresh) == before
    store.close()
    store = sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        enclave.node = fresh.node = node
        assert asked(enclave, fresh) == before
        assert enclave.send("bob", "message", "and on").seq == 9
    store.close()


def test_the_time_of_a_head_is_when_the_log_reached_its_size(node: Served) -> None:
    enclave = node.create(SMALL)
    for text in "abc":
        last = enclave.send("bob", "message", text)
    by_size = parse_head(sth(enclave))
    assert (by_size.ts, by_size.t) == (1, last.timestamp)
    opened = enclave.send("bob", "message", "d")
    node.clock.tick(60_000)
    node.settle()
    by_time = parse_head(sth(enclave))
    assert (by_time.ts, by_time.t) == (2, opened.timestamp + 5_000)
    assert bad(node.get(f"/{enclave.id.hex()}/consistency?from=3")).code == "INVALID_RANGE"


def test_timestamps_never_fall_and_seqs_have_no_gaps(life: Life) -> None:
    assert [event.seq for event in life.events] == list(range(len(life.events)))
    assert all(a.timestamp <= b.timestamp for a, b in pairwise(life.events))
