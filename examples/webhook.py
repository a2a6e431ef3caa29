"""A webhook: an app counts a till's sales, each once, though it is offline for a while and the log moves."""

import socket
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from queue import Queue

from background_server import serving
from local_node import local_nodes

from enc import Client, Identity, PushReceiver
from enc.client import ReceiverSettings
from enc.core.primitives.types import Event

till, counter = Identity.new(), Identity.new()
MANIFEST = {
    "enc_v": 2,
    "states": ["TILL"],
    "traits": ["owner(0)", "counter(1)"],
    "readers": [{"type": "owner", "reads": "*"}],
    "grants": [{"event": "Grant", "operator": "owner", "scope": "OUTSIDER", "trait": "counter"}],
    "lifecycle": [{"event": "Migrate", "operator": "owner", "ops": ["C"]}],
    "customs": [
        {"event": "sale", "operator": "TILL", "ops": ["C"]},
        {"event": "sale", "operator": "counter", "ops": ["P"]},  # every sale is pushed to the holders of this trait
    ],
    "init": [{"identity": till.hex, "state": "TILL", "traits": ["owner"]}],
}
SCHEMA = "CREATE TABLE IF NOT EXISTS sold (what TEXT PRIMARY KEY, n INTEGER)"
counted: Queue[int] = Queue()


def count(event: Event, db: sqlite3.Connection) -> None:  # `db` also stores the app's position: one transaction
    db.execute("INSERT INTO sold VALUES (?, 1) ON CONFLICT DO UPDATE SET n = n + 1", (event.content,))
    counted.put(event.seq)


with local_nodes(2) as (registry, node, other), tempfile.TemporaryDirectory() as folder:
    client = Client(node, till, pins=None, registry=registry)
    state, listening = Path(folder, "inbox.db"), socket.create_server(("127.0.0.1", 0))
    hook = f"http://127.0.0.1:{listening.getsockname()[1]}/sales"
    sales = client.create(MANIFEST)
    sales.grant(counter.public, "counter", endpoint=hook)
    mine = {"accepts": lambda enclave: enclave == sales.id, "schema": SCHEMA, "registry": registry}
    mine["settings"] = ReceiverSettings(pins=None)
    with serving(PushReceiver(counter, hook, [node], state, count, **mine).app, listening):
        sold = [sales.commit("sale", what).seq for what in ("tea", "tea", "cake")]
        print("Pushed, checked and counted, by seq:", *(counted.get() for _ in sold))
    sold = [sales.commit("sale", what).seq for what in ("tea", "soup")]
    print("The app is offline, and two more are sold.")
    with serving(PushReceiver(counter, hook, [node], state, count, **mine).app, listening):
        print("It is back:", *(counted.get() for _ in sold))
        sales.migrate(other, Path(folder, "move"))
        print("The log moves to another node. There, too:", sales.commit("sale", "tea").seq == counted.get())
    with closing(client), closing(listening), closing(sqlite3.connect(state)) as db:
        print("Sold in all:", dict(db.execute("SELECT what, n FROM sold ORDER BY what")))
