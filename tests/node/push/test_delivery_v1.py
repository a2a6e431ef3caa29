"""Pushes and notices of version 1: by the schema's P and N, to endpoints of `initial_state` and of Grant_Push."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from enc.core.primitives.types import Receipt
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.core.rules.v1.matrices import MATRICES, PEOPLE, expected
from tests.core.world import person, pub
from tests.core.world_v1 import bundle, change, has, manifest, row
from tests.node.pushing import CONFIG, OTHER_URL, URL, pull, spread
from tests.node.served import Enclave, Json, Served, about

VIEW, EAR = 1 << 32, 1 << 33
TARGETS = ("View", "Ear")

SCHEMA = [
    *(row(type_, "Owner", "C", *TARGETS) for type_ in ("Grant", "Grant_Push", "Revoke", "Move")),
    row("Revoke_Self", "View", "C", "View"),
    *(row(type_, "Owner", "C") for type_ in ("Force_Move", "Transfer_Owner", "Terminate")),
    *(row(type_, "Any", "C") for type_ in ("message", "note", "Report", "mine")),
    row("message", "Self", "UD"),
    row("message", "View", "P"),
    row("message", "Ear", "N"),
    row("note", "Ear", "N"),
    row("Report", "Node", "P"),
    row("mine", "Self", "P"),
    row("Move", "Owner", "P"),
]


@pytest.fixture(params=["memory", "sqlite"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """Serve a node on each kind of store; tests make its batches on demand."""
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    with closing(store), Served(CONFIG, store) as served:
        yield served


def at(name: str, url: str = URL) -> Json:
    """Return an entry of `initial_state` with an endpoint."""
    return {"identity": pub(name), "endpoint": url}


def create(node: Served, **state: list[Any]) -> Enclave:
    return node.create(manifest(SCHEMA, {"Owner": [pub("alice")], **state}))


def pushed_seqs(node: Served, name: str, url: str = URL) -> list[int]:
    """Return the seqs of the events that were pushed to somebody, in order."""
    spread(node)
    runs = [run for batch in node.store.list_batches(person(name).public, url, 0, 1 << 62, 100) for run in batch.runs]
    return [seq for run in runs for seq in range(run.first_seq, run.first_seq + run.count)]


def notified_types(node: Served, name: str, url: str = URL) -> dict[str, int]:
    """Return the types of the events that somebody was only notified of, each with its latest type_seq."""
    spread(node)
    counts: dict[str, int] = {}
    for batch in node.store.list_batches(person(name).public, url, 0, 1 << 62, 100):
        for notice in batch.notices:
            counts.update(notice.type_seq)
    return counts


def say(enclave: Enclave, type_: str = "message", by: str = "bob") -> Receipt:
    return enclave.send(by, type_, "words")


# The document's matrices

NOBODY = change("fred", 0, 0)
CONTENTS: dict[str, Any] = {
    "Revoke_Self": {"role": "Member"},
    "Move": NOBODY,
    "Force_Move": NOBODY,
    "Transfer_Owner": {"new_owner": pub("olga")},
}
"""Contents that change no rights, except those of a Member who leaves: no table gives a Member P or N."""
LAST = ("Pause", "Resume", "Terminate", "Migrate")


@pytest.mark.parametrize("end", ["Terminate", "Migrate"])
@pytest.mark.parametrize("name", MATRICES)
def test_every_cell_of_p_and_n(node: Served, name: str, end: str) -> None:
    """All holders of a role have an endpoint since the Manifest; there is one event of each type."""
    table, schema = MATRICES[name]
    named = {role for entry in schema for role in (entry["role"], *entry.get("target_roles", ()))}
    held = {who: (named | {"Owner"}) & set(roles.split()) for who, roles in PEOPLE.items()}
    roles = sorted(set.union(*held.values()), key=lambda role: (role == "Owner", role))
    enclave = node.create(manifest(schema, {role: [at(who) for who in held if role in held[who]] for role in roles}))
    types = sorted(set(table) - {"*", *LAST}) + [type_ for type_ in LAST[:2] if type_ in table] + [end]
    pushes: dict[str, list[int]] = {who: [] for who in held}
    notices: dict[str, dict[str, int]] = {who: {} for who in held}
    for seq, type_ in enumerate(types, 1):
        author = next(who for who in held if any(op[0] == "C" for op in expected(table, type_, {"Any", *held[who]})))
        author = "mark" if type_ == "Revoke_Self" else author
        content = CONTENTS.get(type_, has("tom", roles[0], endpoint=OTHER_URL))
        if type_ == "Migrate":
            checkpoint = enclave.ask("olga", "Checkpoint")
            content = {"new_sequencer": pub("node2"), "prev_seq": checkpoint["seq"], "ct_root": checkpoint["ct_root"]}
        assert enclave.send(author, type_, content).seq == seq
        for who in held:
            rights = expected(table, type_, {"Any", *held[who]})
            if "P" in rights:
                pushes[who].append(seq)
            elif "N" in rights:
                notices[who][type_] = 1
    assert any(pushes.values()) or any(notices.values()) or name == "section 7"
    assert {who: pushed_seqs(node, who) for who in held} == pushes
    assert {who: notified_types(node, who) for who in held} == notices


# The dynamic roles, and both rights at once


def test_self_and_node_are_pushed_what_is_theirs(node: Served) -> None:
    enclave = create(node, Ear=[at("bob"), at("carol"), at("node")])
    mine, report = say(enclave, "mine"), say(enclave, "Report")
    assert pushed_seqs(node, "bob") == [mine.seq]
    assert pushed_seqs(node, "carol") == []
    assert pushed_seqs(node, "node") == [report.seq]


def test_who_is_pushed_an_event_is_not_told_of_it_besides(node: Served) -> None:
    enclave = create(node, View=[at("vera")], Ear=[at("vera")])
    message = say(enclave)
    say(enclave, "note")
    assert (pushed_seqs(node, "vera"), notified_types(node, "vera")) == ([message.seq], {"note": 1})


def test_edits_go_where_their_target_went_and_are_counted_by_their_own_type(node: Served) -> None:
    enclave = create(node, View=[at("vera")], Ear=[at("nick")])
    for _ in range(2):
        message = say(enclave)
    edits = [enclave.send("bob", "Update", text, about(message)).seq for text in ("new", "newer")]
    edits.append(enclave.send("bob", "Delete", {"reason": "author"}, about(message)).seq)
    assert pushed_seqs(node, "vera") == [1, 2, *edits]
    assert notified_types(node, "nick") == {"message": 2, "Update": 2, "Delete": 1}


# Endpoints

ENDS: dict[str, tuple[str, str, Any]] = {
    "Revoke": ("alice", "Revoke", has("vera", "View")),
    "Revoke_Self": ("vera", "Revoke_Self", {"role": "View"}),
    "Move": ("alice", "Move", change("vera", VIEW, EAR)),
    "Force_Move": ("alice", "Force_Move", change("vera", VIEW, 0)),
    "AC_Bundle": ("alice", "AC_Bundle", bundle(("Revoke", has("vera", "View")), ("Grant", has("vera", "View")))),
}


@pytest.mark.parametrize("what", ENDS)
@pytest.mark.parametrize("by", ["initial_state", "Grant_Push"])
def test_an_endpoint_lives_from_the_next_event_until_its_role_goes(node: Served, by: str, what: str) -> None:
    enclave = create(node, **({"View": [at("vera")]} if by == "initial_state" else {}))
    if by == "Grant_Push":
        say(enclave)
        enclave.send("alice", "Grant_Push", has("vera", "View", endpoint=URL))
    first = say(enclave)
    enclave.send(*ENDS[what])
    say(enclave)
    enclave.send("alice", "Grant", has("vera", "View"))  # the role comes back, the endpoint does not
    say(enclave)
    assert pushed_seqs(node, "vera") == [first.seq]
    assert node.store.endpoints(enclave.id) == {}


def test_a_grant_push_replaces_the_endpoint_and_a_grant_leaves_it(node: Served) -> None:
    enclave = create(node, View=[at("vera")])
    enclave.send("alice", "Grant", has("vera", "View", endpoint=OTHER_URL))
    old = say(enclave)
    enclave.send("alice", "Grant_Push", has("vera", "View", endpoint=OTHER_URL))
    new = say(enclave)
    assert (pushed_seqs(node, "vera"), pushed_seqs(node, "vera", OTHER_URL)) == ([old.seq], [new.seq])


def test_a_role_that_goes_leaves_the_endpoint_of_another(node: Served) -> None:
    enclave = create(node, View=[at("vera")], Ear=[at("vera", OTHER_URL)])
    enclave.send("alice", "Revoke", has("vera", "View"))
    say(enclave)
    assert node.store.endpoints(enclave.id) == {(person("vera").public, "Ear"): OTHER_URL}
    assert (notified_types(node, "vera"), notified_types(node, "vera", OTHER_URL)) == ({}, {"message": 1})


def test_an_owner_s_endpoint_goes_with_the_ownership(node: Served) -> None:
    enclave = node.create(manifest(SCHEMA, {"Owner": [at("alice")]}))
    move = enclave.send("alice", "Move", change("bob", 0, EAR))
    enclave.send("alice", "Transfer_Owner", {"new_owner": pub("carol")})
    enclave.send("carol", "Move", change("bob", EAR, 0))
    assert pushed_seqs(node, "alice") == [move.seq]
    assert node.store.endpoints(enclave.id) == {}


# Contents of pushes


def test_a_pull_and_the_deliveries(node: Served) -> None:
    enclave = create(node, View=[at("vera")], Ear=[at("nick")])
    message = say(enclave)
    spread(node)
    (batch,) = pull(enclave, "vera", 1)
    (pushed,) = batch["push"]["enclaves"][0]["events"]
    assert (pushed["id"], pushed["content"]) == (message.id.hex(), "words")
    (notice,) = pull(enclave, "nick", 1)[0]["notify"]["enclaves"]
    assert (notice["event_id"], notice["type_seq"]) == (message.id.hex(), {"message": 1})
    shown = enclave.ask("alice", "Deliveries")["endpoints"]
    assert {(each["identity"], each["trait"]) for each in shown} == {(pub("vera"), "View"), (pub("nick"), "Ear")}
    enclave.send("alice", "Revoke", has("vera", "View"))
    assert "push" not in pull(enclave, "vera", 1)[0], "without the role, the rights that it gave are withheld"
