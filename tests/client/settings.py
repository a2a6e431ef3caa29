"""Options of a client, as tests give them: fields of ClientSettings beside other arguments."""

from typing import Any

from enc.client import ClientSettings


def with_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the fields of ClientSettings moved into `settings`."""
    fields = {name: options[name] for name in ClientSettings.__struct_fields__ if name in options}
    rest = {name: value for name, value in options.items() if name not in fields}
    return {**rest, "settings": ClientSettings(**fields)} if fields else rest
