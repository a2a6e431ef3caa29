"""`enc bench`: generates logs for benchmarks and tests."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from enc.cli.common.command import LOCAL, command
from enc.cli.common.command_context import CommandContext
from enc.cli.common.output import fields
from enc.cli.enclave.archive import ProgressBar
from enc.core.errors import MisuseError


def is_installed() -> bool:
    """Return whether the generator is installed: it is a distribution of its own."""
    return find_spec("enc.bench") is not None


app = typer.Typer(
    name="bench",
    help="Generate logs for benchmarks and tests.",
    no_args_is_help=True,
    hidden=not is_installed(),
)


@command(
    app,
    "enc bench generate --enclaves 10 --events 1000",
    "enc bench generate --enclaves 1000 --events 1000000 --seed 7 --out fleet --plant gap --plant equivocation",
    flags=LOCAL,
)
def generate(
    ctx: CommandContext,
    enclaves: Annotated[int, typer.Option("--enclaves", metavar="N", help="How many enclaves.", show_default=False)],
    events: Annotated[
        int,
        typer.Option("--events", metavar="M", help="How many events, in all enclaves together.", show_default=False),
    ],
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed generates the same bytes.")] = 0,
    plant: Annotated[
        list[str] | None,
        typer.Option("--plant", metavar="KIND", help="A fault to plant in an enclave of its own; may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Output folder; must be empty or missing.")] = Path(
        "fleet"
    ),
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", help="Processes. Default: one per core.", show_default=False),
    ] = None,
) -> None:
    """Generate enclaves with realistic, valid logs, and signed heads as clients would collect them, from a seed.

    The first enclave is the largest, the second half as large, the third a third. planted.json lists the planted
    faults.
    """
    if not is_installed():
        raise MisuseError("enc bench is not installed: pip install 'enc-protocol[bench]'")
    from enc.bench.fault_kinds import parse_kind
    from enc.bench.fleet import generate as generate_fleet

    kinds = [parse_kind(text) for text in plant or ()]
    with ProgressBar(ctx.is_terminal) as bar:
        fleet = generate_fleet(
            out,
            enclaves=enclaves,
            events=events,
            seed=seed,
            plants=kinds,
            jobs=_cores() if jobs is None else jobs,
            progress=bar.show,
        )
    wire = {"out": str(out), **msgspec.to_builtins(fleet)}
    totals = {name: value for name, value in wire.items() if name != "planted"}
    planted = [f"planted   {each.kind} in {each.enclave} at seq {each.seq}" for each in fleet.planted]
    ctx.emit(wire, "\n".join([fields(**totals), *planted]))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
