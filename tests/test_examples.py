"""Every program in examples/ runs to its end and prints the expected lines."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
HELPERS = {"local_node.py", "relay.py", "background_server.py"}
"""Modules that the programs share."""
ELSEWHERE = {"dataview_activity.py", "demo.py"}
"""Programs that need Spark: tests/dataview and tests/test_demo.py run them."""
SHORT = (
    "todo_list.py",
    "audit_log.py",
    "tested_app.py",
    "live_feed.py",
    "webhook.py",
    "offline_notes.py",
    "migrate_enclave.py",
    "personal_store.py",
    "direct_messages.py",
    "contacts.py",
    "group_chat.py",
    "witnesses.py",
)
"""Programs that app developers read first."""
PATIENCE_S = 120
"""How long a program may take before it counts as stuck."""

SAYS = {
    "first_enclave.py": [
        "UNAUTHORIZED",
        "Proved under the node's signed head",
        "INVALID_PROOF",
        "INVALID_ARCHIVE",
        "INVALID_HASH",
    ],
    "todo_list.py": [
        "Alice MEMBER, Bob MEMBER, Carol GUEST",
        "Carol adds a task: rejected: no entry of the manifest allows C on task",
        "Bob deletes Alice's: rejected: no entry of the manifest allows D on task",
        "  [x] milk, by Alice\n  [ ] bread, by Bob\nThe status of the three, proved: updated, active, deleted",
    ],
    "audit_log.py": [
        "Even its owner cannot delete one: no entry of the manifest allows D on entry",
        "proved to be complete: 4 events",
        "Unchanged\n  ",
        "made it event 2",
        "after bundle 2 it is active",
        "With its content changed\n  FORGED: hash: not the hash of this commit's fields",
        "Moved to another seq\n  FORGED: seq_sig: not the sequencer's signature over this event",
    ],
    "tested_app.py": ["3 passed"],
    "live_feed.py": [
        "  Anna receives seq 2: Rain at noon.\n  Anna receives seq 3: Sun at four.\nHis connection is restored",
        "Both received all four, in order, each once.",
    ],
    "webhook.py": [
        "Pushed, checked and counted, by seq: 2 3 4",
        "It is back: 5 6\nThe log moves to another node. There, too: True\n",
        "Sold in all: {'cake': 1, 'soup': 1, 'tea': 4}",
    ],
    "offline_notes.py": [
        "In the tunnel:\n  It is dark.: waits: UNREACHABLE\n  2 in the queue\n",
        "  It is dark.: event 2\n  Still dark.: event 3\n  Light!: event 4\n  0 in the queue\n",
        "all four, in order, each once.",
    ],
    "migrate_enclave.py": [
        "Bob receives at the old node: We move tomorrow.\n"
        "  copy\n  hold\n  sign\n  migrate\n  import\n  wait\n  verify\n",
        "Bob writes, and receives: We have moved.\nHis client is at the new node now: True\n",
        "hands over to",
        "The old node: another node is the sequencer.",
    ],
    "personal_store.py": [
        "The second device shows her profile: Ada - I count.\nand has her documents: Diary (note) Soup (recipe)\n",
        "by the word 'again': It rained again.\n",
        'What the node stores of it: {"ciphertext":"',
        "Bob's notice is pending and has no effect yet.\n",
        "It is confirmed by a proof: Garden\nThe secret in it opens: True\nEve's notice stays pending",
    ],
    "direct_messages.py": [
        "Bob is invited: Hi, it is Ada\n",
        "  Bob: Hello, Ada\n  Ada: Dinner at 8? (edited)\n  Bob: (retracted)\n  Ada: I bring dessert\n",
        'What the node stores of her last message: {"ciphertext":"',
        "  Bob: Are you there? [refused: UNAUTHORIZED]\nHis new phone has the same thread: True\n",
    ],
    "contacts.py": [
        "Bob's card: enc:card:",
        "An altered card is rejected: signature: not by the key in the card",
        "Sealed for her other devices: 2 entries\nHer phone knows: Bob\n  Ada: Hi, it is Ada\n  Bob: Hello, Ada\n",
    ],
    "group_chat.py": [
        "Bob has left and Cleo has joined: epoch 3, fresh.\nCleo receives: Welcome, Cleo.\n",
        "Ann reads:\n  Ann: Hello, Bob. [👋 Bob]\n  Bob: Hello, Ann.\n  Ann: Welcome, Cleo.\n",
        "Cleo reads:\n  Ann: (",
        "any plaintext: False\nBob: you may not read the group",
    ],
    "witnesses.py": [
        "Alice sees a log of 3 bundles.\nWitnesses that have seen all of it: 1 of 1\n",
        "Bob sees a log of 3 bundles, and its proofs are valid.\nBob asks the witness too: FORK: ",
        "The evidence convicts the node:\n",
        "signed two heads of 3 bundles with different roots",
        "co-signed the first, of 3 bundles",
    ],
    "raw_protocol.py": ["seq 3: 'note 2', under a signed head of 1 bundle", "received: 'live'", "exit code 0"],
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} - HELPERS - ELSEWHERE == set(SAYS)


@pytest.mark.parametrize("name", SHORT)
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 60


def test_the_ledger_is_short_and_its_tests_pass() -> None:
    files = sorted((EXAMPLES / "ledger").glob("*.py"))
    assert sum(len(path.read_text().splitlines()) for path in files) < 200
    assert "2 passed" in run("-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", str(EXAMPLES / "ledger"))


@pytest.mark.parametrize("name", SAYS)
def test_example(name: str) -> None:
    out = run(str(EXAMPLES / name))
    for words in SAYS[name]:
        assert words in out


def run(*args: str) -> str:
    """Return what Python prints, which must end without an error."""
    command = [sys.executable, *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its node too
            raise
    assert process.returncode == 0, (out, err)
    assert not err
    return out
