"""A PostgreSQL for the tests, on a socket in its own folder; it is removed after the tests."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from itertools import count
from pathlib import Path

import psycopg
import pytest

PATIENCE_S = 60
_numbers = count(1)


def _user() -> str | None:
    """Return the user for PostgreSQL, which does not run as root."""
    return "postgres" if os.geteuid() == 0 else None


@contextmanager
def postgres() -> Iterator[str]:
    """Yield the folder of the socket."""
    if _tools() is None:
        why = "no PostgreSQL: install Debian's package postgresql (scripts/test-packages)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    home = Path(tempfile.mkdtemp(prefix="enc-pg-"))
    if _user() is not None:
        shutil.chown(home, "postgres")
    try:
        _run("initdb", "-D", str(home / "data"), "-A", "trust", "-U", "enc", "-E", "UTF8", "--no-sync")
        options = f"-k {home} -c listen_addresses='' -c fsync=off"
        _run("pg_ctl", "-D", str(home / "data"), "-w", "-l", str(home / "log"), "-o", options, "start")
        try:
            yield str(home)
        finally:
            _run("pg_ctl", "-D", str(home / "data"), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _tools() -> Path | None:
    """Return the folder of PostgreSQL's programs: on the path, or where Debian installs them."""
    found = shutil.which("initdb") or next(iter(sorted(glob("/usr/lib/postgresql/*/bin/initdb"))), None)
    return Path(found).resolve().parent if found else None


def _run(name: str, *args: str) -> None:
    tools = _tools()
    assert tools is not None
    command = [str(tools / name), *args]
    subprocess.run(
        command,
        check=True,
        user=_user(),
        cwd="/",
        timeout=PATIENCE_S,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )


def new_database(home: str) -> str:
    """Return the URL of an empty database."""
    name = f"views_{next(_numbers)}"
    with psycopg.connect(host=home, user="enc", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return f"postgresql://enc@/{name}?host={home}"
