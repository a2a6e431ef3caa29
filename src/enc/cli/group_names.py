"""Names of your own: for groups, and for people. They are in a file here, and nobody else knows them.

What somebody is called by their own profile is never taken for such a name: anybody may call themselves anything.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from enc.cli.output import short, visible
from enc.core.encoding import compact_json, decode_json
from enc.core.errors import InvalidCommit, MisuseError

_NAME = re.compile(r"[^\W\d][\w.-]{0,63}")
_ID = re.compile("[0-9a-fA-F]{64}")
MAX_FILE = 1 << 22
SELF_NAMED = 24
"""Characters of a name that somebody gave themselves, as far as it is shown."""


class Place(Struct, frozen=True, omit_defaults=True):
    """A group that has a name here."""

    enclave: str
    node: str | None = None
    """Where it was when it got its name; a registry knows better."""


class Names(Struct, frozen=True):
    groups: dict[str, Place] = field(default_factory=dict)
    people: dict[str, str] = field(default_factory=dict)

    def group(self, name: str) -> Place:
        """By name or id."""
        if _ID.fullmatch(name):
            known = (place for place in self.groups.values() if place.enclave == name.lower())
            return next(known, Place(name.lower()))
        if name not in self.groups:
            raise MisuseError(f"there is no group named {name} here: `enc group add {name} ID` gives one its name")
        return self.groups[name]

    def person(self, name: str) -> bytes:
        """By name or public key."""
        if _ID.fullmatch(name):
            return bytes.fromhex(name)
        if name not in self.people:
            raise MisuseError(f"nobody is named {name} here: `enc group know {name} IDENTITY` gives somebody a name")
        return bytes.fromhex(self.people[name])

    def call(self, identity: bytes, profile: Any = None) -> str:
        """What to show for somebody: your name for them, or what they say themselves beside a bit of their key."""
        given = next((name for name, known in self.people.items() if known == identity.hex()), None)
        if given is not None:
            return given
        said = profile.get("name") if isinstance(profile, dict) else None
        if not isinstance(said, str) or not said:
            return short(identity)
        return f"~{visible(said[:SELF_NAMED])} {short(identity)}"


_decoder = Decoder(Names)


def load(directory: Path | None = None) -> Names:
    from enc.client import private_file

    path = _path(directory)
    data = private_file.read(path, MAX_FILE)
    try:
        return Names() if data is None else decode_json(data, _decoder, InvalidCommit)
    except InvalidCommit as e:
        raise MisuseError(f"{path}: {e.message}; mend it, or move it away") from None


def name_group(name: str, place: Place) -> None:
    """From now on the group has this name here, and no other group has it."""
    with _changing() as (names, store):
        known = names.groups.get(_checked(name))
        if known is not None and known.enclave != place.enclave:
            raise MisuseError(f"{name} is the name of another group here: choose another, or `enc group forget {name}`")
        store(replace(names, groups={**names.groups, name: place}))


def name_person(name: str, identity: bytes) -> None:
    with _changing() as (names, store):
        known = names.people.get(_checked(name))
        if known is not None and known != identity.hex():
            raise MisuseError(f"{name} is somebody else's name here: choose another, or `enc group forget {name}`")
        others = {old: key for old, key in names.people.items() if key != identity.hex()}
        store(replace(names, people={**others, name: identity.hex()}))


def forget(name: str) -> None:
    """A group's or a person's name; neither hears of it."""
    with _changing() as (names, store):
        if name not in names.groups and name not in names.people:
            raise MisuseError(f"nothing is named {name} here")
        groups = {known: place for known, place in names.groups.items() if known != name}
        store(Names(groups, {known: key for known, key in names.people.items() if known != name}))


def check_free(name: str) -> None:
    """Before something is founded that is to have this name."""
    if _checked(name) in load().groups:
        raise MisuseError(f"there is a group named {name} here: choose another name")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name) or _ID.fullmatch(name):
        raise MisuseError(f"{name!r}: a name is a letter, then at most 63 letters, digits and any of _.-")
    return name


@contextmanager
def _changing() -> Iterator[Any]:
    """The names, and how to store others, while no other program changes them."""
    from enc.client import private_file

    path = _path(None)
    private_file.make_directory(path.parent)
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield load(), lambda names: private_file.write(path, _format(names), overwrite=True)
    finally:
        os.close(lock)


def _format(names: Names) -> bytes:
    from msgspec import to_builtins

    return compact_json(to_builtins(names)).encode()


def _path(directory: Path | None) -> Path:
    from enc.client.pins import default_directory

    return (directory or default_directory().parent) / "groups.json"
