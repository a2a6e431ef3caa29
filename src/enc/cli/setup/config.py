"""`enc config`: the default node, identity, enclave, registry and witnesses of commands."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from enc.cli.common import known_ids
from enc.cli.common.command import ENCLAVE, PROFILE, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.cli.common.profiles import NAMES

app = typer.Typer(
    name="config",
    help="Show and set the default node, identity, enclave, registry and witnesses of commands.\n\n"
    "Each comes from the profile in the configuration file, from the environment (ENC_NODE, ENC_IDENTITY, "
    "ENC_ENCLAVE, ENC_REGISTRY, ENC_WITNESSES) or from a flag; a flag overrides the environment, which overrides the "
    "profile.",
    no_args_is_help=True,
)

SHOWN = tuple(flag for flag in ENCLAVE if flag not in ("timeout", "evidence"))


@command(app, "enc config show", "enc config show --profile work --json", flags=SHOWN)
def show(ctx: CommandContext) -> None:
    """Print the settings in force, and the source of each value."""
    settings = ctx.settings
    values = {name: {"value": setting.value, "source": setting.source} for name, setting in settings.values.items()}
    texts = {name: f"{setting.value or '-'} ({setting.source})" for name, setting in settings.values.items()}
    where = {"profile": settings.profile, "file": str(settings.file)}
    ctx.emit({**where, **values}, fields(**where, **texts))


@command(app, "enc config set node http://127.0.0.1:7700", name="set", flags=PROFILE)
def set_(
    ctx: CommandContext,
    name: Annotated[
        Literal["node", "identity", "enclave", "registry", "witnesses"], typer.Argument(help="The setting.")
    ],
    value: Annotated[
        str,
        typer.Argument(
            metavar="VALUE",
            help="A URL, a key file's path, an enclave's id, a registry as URL#ID:KEY, or witnesses as 'K URL=KEY …'.",
        ),
    ],
) -> None:
    """Store a value in the profile."""
    stored = _checked(name, value)
    ctx.settings.store(name, stored)
    wire = {"profile": ctx.settings.profile, "file": str(ctx.settings.file), name: stored}
    ctx.emit(wire, fields(**wire))


def _checked(name: str, value: str) -> str:
    """Return the value as it is stored. Raises MisuseError if it is invalid."""
    from enc.cli.common.command_context import parse_registry
    from enc.client.wire.transport import base_url
    from enc.client.witness.witnesses import parse_witnesses

    if name == "registry":
        parse_registry(value)
        return value
    if name == "witnesses":
        parse_witnesses(value)
        return value
    if name == NAMES[0]:
        return base_url(value)
    return known_ids.enclave(value) if name == "enclave" else str(Path(value).expanduser().absolute())
