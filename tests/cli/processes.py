"""Processes of a command, and environments for them."""

import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 180
"""How long Spark may take to show a row before it counts as stuck."""


def without_java(folder: Path) -> dict[str, str]:
    """Return an environment without Java, but with everything else that is needed."""
    folder.mkdir()
    for name in ("env", "sh", "bash", "grep", "sed", "cp", "mkdir", "dirname", "cat"):
        path = shutil.which(name)
        if path is not None:
            (folder / name).symlink_to(path)
    return {"PATH": f"{folder}:{Path(sys.executable).parent}", "JAVA_HOME": ""}


def descendants(pid: int) -> set[int]:
    """Return the ids of all child processes, and of their children."""
    parents = dict[int, int]()
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                parents[int(each.name)] = int(re.sub(r"^.*\) \S ", "", (each / "stat").read_text()).split()[0])
            except (OSError, ValueError):
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_there(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def until(holds: Callable[[], Any]) -> Any:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, "the condition never holds"
        time.sleep(0.05)
    return found
