"""The ledger's tests; the last one has real nodes and processes. `pytest examples/ledger` runs them."""

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from local_node import local_nodes, registered_node

from enc.client import Change, Client, Enclave, Identity, check_proof, load_proof
from enc.client.enclave.templates import template
from enc.core.errors import MisuseError, Unauthorized
from enc.testing import Identities, LocalNode
from ledger.book import Book, entry

pytest_plugins = ["enc.testing.plugin"]
WEBHOOK = sys.executable, str(Path(__file__).with_name("totals.py"))
CAKE, FIXED, TIP = entry(-1250, "EUR", "cake"), entry(-1300, "EUR", "cake"), entry(300, "USD", "tip")


def found(client: Client, bookkeeper: Identity, reader: Identity) -> Enclave:
    """Create a ledger, in which each event can be proved at once."""
    ledger = client.create(template("ledger", client.identity.public) | {"bundle": {"size": 1}})
    for who in (bookkeeper, reader):
        ledger.move(who.public, "OUTSIDER", "MEMBER")
    ledger.grant(bookkeeper.public, "bookkeeper")
    return ledger


def test_bookkeepers_write_what_the_schema_says(node: LocalNode, identities: Identities, tmp_path: Path) -> None:
    ada, bob, carol = (node.client(identities[name]) for name in ("ada", "bob", "carol"))
    ledger = found(ada, bob.identity, carol.identity)

    async def write_at_once() -> None:
        async with node.async_client(bob.identity) as client:
            enclave = client.enclave(ledger.id)
            await asyncio.gather(*(enclave.commit("entry", CAKE, check=True) for _ in range(30)))

    with closing(Book(bob, ledger.id, tmp_path)) as book:
        with pytest.raises(MisuseError, match="currency: expected at most 3 characters"):
            book.add(entry(1, "EURO"))
        ledger.commit("entry", entry(1, "EURO"))  # by an app that does not check: nobody counts it
        bob.commit_many(book.enclave.prepare("entry", TIP) for _ in range(300))
        asyncio.run(write_at_once())
        assert book.totals() == {"EUR": -37_500, "USD": 90_000}
    with pytest.raises(Unauthorized):
        carol.enclave(ledger.id).commit("entry", TIP)


def wait(webhook: "subprocess.Popen[str]", **totals: int) -> None:
    assert any(json.loads(line) == totals for line in webhook.stdout or ())


def test_a_move_dead_nodes_and_a_killed_webhook(tmp_path: Path) -> None:
    ada, bob, carol, counter = (Identity.new() for _ in range(4))
    counter.save(key := tmp_path / "counter.key")
    with socket.create_server(("127.0.0.1", 0)) as free:
        hook = f"http://127.0.0.1:{free.getsockname()[1]}/ledger"
    with ExitStack() as stack:
        (registry,) = stack.enter_context(local_nodes(0))
        old, new = (stack.enter_context(registered_node(registry, tmp_path / name)) for name in ("old", "new"))

        def client(who: Identity, url: str | None = None, patience: float = 30) -> Client:
            pins = tmp_path / who.hex
            return stack.enter_context(Client(url, who, registry=registry, pins=pins, patience=patience))

        def webhook() -> "subprocess.Popen[str]":
            where = old["url"], f"{registry.url}#{registry.enclave.hex()}", ledger.hex, hook
            process = subprocess.Popen([*WEBHOOK, key, *where], stdout=subprocess.PIPE, text=True)  # noqa: S603
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        ledger = found(client(ada, old["url"]), bob, carol)
        ledger.register(app="ledger")
        ledger.grant(counter.public, "service", endpoint=hook)
        book = stack.enter_context(closing(Book(client(bob, patience=3), ledger.id, tmp_path / "bob")))
        table, seen = client(carol).enclave(ledger.id).table("entry", valid=True), Queue[Change]()
        Thread(target=lambda: list(map(seen.put, table.changes())), daemon=True).start()
        first = webhook()
        cake = book.add(CAKE)
        wait(first, EUR=-1250)
        first.kill()
        book.enclave.update(cake.id, FIXED, check=True)
        second = webhook()
        wait(second, EUR=-1300)
        ledger.migrate(new["url"], tmp_path / "move")
        old["process"].kill()
        book.add(TIP)
        wait(second, EUR=-1300, USD=300)
        new["process"].kill()
        book.add_later(CAKE)
        assert book.send() == 1
        stack.enter_context(registered_node(registry, tmp_path / "new", int(new["url"].rsplit(":")[-1])))
        assert book.send() == 0
        wait(second, **book.totals())
        assert [seen.get().row.json for _ in range(4)] == [CAKE, FIXED, TIP, CAKE]  # as Carol saw it
        table.close()
        book.enclave.proof(cake.id).save(proof := tmp_path / "proof.json")
        proved = check_proof(load_proof(proof.read_bytes()), book.enclave.sequencer()).proved
        assert any("cake" in line for line in proved)
