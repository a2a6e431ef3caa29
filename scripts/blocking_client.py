#!/usr/bin/env python3
"""Generates the blocking client, commit queue and table from the async ones, by replacing tokens (as httpcore does
with unasync).

python scripts/blocking_client.py           writes client.py, commit_queue.py and table.py
python scripts/blocking_client.py --check   exits with 1 if one of them is stale
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "src/enc/client/clients"
TITLES = {
    "client": "The blocking client: `Client` talks to one node, `Enclave` is one log on it.",
    "commit_queue": "The blocking commit queue: keeps commits in a file, and sends them when their nodes answer.",
    "table": "The blocking table: folds the events that an enclave's `query` and `subscribe` return into rows.",
}
HEADER = '''"""{title}

Generated from `async_{name}.py` by `scripts/blocking_client.py`: do not edit.
"""'''
TOKENS = (
    (r"import asyncio\n", "import time\n"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\basync_(http|sleep)\b", r"\1"),
    (r"Awaitable\[Any\]", "Any"),
    (r" Awaitable,", ""),
    (r"clients\.async_(commit_queue|table)\b", r"clients.\1"),
    (r"Coroutine\[Any, Any, (\w+)\]", r"\1"),
    (r"\bAsyncIterator, Coroutine,", "Iterator,"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\banext\b", "next"),
    (r"\brun_async\b", "run"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"for (\w+) in (.+):\n +yield \1\n", r"yield from \2\n"),
)
"""Patterns and their replacements, in order."""


def generate(name: str, title: str) -> str:
    """Return a blocking module's source, formatted."""
    header, source = HEADER.format(title=title, name=name), FOLDER / f"async_{name}.py"
    text = re.sub(r'\A""".*?"""', lambda _: header, source.read_text(), count=1, flags=re.DOTALL)
    for pattern, replacement in TOKENS:
        text = re.sub(pattern, replacement, text)
    for command in (["check", "--fix-only", "--quiet", "--select", "I"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(FOLDER / f"{name}.py"), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout  # noqa: S603
    return text


def main() -> int:
    made = {FOLDER / f"{name}.py": generate(name, title) for name, title in TITLES.items()}
    if sys.argv[1:] != ["--check"]:
        for path, text in made.items():
            path.write_text(text)
        return 0
    return int(any(text != path.read_text() for path, text in made.items()))


if __name__ == "__main__":
    sys.exit(main())
