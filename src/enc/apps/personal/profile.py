"""The profile: who the owner is, in a slot that is proved by the enclave's state."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from enc.client import Slot
from enc.core.errors import MisuseError

KEY = "profile"
COMMON = ("display_name", "bio", "avatar")
"""Fields that all apps know. Others may be added, and are kept."""


class Profile(Struct, frozen=True):
    fields: Mapping[str, Any] = {}
    proved: bool = False
    """Under a signed head; else its bundle is still open."""

    @property
    def display_name(self) -> str | None:
        return self._text("display_name")

    @property
    def bio(self) -> str | None:
        return self._text("bio")

    @property
    def avatar(self) -> str | None:
        return self._text("avatar")

    def _text(self, name: str) -> str | None:
        value = self.fields.get(name)
        return value if isinstance(value, str) else None


def from_slot(slot: Slot) -> Profile:
    """What another program put there that is no object counts as no profile."""
    return Profile(slot.value if isinstance(slot.value, dict) else {}, slot.proved)


def changed(profile: Profile, changes: Mapping[str, Any]) -> dict[str, Any] | None:
    """The slot's next value; a field that is set to None goes, and None for the whole unsets the slot."""
    for name in COMMON:
        if not isinstance(changes.get(name), str | None):
            raise MisuseError(f"{name}: expected a text")
    merged = {**profile.fields, **changes}
    return {name: value for name, value in merged.items() if value is not None} or None
