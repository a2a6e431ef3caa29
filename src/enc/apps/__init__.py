"""Applications on top of the client. They seal what they write, so that no node sees plaintext.

Each is imported on first access and uses the blocking `enc.client.Client`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enc.apps.dm import Mailbox
    from enc.apps.group import Group
    from enc.apps.people.address_book import AddressBook
    from enc.apps.personal import Personal

__all__ = ["AddressBook", "Group", "Mailbox", "Personal"]

_HOMES = {"AddressBook": "people.address_book", "Group": "group", "Mailbox": "dm", "Personal": "personal"}


if not TYPE_CHECKING:  # type checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(f"enc.apps.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
