"""The versions of the database's schema."""

import sqlite3
from importlib.resources import files

from enc.core.errors import Unavailable

APPLICATION = 0x656E6301
"""What SQLite's `application_id` says of a database that is ours: "enc" and a byte."""

_FILES = files("enc.node.store")

UPGRADES: tuple[str, ...] = (_FILES.joinpath("upgrade_2.sql").read_text(),)
"""Scripts, each from one version to the next: the first makes version 2 of version 1. `schema.sql` is the latest."""


def upgrade(db: sqlite3.Connection) -> None:
    """Bring the schema to the latest version, step by step. What is not ours, or is newer than we are, is refused."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    latest = len(UPGRADES) + 1
    if not tables:
        schema = _FILES.joinpath("schema.sql").read_text()
        _run(db, f"{schema} PRAGMA application_id = {APPLICATION};", latest)
        return
    if application != APPLICATION or version < 1:
        raise Unavailable("the store's file is a database of another program")
    if version > latest:
        raise Unavailable(f"the store was written by a newer program: schema {version}, this one knows {latest}")
    for number, script in enumerate(UPGRADES[version - 1 :], version + 1):
        _run(db, script, number)


def _run(db: sqlite3.Connection, script: str, version: int) -> None:
    """All of a script, and the version that it makes; or, once whoever opened the connection closes it, nothing."""
    db.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {version}; COMMIT;")
