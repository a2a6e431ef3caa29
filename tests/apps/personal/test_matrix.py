"""The personal enclave's event-operator matrix on a node: every cell, tried over HTTP."""

from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from enc.apps import Personal
from enc.client import Client, Enclave, Identity
from enc.core.errors import EnclaveTerminated, InvalidTarget, PeerError, Unauthorized
from enc.core.primitives.types import Receipt
from tests.apps.personal.conftest import AT_ONCE
from tests.client.moved import Town
from tests.core.rules.v2.matrices import PERSONAL_MATRIX, expected
from tests.core.world import person
from tests.node.hooks import Hooks

COLUMNS = {"alice": ["OWNER"], "otto": ["OUTSIDER"], "dave": ["OUTSIDER", "dataview"]}
MAKERS = {"notice": "otto"}
"""The author of the events of a row that others then try to read, update and delete; by default
alice.
"""


class House:
    """A new personal enclave of alice's, where dave has a dataview; and all three clients."""

    def __init__(self, clients: dict[str, Client], endpoint: str | None = None) -> None:
        self.store = Personal.create(clients["alice"], bundle=AT_ONCE)
        self.store.grant_dataview(person("dave").public, endpoint=endpoint)
        self.doors = {name: client.enclave(self.store.enclave.id) for name, client in clients.items()}

    def create(self, who: str, event: str, value: Any = "one") -> Receipt:
        door, tom, type_ = self.doors[who], person("tom").public, event.partition("(")[0]
        calls: dict[str, Callable[[], Receipt]] = {
            "Gate": lambda: door.gate("notices", open=False),
            "Shared": lambda: door.shared("profile", value),
            "Grant": lambda: door.grant(tom, "dataview"),
            "Revoke": lambda: door.revoke(person("dave").public, "dataview"),
            "Terminate": door.terminate,
        }
        return calls.get(type_, lambda: door.commit(type_, "sealed"))()

    def made(self, event: str) -> Receipt:
        return self.create(MAKERS.get(event, "alice"), event)

    def tries(self, who: str, event: str, op: str) -> None:
        """Do it, or raise."""
        door: Enclave = self.doors[who]
        if op == "C":
            self.create(who, event)
            return
        receipt = self.made(event)
        if op == "R":
            if door.event(receipt.id) is None:
                raise Unauthorized("not shown")
        elif event == "Shared(profile)":
            door.shared("profile", "two" if op == "U" else None)
        elif op == "U":
            door.update(receipt.id, "new")
        else:
            door.delete(receipt.id)


@pytest.fixture(scope="module")
def clients(place: Town) -> Any:
    url = place.nodes["a"].url
    people = {name: Client(url, Identity(person(name)), pins=None, patience=0.0) for name in COLUMNS}
    yield people
    for client in people.values():
        client.close()


@pytest.mark.parametrize(("event", "who", "op"), list(product(PERSONAL_MATRIX, COLUMNS, "CRUD")))
def test_each_cell(clients: dict[str, Client], event: str, who: str, op: str) -> None:
    house = House(clients)
    if op in expected(PERSONAL_MATRIX[event], COLUMNS[who]):
        house.tries(who, event, op)
        return
    with pytest.raises(refusal(event, op)):
        house.tries(who, event, op)


def refusal(event: str, op: str) -> type[PeerError]:
    """Return the expected code: nobody can revise events about rights, or anything once the enclave is terminated."""
    if op in "CR" or event in ("public", "private", "notice", "Shared(profile)"):
        return Unauthorized
    return EnclaveTerminated if event == "Terminate" else InvalidTarget


def test_a_revision_counts_only_from_who_may(clients: dict[str, Client]) -> None:
    """Otto is the author of his notice, and may neither read nor revise it."""
    house = House(clients)
    mine = house.create("otto", "notice")
    for revise in (lambda: house.doors["otto"].update(mine.id, "x"), lambda: house.doors["otto"].delete(mine.id)):
        with pytest.raises(Unauthorized):
            revise()
    with pytest.raises(Unauthorized):
        house.doors["alice"].update(mine.id, "x")
    with suppress(Unauthorized):
        assert house.doors["otto"].event(mine.id) is None


def test_what_is_pushed(clients: dict[str, Client]) -> None:
    """P: a dataview gets each row that has it, and its revisions, and no other."""
    with Hooks() as hooks:
        house, last = House(clients, hooks.url("dave")), House(clients, hooks.url("dave"))
        alice = house.doors["alice"]
        made = {event: house.made(event) for event in PERSONAL_MATRIX if event not in ("Terminate", "Revoke(dataview)")}
        made["Update of public"] = alice.update(made["public"].id, "new")
        made["Update of private"] = alice.update(made["private"].id, "new")
        made["Delete of notice"] = alice.delete(made["notice"].id)
        made["Delete of private"] = alice.delete(made["private"].id)
        made["Terminate"] = house.made("Terminate")
        end = last.made("public")  # one queue, in order: anything after it will not arrive
        hooks.until(lambda: end.id in pushed(hooks))
        heard = {event for event, receipt in made.items() if receipt.id in pushed(hooks)}
    rows = {event for event, cells in PERSONAL_MATRIX.items() if "P" in cells["dataview"]}
    assert heard == rows | {"Update of public", "Delete of notice"}


def test_a_dataview_that_is_revoked_hears_no_more(clients: dict[str, Client]) -> None:
    with Hooks() as hooks:
        house, last = House(clients, hooks.url("dave")), House(clients, hooks.url("dave"))
        revoked = house.made("Revoke(dataview)")
        after, end = house.made("public"), last.made("public")
        hooks.until(lambda: end.id in pushed(hooks))
        assert not {revoked.id, after.id} & pushed(hooks)


def pushed(hooks: Hooks) -> set[bytes]:
    return {
        bytes.fromhex(event["id"])
        for push in hooks.pushes["dave"]
        for part in push.body.get("push", {}).get("enclaves", [])
        for event in part["events"]
    }
