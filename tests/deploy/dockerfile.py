"""Reads a Dockerfile, and runs the steps of a stage in a folder instead of an image.

python -m tests.deploy.dockerfile STAGE FOLDER runs them; scripts/release does so.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from tests.deploy.tools import DEPLOY, ROOT

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"


class Stage(Struct):
    base: str
    steps: list[tuple[str, str]]
    """Instructions with their arguments, without FROM."""

    def values(self, instruction: str) -> list[str]:
        return [rest for name, rest in self.steps if name == instruction]

    @property
    def copied(self) -> list[str]:
        """Paths that are copied from the repository."""
        return [path for rest in self.values("COPY") if "--from" not in rest for path in rest.split()[:-1]]


def stages() -> dict[str, Stage]:
    """Return the stages by name, in order."""
    found = dict[str, Stage]()
    for name, rest in re.findall(r"^([A-Z]+) +(.*)$", DOCKERFILE.read_text(), re.MULTILINE):
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            found[stage] = Stage(base, [])
        elif found:
            found[stage].steps.append((name, rest))
    return found


def play(stage: Stage, folder: Path) -> None:
    """Copy and run what the stage copies and runs, with the folder as root of its files."""
    source = folder / "source"
    source.mkdir()
    for name, rest in stage.steps:
        if name == "COPY":
            *paths, target = rest.split()
            for path in paths:
                copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
                copy(ROOT / path, source / (path if target == "./" else target))  # type: ignore[operator]
        elif name == "RUN":
            command = re.sub(r"(?<![\w.])/(?=opt/enc|constraints)", f"{folder}/", rest)
            command = re.sub(r"^python\b", sys.executable, command)
            print("RUN", command, flush=True)  # noqa: T201
            subprocess.run(["/bin/sh", "-ec", command], cwd=source, check=True)


if __name__ == "__main__":
    play(stages()[sys.argv[1]], Path(sys.argv[2]))
