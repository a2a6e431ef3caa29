"""Lookups: `GET /resolve` of a registry with 1,000 enclaves, requests a second. Floor: `GET /info` of the same node."""

import os
import tempfile
from pathlib import Path

from floors import verdict
from node_commits import AUTHORS, LIFE_MS, now_ms, wire
from node_load import Result
from node_process import CONNECTIONS, Node, load, send

from enc.client.enclave.templates import template
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import finalize
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit
from enc.core.registry.reg_entry import wire_enclave, wire_node

ENCLAVES, REQUESTS, AT_LEAST = 1000, 4000, 0.3
EXP = now_ms() + LIFE_MS


def entries(registry: bytes) -> tuple[list[Commit], bytes]:
    """Return commits that register a node and its enclaves, and the id of one enclave."""
    node = PrivateKey(b"\x55" * 32)
    content = wire_node(node.public, ["https://node.example:443", "https://backup.example:443"])
    found = [build_commit(node, registry, "Reg_Node", compact_json(content), EXP)]
    for n in range(ENCLAVES):
        author = AUTHORS[n % len(AUTHORS)]
        manifest = build_manifest(author, compact_json({**template("team", author.public), "n": n}), EXP)
        content = wire_enclave(finalize(manifest, node, EXP, 0), app="chat", desc=f"Team {n}")
        found.append(build_commit(author, registry, "Reg_Enclave", compact_json(content), EXP + n))
    return found, manifest.enclave


def per_second(node: Node, path: str) -> Result:
    """Return the best of three runs, because the noise of the load only slows it."""
    runs = [load(node, [b""] * REQUESTS, path=path, window=CONNECTIONS) for _ in range(3)]
    return max(runs, key=lambda result: result.per_second)


def main() -> None:
    creation = build_manifest(AUTHORS[0], compact_json(template("registry", AUTHORS[0].public)), EXP)
    os.environ["ENC_NODE_REGISTRY_ENCLAVE"] = creation.enclave.hex()
    try:
        with tempfile.TemporaryDirectory() as data, Node(Path(data)) as node:
            send(node, [wire(creation)], web_socket=False)
            commits, enclave = entries(creation.enclave)
            send(node, [wire(commit) for commit in commits], web_socket=False)
            info, resolve = per_second(node, "/info"), per_second(node, f"/resolve/{enclave.hex()}")
            proved = per_second(node, f"/resolve/{enclave.hex()}?proof=1")
            node.stop()
    finally:
        del os.environ["ENC_NODE_REGISTRY_ENCLAVE"]
    ratio = resolve.per_second / info.per_second
    print(
        f"resolve in a registry of {ENCLAVES:,} enclaves: {resolve.per_second:,.0f} requests/s = {ratio:.2f} x "
        f"GET /info ({info.per_second:,.0f}/s), at least {AT_LEAST}: {verdict('resolve', ratio >= AT_LEAST)}; "
        f"p99 {resolve.percentile(0.99):.1f} ms; with proofs {proved.per_second:,.0f}/s"
    )


if __name__ == "__main__":
    main()
