"""Witnesses: a node shows two people two logs, each of them valid, and a witness exposes it.

A witness follows the signed heads of an enclave and co-signs each one that extends the one before. All clients that ask
it know that they see the same log; two signed heads that contradict each other convict the node that signed them.
"""

import shutil
import tempfile
from pathlib import Path

from local_node import local_node, running

from enc import Client, Identity
from enc.client import ClientSettings, Fork, Witness, check_evidence, load_evidence
from enc.client.enclave.templates import template

alice, bob = Identity.new(), Identity.new()


def main(honest: str, copy: str, team: bytes, folder: Path) -> None:
    watching = ("--enclave", f"{team.hex()}@{honest}", "--interval", "0.1")
    with running("witness", "run", *watching, "--data", str(folder / "witness"), "--listen", "127.0.0.1:0") as ready:
        witness = Witness(ready["url"], bytes.fromhex(ready["witness"]))
        strict = ClientSettings(witnesses=[witness], lag=0)

        with Client(honest, alice, pins=None, settings=strict) as client:  # lag=0: it waits for the witness
            client.enclave(team).commit("message", "We pay Bob 100.")
            print(f"Alice sees a log of {client.enclave(team).head().ts} bundles.")
            print(f"Witnesses that have seen all of it: {client.enclave(team).witnessed()}")

        with Client(copy, bob, pins=None) as client:
            client.enclave(team).commit("message", "Thanks for nothing.")
            print(f"Bob sees a log of {client.enclave(team).head().ts} bundles, and its proofs are valid.")

        with Client(copy, bob, pins=None, settings=strict) as client:
            try:
                client.enclave(team).head()
                raise SystemExit("the fork was not detected")
            except Fork as lie:
                print(f"Bob asks the witness too: {lie.code}: {lie.message}.")
                lie.evidence.save(folder / "evidence.json")

    verdict = check_evidence(load_evidence((folder / "evidence.json").read_bytes()))  # as `enc verify` does, offline
    print("The evidence convicts the node:" if verdict.convicts else "The evidence convicts nobody:")
    for line in verdict.proved:
        print(f"  {line}")


with tempfile.TemporaryDirectory() as name:
    with local_node(Path(name) / "node") as url, Client(url, alice, pins=None) as client:
        team = client.create(template("team", alice.public) | {"bundle": {"size": 1}})  # each event is proved at once
        team.move(bob.public, "OUTSIDER", "MEMBER")
    shutil.copytree(Path(name) / "node", Path(name) / "copy")  # a second node with the same key, and the same past
    with local_node(Path(name) / "node") as honest, local_node(Path(name) / "copy") as copy:
        main(honest, copy, team.id, Path(name))
