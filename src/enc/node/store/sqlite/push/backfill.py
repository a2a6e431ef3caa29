"""Fills `endpoints` from the logs, once, after an upgrade from a version without endpoints.

Only events that change access are judged again, in order: no others change an endpoint, and all
were signed and allowed when they were accepted. So no tree is built and no signature is checked,
and memory holds the rights of one enclave.
"""

import sqlite3
from contextlib import suppress

from enc.core.errors import EncError
from enc.core.rules.access_replay import AccessReplay, access_types
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Policy
from enc.node.store.push_interface import Endpoints, register
from enc.node.store.sqlite.event_rows import COLUMNS, unpack_event


def backfill_endpoints(db: sqlite3.Connection) -> None:
    """Fill `endpoints` in one transaction, if that is pending."""
    (is_due,) = db.execute("SELECT endpoints_due FROM node").fetchone()
    if not is_due:
        return
    db.execute("BEGIN IMMEDIATE")
    for e, manifest in db.execute("SELECT e, manifest FROM enclaves WHERE purged = 0").fetchall():
        rows = [(e, *key, url) for key, url in _endpoints(db, e, parse_manifest(manifest)).items()]
        db.executemany("INSERT INTO endpoints VALUES (?, ?, ?, ?)", rows)
        queues = [(row[1], row[3], e) for row in rows]
        db.executemany("INSERT OR IGNORE INTO queues (identity, url, registrar) VALUES (?, ?, ?)", queues)
    db.execute("UPDATE node SET endpoints_due = 0")
    db.execute("COMMIT")


def _endpoints(db: sqlite3.Connection, e: int, policy: Policy) -> Endpoints:
    kinds = db.execute("SELECT c, type FROM kinds WHERE e = ?", (e,)).fetchall()
    numbers = [c for c, type_ in kinds if type_ in access_types(policy)]
    query = f"SELECT {COLUMNS} FROM events WHERE c IN ({','.join('?' * len(numbers))}) ORDER BY k"  # noqa: S608
    replay, found = AccessReplay(policy), Endpoints()
    for row in db.execute(query, numbers):
        with suppress(EncError):  # fsck reports a damaged log
            register(found, replay.apply(unpack_event(row)))
    return found
