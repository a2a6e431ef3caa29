"""The owner's profile, in a slot that the enclave's state proves."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from enc.client import Slot
from enc.core.errors import MisuseError

KEY = "profile"
COMMON = ("display_name", "bio", "avatar")
"""Fields that all apps know. Other fields are preserved."""


class Profile(Struct, frozen=True):
    fields: Mapping[str, Any] = {}
    proved: bool = False
    """Whether it is proved under a signed head; else its bundle is still open."""

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
    """Return the slot's profile; an empty one if another program stored something else there."""
    return Profile(slot.value if isinstance(slot.value, dict) else {}, slot.proved)


def changed(profile: Profile, changes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the slot's next value: None removes a field, and unsets the slot if no field is
    left.
    """
    for name in COMMON:
        if not isinstance(changes.get(name), str | None):
            raise MisuseError(f"{name}: expected a text")
    merged = {**profile.fields, **changes}
    return {name: value for name, value in merged.items() if value is not None} or None
