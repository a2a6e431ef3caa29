"""Run the benchmarks named on the command line, or all of them: `python benchmarks/run.py [name …]`.

Each prints its figure beside the physical floor measured in the same run. Time is the best of many rounds, work and
floor by turns, so that a machine that slows down for a while slows both. A bound that was missed makes it fail.
"""

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> None:
    sys.path.insert(0, str(FOLDER))
    names = sys.argv[1:] or sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))
    for name in names:
        importlib.import_module(f"bench_{name}").main()
    missed = importlib.import_module("floors").missed
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
