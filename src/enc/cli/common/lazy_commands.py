"""Commands whose modules are imported when a command of theirs is first used."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.main import get_group


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name, in the order of `modules`.

    `modules` has, for each module, the names of the commands that its `app` adds.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = {name: module for module, names in modules.items() for name in names.split()}
        self._commands: dict[str, Any] = dict.fromkeys(self._modules)

    def __getitem__(self, name: str) -> Any:
        if self._commands[name] is None:
            whole = typer.Typer()
            whole.add_typer(import_module(self._modules[name]).app)
            self._commands.update(get_group(whole).commands)
        return self._commands[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)
