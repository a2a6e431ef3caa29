"""A group, opened for a command: by the name that it has here, at the node where it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enc.cli import group_names
from enc.cli.group_names import Names
from enc.cli.terminal import Terminal
from enc.core.errors import MisuseError

if TYPE_CHECKING:
    from enc.apps.group import Entry, Group
    from enc.client import Client, Enclave

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group: its name here, or its id.")]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="What it is to be called here; nobody else sees it.")]
Whom = Annotated[
    str, typer.Argument(metavar="WHO", help="Your name for them, their public key, or 8 or more digits of its start.")
]
EntryId = Annotated[str, typer.Argument(metavar="ENTRY", help="Its number, as it is shown, or its id.")]

PREFIX = 8
"""Digits of a key that may stand for somebody who is in the group."""


@contextmanager
def opened(at: Terminal, name: str) -> Iterator[tuple["Group", Names, "Client"]]:
    """Nothing is asked yet. What `--node` says comes before where the group was when it got its name."""
    from enc.apps.group import Group

    names = group_names.load()
    place, more = names.group(name), dict[str, Any]()
    if place.node is not None and at.settings.values["node"].source != "flag":
        more["url"] = place.node
    with at.client_as(at.identity(), **more) as client:
        yield Group(client, place.enclave), names, client


def whom(group: "Group", names: Names, who: str) -> bytes:
    """By name, by key, or by how the key of somebody in the group begins, as far as its log was read."""
    start = who.removesuffix("…").lower()
    if len(start) < PREFIX or len(start) >= 64 or set(start) - set("0123456789abcdef") or who in names.people:
        return names.person(who)
    found = [person.identity for person in group.people() if person.identity.hex().startswith(start)]
    if len(found) != 1:
        raise MisuseError(f"{who}: {'nobody' if not found else 'more than one'} in the group has a key that begins so")
    return found[0]


def entry_of(group: "Group", said: str) -> "Entry":
    """By number or id, of what is in the conversation, as far as the log was read."""
    text = said.removeprefix("#").lower()
    for entry in reversed(group.entries()):
        if text in (str(entry.seq), entry.id.hex()):
            return entry
    raise MisuseError(f"there is no entry {said} in the conversation")


def personal_of(client: "Client", given: str | None) -> "Enclave":
    """One's own personal enclave: as told, or as the registry has it."""
    if given is not None:
        return client.enclave(given)
    found = client.lookup(client.identity.public).enclaves.get("personal")
    if found is None:
        raise MisuseError("the registry knows no personal enclave of yours: give --personal ID")
    return client.enclave(found)
