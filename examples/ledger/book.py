"""A ledger that several people share, as one of them sees it."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from enc import Client
from enc.core.primitives.types import Receipt

Entry = Mapping[str, object]


def entry(amount: int, currency: str, note: str = "") -> Entry:
    """Return a content as the template `ledger` describes it; `amount` is in cents."""
    return {"amount": amount, "currency": currency, "note": note}


class Book:
    """`folder` keeps the valid entries, and those that could not be sent yet, also after a restart."""

    def __init__(self, client: Client, ledger: bytes, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.enclave = client.enclave(ledger)
        self.table = self.enclave.table("entry", db=folder / "rows.db", valid=True)
        self.queue = client.commit_queue(folder / "queue.db")

    def add(self, content: Entry) -> Receipt:
        """Write an entry; raises MisuseError, and writes nothing, if it violates the schema."""
        return self.enclave.commit("entry", content, check=True)

    def add_later(self, content: Entry) -> None:
        """Keep an entry on disk until `send`; asks no node."""
        self.queue.add(self.enclave.prepare("entry", content))

    def send(self) -> int:
        """Send what was kept; return how many entries still wait for the node."""
        self.queue.send(patience=0)
        return len(self.queue.waiting())

    def totals(self) -> dict[str, int]:
        """Return the sum of all entries in each currency."""
        sums = Counter[str]()
        for row in self.table.refresh().values():
            sums[row.json["currency"]] += row.json["amount"]
        return dict(sums)

    def close(self) -> None:
        self.table.close()
        self.queue.close()
