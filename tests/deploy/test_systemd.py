"""The units for systemd: valid, hardened, and no obstacle to a node and a witness."""

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from enc.client import Client, Identity
from enc.core.errors import MisuseError
from tests.deploy.sandbox import allowed_calls, settings
from tests.deploy.tools import DEPLOY, output, tool
from tests.node.running import RunningNode
from tests.test_doc_commands import check

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
NODE = DEPLOY / "systemd" / "enc-node.service"
MOST_EXPOSURE = 3.0
SANDBOX = f"""
from pathlib import Path
from tests.deploy.sandbox import restrict
restrict(Path({str(NODE)!r}))
"""
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def test_there_is_a_unit_for_the_node_and_one_for_the_witness() -> None:
    assert [unit.name for unit in UNITS] == ["enc-node.service", "enc-witness.service"]


@each_unit
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "enc"
    program.symlink_to("/bin/true")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/enc/bin/enc", str(program)))
    assert output(tool("systemd-analyze"), "verify", str(copy)) == ""


@each_unit
def test_a_unit_is_hardened(unit: Path) -> None:
    said = output(tool("systemd-analyze"), "security", "--offline=true", "--no-pager", str(unit))
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert float(exposure) < MOST_EXPOSURE


@each_unit
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    program, *words = shlex.split(settings(unit)["ExecStart"][0])
    assert program == "/opt/enc/bin/enc"
    check(tuple(words))


@each_unit
def test_a_unit_waits_until_the_service_is_ready_and_watches_it(unit: Path) -> None:
    found = settings(unit)
    assert found["Type"] == ["notify"]
    assert int(found["WatchdogSec"][0]) >= 10  # the service reports about once a second


@each_unit
def test_the_users_of_the_units_are_listed(unit: Path) -> None:
    listed = re.findall(r"^u (\S+)", (DEPLOY / "systemd" / "enc.sysusers.conf").read_text(), re.MULTILINE)
    assert settings(unit)["User"][0] in listed


def test_a_node_works_with_the_system_calls_that_the_unit_allows(tmp_path: Path) -> None:
    tool("systemd-analyze")
    assert "setuid" not in allowed_calls(NODE)
    with RunningNode(tmp_path / "node", first=SANDBOX) as node:
        with Client(node.url, Identity.new(), pins=tmp_path / "pins") as client:
            enclave = client.create("team")
            enclave.commit("message", "inside")
            assert [item.content for item in enclave.query(type="message")] == ["inside"]
        assert output("grep", "^Seccomp:", f"/proc/{node.pid}/status").split() == ["Seccomp:", "2"]
    levels = {json.loads(line)["level"] for line in node.log().splitlines()}
    assert levels == {"info"}, node.log()


def test_the_restrictions_of_the_tests_are_in_force() -> None:
    tool("systemd-analyze")
    tries = """
import os, socket
def refused(what, *args):
    try: what(*args)
    except OSError as e: return e.errno
    return 0
print(refused(os.setuid, os.getuid()), refused(socket.socket, socket.AF_NETLINK), refused(socket.socket))
"""
    done = subprocess.run([sys.executable, "-c", SANDBOX + tries], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(errno.EPERM), str(errno.EAFNOSUPPORT), "0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file of root")
def test_a_witness_takes_its_key_from_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, identity = tmp_path / "witness.key", Identity.new()
    identity.save(path)
    path.chmod(0o440)
    with pytest.raises(MisuseError, match="users other than its owner"):
        Identity.load(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert Identity.load(path).public == identity.public
