"""Delta Lake's jars: where they are, and how they are fetched and checked.

PySpark brings the resolver, Ivy, which knows where jars are published. It fetches these two and
nothing that they name.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.lake.java import check_java

SHA256: Mapping[str, str] = {
    "delta-spark_4.2_2.13-4.4.0.jar": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    "delta-storage-4.4.0.jar": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
}
"""The jars, with the digest of each."""
JARS = tuple(SHA256)
PATIENCE_S = 600
"""Time limit for fetching one jar."""


def jars_directory() -> Path:
    """Return the directory in ENC_JARS, or the one in the Python environment."""
    named = os.environ.get("ENC_JARS")
    return Path(named) if named else Path(sys.prefix) / "share" / "enc" / "jars"


def delta_jars() -> list[Path]:
    """Return the jars. Raises MisuseError if one is missing."""
    directory = jars_directory()
    missing = [name for name in JARS if not (directory / name).is_file()]
    if missing:
        raise MisuseError(
            f"{directory}: {' and '.join(missing)} missing; "
            "run `enc dataview jars`, or set ENC_JARS to a directory that has them"
        )
    return [directory / name for name in JARS]


def fetch_jars(target: Path, ivy_settings: Path | None = None) -> list[str]:
    """Put the jars that are missing or wrong into this directory; return their names.

    A jar gets its name only if it has the expected SHA-256. `ivy_settings`: a file that names
    other places to fetch from, in the form of Ivy.
    """
    needed = [name for name in JARS if fault(target / name)]
    if needed:
        try:
            target.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".draft-", dir=target) as draft:
                for name in needed:
                    _fetch(name, Path(draft), target, ivy_settings)
                for name in needed:
                    (Path(draft) / name).replace(target / name)
        except OSError as e:
            raise MisuseError(
                f"{target}: cannot be written: {e.strerror}; give another directory (--to), and set ENC_JARS to it"
            ) from None
    return needed


def fault(path: Path) -> str:
    """Return what is wrong with the jar at this path; empty if it is the expected one."""
    try:
        with path.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
    except OSError as e:
        return e.strerror or str(e)
    expected = SHA256[path.name]
    return "" if found == expected else f"its SHA-256 is {found}, but {expected} is expected"


def _fetch(name: str, draft: Path, target: Path, ivy_settings: Path | None) -> None:
    command = _ivy_command(name, draft, ivy_settings)
    try:
        done = subprocess.run(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False
        )
        reason = "" if done.returncode == 0 else _reason(done.stdout) or f"exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        reason = f"not complete after {PATIENCE_S} seconds"
    if reason := reason or fault(draft / name):
        raise Unavailable(
            f"{name}: could not be fetched: {reason}. Nothing was installed. Try again, name another source "
            f"(--ivy-settings), or put the file into {target} yourself"
        )


def _reason(said: str) -> str:
    """Return the last line of Ivy that names a failure, without its decoration."""
    lines = [line.strip(": \t") for line in said.splitlines() if "not found" in line or "error" in line.lower()]
    return lines[-1] if lines else ""


def _ivy_command(name: str, draft: Path, ivy_settings: Path | None) -> list[str]:
    """Return the command that writes this jar into the draft directory."""
    module, _, version = name.removesuffix(".jar").rpartition("-")
    source = [] if ivy_settings is None else ["-settings", str(ivy_settings)]
    return [
        *(check_java(), f"-Divy.default.ivy.user.dir={draft / 'ivy'}", "-jar", str(_ivy()), "-warn", *source),
        *("-notransitive", "-types", "jar", "-confs", "default", "-dependency", "io.delta", module, version),
        *("-retrieve", f"{draft}/[artifact]-[revision].[ext]"),
    ]


def _ivy() -> Path:
    """Return the jar of PySpark's resolver. Raises ModuleNotFoundError without PySpark."""
    found = find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    (jar, *_) = Path(found.submodule_search_locations[0]).glob("jars/ivy-*.jar")
    return jar
