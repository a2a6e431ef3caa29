"""`enc dataview`."""

from enc.cli.dataview import jars, lake_commands, receive, run
from enc.cli.dataview.commands import app

__all__ = ["app"]

_ = run, jars, lake_commands, receive  # importing these modules adds their commands to the group
