"""An app with its tests: a guest book, tested with nodes inside pytest. `pytest examples/tested_app.py` runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

from enc.client import Distrust, Enclave, Unreachable
from enc.core.errors import Unauthorized
from enc.testing import Identities, Liar, LocalNetwork, LocalNode, local_node

pytest_plugins = ["enc.testing.plugin"]


def lines(book: Enclave) -> list[str]:
    """Return the entries, or one line that says why there are none."""
    try:
        return [f"{item.seq}: {item.content}" for item in book.query(type="post")]
    except Distrust as error:
        return [f"The node lies: {type(error).__name__}"]
    except Unreachable:
        return ["The node does not answer."]


def test_everybody_reads_and_only_the_owner_writes(node: LocalNode, identities: Identities) -> None:
    with node.client(identities["ada"]) as ada, node.client(identities["bob"]) as bob:
        book = ada.create("feed")  # the owner publishes, and everybody reads
        book.commit("post", "Welcome")
        assert lines(bob.enclave(book.id)) == ["1: Welcome"]
        with pytest.raises(Unauthorized):
            bob.enclave(book.id).commit("post", "I was here")


def test_the_book_survives_a_move(node: LocalNode, network: LocalNetwork, tmp_path: Path) -> None:
    with local_node("new.test", network=network) as new, node.client(nodes=[new.url]) as ada:
        book = ada.create("feed")
        book.commit("post", "Welcome")
        book.migrate(new.url, tmp_path)
        node.close()
        assert lines(book) == ["1: Welcome"]


def test_a_node_that_lies_or_is_gone_is_reported(liar: Liar, network: LocalNetwork) -> None:
    with liar.client() as ada:
        book = ada.create("feed")
        book.commit("post", "Welcome")
        liar.lie("Query", lambda answer: answer["events"][-1]["event"].update(content="Welcome, fools"))
        assert lines(book) == ["The node lies: Forgery"]
        network.sites.clear()
        assert lines(book) == ["The node does not answer."]


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__]))  # noqa: S603
