"""A node whose key a signer process holds: what clients see while that process is killed, stopped or wrong."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import encode

from enc.client import Client, Enclave, Identity
from enc.client.enclave.templates import template
from enc.core.errors import Unavailable
from enc.core.log.commit import build_commit, wire_commit
from enc.core.primitives.signing import PrivateKey
from enc.node.ops import key_file
from tests.forked import run
from tests.node.running import PATIENCE_S, RunningNode
from tests.plain_http import NO_TLS
from tests.signer_process import RunningSigner

KEY, OTHER = PrivateKey(b"\x01" * 32), PrivateKey(b"\x02" * 32)


@pytest.fixture
def signer(tmp_path: Path) -> Iterator[RunningSigner]:
    with RunningSigner(tmp_path / "s", KEY) as signer:
        yield signer


def settings(signer: RunningSigner) -> dict[str, str]:
    return {"ENC_NODE_KEY_SIGNER": str(signer.path), "ENC_NODE_KEY_SIGNER_TIMEOUT_S": "0.3"}


@pytest.fixture
def node(tmp_path: Path, signer: RunningSigner) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node", env=settings(signer)) as node:
        yield node


def team_of(client: Client, bundle: dict[str, int]) -> dict[str, Any]:
    return {**template("team", client.identity.public), "bundle": bundle}


class Team:
    """An enclave of the node, and the bare answers to what is sent about it."""

    def __init__(self, node: RunningNode, client: Client) -> None:
        self.node, self.client = node, client
        self.enclave: Enclave = client.create(team_of(client, {"size": 1}))
        self.http = httpx.Client(base_url=node.url, verify=NO_TLS, timeout=PATIENCE_S, trust_env=False)

    def post(self, text: str) -> httpx.Response:
        exp = int(time.time() * 1000) + 600_000
        commit = build_commit(self.client.identity.key, self.enclave.id, "message", text, exp)
        return self.http.post("/", content=encode(wire_commit(commit)))

    def health(self) -> tuple[int, Any]:
        answer = self.http.get("/health")
        return answer.status_code, answer.json()

    def texts(self) -> list[str | None]:
        return [item.content for item in self.enclave.query(type="message")]

    def until_well(self) -> None:
        until(lambda: self.health()[0] == 200)


@pytest.fixture
def team(node: RunningNode) -> Iterator[Team]:
    with Client(node.url, Identity.new(), pins=None, patience=0) as client:
        team = Team(node, client)
        yield team
        team.http.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "the condition never holds"


def test_the_node_signs_with_the_signer_s_key_and_has_no_file_of_it(node: RunningNode, team: Team) -> None:
    assert node.seq_pub == KEY.public
    assert team.post("one").status_code == 200
    team.enclave.commit("message", "two")
    assert team.texts() == ["one", "two"]
    assert team.enclave.head().ts == 3
    assert not (node.data / "node.key").exists()
    for file in filter(Path.is_file, node.data.iterdir()):
        data = file.read_bytes()
        assert KEY.secret not in data
        assert KEY.secret.hex().encode() not in data


@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_while_it_does_not_answer_commits_may_be_sent_again_later(
    team: Team, signer: RunningSigner, fault: str
) -> None:
    team.post("before")
    team.until_well()
    signer.kill() if fault == "killed" else signer.pause()
    for _ in range(3):
        refused = team.post("meanwhile")
        assert (refused.status_code, refused.json()["code"], refused.json()["retry_after_ms"]) == (
            503,
            "UNAVAILABLE",
            1000,
        )
        assert "Retry-After" in refused.headers
        assert refused.json()["message"].startswith(f"the signer at {signer.path} ")
    with pytest.raises(Unavailable, match="the signer at"):
        team.enclave.query(type="message").__next__()
    until(lambda: team.health()[0] == 503)
    reason = team.health()[1]["reasons"][0]
    assert reason["code"] == "signer_not_answering"
    assert reason["message"].startswith(f"the signer at {signer.path} ")
    signer.start() if fault == "killed" else signer.resume()
    team.until_well()
    assert team.post("after").status_code == 200
    assert team.texts() == ["before", "after"]
    log = team.node.log()
    assert log.count('"signer_unavailable"') == log.count('"signer_available"') == 1


def test_many_commits_wait_for_one_timeout_together(team: Team, signer: RunningSigner) -> None:
    team.until_well()
    signer.pause()
    exp = int(time.time() * 1000) + 600_000
    me, enclave = team.client.identity.key, team.enclave.id
    commits = [build_commit(me, enclave, "message", f"{i}", exp) for i in range(200)]
    answers = [team.post(commit.content or "") for commit in commits]
    assert {answer.status_code for answer in answers} == {503}
    signer.resume()
    team.until_well()
    assert team.post("after").status_code == 200
    assert team.texts() == ["after"]


def test_a_bundle_whose_time_is_up_while_it_does_not_answer_closes_later(
    node: RunningNode, signer: RunningSigner
) -> None:
    with Client(node.url, Identity.new(), pins=None) as client:
        enclave = client.create(team_of(client, {"size": 1000, "timeout": 200}))
        enclave.commit("message", "one")
        signer.kill()
        with httpx.Client(base_url=node.url, verify=NO_TLS, timeout=PATIENCE_S, trust_env=False) as http:
            until(lambda: http.get("/health").status_code == 503)
            signer.start()
            until(lambda: http.get("/health").status_code == 200)
        until(lambda: enclave.head().ts == 1)
        assert "store_failed" not in node.log()


# The start


def start(data: Path, signer: Path, **environment: str) -> tuple[int, str]:
    """Start a node that should not start; return its exit code and its error."""
    env = {"PATH": "", "ENC_NODE_KEY_SIGNER": str(signer), **environment}
    done = run(["enc", "node", "run", "--data", str(data), "--port", "0"], PATIENCE_S, env=env)
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


def test_a_node_does_not_start_without_its_signer(tmp_path: Path) -> None:
    code, error = start(tmp_path / "node", tmp_path / "s.sock")
    assert (code, error) == (
        1,
        f"enc node: the signer at {tmp_path}/s.sock cannot be reached: No such file or directory\n",
    )


def test_a_node_does_not_start_with_a_key_that_is_not_its_store_s(
    team: Team, node: RunningNode, signer: RunningSigner
) -> None:
    node.stop()
    signer.stop()
    signer.put(OTHER)
    signer.start()
    code, error = start(node.data, signer.path)
    assert code == 2
    assert error == (
        f"enc node: key.signer: the signer holds the key {OTHER.public.hex()}, but the enclaves in this store are of "
        f"{KEY.public.hex()}; start the signer with that key\n"
    )
    signer.stop()
    signer.put(KEY)
    signer.start()
    with RunningNode(node.data, env=settings(signer)) as again:
        assert again.seq_pub == KEY.public


def test_a_signer_and_a_key_file_are_one_too_many(tmp_path: Path, signer: RunningSigner) -> None:
    code, error = start(tmp_path / "node", signer.path, ENC_NODE_KEY_FILE="x")
    assert (code, error) == (
        2,
        "enc node: key.signer and key_file: set one of them: either the signer holds the key, or the file\n",
    )


def test_an_empty_key_file_takes_the_unit_s_away(tmp_path: Path, signer: RunningSigner) -> None:
    with RunningNode(tmp_path / "node", env={**settings(signer), "ENC_NODE_KEY_FILE": ""}) as node:
        assert node.seq_pub == KEY.public


def test_a_node_that_had_a_key_file_goes_on_with_a_signer(tmp_path: Path, signer: RunningSigner) -> None:
    data = tmp_path / "node"
    data.mkdir()
    key_file.save(data / "node.key", KEY, None)
    with RunningNode(data) as node, Client(node.url, Identity.new(), pins=None) as client:
        enclave = client.create("team")
    (data / "node.key").unlink()
    with RunningNode(data, env=settings(signer)) as node, Client(node.url, client.identity, pins=None) as client:
        client.enclave(enclave.id).commit("message", "with the signer")
