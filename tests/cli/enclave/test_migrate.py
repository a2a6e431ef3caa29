"""`enc registry`, `enc migrate` and `enc follow`: between real nodes, killed at every step and run again."""

import json
import shutil
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from enc.cli.common import profiles
from enc.client import Client, Identity
from enc.client.enclave.templates import template
from tests.cli.people import PATIENCE_S, Person
from tests.client.moved import Town, town
from tests.forked import run
from tests.node.running import RunningNode

# The command, killed as by a power cut right after a step.
_CUT = """
import os, signal, sys
from enc.client.migration import migrate as moving
step, init = sys.argv.pop(1), moving.Mover.__init__
def cut(self, *what, **more):
    init(self, *what, **more)
    report = self._report
    def cutting(name, text):
        report(name, text)
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)
    self._report = cutting
moving.Mover.__init__ = cut
from enc.cli import main
main()
"""
_numbers = count(1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town"), "a", "b") as found:
        yield found


@pytest.fixture
def owner(place: Town, tmp_path: Path) -> Person:
    """Return a person with an enclave at "a" that is in the registry."""
    person, identity = Person(tmp_path / "home"), Identity.new()
    person.key().parent.mkdir(parents=True)
    identity.save(person.key())
    with Client(place.nodes["a"].url, identity, pins=person.pins, registry=place.registry) as client:
        meta = {"n": next(_numbers)}
        team = client.create({**template("team", identity.public), "meta": meta, "bundle": {"size": 2, "timeout": 500}})
        team.commit("message", "one")
        team.commit("message", "two")
        team.register(app="test")
    values = {"node": client.url, "identity": str(person.key()), "enclave": team.hex, "registry": place.text}
    for name, value in values.items():
        profiles.store(person.config, "default", name, value)
    return person


def cut_at(person: Person, step: str, *args: str) -> None:
    """Run the command, and kill it when the step is done."""
    command = [sys.executable, "-c", _CUT, step, *args]
    done = run(command, PATIENCE_S, cwd=person.home, env=person.environment)
    assert done.returncode == -9, done.stderr.decode()


def check_moved(place: Town, owner: Person) -> None:
    """Check that the enclave is at "b": once, complete, registered, and writable."""
    enclave = owner.ask_json("config", "show")[0]["enclave"]["value"]
    assert owner.ask_json("registry", "resolve", enclave)[0]["endpoints"] == [place.nodes["b"].url]
    assert owner.ask_json("commit", "message", "three")[0]["sequencer"] == place.nodes["b"].seq_pub.hex()
    log = owner.ask_json("query")
    assert [event["seq"] for event in log] == list(range(5))
    assert [event["type"] for event in log] == ["Manifest", "message", "message", "Migrate", "message"]
    assert not list((owner.home / ".local/share/enc/moves").iterdir())


STEPS = ["copy", "hold", "sign", "migrate", "import", "wait", "verify", "register"]


@pytest.mark.parametrize("step", STEPS)
def test_a_move_that_was_cut_off_is_finished_by_running_it_again(place: Town, owner: Person, step: str) -> None:
    command = ("migrate", "--to", place.nodes["b"].url)
    cut_at(owner, step, *command)
    *told, outcome = owner.ask_json(*command)
    assert {line["step"] for line in told} >= {"wait", "verify", "register"}
    assert (outcome["node"], outcome["sequencer"]) == (place.nodes["b"].url, place.nodes["b"].seq_pub.hex())
    check_moved(place, owner)


@pytest.mark.parametrize("step", ["copy", "sign", "import", "wait", "verify"])
def test_so_is_one_by_force(place: Town, owner: Person, step: str) -> None:
    owner.ask("archive", "pull", "copy.enc")
    command = ("migrate", "--force", "--archive", "copy.enc", "--to", place.nodes["b"].url)
    cut_at(owner, step, *command)
    assert owner.ask_json(*command)[-1]["sequencer"] == place.nodes["b"].seq_pub.hex()
    check_moved(place, owner)


def test_a_move_for_people_tells_its_steps(place: Town, owner: Person) -> None:
    enclave = owner.ask_json("config", "show")[0]["enclave"]["value"]
    result = owner.ask("migrate", enclave, "--to", place.nodes["b"].url, "--use")
    assert [line.split()[0] for line in result.stderr.splitlines()] == STEPS
    assert result.stdout.startswith(f"{enclave} is at {place.nodes['b'].url}: ")
    assert owner.ask_json("config", "show")[0]["node"]["value"] == place.nodes["b"].url
    check_moved(place, owner)


def test_a_proof_from_the_new_node_names_how_it_came_to_it(place: Town, owner: Person) -> None:
    owner.ask("migrate", "--to", place.nodes["b"].url)
    owner.ask("prove", "1", "-o", "proof.json")
    found = owner.ask_json("verify", "proof.json", "--sequencer", place.nodes["b"].seq_pub.hex())[0]
    assert any(f"hands over to {place.nodes['b'].seq_pub.hex()}" in line for line in found["proved"])
    proof = json.loads((owner.home / "proof.json").read_text())
    assert [event["type"] for event in proof["migrates"]] == ["Migrate"]
    (line,) = owner.ask_json("query", "--seq", "1", "--proof")
    (owner.home / "line.json").write_text(json.dumps(line["proof"]))
    assert owner.ask_json("verify", "line.json")[0]["ok"]


def test_what_is_lost_is_told_and_followed_by_choice(place: Town, owner: Person) -> None:
    owner.ask("archive", "pull", "copy.enc")
    for n in range(4):
        owner.ask("commit", "message", f"lost {n}")
    owner.ask("head")
    command = ["migrate", "--force", "--archive", "copy.enc", "--to", place.nodes["b"].url]
    error = owner.refused(*command, code=1)
    assert (error["code"], error["first_seq"]) == ("LOST_RANGE", 3)
    seen = shutil.copytree(owner.pins, owner.home / "seen")
    assert owner.ask_json(*command, "--accept-loss")[-1]["registered"]
    check_moved(place, owner)
    (found,) = owner.ask_json("follow", "--use")
    assert (found["node"], len(found["sequencers"])) == (place.nodes["b"].url, 2)
    shutil.rmtree(owner.pins)
    seen.rename(owner.pins)
    assert owner.refused("follow", code=1)["code"] == "LOST_RANGE"
    owner.ask("follow", "--accept-loss")
    owner.ask("head")


def test_a_queue_finds_the_node_to_which_the_user_followed_an_enclave(place: Town, owner: Person) -> None:
    there = place.nodes["b"].url
    owner.ask("queue", "add", "message", "on the way")
    owner.ask("migrate", "--to", there)
    lines = owner.config.read_text().splitlines()
    owner.config.write_text("\n".join(line for line in lines if not line.startswith("registry")) + "\n")
    shutil.rmtree(owner.pins)
    unaware = owner.ask("queue", "send", "--wait", "0", code=3)
    assert "ENCLAVE_MIGRATED" in unaware.stdout
    assert "`enc follow ENCLAVE --at URL`" in unaware.stderr
    owner.ask("follow", "--at", there)
    shutil.rmtree(owner.pins)  # which also know the new node
    owner.ask("queue", "send", "--wait", "0")
    assert owner.ask_json("queue", "list") == []


def test_what_the_old_node_goes_on_to_sign_is_refused(place: Town, owner: Person) -> None:
    """Clients that have followed the enclave reject it; the evidence is checked offline."""
    owner.ask("archive", "pull", "copy.enc")
    owner.ask("migrate", "--force", "--archive", "copy.enc", "--to", place.nodes["b"].url)
    shown = {
        name: each["value"] for name, each in owner.ask_json("config", "show")[0].items() if isinstance(each, dict)
    }
    with Client(place.nodes["a"].url, Identity.load(shown["identity"]), pins=None) as unaware:
        unaware.enclave(shown["enclave"]).commit("message", "still here")
    text = owner.config.read_text()
    owner.config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("registry")) + "\n")
    forget_addresses(owner)
    error = owner.refused("query", code=4)
    assert error["code"] == "SPLIT_BRAIN"
    (verdict,) = owner.ask_json("verify", error["evidence"], code=1)
    assert (verdict["kind"], verdict["ok"]) == ("split", False)
    assert any("where it was not the sequencer" in line for line in verdict["proved"])


def test_force_needs_an_archive(place: Town, owner: Person) -> None:
    for flags in (["--force"], ["--archive", "x"]):
        assert "give both or neither" in owner.refused("migrate", "--to", "http://x", *flags, code=2)["message"]


# Registry


def test_a_registry_is_created_and_used(place: Town, owner: Person) -> None:
    (found,) = owner.ask_json("registry", "init", "--use", "--node", place.nodes["b"].url)
    assert found["registry"] == f"{place.nodes['b'].url}#{found['enclave']}:{place.nodes['b'].seq_pub.hex()}"
    assert owner.ask_json("config", "show")[0]["registry"]["value"] == found["registry"]


def test_who_is_where(place: Town, owner: Person) -> None:
    enclave = owner.ask_json("config", "show")[0]["enclave"]["value"]
    (found,) = owner.ask_json("registry", "resolve", enclave)
    assert (found["app"], found["endpoints"]) == ("test", [place.nodes["a"].url])
    owner.ask("registry", "register-enclave", "--desc", "a pond", "--meta", '{"name": "carp"}')
    assert owner.ask("registry", "register-enclave").stdout == "registered already\n"
    assert [line["enclave_id"] for line in owner.ask_json("registry", "list", "-q", "carp")].count(enclave) == 1
    assert owner.ask_json("registry", "list", "--app", "none") == []
    assert owner.refused("registry", "lookup", found["holder"], code=1)["code"] == "IDENTITY_NOT_FOUND"
    owner.ask("registry", "register-identity", f"team={enclave}")
    (known,) = owner.ask_json("registry", "lookup", found["holder"])
    assert known["enclaves"] == {"team": enclave}
    assert len(known["sub_pub"]) == 64
    assert "LABEL=ID" in owner.refused("registry", "register-identity", "team", code=2)["message"]
    assert "--meta" in owner.refused("registry", "register-enclave", "--meta", "[]", code=2)["message"]


def test_a_node_is_registered_by_its_key(place: Town, owner: Person) -> None:
    key, url = place.nodes["b"].data / "node.key", place.nodes["b"].url
    assert owner.ask("registry", "register-node", url, "--key", key).stdout == "registered already\n"
    (receipt,) = owner.ask_json("registry", "register-node", url, "https://other.example", "--key", key)
    assert receipt["enclave"] == place.registry.enclave.hex()
    owner.ask("registry", "register-node", url, "--key", key)


def test_commands_need_no_node_where_there_is_a_registry(place: Town, owner: Person) -> None:
    text = owner.config.read_text()
    owner.config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("node")) + "\n")
    assert [line["content"] for line in owner.ask_json("query", "--type", "message")] == ["one", "two"]


def test_a_transfer_says_what_the_new_owner_should_do(place: Town, owner: Person) -> None:
    other = Identity.new()
    owner.ask("move", other.hex, "OUTSIDER", "MEMBER")
    assert "enc registry register-enclave" in owner.ask("transfer", other.hex, "owner").stderr


@pytest.mark.parametrize("text", ["http://x", "http://x#12", "ftp://x#" + "0" * 64, "http://x#" + "0" * 64 + ":12"])
def test_what_names_no_registry(owner: Person, text: str) -> None:
    assert owner.refused("config", "set", "registry", text, code=2)
    assert owner.refused("query", "--registry", text, code=2)


# The profile names another node


@pytest.mark.parametrize("command", [("commit", "message", "x"), ("head",), ("archive", "pull", "c.enc"), ("migrate",)])
def test_the_node_of_the_profile_need_not_be_the_enclaves(place: Town, owner: Person, command: tuple[str, ...]) -> None:
    """That node never had the enclave: the registry gives its node, and the pin confirms that it is the same one."""
    profiles.store(owner.config, "default", "node", place.nodes["b"].url)
    owner.ask_json(*command, *(["--to", place.nodes["b"].url] if command == ("migrate",) else []))
    assert not list(owner.home.glob("enc-evidence*"))


def forget_addresses(person: Person) -> None:
    """Remove from the pins where nodes have answered."""
    for path in person.pins.glob("*.json"):
        pin = json.loads(path.read_text())
        pin.pop("urls", None)
        path.write_text(json.dumps(pin))


def test_who_reads_after_a_move_is_led_to_the_recorded_address(place: Town, owner: Person) -> None:
    """The registry does not answer, and the profile names the old node."""
    owner.ask("migrate", "--to", place.nodes["b"].url)
    away = ("--registry", place.text.replace(place.registry.url, "http://127.0.0.1:1"), "--timeout", "1")
    assert owner.ask_json("commit", "message", "three", *away)[0]["sequencer"] == place.nodes["b"].seq_pub.hex()


def test_who_reads_from_a_node_that_was_left_is_told(place: Town, owner: Person) -> None:
    """The registry does not answer, and the profile names the old node."""
    assert owner.ask("query").stderr == ""
    owner.ask("migrate", "--to", place.nodes["b"].url)
    away = ("--registry", place.text.replace(place.registry.url, "http://127.0.0.1:1"), "--timeout", "1")
    forget_addresses(owner)
    assert "the enclave has left" in owner.ask("query", *away).stderr


def test_a_new_device_whose_profile_names_the_old_node_is_told_of_the_move(place: Town, owner: Person) -> None:
    """It has no registry, and has seen nothing of the move before."""
    enclave = owner.ask_json("config", "show")[0]["enclave"]["value"]
    owner.ask("migrate", "--to", place.nodes["b"].url)
    shutil.rmtree(owner.pins)
    text = owner.config.read_text()
    owner.config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("registry")) + "\n")
    assert owner.ask("query", "--type", "message").stderr == ""  # which shows no Migrate
    key = place.nodes["b"].seq_pub.hex()
    for _ in range(2):
        (note,) = owner.ask("query").stderr.splitlines()
        assert f"has left {place.nodes['a'].url} for the node with the key {key}," in note
        assert note.endswith(f"to follow it: enc follow {enclave} --at URL")
    assert owner.ask("query", "--json").stderr == ""
    owner.ask("follow", enclave, "--at", place.nodes["b"].url)
    result = owner.ask("query")
    assert "Migrate" in result.stdout
    assert result.stderr == ""


def test_the_way_out_of_a_move_that_was_refused_after_all(place: Town, owner: Person, tmp_path: Path) -> None:
    """The node has an allowlist for imports, which clients cannot query."""
    with RunningNode(tmp_path / "node", env={"ENC_NODE_ADMISSION_CREATE": "allowlist"}) as node:
        result = owner.ask("migrate", "--to", node.url, code=1)
        assert "UNAUTHORIZED" in result.stderr
        owner.ask("archive", "pull", "copy.enc")
    owner.ask("migrate", "--force", "--archive", "copy.enc", "--to", place.nodes["b"].url)
    assert owner.ask_json("commit", "message", "three")[0]["sequencer"] == place.nodes["b"].seq_pub.hex()


def test_a_watch_goes_on_through_a_move(place: Town, owner: Person) -> None:
    with owner.watching("--after", "1") as watch:
        assert watch.next()["content"] == "two"
        owner.ask("migrate", "--to", place.nodes["b"].url)
        owner.ask("commit", "message", "three")
        assert [watch.next()["type"] for _ in range(2)] == ["Migrate", "message"]
