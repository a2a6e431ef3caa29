"""`enc up`: a registry, a node and a DataView in one command, with real processes."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from enc.cli.common.exits import FAILED, MISUSE
from tests.cli.people import Person
from tests.cli.processes import PATIENCE_S, descendants, is_there, until, without_java

LIGHT = ("--no-dataview",)


class Up:
    """A running `enc up`, and its output when it was ready."""

    def __init__(self, process: subprocess.Popen[str], said: dict[str, Any], person: Person) -> None:
        self.process, self.said, self._person = process, said, person

    def run(self, *args: str, **more: Any) -> str:
        """Run a command with the folder's own profile."""
        return self._person.run(*args, ENC_CONFIG=self.said["config"], **more)

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
        """End it; return its exit code and the rest of its stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, err


@contextmanager
def up(person: Person, *flags: str) -> Iterator[Up]:
    flags = ("--home", "dev", "--port", "0", "--page-port", "0", *flags)
    with person.start("up", "--json", *flags) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()
            yield Up(process, json.loads(line), person)
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=PATIENCE_S)


def node_of(running: Up) -> int:
    """Return the process id of its node."""
    (found,) = (
        pid
        for pid in descendants(running.process.pid)
        if b"\0node\0run\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and int(Path(f"/proc/{pid}/stat").read_text().split()[3]) == running.process.pid
    )
    return found


def test_what_is_written_is_on_the_page_and_ctrl_c_ends_everything_and_a_second_start_goes_on(
    java: None, anybody: Person
) -> None:
    with up(anybody) as running:
        enclave = running.run("enclave", "create", "team", "--use").strip()
        running.run("commit", "message", "hello, page")
        with httpx.Client(base_url=running.said["page"], trust_env=False, timeout=PATIENCE_S) as http:

            def rows(view: str, **filters: str) -> list[dict[str, Any]]:
                answer = http.get(f"/views/{view}", params=filters)
                return list(answer.json()["rows"]) if answer.status_code == httpx.codes.OK else []

            found = until(lambda: rows("events", enclave=enclave, type="message"))
            assert [row["content"] for row in found] == ["hello, page"]
            assert until(lambda: rows("members", enclave=enclave))
            assert until(lambda: rows("registry_nodes"))
            elsewhere = http.get("/views", headers={"origin": "https://page.example"})  # whom the developer visits
            assert elsewhere.status_code == 403
            assert "access-control-allow-origin" not in elsewhere.headers
            assert http.get("/views", headers={"host": "page.example"}).status_code == 421
        children = descendants(running.process.pid)
        assert any(b"java" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children)
        code, _ = running.stop()
        assert code == 0
        assert not [pid for pid in children if is_there(pid)]
    with up(anybody, *LIGHT) as again:
        assert again.said["registry"].partition("#")[2] == running.said["registry"].partition("#")[2]
        assert "hello, page" in again.run("query")


def test_one_at_a_time_and_a_part_that_dies_is_told_with_its_log(anybody: Person) -> None:
    with up(anybody, *LIGHT) as running:
        assert running.said["page"] is None
        anybody.run("up", "--home", "dev", *LIGHT, code=MISUSE)
        assert f"in use by another `enc up`, process {running.process.pid}: stop it" in anybody.stderr
        assert "--home" in anybody.stderr
        os.kill(node_of(running), signal.SIGKILL)
        out, err = running.process.communicate(timeout=PATIENCE_S)
        error = json.loads(err)["error"]
        assert (running.process.returncode, out) == (FAILED, "")
        assert (error["code"], error["part"], error["exit_code"]) == ("ENDED", "node", -signal.SIGKILL)
        assert error["log"] == str(anybody.home / "dev/logs/node.log")
        assert error["log"] in error["message"]
        assert any('"ready"' in line for line in error["lines"])


def test_nothing_is_left_where_it_is_killed(anybody: Person) -> None:
    with up(anybody, *LIGHT) as running:
        children = descendants(running.process.pid)
        running.process.kill()
        running.process.wait()
        until(lambda: not [pid for pid in children if is_there(pid)])


def test_a_signal_in_the_middle_of_the_start_ends_it_in_order(anybody: Person) -> None:
    with anybody.start("up", "--home", "dev", "--port", "0", *LIGHT) as process:
        until(lambda: descendants(process.pid))
        children = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert not [pid for pid in children if is_there(pid)]
    with up(anybody, *LIGHT) as again:
        assert again.run("enclave", "create", "notes", "--use")


def test_people_are_told_what_to_type_next(anybody: Person) -> None:
    """Also in a shell that does not find `enc`."""
    plain = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if not (Path(each) / "enc").exists())
    flags = ("--home", "my dev", "--port", "0", *LIGHT)
    with anybody.start("up", *flags, ENC_NODE="http://127.0.0.1:1", PATH=plain) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = "".join(iter(process.stdout.readline, "Ctrl-C stops it; the data stays.\n"))
        warned = process.stderr.readline()
        script = "\n".join(["set -e", *re.findall(r"^  (\S.*)$", said, re.MULTILINE)])
        env = {**anybody.environment, "PATH": plain}
        done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=PATIENCE_S)  # noqa: S607
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert (done.returncode, "hello" in done.stdout) == (0, True), done.stderr
    assert "ENC_NODE is set, and overrides this folder's profile" in warned


@pytest.mark.parametrize("flag", ["--port", "--page-port"])
def test_a_port_is_taken(java: None, anybody: Person, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        flags = {"--port": "0", "--page-port": "0", flag: port}
        anybody.run("up", *(word for pair in flags.items() for word in pair), code=MISUSE)
    assert f"port {port} is not available: Address already in use: stop what uses it, or give another" in anybody.stderr
    assert anybody.stderr.endswith(f"{flag}\n")


def test_one_port_is_not_enough_for_both(java: None, anybody: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    anybody.run("up", "--port", port, "--page-port", port, code=MISUSE)
    assert anybody.stderr.endswith(
        f"port {port}: the node and the page need different ports: give another with --page-port\n"
    )


def test_no_java(anybody: Person, tmp_path: Path) -> None:
    anybody.run("up", code=MISUSE, **without_java(tmp_path / "bin"))
    assert "openjdk-17-jre-headless" in anybody.stderr
    assert anybody.stderr.endswith("or run `enc up --no-dataview`\n")
    assert not (anybody.home / "enc-data").exists()


def test_a_folder_that_cannot_be_made(anybody: Person) -> None:
    (anybody.home / "file").write_text("")
    anybody.run("up", "--home", "file/dev", *LIGHT, code=MISUSE)
    assert "/file/dev: not writable: " in anybody.stderr
    assert anybody.stderr.endswith(": give another --home\n")
