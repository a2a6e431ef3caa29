"""`enc move`, `grant`, `revoke`, `revoke-self`, `transfer`, `gate`: access; `pause`, `resume`, `terminate`."""

import sys
from typing import Annotated, Literal

import typer

from enc.cli.common import known_ids
from enc.cli.common.command import command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.prefixes import is_prefix

app = typer.Typer()
ACCESS, LIFECYCLE = "Access", "Lifecycle of an enclave"

Target = Annotated[str, typer.Argument(metavar="WHO", help=known_ids.PERSON)]
Trait = Annotated[
    str, typer.Argument(metavar="TRAIT", help="A trait of the manifest, such as admin; in version 1 a role.")
]
_WHO = "3f0c9a7be5d2416883aa1b0c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f80"
"""A public key for the examples."""


def _key(ctx: CommandContext, word: str) -> str:
    """Return the key of the target; print it if only its start was given."""
    key = known_ids.identity(word, {ctx.identity().public: "you"}, what="WHO")
    if is_prefix(word):
        ctx.note(f"{word} is {key}")
    return key


@command(app, f"enc move {_WHO} OUTSIDER MEMBER", f'enc move {_WHO} Member "Admin,Member"', panel=ACCESS)
def move(
    ctx: CommandContext,
    target: Target,
    from_: Annotated[str, typer.Argument(metavar="FROM", help="The identity's present State.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="The identity's new State.")],
    force: Annotated[
        bool, typer.Option("--force", help="Version 1: a Force_Move, which ignores target roles.")
    ] = False,
) -> None:
    """Change an identity's State, for example to admit or remove a member.

    In an enclave of version 1: set all roles at once, as names with commas between, "" for no role, or a bitmask 0x…
    """
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.move(_key(ctx, target), from_, to, force=force))


@command(app, f"enc grant {_WHO} admin", "enc grant bob admin", panel=ACCESS)
def grant(
    ctx: CommandContext,
    target: Target,
    trait: Trait,
    endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the node pushes events to its holder.")
    ] = None,
) -> None:
    """Give an identity a trait or a role."""
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.grant(_key(ctx, target), trait, endpoint=endpoint))


@command(app, f"enc revoke {_WHO} admin", panel=ACCESS)
def revoke(ctx: CommandContext, target: Target, trait: Trait) -> None:
    """Take a trait or a role away from an identity."""
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.revoke(_key(ctx, target), trait))


@command(app, "enc revoke-self admin", name="revoke-self", panel=ACCESS)
def revoke_self(ctx: CommandContext, trait: Trait) -> None:
    """Give up one of your own traits or roles."""
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.revoke_self(trait))


@command(app, f"enc transfer {_WHO} owner", panel=ACCESS)
def transfer(ctx: CommandContext, target: Target, trait: Trait) -> None:
    """Pass a trait that you hold to another identity; you lose it. In an enclave of version 1: Owner."""
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.transfer(_key(ctx, target), trait))
    if trait == "owner" and ctx.settings.values["registry"].value is not None:
        ctx.note(
            "the new owner should now run `enc registry register-enclave`: until then the registry lists you as owner"
        )


@command(app, "enc gate applications closed", panel=ACCESS)
def gate(
    ctx: CommandContext,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The gate's name in the manifest.")],
    state: Annotated[Literal["open", "closed"], typer.Argument(help="Its new state.")],
) -> None:
    """Open or close a gate."""
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.gate(alias, open=state == "open"))


@command(app, "enc pause", panel=LIFECYCLE)
def pause(ctx: CommandContext) -> None:
    """Pause the enclave: until you resume it, it accepts only Resume, Terminate and Migrate."""
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.pause())


@command(app, "enc resume", panel=LIFECYCLE)
def resume(ctx: CommandContext) -> None:
    """Resume a paused enclave."""
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.resume())


@command(app, "enc terminate --yes", panel=LIFECYCLE)
def terminate(
    ctx: CommandContext,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation. Without a terminal it never asks.")
    ] = False,
) -> None:
    """Terminate the enclave. This cannot be undone."""
    if sys.stdin.isatty() and not yes:
        typer.confirm("Terminating an enclave cannot be undone. Continue?", abort=True, err=True)
    with ctx.enclave() as enclave:
        ctx.print_receipt(enclave, enclave.terminate())
