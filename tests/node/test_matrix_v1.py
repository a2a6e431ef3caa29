"""The version 1 document's matrices on a node: every role, every event type, every op, tried over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest

from enc.core.log.commit import wire_commit
from enc.core.primitives.types import PREDEFINED_V1
from tests.core.rules.v1.matrices import MATRICES, NOT_CREATED, PEOPLE, WITH_TARGETS, expected
from tests.core.world import pub
from tests.core.world_v1 import ENDPOINT, change, has, initial, manifest
from tests.node.served import Enclave, Json, Served, about

EVERYBODY = [*PEOPLE, "otto", "node"]


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with Served() as served:
        yield served


class Place:
    """An enclave with one of the schemas. A cell that writes to it leaves it, and the next cell gets a new one."""

    def __init__(self, node: Served, name: str) -> None:
        self.node, (self.table, schema) = node, MATRICES[name]
        named = [role for entry in schema for role in (entry["role"], *entry.get("target_roles", ()))]
        self.roles = [role for role in dict.fromkeys(named) if role not in ("Owner", "Self", "Node", "Any")]
        people = {who: [r for r in roles.split() if r in {"Owner", *self.roles}] for who, roles in PEOPLE.items()}
        self.held = {who: set(people.get(who, ())) for who in EVERYBODY}
        self._manifest = manifest(schema, initial(**{who: " ".join(roles) for who, roles in people.items()}))
        self._fresh: Enclave | None = None

    def enclave(self) -> Enclave:
        self._fresh = self._fresh or self.node.create(self._manifest, by="olga")
        return self._fresh

    def tries(self, who: str, type_: str, content: Any, *tags: tuple[str, ...], paused: bool = False) -> str:
        """Return the code of the rejection, or "" if the operation succeeded."""
        enclave = self.enclave()
        if paused:
            self._fresh = None
            if "C" not in expected(self.table, "Pause", {"Owner"}):
                return "INVALID_LIFECYCLE_STATE"
            enclave.send("olga", "Pause")
        response = self.node.post(wire(enclave, who, type_, content, *tags))
        if response.status_code == 200:
            self._fresh = None
            return ""
        return str(response.json()["code"])


def wire(enclave: Enclave, *what: Any) -> Json:
    return wire_commit(enclave.commit(*what))


def roles_of(place: Place, who: str, *more: str) -> set[str]:
    return {"Any", *place.held[who], *more, *(["Node"] if who == "node" else [])}


def contents(place: Place, event: str) -> dict[str, Any]:
    """Return a content for each way to create an event of the type: one per role that it can be about."""
    if event == "Move":
        return {f"C {role}": change("mona", 0, 1 << 32 + i) for i, role in enumerate(place.roles)}
    if event in WITH_TARGETS:
        return {f"C {role}": has("tom", role, endpoint=ENDPOINT) for role in place.roles}
    if event == "Force_Move":
        return {"C": change("fred", 0, 1 << 32)}
    if event == "Migrate":
        found = place.enclave().ask("olga", "Checkpoint")
        return {"C": {"new_sequencer": pub("node2"), "prev_seq": found["seq"], "ct_root": found["ct_root"]}}
    return {"C": {"new_owner": pub("tom")} if event == "Transfer_Owner" else {}}


CELLS = [
    (name, event)
    for name, (table, _) in MATRICES.items()
    for event in dict.fromkeys([*sorted(PREDEFINED_V1), *table, "other"])
    if event not in ("*", *NOT_CREATED)
]


@pytest.mark.parametrize(("name", "event"), CELLS)
def test_who_creates(node: Served, name: str, event: str) -> None:
    place = Place(node, name)
    for who in EVERYBODY:
        allowed = expected(place.table, event, roles_of(place, who))
        for op in contents(place, event):
            code = place.tries(who, event, contents(place, event)[op], paused=event == "Resume")
            assert (code == "") == (op in allowed), (who, op, code)
            assert code in ("", "UNAUTHORIZED", "INVALID_LIFECYCLE_STATE")


REVISED = [
    (name, event) for name, (table, _) in MATRICES.items() for event in table if event not in PREDEFINED_V1 | {"*"}
]


@pytest.mark.parametrize(("name", "event"), REVISED)
@pytest.mark.parametrize(("op", "type_", "content"), [("U", "Update", "new"), ("D", "Delete", {"reason": "author"})])
def test_who_revises(node: Served, name: str, event: str, op: str, type_: str, content: Any) -> None:
    """Everyone tries it on an event of each author."""
    place = Place(node, name)
    authors = [who for who in EVERYBODY if "C" in expected(place.table, event, roles_of(place, who))]
    assert authors
    for author in authors:
        for who in EVERYBODY:
            target = place.enclave().send(author, event, "words")
            code = place.tries(who, type_, content, about(target))
            allowed = expected(place.table, event, roles_of(place, who, *(["Self"] if who == author else [])))
            assert (code == "") == (op in allowed), (author, who, code)


@pytest.mark.parametrize("name", MATRICES)
def test_who_reads(node: Served, name: str) -> None:
    """There is one event of each type that somebody may create; everyone queries each type."""
    place = Place(node, name)
    enclave, written = place.enclave(), {"Manifest": "olga"}
    for event in sorted(place.table, key=lambda event: event == "Revoke_Self"):
        for who in EVERYBODY:
            allowed = expected(place.table, event, roles_of(place, who))
            ops = [op for op in contents(place, event) if op in allowed] if event != "*" else []
            if ops and event not in ("Pause", "Resume", "Terminate", "Migrate", "Transfer_Owner"):
                enclave.send(who, event, contents(place, event)[ops[0]])
                written[event] = who
                break
    assert len(written) > 3
    for event, author in written.items():
        for who in EVERYBODY:
            if who == "mark":
                continue  # they may have left by the Revoke_Self
            reads = "R" in expected(place.table, event, roles_of(place, who, *(["Self"] if who == author else [])))
            response = enclave.ask_raw(who, "Query", filter={"type": event})
            shown = response.status_code == 200 and bool(enclave.query(who, type=event))
            assert shown == reads, (who, event)
