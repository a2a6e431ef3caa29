"""The wire protocol without the client library: plain commits, sealed requests, every answer checked.

Creates an enclave, writes, reads with proofs, subscribes. `enc.client` does each of these in one call: see
todo_list.py.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from os import urandom
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from enc.core.log import commit, event, receipt
from enc.core.primitives import sealing
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit
from enc.core.session import envelope, session
from enc.core.trees import proof, tree_head

alice = PrivateKey(urandom(32))
rules = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)"],
    "readers": [{"type": "MEMBER", "reads": "*"}],
    "customs": [{"event": "note", "operator": "MEMBER", "ops": ["C"]}],
    "init": [{"identity": alice.public.hex(), "state": "MEMBER", "traits": ["owner"]}],
    "bundle": {"size": 4, "timeout": 3_600_000},
}


def now() -> int:
    return time.time_ns() // 1_000_000


def post(path: str, body: dict[str, Any]) -> bytes:
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return answer.read()


def send(signed: Commit) -> None:
    """Send a commit, and check its receipt: a signed promise that the node cannot deny."""
    earned = receipt.parse_receipt(post("/", commit.wire_commit(signed)))
    receipt.check_receipt(earned, signed, seq_pub)
    print(f"  seq {earned.seq}: {signed.type}, event {earned.id.hex()[:16]}…")


def ask(path: str, type_: envelope.RequestType, **body: Any) -> Any:
    """Send a sealed request: no one in between can read the request or the answer."""
    sealed = envelope.seal_request(opened, seq_pub, enclave, type_, body, urandom(24))
    return envelope.open_answer(keys, post(path, sealed))


with tempfile.TemporaryDirectory() as data:
    command = [Path(sys.executable).with_name("enc"), "node", "run", "--data", data, "--port", "0", "--dev"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
    try:
        assert node.stdout is not None
        ready = json.loads(node.stdout.readline())
        url, seq_pub = ready["url"], bytes.fromhex(ready["seq_pub"])
        print(f"A node listens at {url}; its key is {seq_pub.hex()[:16]}…\n")

        print("Create an enclave and write to it:")
        manifest = commit.build_manifest(alice, compact_json(rules), now() + 60_000)
        enclave = manifest.enclave
        send(manifest)
        for i in range(3):
            send(commit.build_commit(alice, enclave, "note", f"note {i}", now() + 60_000))

        print("\nRead it back, with proofs, and check every one:")
        opened = session.open_session(alice, now() // 1000 + 3600)
        keys = session.client_keys(opened, seq_pub, enclave)
        answer = ask("/", "Query", filter={"type": "note"}, proof=True)
        head = tree_head.parse_head(json.dumps(answer["sth"]))
        tree_head.check_bound_head(head, seq_pub, enclave)
        for item in answer["events"]:
            found = event.parse_event(json.dumps(item["event"]))
            event.check_event(found, enc_v=2)
            inclusion = item["proof"]["inclusion"]
            proof.check_event_proof(
                found.id,
                proof.parse_bundle_proof(json.dumps(item["proof"]["bundle"])),
                proof.LogLeaf(bytes.fromhex(inclusion["events_root"]), bytes.fromhex(inclusion["state_hash"])),
                proof.parse_inclusion(json.dumps(inclusion)),
                head,
            )
            print(f"  seq {found.seq}: {found.content!r}, under a signed head of {head.ts} bundle")

        print("\nSubscribe, and receive the next one:")
        with connect(url.replace("http", "ws")) as socket:
            query = {"filter": {"seq": {"start_after": 3}}}
            socket.send(json.dumps(envelope.seal_request(opened, seq_pub, enclave, "Query", query, urandom(24))))
            print(f"  {socket.recv()}")
            send(commit.build_commit(alice, enclave, "note", "live", now() + 60_000))
            heard = json.loads(sealing.open_text(keys.response, json.loads(socket.recv())["event"]))
            print(f"  received: {heard['event']['content']!r}")
    finally:
        node.terminate()
        print(f"\nThe node stopped with exit code {node.wait()}.")
