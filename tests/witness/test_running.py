"""Witnesses as processes: real nodes, real sockets, kills, moves, and a node that shows different
logs.
"""

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from enc.client import Client, ClientSettings, Fork, Identity, NotWitnessed, check_evidence, load_evidence
from enc.client.enclave.templates import template
from enc.core.log.commit import build_commit, build_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.testing.lying_node import LyingNode
from tests.cli.people import Person
from tests.client.moved import town
from tests.core.world import LIFETIME, person
from tests.node.running import RunningNode
from tests.node.served import NODE, SMALL, Clock
from tests.witness.launcher import Launcher
from tests.witness.running import Liar, RunningWitness, until

AT_ONCE = {"bundle": {"size": 1}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("witnessed") / "node") as node:
        yield node


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


def create_team(client: Client, **more: Any) -> Any:
    return client.create({**template("team", client.identity.public), **AT_ONCE, "meta": more})


def test_real_witnesses_of_a_real_node(launcher: Launcher, node: RunningNode, tmp_path: Path) -> None:
    owner = Identity.new()
    with Client(node.url, owner, pins=None) as client:
        team, other = create_team(client, n=1), create_team(client, n=2)
        listed = [f"{each.hex}@{node.url}" for each in (team, other)]
        with (
            RunningWitness(launcher, tmp_path / "one", *listed) as one,
            RunningWitness(launcher, tmp_path / "two", listed[0], flags=("--log-format", "console")) as two,
        ):
            team.commit("message", "hello")
            for each in (one, two):
                assert each.sees(team.id, 2).sequencer == node.seq_pub
            with Client(
                node.url,
                owner,
                pins=None,
                patience=0,
                settings=ClientSettings(witnesses=[one.witness, two.witness], lag=0),
            ) as reader:
                found = reader.enclave(team.id).witnessed()
                assert found is not None
                assert str(found) == "2 of 2"
                one.sees(other.id, 1)
                with pytest.raises(NotWitnessed, match="1 of 2 witnesses confirm"):
                    reader.enclave(other.id).head()
            assert one.state(team.id) == "ok"
            assert two.get("/")["witness"] == two.key.hex()


def test_it_goes_on_where_it_stopped(launcher: Launcher, node: RunningNode, tmp_path: Path) -> None:
    with Client(node.url, Identity.new(), pins=None) as client:
        team = create_team(client, n=3)
        listed = f"{team.hex}@{node.url}"
        with RunningWitness(launcher, tmp_path / "w", listed) as first:
            before = first.sees(team.id, 1)
        team.commit("message", "hello")
        with RunningWitness(launcher, tmp_path / "w", listed) as second:
            assert second.key == first.key
            second.sees(team.id, 2)
            lines = second.get("/heads")
            assert [line["sth"]["ts"] for line in lines] == [1, 2]
            assert lines[0]["seen"] == before.seen
            assert second.ends(signal.SIGINT) == 0
    assert '"event": "stopped"' in second.log()


POINTS = [
    "before HeadLedger store",
    "after HeadLedger _write_pin",
    "after HeadLedger _cosign",
    "after HeadLedger store",
]
"""Before anything is written; twice within the transaction; and when it is on disk, but not yet
published.
"""


@pytest.fixture
def liar(tmp_path: Path) -> Iterator[tuple[Liar, bytes, LyingNode, LyingNode]]:
    """Serve two logs of one key: two common bundles, and a different third."""
    clock = Clock()
    node = LyingNode(clock, NODE)

    def write(to: LyingNode, text: str) -> None:
        taken = to.take(build_commit(person("bob"), enclave, "message", text, clock.now + LIFETIME))
        assert isinstance(taken, Receipt), taken
        to.sequencer.run_once([])

    manifest = build_manifest(person("alice"), compact_json({**SMALL, "bundle": {"size": 1}}), clock.now + LIFETIME)
    node.take(manifest)
    enclave = manifest.enclave
    write(node, "for all")
    twin = node.copy()
    write(node, "for you")
    write(twin, "for others")
    with Liar({"a": node, "b": twin}) as served:
        yield served, enclave, node, twin


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_it_co_signs_one_log(launcher: Launcher, liar: Any, tmp_path: Path, point: str) -> None:
    """The witness dies over the third bundle of one log, and gets the other log's when it is back."""
    served, enclave, node, twin = liar
    witness = RunningWitness(launcher, tmp_path / "w", f"{enclave.hex()}@{served.url('a')}", point=point)
    assert witness.ends() == -signal.SIGKILL
    served.views["a"] = twin
    with RunningWitness(launcher, tmp_path / "w", f"{enclave.hex()}@{served.url('a')}") as again:
        until(lambda: again.state(enclave) in ("ok", "disputed"))
        state, lines = again.state(enclave), again.get("/heads")
        is_signed = point == "after HeadLedger store"
        assert state == ("disputed" if is_signed else "ok")
        assert len(lines) == 1
        shown = (node if is_signed else twin).proofs(enclave).sth()
        assert lines[0]["sth"]["r"] == shown["r"], "one root of this size, for good"
        served.views["a"] = node
        if is_signed:
            until(lambda: again.state(enclave) == "ok")
        else:
            until(lambda: again.state(enclave) == "disputed")
        assert again.get("/heads") == lines


def test_killed_over_evidence_it_is_found_again(launcher: Launcher, liar: Any, tmp_path: Path) -> None:
    served, enclave, _, twin = liar
    listed = f"{enclave.hex()}@{served.url('a')}"
    with RunningWitness(launcher, tmp_path / "w", listed) as first:
        first.sees(enclave, 3)
    served.views["a"] = twin
    dying = RunningWitness(launcher, tmp_path / "w", listed, point="before EvidenceStore _write")
    assert dying.ends() == -signal.SIGKILL
    with RunningWitness(launcher, tmp_path / "w", listed) as again:
        (filed,) = again.get("/evidence")["evidence"]
        body = again.http.get(f"/evidence/{filed['id']}").content
    (path,) = (tmp_path / "w/evidence").iterdir()
    assert path.read_bytes() == body
    assert check_evidence(load_evidence(body)).convicts


def test_different_logs_for_different_people(launcher: Launcher, liar: Any, tmp_path: Path) -> None:
    """Two witnesses and a client are shown two logs of one size: any comparison convicts."""
    served, enclave, _, _ = liar
    with (
        RunningWitness(launcher, tmp_path / "one", f"{enclave.hex()}@{served.url('a')}") as one,
        RunningWitness(launcher, tmp_path / "two", f"{enclave.hex()}@{served.url('b')}") as two,
    ):
        roots = {each.sees(enclave, 3).head.r for each in (one, two)}
        assert len(roots) == 2
        for view, other in (("a", two), ("b", one)):
            with Client(
                served.url(view), pins=None, settings=ClientSettings(witnesses=[one.witness, two.witness], k=1)
            ) as client:
                with pytest.raises(Fork) as error:
                    client.enclave(enclave).head()
                verdict = check_evidence(load_evidence(error.value.evidence.json()))
                assert verdict.convicts
                assert other.key.hex() in verdict.proved[-1]
        for each in (one, two):
            (filed,) = each.get("/evidence")["evidence"]
            assert filed["convicts"], "the client has sent it"
        brought = one.http.post("/heads", content=two.http.get(f"/heads/{enclave.hex()}").content)
        assert brought.json()["verdict"] == "contradiction", "witnesses can compare with each other as well"


def test_at_the_command_line(launcher: Launcher, liar: Any, tmp_path: Path) -> None:
    served, enclave, _, _ = liar
    bob = Person(tmp_path / "home")
    with RunningWitness(launcher, tmp_path / "one", f"{enclave.hex()}@{served.url('a')}") as one:
        one.sees(enclave, 3)
        witness = f"{one.url}={one.key.hex()}"
        good = ("head", "--node", served.url("a"), "--enclave", enclave.hex(), "--witness", witness)
        (found,) = bob.ask_json(*good, "--witnesses", "1")
        assert found["witnessed"]["count"] == found["witnessed"]["needed"] == found["witnessed"]["of"] == 1
        assert found["witnessed"]["cosigned"][0]["witness"] == one.key.hex()
        assert bob.ask(*good).stdout.splitlines()[1] == "witnessed: 1 of 1"
        nobody = f"http://127.0.0.1:1={Identity.new().hex}"
        late = bob.ask(*good, "--witness", nobody, "--timeout", "0.2", "--json", code=3)
        error = json.loads(late.stderr)["error"]
        assert (error["code"], error["witnessed"], error["needed"]) == ("NOT_WITNESSED", 1, 2)
        bob.ask("config", "set", "witnesses", f"1 {witness} {nobody}")
        assert "witnessed: 1 of 2" in bob.run("head", "--node", served.url("a"), "--enclave", enclave.hex())
        assert (
            "no witness is set"
            in bob.refused("head", *good[1:5], "--witnesses", "1", code=2, ENC_CONFIG="none")["message"]
        )
        bob.ask(*good, "--witnesses", "2", code=2)
        (bob.pins / f"{enclave.hex()}.json").unlink()
        lie = json.loads(
            bob.ask("head", "--node", served.url("b"), "--enclave", enclave.hex(), "--json", code=4).stderr
        )
        assert lie["error"]["code"] == "FORK"
        (shown,) = bob.ask_json("verify", bob.home / lie["error"]["evidence"])
        assert (shown["ok"], shown["kind"]) == (True, "fork")
        assert one.key.hex() in shown["proved"][-1]


def test_a_registry_says_where_and_a_real_move_is_followed(launcher: Launcher, tmp_path: Path) -> None:
    walter, key, owner = Identity.new(), tmp_path / "witness.key", Identity.new()
    walter.save(key)
    with town(tmp_path, "old", "new") as place, place.client(owner, "old") as client:
        team = create_team(client)
        team.move(walter.public, "OUTSIDER", "MEMBER")  # so that it may read the move
        team.register()
        new, flags = place.nodes["new"], ("--key", str(key), "--registry", place.text)
        with RunningWitness(launcher, tmp_path / "w", team.hex, flags=flags) as witness:
            assert witness.key == walter.public
            witness.sees(team.id, 2)
            team.migrate(new.url, tmp_path / "folder")
            team.commit("message", "there")
            found = witness.sees(team.id, team.head().ts)
            assert (found.sequencer, witness.get("/evidence")) == (new.seq_pub, {"evidence": []})
            assert {line["enclave"] for line in witness.get("/heads")} == {team.hex}, "it does not follow the registry"
            with Client(new.url, owner, pins=None, settings=ClientSettings(witnesses=[witness.witness])) as reader:
                assert str(reader.enclave(team.id).witnessed()) == "1 of 1"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ((), 2, "enclaves: none given"),
        (("--enclave", "x@http://a"), 2, "id"),
        (("--enclave", f"{'0' * 64}@http://a", "--listen", "nowhere"), 2, "--listen"),
        (("--config", "missing.toml"), 2, "cannot be read"),
        (("--enclave", f"{'0' * 64}@http://a", "--key", "broken.key"), 2, "broken.key"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, args: tuple[str, ...], code: int, says: str) -> None:
    person_ = Person(tmp_path / "home")
    (person_.home / "broken.key").write_text("no key")
    (person_.home / "broken.key").chmod(0o600)
    result = person_.ask("witness", "run", *args, code=code)
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert result.stderr.startswith("enc witness: ")
    assert says in result.stderr


def test_it_keeps_strangers_apart(launcher: Launcher, liar: Any, tmp_path: Path) -> None:
    """It answers no foreign site, and idle connections of one address keep no other out."""
    served, enclave, _, _ = liar
    file = tmp_path / "witness.toml"
    file.write_text('hosts = ["w.example"]\nconnections_per_address = 2\n')
    flags = ("--config", str(file))
    with RunningWitness(launcher, tmp_path / "one", f"{enclave.hex()}@{served.url('a')}", flags=flags) as one:
        for host, status in (("w.example", 200), ("evil.example", 421)):
            assert one.http.get("/", headers={"host": host, "connection": "close"}).status_code == status
        url = httpx.URL(one.url)
        with ExitStack() as stack:
            idle = [stack.enter_context(socket.create_connection((url.host, url.port or 0), 30)) for _ in range(3)]
            assert any(peer.recv(1 << 12).startswith(b"HTTP/1.1 503 ") for peer in idle[2:])
            with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as other:
                assert other.get(one.url).status_code == 200


def test_a_key_that_is_gone_is_not_made_anew(launcher: Launcher, liar: Any, tmp_path: Path) -> None:
    served, enclave, _, _ = liar
    listed = f"{enclave.hex()}@{served.url('a')}"
    with RunningWitness(launcher, tmp_path / "w", listed) as witness:
        witness.sees(enclave, 3)
    (tmp_path / "w/witness.key").unlink()
    with pytest.raises(AssertionError, match="is missing"):
        RunningWitness(launcher, tmp_path / "w", listed)


def test_a_node_that_never_answers_holds_up_no_stop(launcher: Launcher, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with RunningWitness(launcher, tmp_path / "w", f"{'0' * 64}@{url}") as witness:
            connection, _ = silent.accept()
            assert witness.state(bytes(32)) == "new"
            assert witness.ends(signal.SIGTERM) == 0
            connection.close()
