"""A webhook that keeps a ledger's totals, and prints them: `python totals.py KEY NODE REGISTRY LEDGER URL`."""

import json
import sqlite3
import sys
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from enc import Identity, PushReceiver
from enc.client import ReceiverSettings
from enc.client.enclave.templates import unfilled
from enc.client.registry.registry_client import parse_registry
from enc.core.primitives.types import Event
from enc.core.rules.manifest_schemas import read_schemas
from enc.runtime.backoff import RetryPauses

SCHEMAS = read_schemas(unfilled("ledger"))
TABLE = "CREATE TABLE IF NOT EXISTS entries (id BLOB PRIMARY KEY, amount INTEGER, currency TEXT)"
SUMS = "SELECT currency, sum(amount) FROM entries WHERE currency IS NOT NULL GROUP BY currency"


def count(event: Event, db: sqlite3.Connection) -> None:
    """Apply an event. `db` also stores the receiver's position: each event counts once, whatever is killed."""
    if event.type in ("entry", "Update", "Delete"):
        is_valid = SCHEMAS.violations("entry", event.content) == ()  # nodes take any content
        amount, currency = (event.json["amount"], event.json["currency"]) if is_valid else (None, None)
        db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (event.target or event.id, amount, currency))
    print(json.dumps(dict(db.execute(SUMS))), flush=True)


if __name__ == "__main__":
    key, node, registry, ledger, url = sys.argv[1:]
    home, mine, found = Path(key), bytes.fromhex(ledger), parse_registry(registry)
    more = ReceiverSettings(pins=home.with_suffix(".pins"), retries=RetryPauses(max_s=2))
    me, state, accepts = Identity.load(home), home.with_suffix(".db"), lambda enclave: bool(enclave == mine)
    receiver = PushReceiver(
        me, url, [node], state, count, accepts=accepts, enclave=mine, schema=TABLE, registry=found, settings=more
    )
    uvicorn.run(receiver.app, port=urlsplit(url).port or 80, log_level="error")
