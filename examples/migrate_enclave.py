"""Migration: an enclave moves to another node, and its readers follow without a gap and without trusting either node.

The owner signs a Migrate. The old node accepts it as its last event; the new one pulls the log and replays it. A reader
sees the Migrate, asks the new node for it, and checks that its log continues the one seen before.
"""

import tempfile
from pathlib import Path

from local_node import local_node

from enc import Client, Identity
from enc.core.errors import EnclaveMigrated

alice, bob = Identity.new(), Identity.new()


def main(old: str, new: str, folder: Path) -> None:
    with Client(old, alice, pins=None) as owner, Client(old, bob, pins=None, nodes=[new]) as reader:
        team = owner.create("team")
        team.move(bob.public, "OUTSIDER", "MEMBER")
        team.commit("message", "We move tomorrow.")
        same = reader.enclave(team.id)  # the same enclave, as Bob sees it; he knows of the other node
        with same.subscribe(type="message") as heard:
            print(f"Bob receives at the old node: {next(heard).content}")

            moved = team.migrate(new, folder, tell=lambda step, what: print(f"  {step}"))
            print(f"The Migrate is event {moved.migrate.seq}; the new node's log has {moved.head.ts} bundle.")

            receipt = same.commit("message", "We have moved.")
            print(f"Bob writes, and receives: {next(heard).content}")
        print(f"His client is at the new node now: {same.url == new}")

        for line in same.proof(receipt.id).save(folder / "hello.proof.json").proved:
            print(f"  proved: {line}")

    with Client(old, alice, pins=None) as owner:
        try:
            owner.enclave(team.id).commit("message", "Anybody here?")
        except EnclaveMigrated as refusal:
            print(f"The old node: {refusal.message}.")


with local_node() as old, local_node() as new, tempfile.TemporaryDirectory() as folder:
    main(old, new, Path(folder))
