"""`enc get` and `enc set`: slots, the enclave's named values."""

from typing import Annotated, Any

import typer

from enc.cli.common import known_ids
from enc.cli.common.command import command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import visible
from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.encoding import compact_json, strict_json

app = typer.Typer()
PANEL = "Slots"

Key = Annotated[str, typer.Argument(metavar="KEY", help="The slot's key.")]
Own = Annotated[bool, typer.Option("--own", help="One of your own slots instead of a shared one.")]


@command(app, "enc get topic", "enc get nick --own", panel=PANEL)
def get(
    ctx: CommandContext,
    key: Key,
    own: Own = False,
    owner: Annotated[str | None, typer.Option(metavar="WHO", help="The owner of an own slot. Default: you.")] = None,
) -> None:
    """Print a slot's value: a text as it is, anything else as JSON; nothing if it is unset."""
    who = None if owner is None else known_ids.identity(owner, {ctx.identity().public: "you"}, what="--owner")
    with ctx.enclave() as enclave:
        slot = enclave.read_own(key, who) if own or who else enclave.read_shared(key)
    seq = None if slot.event is None else slot.event.seq
    if ctx.as_json or slot.value is not None:
        ctx.emit({"key": key, "value": slot.value, "seq": seq, "proved": slot.proved}, _text(ctx, slot.value))
    else:
        ctx.note(f"{key} is unset")
    if not slot.proved:
        ctx.note("not proved yet: no closed bundle contains it")


def _text(ctx: CommandContext, value: Any) -> str:
    text = value if isinstance(value, str) else compact_json(value)
    return "\n".join(map(visible, text.split("\n"))) if ctx.is_terminal else text


@command(app, 'enc set topic "the plan"', "enc set nick al --own", "enc set topic --unset", name="set", panel=PANEL)
def set_(
    ctx: CommandContext,
    key: Key,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="JSON; a value that is not JSON is text.")
    ] = None,
    own: Own = False,
    text: Annotated[bool, typer.Option("--text", help="Take the value as text, even if it is valid JSON.")] = False,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the slot's value.")] = False,
) -> None:
    """Set a slot. A value that is JSON is set as JSON, any other as text."""
    if (value is None) != unset:
        raise MisuseError("give a value, or --unset")
    found = None if value is None else value if text else _value(value)
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.own(key, found) if own else enclave.shared(key, found))


def _value(text: str) -> Any:
    try:
        return strict_json(text)
    except InvalidCommit:
        return text
