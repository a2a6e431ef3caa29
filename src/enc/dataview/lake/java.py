"""Finds Java, which Spark needs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from enc.core.errors import MisuseError

JAVA = 17
"""The oldest version that Spark runs on."""
_INSTALL_HINT = f"install Java {JAVA} (Debian: openjdk-{JAVA}-jre-headless), or set JAVA_HOME to its directory"


def check_java() -> str:
    """Check that Java is at least 17, and return its program. Spark's own message about an older one
    does not help.
    """
    java = _java()
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as e:
        raise MisuseError(f"{java}: cannot be run: {e}; {_INSTALL_HINT}") from None
    version = java_version(done.stderr + done.stdout)
    if version is None or version < JAVA:
        found = "no Java version found" if version is None else f"Java {version} found"
        raise MisuseError(f"{java}: {found}, but Spark needs {JAVA} or newer; {_INSTALL_HINT}")
    return java


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise MisuseError(f"Spark needs Java, and none was found; {_INSTALL_HINT}")
    return found


def java_version(said: str) -> int | None:
    """Return the major version from the output of `java -version`; 1.8 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None
