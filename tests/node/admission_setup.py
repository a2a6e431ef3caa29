"""Nodes with rules about admission, and their answers."""

from typing import Any

from msgspec.structs import replace

from enc.core.errors import EncError
from enc.core.log.commit import wire_commit
from enc.core.log.receipt import parse_receipt
from enc.core.primitives.types import Commit, Receipt
from enc.node.config import AdmissionSettings, NodeConfig
from tests.node.served import DEV, SMALL, Served, bad


def admitting(**settings: Any) -> NodeConfig:
    return replace(DEV, admission=AdmissionSettings(**settings))


def try_create(node: Served, name: str, n: int = 0) -> Receipt | EncError:
    """Send a Manifest by `name`; another `n` makes another enclave."""
    return outcome(node, node.manifest({**SMALL, "meta": {"by": name, "n": n}}, name))


def outcome(node: Served, commit: Commit) -> Receipt | EncError:
    response = node.post(wire_commit(commit))
    return parse_receipt(response.content) if response.status_code == 200 else bad(response)


def codes(outcomes: list[Receipt | EncError]) -> list[str]:
    return [found.code if isinstance(found, EncError) else "" for found in outcomes]
