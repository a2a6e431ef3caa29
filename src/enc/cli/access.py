"""`enc move`, `grant`, `revoke`, `revoke-self`, `transfer`, `gate`: who is what; `pause`, `resume`, `terminate`."""

import sys
from typing import Annotated, Literal

import typer

from enc.cli.command import command
from enc.cli.terminal import Terminal

app = typer.Typer()
ACCESS, LIFE = "Access", "Life of an enclave"

Target = Annotated[str, typer.Argument(metavar="IDENTITY", help="Whom it is about: a public key, 64 hex digits.")]
Trait = Annotated[
    str, typer.Argument(metavar="TRAIT", help="A trait of the manifest, such as admin; in version 1 a role.")
]
_WHO = "3f0c9a7be5d2416883aa1b0c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f80"
"""A public key, for the examples."""


@command(app, f"enc move {_WHO} OUTSIDER MEMBER", f'enc move {_WHO} Member "Admin,Member"', panel=ACCESS)
def move(
    at: Terminal,
    target: Target,
    from_: Annotated[str, typer.Argument(metavar="FROM", help="The State that it must be now.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="The State that it becomes.")],
    force: Annotated[bool, typer.Option("--force", help="Version 1: a Force_Move, past all target roles.")] = False,
) -> None:
    """Change somebody's State: let people in, and out.

    In an enclave of version 1, all roles at once: their names with commas between, "" for none, or a bitmask 0x…
    """
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.move(target, from_, to, force=force))


@command(app, f"enc grant {_WHO} admin", panel=ACCESS)
def grant(
    at: Terminal,
    target: Target,
    trait: Trait,
    endpoint: Annotated[str | None, typer.Option(metavar="URL", help="Where its holder is pushed to.")] = None,
) -> None:
    """Give somebody a trait, or a role."""
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.grant(target, trait, endpoint=endpoint))


@command(app, f"enc revoke {_WHO} admin", panel=ACCESS)
def revoke(at: Terminal, target: Target, trait: Trait) -> None:
    """Take a trait, or a role, away."""
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.revoke(target, trait))


@command(app, "enc revoke-self admin", name="revoke-self", panel=ACCESS)
def revoke_self(at: Terminal, trait: Trait) -> None:
    """Give up a trait, or a role, of your own."""
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.revoke_self(trait))


@command(app, f"enc transfer {_WHO} owner", panel=ACCESS)
def transfer(at: Terminal, target: Target, trait: Trait) -> None:
    """Pass on a trait that you hold: you have it no more. In an enclave of version 1, Owner."""
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.transfer(target, trait))
    if trait == "owner" and at.settings.values["registry"].value is not None:
        at.note("the new owner should now run `enc registry register-enclave`: until then the registry believes you")


@command(app, "enc gate applications closed", panel=ACCESS)
def gate(
    at: Terminal,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The gate's name in the manifest.")],
    state: Annotated[Literal["open", "closed"], typer.Argument(help="What it is from now on.")],
) -> None:
    """Open or close a gate."""
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.gate(alias, open=state == "open"))


@command(app, "enc pause", panel=LIFE)
def pause(at: Terminal) -> None:
    """Let the enclave take nothing until it is resumed."""
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.pause())


@command(app, "enc resume", panel=LIFE)
def resume(at: Terminal) -> None:
    """Let a paused enclave go on."""
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.resume())


@command(app, "enc terminate --yes", panel=LIFE)
def terminate(
    at: Terminal, yes: Annotated[bool, typer.Option("--yes", help="Do not ask; only a terminal is asked.")] = False
) -> None:
    """End the enclave for good."""
    if sys.stdin.isatty() and not yes:
        typer.confirm("An enclave that is terminated stays so. Go on?", abort=True, err=True)
    with at.enclave() as enclave:
        at.receipt(enclave, enclave.terminate())
