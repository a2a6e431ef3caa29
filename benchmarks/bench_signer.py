"""A node whose key is in its own process, and one whose key a signer process holds: durable commits, and one signature.

Both nodes run on the same cores, by turns. A signer takes the signatures of a batch in one request.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pool
from multiprocessing.pool import Pool as Workers
from pathlib import Path

from floors import best_by_turns, report
from node_commits import sign
from node_process import NAMES, Node, create, describe, send

from enc.core.primitives.signing import PrivateKey
from enc.node.ops import key_file
from enc.runtime.keys.socket_signer import SocketSigner

COMMITS, ROUNDS, ENCLAVES = 4_000, 3, 20
KEY = PrivateKey(b"\x03" * 32)


@contextmanager
def signer(folder: Path) -> Iterator[Path]:
    """Run a signer; yield the path of its socket."""
    folder.mkdir()
    key_file.save(folder / "node.key", KEY, None)
    enc, path = Path(sys.executable).with_name("enc"), folder / "s.sock"
    command = [enc, "node", "signer", "--data", folder, "--socket", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"]
        yield path
        process.terminate()


def bench_calls(path: Path) -> None:
    held, digests = SocketSigner(path), [i.to_bytes(32, "big") for i in range(1024)]

    def alone() -> None:
        for each in digests:
            held.sign("schnorr", each)

    def plain() -> None:
        for each in digests:
            KEY.sign("schnorr", each)

    for name, work, bound in (
        ("a signature through the socket", alone, 10.0),
        ("one of 1,024 in a request", lambda: held.sign_all("schnorr", digests), 2.0),
    ):
        cost, floor = best_by_turns(work, plain)
        report(name, cost / len(digests), floor / len(digests), "the key in this process", bound)
    held.close()


def bench_commits(pool: Workers, nodes: dict[str, Node]) -> None:
    enclaves = {name: create(node, 0, ENCLAVES) for name, node in nodes.items()}
    for web_socket in (False, True):
        best = {}
        for _ in range(ROUNDS):
            for name, node in nodes.items():
                result = send(node, sign(pool, enclaves[name], COMMITS), web_socket)
                if name not in best or result.per_second > best[name].per_second:
                    best[name] = result
        for name, result in best.items():
            print(f"{name}, {NAMES[web_socket]}: {result.per_second:,.0f} commits/s; {describe(result)}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, Pool() as pool, signer(Path(name) / "key") as path:
        bench_calls(path)
        settings = {"ENC_NODE_KEY_SIGNER": str(path)}
        with Node(Path(name) / "a") as own, Node(Path(name) / "b", env=settings) as other:
            bench_commits(pool, {"key in the node": own, "key in a signer": other})


if __name__ == "__main__":
    main()
