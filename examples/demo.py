"""All of ENC in a few minutes: a registry and two nodes, end-to-end encrypted messages, proofs, a node that
lies, a move, and tables by Spark. Every step shows the commands that do it by hand.

    python examples/demo.py            runs through, removes everything, and exits with 0 if every step held
    python examples/demo.py --keep     leaves it all running, with the page at a printed address, until Ctrl-C
    python examples/demo.py --steps 9  ends after that many steps; the first nine need neither Java nor Spark
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from demo import places, proving, tables, talking
from demo.stage import PEOPLE, SIGNALS, Failed, Stage
from rich.console import Console

Step = Callable[[Stage], None]
STEPS: tuple[Step, ...] = (
    places.nodes,
    places.people,
    places.stores,
    talking.messages,
    talking.group,
    proving.edits,
    proving.proof,
    proving.lie,
    proving.moving,
    tables.pipeline,
    tables.tables,
    tables.page,
)
"""The steps of the demo. The docstring of each is its title."""


def main() -> int:
    parser = argparse.ArgumentParser(description="A guided tour of ENC, with real processes on this machine.")
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C, and keep the data")
    parser.add_argument(
        "--steps", type=int, choices=range(1, len(STEPS) + 1), metavar="N", help="run the first N steps"
    )
    args = parser.parse_args()
    if args.keep and args.steps:
        parser.error("--keep: needs all steps")
    keep, steps = args.keep, STEPS[: args.steps]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=110)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    if keep:
        return play(Path(tempfile.mkdtemp(prefix="enc-demo-")), console, keep=True)
    with tempfile.TemporaryDirectory(prefix="enc-demo-", ignore_cleanup_errors=True) as folder:
        return play(Path(folder), console, keep=False, steps=steps)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def play(folder: Path, console: Console, *, keep: bool, steps: Sequence[Step] = STEPS) -> int:
    stage, began, title = Stage(folder, console), time.monotonic(), ""
    console.print("[bold]ENC: verifiable, sovereign, access-controlled logs.[/]")
    stage.explain(f"Each command is shown after the name of the person who types it. Everything happens in {folder}.")
    if not keep:
        stage.explain("It takes some minutes and is then removed; `make demo KEEP=1` leaves it running for you to try.")
    try:
        if tables.pipeline in steps:
            tables.foresee(stage)
        for number, step in enumerate(steps, 1):
            title = f"{number} of {len(steps)}: {step.__doc__}"
            stage.heading(title)
            step(stage)
        console.print(f"\n[bold green]Every step succeeded.[/] It took {time.monotonic() - began:.0f} seconds.")
        if keep:
            title = "--keep"
            stay(stage)
    except KeyboardInterrupt:
        return 0 if title == "--keep" else 130
    except Exception as e:
        console.print(f"\nThis step failed: {title}", style="bold red")
        console.print(str(e) if isinstance(e, Failed) else f"{type(e).__name__}: {e}", markup=False, soft_wrap=True)
        return 1
    finally:
        stage.stop_all()
        if keep:
            stage.explain(f"Everything has stopped; the data is in {folder}.")
    return 0


def stay(stage: Stage) -> None:
    """Keep everything running until Ctrl-C."""
    tables.live(stage)
    stage.console.print(f"\nThe page: [bold]{stage.known['page']}[/]; new events appear there in a moment.")
    stage.console.print("To act as one of the people, in another terminal:")
    for person in PEOPLE:
        stage.console.print(f"  . {stage.folder}/{person}.sh", highlight=False)
    stage.console.print("Ctrl-C ends it.")
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
        webbrowser.open(stage.known["page"])
    while True:
        stage.check_alive()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
