"""Two people with mailboxes: as strangers, and as contacts."""

from pathlib import Path

import pytest

from tests.cli.dm.mailboxes import Pair, know, with_mailbox
from tests.node.running import RunningNode


@pytest.fixture
def strangers(tmp_path: Path, running_node: RunningNode) -> Pair:
    return with_mailbox(tmp_path / "alice", running_node), with_mailbox(tmp_path / "bob", running_node)


@pytest.fixture
def pair(strangers: Pair) -> Pair:
    alice, bob = strangers
    know(alice, "bob", bob)
    know(bob, "alice", alice)
    alice.ask("dm", "add", "bob", "--greeting", "hi, Bob")
    bob.ask("dm", "accept", "alice")
    bob.ask("dm", "send", "alice", "hello")
    return alice, bob
