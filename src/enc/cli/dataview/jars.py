"""`enc dataview jars`: fetches Delta Lake's jars, which no package of Python contains."""

from pathlib import Path
from typing import Annotated

import typer

from enc.cli.common.command import LOCAL, command
from enc.cli.common.command_context import CommandContext
from enc.cli.dataview.commands import MISSING, app
from enc.core.errors import MisuseError


@command(
    app,
    "enc dataview jars",
    "enc dataview jars --to /opt/enc-jars --ivy-settings mirror.xml",
    flags=LOCAL,
)
def jars(
    ctx: CommandContext,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory to put them in. Default: where enc looks for them.")
    ] = None,
    ivy_settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Fetch from the places in this settings file of Ivy.")
    ] = None,
) -> None:
    """Fetch Delta Lake's jars and check their SHA-256. Files that are right already are left alone.

    `enc` looks for them in ENC_JARS, or in share/enc/jars of its Python environment.
    """
    from enc.dataview.lake.jars import JARS, fetch_jars, jars_directory

    if ivy_settings is not None and not ivy_settings.is_file():
        raise MisuseError(f"--ivy-settings: {ivy_settings}: no such file")
    target = (to or jars_directory()).absolute()
    try:
        fetched = fetch_jars(target, ivy_settings)
    except ModuleNotFoundError as e:
        raise MisuseError(f"{MISSING}: {e.name} is not installed") from None
    rows = [
        ({"path": str(target / name), "fetched": name in fetched}, (str(target / name), _state(name in fetched)))
        for name in JARS
    ]
    ctx.rows(("path", "state"), rows)


def _state(is_fetched: bool) -> str:
    return "fetched" if is_fetched else "was there"
