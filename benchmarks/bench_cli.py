"""What a command of `enc` costs in CPU time, beside a Python that only imports the libraries which it needs."""

import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory

from floors import verdict
from node_process import Node

ROUNDS = 15
ENC = Path(sys.executable).with_name("enc")
VERSION, QUERY = "enc --version", "enc query"
BOUNDS = {VERSION: 120, QUERY: 350}
"""Most milliseconds."""
FLOORS = {VERSION: "import typer", QUERY: "import coincurve, cryptography.fernet, httpx._client, msgspec, typer"}
"""What each command must at least import."""


def cpu_ms(command: list[str], variables: dict[str, str]) -> float:
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)  # noqa: S603
    after = getrusage(RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def main() -> None:
    with TemporaryDirectory() as folder, Node(Path(folder) / "node") as node:
        variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        variables |= {"HOME": folder, "ENC_NODE": f"http://127.0.0.1:{node.port}"}
        for command in ("key new --no-passphrase", "enclave create team --use", "commit message hello"):
            cpu_ms([str(ENC), *command.split()], variables)
        for name, bound in BOUNDS.items():
            command, floor = [str(ENC), *name.split()[1:]], [sys.executable, "-c", FLOORS[name]]
            rounds = [(cpu_ms(command, variables), cpu_ms(floor, variables)) for _ in range(ROUNDS)]
            cost, least = (min(each) for each in zip(*rounds, strict=True))
            print(
                f"{name}: {cost:.0f} ms of CPU = {cost / least:.2f} x `{FLOORS[name]}` ({least:.0f} ms), "
                f"at most {bound} ms: {verdict(name, cost <= bound)}"
            )
        node.stop()


if __name__ == "__main__":
    main()
