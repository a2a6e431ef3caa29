"""Creates and upgrades the database schema."""

import sqlite3
from importlib.resources import files

from enc.core.errors import Unavailable

APPLICATION = 0x656E6301
"""SQLite's `application_id` of our databases: "enc" and a byte."""

_FILES = files("enc.node.store.sqlite")

UPGRADES: tuple[str, ...] = tuple(_FILES.joinpath(f"upgrade_{version}.sql").read_text() for version in range(2, 10))
"""Scripts, each from one version to the next; the first upgrades version 1 to 2. `schema.sql` is
the latest version.
"""

LATEST = len(UPGRADES) + 1
"""The schema's latest version."""


def upgrade(db: sqlite3.Connection) -> None:
    """Upgrade the schema to the latest version, step by step.

    Raises Unavailable for a database of another program, or of a newer version.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        schema = _FILES.joinpath("schema.sql").read_text()
        _run(db, f"{schema} PRAGMA application_id = {APPLICATION};", LATEST)
        return
    if application != APPLICATION or version < 1:
        raise Unavailable("the store's file is a database of another program")
    if version > LATEST:
        raise Unavailable(
            f"the store was written by a newer version: schema {version}, this version supports up to {LATEST}"
        )
    for number, script in enumerate(UPGRADES[version - 1 :], version + 1):
        _run(db, script, number)


def _run(db: sqlite3.Connection, script: str, version: int) -> None:
    """Run a script and set the version in one transaction. If it fails, closing the connection
    rolls it back.
    """
    db.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {version}; COMMIT;")
