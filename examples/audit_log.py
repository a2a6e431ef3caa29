"""A tamper-evident audit log for a script: each step leaves a proof in a file, which an auditor checks offline.

With the template `log`, writers add entries that no one can change or delete, not even the log's owner.
"""

import tempfile
from pathlib import Path

from local_node import local_node

from enc import Client
from enc.client.enclave.templates import template
from enc.client.verify.proof_file import check_proof, load_proof
from enc.core.errors import InvalidProof, Unauthorized

STEPS = ["stopped the shop", "copied 1200 orders", "started the shop"]


def work(url: str, folder: Path) -> bytes:
    """Play the script: log each step and save its proof. Returns the node's key, which the auditor needs."""
    with Client(url, pins=folder / "pins") as client:
        manifest = template("log", client.identity.public) | {"bundle": {"size": 1}}  # each entry is proved at once
        log = client.create(manifest)
        for step in STEPS:
            entry = log.commit("entry", {"script": "nightly", "step": step})
            log.proof(entry.id).save(folder / f"{entry.seq}.proof.json")
            print(f"  entry {entry.seq}: {step}")
        try:
            log.delete(entry.id)
            raise SystemExit("an entry was deleted")
        except Unauthorized as error:
            print(f"Even its owner cannot delete one: {error}")
        print(f"Read from the start, and proved to be complete: {len(list(log.complete()))} events with the Manifest")
        return client.seq_pub()


def audit(title: str, file: bytes, known: bytes) -> None:
    """Play the auditor, who has only the file and the node's key."""
    try:
        proof = load_proof(file)
        proved = check_proof(proof).proved if proof.sequencer == known else ("nothing: it is another node's",)
        print(f"{title}\n  " + "\n  ".join(proved))
    except InvalidProof as error:
        print(f"{title}\n  FORGED: {error}")


with tempfile.TemporaryDirectory() as name:
    with local_node() as url:
        print("A script runs, and logs each step:")
        seq_pub = work(url, Path(name))
    print("\nThe node has stopped; an auditor checks the second entry:")
    file = (Path(name) / "2.proof.json").read_bytes()
    audit("Unchanged", file, seq_pub)
    audit("With its content changed", file.replace(b"1200 orders", b"1199 orders"), seq_pub)
    audit("Moved to another seq", file.replace(b'"seq": 2', b'"seq": 3'), seq_pub)
