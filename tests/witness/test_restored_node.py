"""A node is lost and comes back from a copy, with the same key, while a witness watches: nobody is convicted."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from enc.cli import app
from enc.client import Client, Identity
from enc.client.enclave.templates import template
from enc.core.errors import ReadOnly
from tests.client.moved import create_team, town
from tests.node.running import RunningNode, free_port
from tests.witness.launcher import Launcher
from tests.witness.running import RunningWitness, until

asked: dict[str, int] = {}
"""How often `answered` has asked each node."""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


def enc(*args: str | Path) -> Result:
    return CliRunner().invoke(app, ["node", *map(str, args)], catch_exceptions=False)


def done(*args: str | Path) -> str:
    result = enc(*args)
    assert result.exit_code == 0, result.output
    return result.stdout


def answered(node: RunningNode) -> int:
    """Return the number of requests that a node has answered, without those of this function."""
    asked[node.url] = asked.get(node.url, 0) + 1
    page = httpx.get(f"{node.url}/metrics").text
    totals = [float(line.split()[1]) for line in page.splitlines() if line.startswith("enc_requests_total{")]
    return round(sum(totals)) - asked[node.url]


class Scene:
    """A node at a fixed port, an enclave on it with an open bundle of two events, and a witness of it."""

    def __init__(self, launcher: Launcher, folder: Path, *flags: str) -> None:
        self.folder, self.data, self.port, self.owner = folder, folder / "node", str(free_port()), Identity.new()
        self.flags = ("--port", self.port, *flags)
        with self.node() as node, self.client(node) as client:
            manifest = {**template("team", self.owner.public), "bundle": {"size": 3, "timeout": 600_000}}
            self.team = client.create(manifest)
            self.id, self.hex = self.team.id, self.team.hex
            self.team.commit("message", "one")
            self.witness = RunningWitness(launcher, folder / "witness", f"{self.hex}@{node.url}")
            until(lambda: self.witness.state(self.id) == "ok")
            self.use(node, client)
        self.seq_pub = node.seq_pub

    def use(self, node: RunningNode, client: Client) -> None:
        """Do what the test needs while the first node runs."""

    def node(self, data: Path | None = None, **env: str) -> RunningNode:
        return RunningNode(data or self.data, *self.flags, env=env)

    def client(self, node: RunningNode, **more: Any) -> Client:
        return Client(node.url, self.owner, pins=None, patience=0, **more)

    def watched(self, node: RunningNode, requests: int = 12) -> list[Any]:
        """Return the witness's evidence that convicts somebody, after it has sent this node more requests."""
        last = answered(node) + requests
        until(lambda: answered(node) >= last)
        evidence: list[Any] = self.witness.get("/evidence")["evidence"]
        return [each for each in evidence if each["convicts"]]

    def adopt(self, data: Path, *more: str | Path) -> Result:
        return enc("adopt", "--data", data, "--witness", f"{self.witness.url}={self.witness.key.hex()}", *more)


class Lost(Scene):
    """Its node was backed up, accepted one more commit, which closed the bundle, and was lost."""

    def use(self, node: RunningNode, client: Client) -> None:
        done("backup", "--data", self.data, "--to", self.folder / "copy.db")
        self.team.commit("message", "two")
        self.witness.sees(self.id, 1)

    def restored(self) -> Path:
        """Restore as docs/operations.md says."""
        data = self.folder / "restored"
        data.mkdir()
        shutil.copy(self.folder / "copy.db", data / "enc.db")
        shutil.copy2(self.data / "node.key", data / "node.key")
        assert done("fsck", "--data", data).startswith("clean")
        return data


def test_a_node_restored_from_a_backup_convicts_nobody(launcher: Launcher, tmp_path: Path) -> None:
    scene = Lost(launcher, tmp_path)
    with scene.witness:
        data, nowhere = scene.restored(), f"http://127.0.0.1:{free_port()}"
        registry = {"ENC_NODE_REGISTRY_ANNOUNCE_TO": f"{nowhere}#{'ab' * 32}", "ENC_NODE_PUBLIC_URL": nowhere}
        with scene.node(data, **registry) as node, scene.client(node) as client:
            assert httpx.get(f"{node.url}/health").json()["status"] == "restored"
            team = client.enclave(scene.hex)
            assert [item.content for item in team.query(type="message")] == ["one"]
            with pytest.raises(ReadOnly, match="signs nothing until its operator adopts the store"):
                team.commit("message", "another two")
            assert scene.watched(node) == []
            assert "not_registered" not in node.log(), "it does not even try"
        refused = scene.adopt(data, "--yes")
        assert refused.exit_code == 1
        assert refused.stdout == f"{scene.hex}: {scene.witness.url} has a log of 1 bundles; this store has 0\n"
        assert refused.stderr.startswith(f"enc node: not adopted: {scene.witness.url} has something newer")
        with scene.node(data) as node:
            assert httpx.get(f"{node.url}/info").json()["restored"].startswith("a backup made at ")


def test_its_owners_move_to_a_new_key_and_nobody_is_convicted(launcher: Launcher, tmp_path: Path) -> None:
    scene = Lost(launcher, tmp_path)
    with scene.witness:
        data, fresh = scene.restored(), tmp_path / "fresh"
        assert "1 enclave can move to the key" in done("adopt", "--data", data, "--new-key", fresh)
        with scene.node(data) as old, RunningNode(fresh) as node:
            assert node.seq_pub != scene.seq_pub
            archive = fresh / "archives" / f"{scene.hex}.enc"
            command = f"enc migrate {scene.hex} --force --archive archives/{scene.hex}.enc --to URL"
            assert command in (fresh / "moves.txt").read_text().splitlines()
            with scene.client(node) as client:
                moved = client.enclave(scene.hex)
                moved.migrate(node.url, tmp_path / "moves", archive=archive)
                moved.commit("message", "another two")
                assert [item.content for item in moved.query(type="message")] == ["one", "another two"]
            assert scene.watched(old) == []


def test_a_stopped_node_that_was_copied_is_adopted(launcher: Launcher, tmp_path: Path) -> None:
    scene = Scene(launcher, tmp_path, "--no-dev")
    with scene.witness:
        with scene.node() as node, scene.client(node) as client:
            client.enclave(scene.hex).commit("message", "two")
            scene.witness.sees(scene.id, 1)
        copy = tmp_path / "copy"
        shutil.copytree(scene.data, copy)
        with scene.node(copy) as node, scene.client(node) as client, pytest.raises(ReadOnly):
            client.enclave(scene.hex).commit("message", "three")
        adopted = scene.adopt(copy, "--yes")
        assert adopted.exit_code == 0, adopted.output
        assert f"{scene.witness.url}: nothing newer; it has 1 head of this node's enclaves" in adopted.stdout
        with scene.node(copy) as node, scene.client(node) as client:
            team = client.enclave(scene.hex)
            for text in ("three", "four", "five"):
                team.commit("message", text)
            scene.witness.sees(scene.id, 2)
            assert scene.watched(node) == []
            assert httpx.get(f"{node.url}/health").json() == {"status": "ok"}
        again = scene.adopt(copy, "--yes")
        assert (again.exit_code, again.stderr) == (
            2,
            f"enc node: {copy / 'enc.db'}: not restored: the node may run as it is\n",
        )


def test_a_developer_s_node_is_no_copy_wherever_it_is(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node"):
        pass
    shutil.copytree(tmp_path / "node", tmp_path / "copy")
    with RunningNode(tmp_path / "copy") as node:
        assert httpx.get(f"{node.url}/info").json()["restored"] is None
    with RunningNode(tmp_path / "copy", "--no-dev") as node:
        assert httpx.get(f"{node.url}/info").json()["restored"] is None, "nothing was recorded before"


def test_a_registry_knows_that_an_enclave_has_moved_or_is_missing(tmp_path: Path) -> None:
    owner = Identity.new()
    with town(tmp_path, "a", "b") as place:
        data, url = tmp_path / "a", place.nodes["b"].url
        with place.client(owner, "a") as client:
            moving, staying = (create_team(client, meta={"n": n}) for n in range(2))
            for each in (moving, staying):
                each.register()
            done("backup", "--data", data, "--to", tmp_path / "copy.db")
            moving.migrate(url, tmp_path / "moves")
            lacking = create_team(client, meta={"n": 2})
            lacking.register()
        (tmp_path / "restored").mkdir()
        shutil.copy(tmp_path / "copy.db", tmp_path / "restored" / "enc.db")
        shutil.copy2(data / "node.key", tmp_path / "restored" / "node.key")
        refused = enc("adopt", "--data", tmp_path / "restored", "--registry", place.text, "--yes")
        assert refused.exit_code == 1
        where = place.registry.url
        assert sorted(refused.stdout.splitlines()) == sorted(
            [
                f"{moving.hex}: {where} has a move to {place.nodes['b'].seq_pub.hex()}",
                f"{lacking.hex}: {where} has an enclave that this store lacks",
            ]
        )
