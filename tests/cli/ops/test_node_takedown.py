"""`enc node ban`, `suspend`, `purge` and their kin, at a running node."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.cli.ops.node_ban import parse_duration
from enc.client import Client, Enclave, Identity
from enc.core.errors import Banned, EnclavePurged, EnclaveSuspended, MisuseError
from tests.cli.ops.node_command import enc, failure
from tests.node.running import RunningNode

pytestmark = pytest.mark.usefixtures("plain_environment")

ALICE = Identity.new()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node") as node:
        yield node


@pytest.fixture
def enclave(node: RunningNode, tmp_path: Path) -> Iterator[Enclave]:
    with Client(node.url, ALICE, pins=tmp_path / "pins") as client:
        enclave = client.create("team")
        enclave.commit("message", "hello")
        yield enclave


def ordered(node: RunningNode, *args: str) -> str:
    result = enc(*args, "--data", node.data)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_a_banned_identity_is_refused_until_the_ban_is_lifted(node: RunningNode, enclave: Enclave) -> None:
    public = ALICE.public.hex()
    assert ordered(node, "ban", public, "--for", "7d", "--reason", "spam").startswith(f"banned: {public}, until 2")
    with pytest.raises(Banned):
        enclave.commit("message", "again")
    with pytest.raises(Banned):
        list(enclave.query())
    (line,) = ordered(node, "bans", "--json").splitlines()
    listed = json.loads(line)
    assert (listed["target"], listed["reason"], listed["until"] - listed["since"]) == (public, "spam", 604_800_000)
    assert ordered(node, "unban", public) == f"no longer banned: {public}\n"
    enclave.commit("message", "again")
    assert ordered(node, "bans") == ""
    assert '"operation": "ban"' in node.log()
    assert "operator_action" in node.log()


def test_a_banned_address_is_refused_until_the_ban_is_lifted(node: RunningNode, enclave: Enclave) -> None:
    assert ordered(node, "ban", "127.0.0.1") == "banned: 127.0.0.1\n"
    with pytest.raises(Banned, match="has banned this address"):
        list(enclave.query())
    assert ordered(node, "bans").startswith("127.0.0.1\t-\t2")
    ordered(node, "unban", "127.0.0.1")
    assert len(list(enclave.query())) > 1


def test_a_suspended_enclave_is_served_again_after_resume(node: RunningNode, enclave: Enclave) -> None:
    id_ = enclave.id.hex()
    assert ordered(node, "suspend", id_, "--reason", "court_order", "--full") == f"suspended: {id_}\n"
    with pytest.raises(EnclaveSuspended) as caught:
        list(enclave.query())
    assert caught.value.context == {"reason": "court_order"}
    assert ordered(node, "suspended").startswith(f"{id_}\tcourt_order\tfull\t2")
    assert json.loads(ordered(node, "suspended", "--json"))["full"] is True
    assert ordered(node, "resume", id_) == f"served again: {id_}\n"
    enclave.commit("message", "again")


def test_the_owner_of_a_suspended_enclave_moves_it_away(node: RunningNode, enclave: Enclave, tmp_path: Path) -> None:
    ordered(node, "suspend", enclave.id.hex())
    with RunningNode(tmp_path / "other") as other:
        enclave.migrate(other.url, tmp_path / "move")
        enclave.commit("message", "at the other node")


def test_a_banned_owner_moves_the_enclave_away(node: RunningNode, enclave: Enclave, tmp_path: Path) -> None:
    ordered(node, "ban", ALICE.public.hex())
    with RunningNode(tmp_path / "other") as other:
        enclave.migrate(other.url, tmp_path / "move")
        enclave.commit("message", "at the other node")


def test_a_purged_enclave_is_gone_also_after_a_crash(node: RunningNode, enclave: Enclave) -> None:
    id_ = enclave.id.hex()
    message = failure(enc("purge", id_, "--data", node.data))
    assert message == f"purge {id_}: this deletes the enclave for ever; repeat the command with --yes"
    assert ordered(node, "purge", id_, "--yes") == f"purged: {id_}\n"
    with pytest.raises(EnclavePurged, match="has deleted this enclave"):
        list(enclave.query())
    node.kill()  # perhaps before all slices are deleted: the next start goes on
    with RunningNode(node.data) as again, Client(again.url, ALICE) as client, pytest.raises(EnclavePurged):
        list(client.enclave(enclave.id).query())
    result = enc("fsck", "--data", node.data)
    assert (result.exit_code, result.stdout) == (0, "clean: 1 enclaves, 0 events\n")


# Wrong use


def test_wrong_orders(node: RunningNode) -> None:
    data = ("--data", node.data)
    assert failure(enc("ban", "example.com", *data)).startswith("'example.com': expected an identity")
    assert failure(enc("unban", "203.0.113.7", *data)).startswith("203.0.113.7: is not banned")
    assert failure(enc("suspend", "00" * 32, *data), 1) == f"enclave {'00' * 32}: is not on this node"
    assert failure(enc("resume", "00" * 32, *data)).startswith(f"{'00' * 32}: is not suspended")
    wrong = failure(enc("suspend", "00" * 32, "--reason", "no", *data))
    assert wrong.startswith("reason: 'no': expected one of illegal")


def test_the_node_must_run(tmp_path: Path) -> None:
    message = failure(enc("bans", "--data", tmp_path), 1)
    assert message == f"no node is running on {tmp_path}; start it with `enc node run`"


def test_durations() -> None:
    found = [parse_duration(text) for text in ("90s", "30m", "12h", "7d", "4w")]
    assert found == [90, 1800, 43_200, 604_800, 2_419_200]


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "7 d", "7y", "1.5h", "٣d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(MisuseError, match="expected a number and a unit, s, m, h, d or w"):
        parse_duration(text)
