"""Notes written on a train: they wait in a file while there is no network, and arrive once and in order.

Every `with` below stands for one start of the app: nothing is left of earlier ones but the queue's file.
"""

import tempfile
from pathlib import Path

from local_node import local_node

from enc import Client, Identity
from enc.client import QueueResult
from enc.core.primitives.types import Receipt

TUNNEL = "http://127.0.0.1:9"
"""Nothing answers here."""


def show(results: list[QueueResult]) -> None:
    for sent in results:
        if isinstance(sent.result, Receipt):
            print(f"  {sent.commit.content}: event {sent.result.seq}")
        else:
            print(f"  {sent.commit.content}: {'waits' if sent.is_waiting else 'rejected'}: {sent.result.code}")


def write(url: str, me: Identity, notes: str, file: Path, *texts: str) -> None:
    """Store what the user writes, then send what can be sent."""
    with Client(url, me, pins=None, patience=0) as client, client.commit_queue(file) as queue:
        for text in texts:
            queue.add(client.enclave(notes).prepare("note", text))
        show(queue.send())
        print(f"  {len(queue.waiting())} in the queue")


with tempfile.TemporaryDirectory() as folder, local_node(Path(folder, "node")) as url:
    ada, file = Identity.new(), Path(folder, "outgoing.db")
    with Client(url, ada, pins=None) as client:
        diary = client.create("notes").hex

    print("In the station:")
    write(url, ada, diary, file, "The train leaves.")
    print("In the tunnel:")
    write(TUNNEL, ada, diary, file, "It is dark.", "Still dark.")
    print("Behind the tunnel, the app starts again:")
    write(url, ada, diary, file, "Light!")

    with Client(url, ada, pins=None) as client:
        kept = [note.content for note in client.enclave(diary).query(type="note")]
    assert kept == ["The train leaves.", "It is dark.", "Still dark.", "Light!"]
    print("The diary has all four, in order, each once.")
