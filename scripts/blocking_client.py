#!/usr/bin/env python3
"""Generates the blocking client from the async one, by replacing tokens (as httpcore does with unasync).

python scripts/blocking_client.py           writes client.py
python scripts/blocking_client.py --check   exits with 1 if client.py is stale
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
(SOURCE,) = (ROOT / "src/enc/client").rglob("async_client.py")
TARGET = SOURCE.with_name("client.py")

HEADER = '''"""The blocking client: `Client` talks to one node, `Enclave` is one log on it.

Generated from `async_client.py` by `scripts/blocking_client.py`: do not edit.
"""'''
TOKENS = (
    (r"import asyncio\n", "import time\n"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\basync_(http|sleep)\b", r"\1"),
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


def generate() -> str:
    """Return the blocking client's source, formatted."""
    text = re.sub(r'\A""".*?"""', lambda _: HEADER, SOURCE.read_text(), count=1, flags=re.DOTALL)
    for pattern, replacement in TOKENS:
        text = re.sub(pattern, replacement, text)
    for command in (["check", "--fix-only", "--quiet", "--select", "I"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout  # noqa: S603
    return text


def main() -> int:
    made = generate()
    if sys.argv[1:] != ["--check"]:
        TARGET.write_text(made)
        return 0
    return int(made != TARGET.read_text())


if __name__ == "__main__":
    sys.exit(main())
