"""Access control, version 1: who becomes an owner, and what a policy says about itself."""

from typing import Any

import pytest

from enc.core.errors import InvalidCommit, InvalidEndpointUrl
from enc.core.primitives.types import Target
from enc.core.rules.policy_types import Subject
from tests.core.world import World, person, pub
from tests.core.world_v1 import has, initial, manifest, row

SCHEMA = [
    *(row(event, "Owner", "C") for event in ("Transfer_Owner", "Pause", "Resume", "Terminate")),
    row("Grant_Push", "Owner", "C", "Admin"),
    row("Admin", "Admin", "R"),
    row("note", "Node", "R"),
]


@pytest.fixture
def world() -> World:
    return World(manifest(SCHEMA, initial(olga="Owner", bob="Admin")), by="olga")


@pytest.mark.parametrize(
    ("type_", "content", "owners"),
    [
        ("Transfer_Owner", {"new_owner": pub("bob")}, ["bob"]),
        ("Grant", has("bob", "Admin"), []),
        ("note", {"new_owner": pub("bob")}, []),
        ("note", "text", []),
    ],
)
def test_the_ownership_passes_by_a_transfer_owner(world: World, type_: str, content: Any, owners: list[str]) -> None:
    found = world.policy.new_owners(world.commit("olga", type_, content))
    assert found == {person(name).public for name in owners}


def test_the_manifest_makes_owners(world: World) -> None:
    assert world.policy.new_owners(world.events[0]) == {person("olga").public}


def test_a_malformed_transfer_makes_nobody_an_owner(world: World) -> None:
    with pytest.raises(InvalidCommit, match=r"^content\.new_owner: "):
        world.policy.new_owners(world.commit("olga", "Transfer_Owner", {}))


def test_what_a_policy_says_about_itself(world: World) -> None:
    policy = world.policy
    assert (policy.enc_v, policy.registry, policy.slots) == (1, False, {"Shared": set(), "Own": set()})


def test_only_the_node_has_the_node_s_rights(world: World) -> None:
    note, nobody = Subject("note"), frozenset[str]()
    assert world.policy.rights(note, 0, is_author=False, closed=nobody) == nobody
    assert world.policy.rights(note, 0, is_author=False, closed=nobody, is_node=True) == {"R"}
    assert world.policy.read_scope(0, nobody).of("note") == "none"
    assert world.policy.read_scope(0, nobody, is_node=True).of("note") == "all"


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_an_edit_is_selected_by_the_type_of_what_it_edits(world: World, type_: str) -> None:
    target = Target("note", person("bob").public)
    assert world.policy.subject(world.commit("olga", type_), target) == Subject("note")
    assert world.policy.subject(world.commit("olga", type_), None) == Subject(type_)
    assert world.policy.subject(world.commit("olga", "Grant"), target) == Subject("Grant")


@pytest.mark.parametrize("type_", ["Pause", "Resume", "Terminate"])
def test_a_lifecycle_event_has_no_content_of_another_form(world: World, type_: str) -> None:
    if type_ == "Resume":
        world.send("olga", "Pause")
    assert world.code("olga", type_, "[]") == "INVALID_COMMIT"
    assert world.code("olga", type_, "{}") == ""


def test_a_wrong_endpoint_of_a_grant_is_named(world: World) -> None:
    error = world.refused("olga", "Grant_Push", has("bob", "Admin", endpoint=""))
    assert isinstance(error, InvalidEndpointUrl)
    assert error.message.startswith("endpoint: ")
