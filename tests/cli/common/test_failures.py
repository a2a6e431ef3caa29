"""How a command ends: its exit code, its output on stderr, and the evidence that it stores."""

import json
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from enc.cli.common import failures
from enc.cli.common.exits import DONE, FAILED, MISUSE
from enc.cli.common.failures import DISTRUST, HELP, NO_ANSWER
from enc.cli.enclave import access
from enc.client.verify.pins import FilePins, Pin
from enc.core.errors import RateLimited, Unavailable
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.trees.tree_head import sign_head
from tests.cli.people import Person
from tests.node.running import RunningNode


@pytest.fixture
def nowhere() -> str:
    """Return a URL without a server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_the_help_says_what_the_codes_mean() -> None:
    for code, meaning in (
        (DONE, "done"),
        (FAILED, "the check failed, or the node refused"),
        (MISUSE, "wrong use or configuration"),
        (NO_ANSWER, "no answer from the node"),
        (DISTRUST, "the node's answer cannot be true"),
    ):
        assert f" {code} {meaning}" in HELP


# 1: rejected


def test_what_the_node_refuses_is_told_with_its_code(reader: Person) -> None:
    result = reader.ask("commit", "nonsense", "x", code=FAILED)
    assert result.stdout == ""
    assert result.stderr.startswith("enc: UNAUTHORIZED: ")
    assert reader.refused("commit", "nonsense", "x", code=FAILED)["code"] == "UNAUTHORIZED"


@pytest.mark.parametrize(
    ("code", "message", "advice"),
    [
        ("BANNED", "the operator of this node has banned this identity", "`enc archive pull` saves an enclave"),
        ("BANNED", "the operator of this node has banned this address", "use another network"),
        ("UNAUTHORIZED", "nonsense: not allowed", "`enc key show` prints your identity"),
        (
            "UNAUTHORIZED",
            "this identity has used up its quota of events on this node: 6",
            "another node: `enc migrate`",
        ),
        ("UNAUTHORIZED", "the enclave is over this node's quota: admission.max_events", "another node: `enc migrate`"),
        ("ENCLAVE_SUSPENDED", "the operator of this node has suspended this enclave: abuse", "enc follow ENCLAVE"),
    ],
)
def test_the_hint_fits_the_reason(code: str, message: str, advice: str) -> None:
    found = failures.hint(code, message, {})
    assert found is not None
    assert advice in found
    assert failures.hint(code, message, {"contact": "bob"}) is None


def test_a_refusal_tells_programs_all_that_it_carries(reader: Person) -> None:
    (me,) = reader.ask_json("key", "show")
    error = reader.refused("move", me["public"], "OUTSIDER", "MEMBER", code=FAILED)
    assert (error["code"], error["expected"], error["actual"]) == ("STATE_MISMATCH", "OUTSIDER", "MEMBER")


def test_an_event_that_is_not_there(reader: Person) -> None:
    assert reader.refused("update", "99", "x", code=FAILED)["code"] == "EVENT_NOT_FOUND"
    assert reader.refused("prove", "99", code=FAILED)["code"] == "EVENT_NOT_FOUND"


def test_a_file_that_cannot_be_written(reader: Person) -> None:
    error = reader.refused("prove", "0", "-o", "no/such/place", code=MISUSE)
    assert error["message"] == "no/such/place: cannot write the proof: No such file or directory"


# 2: wrong use


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nonsense"], "No such command 'nonsense'."),
        (["commit"], "Missing argument 'TYPE'."),
        (["query", "--limit", "-1"], "Invalid value for '--limit'"),
        (["query", "--nonsense"], "No such option: --nonsense"),
        (["gate", "applications", "ajar"], "Invalid value for 'state'"),
    ],
)
def test_a_wrong_use_is_told_in_json_where_that_is_asked_for(anybody: Person, args: list[str], message: str) -> None:
    error = anybody.refused(*args, code=MISUSE)
    assert error["code"] == "MISUSE"
    assert error["message"].startswith(message)
    assert message.strip(".'") in " ".join(anybody.ask(*args, code=MISUSE).stderr.split()).replace("│ ", "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["commit", "message"], "give the content as an argument, - to read stdin, or --file FILE"),
        (["commit", "message", "x", "--file", "y"], "give the content as an argument, - to read stdin, or --file FILE"),
        (["commit", "message", "--file", "none"], "none: cannot be read: No such file or directory"),
        (["commit", "message", "--file", "latin"], "latin: not UTF-8: invalid continuation byte"),
        (["set", "topic"], "give a value, or --unset"),
        (["set", "topic", "x", "--unset"], "give a value, or --unset"),
        (["move", "abc", "A", "B"], "WHO: expected a key of 64 hex digits, the first 8 or more digits"),
        (["update", "abc", "x"], "event: expected its seq, its id of 64 hex digits, or the first 8 or more"),
        (["prove"], "give exactly one of: an event, --member ID, --slot KEY"),
        (["prove", "1", "--slot", "x"], "give exactly one of: an event, --member ID, --slot KEY"),
        (["query", "--author", "abc"], "--author: expected a key of 64 hex digits, the first 8 or more digits"),
        (["query", "--enclave", "abc"], "enclave: expected an id of 64 hex digits, or the first 8 or more"),
        (["query", "--node", "ftp://x"], "not a node's URL: 'ftp://x': expected http:// or https:// and a host"),
        (
            ["enclave", "create", "none"],
            "none: neither a file nor a template; templates are dm, feed, ledger, log, notes, personal, "
            "personal-v1, registry, team",
        ),
        (["enclave", "create", "latin", "--name", "x"], "latin: not JSON: "),
        (["enclave", "create", "list.json", "--name", "x"], "list.json: expected an object whose meta is an object"),
        (["verify", "none.json"], "none.json: cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_meant_is_one_line(reader: Person, args: list[str], message: str) -> None:
    (reader.home / "latin").write_bytes("été".encode("latin-1"))
    (reader.home / "list.json").write_text("[]")
    result = reader.ask(*args, code=MISUSE)
    assert result.stdout == ""
    assert result.stderr.startswith(f"enc: {message}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["node", "identity", "enclave"])
def test_what_is_not_set_is_told_with_what_to_do(alice: Person, name: str) -> None:
    lines = alice.config.read_text().splitlines()
    alice.config.write_text("\n".join(line for line in lines if not line.startswith(name)))
    error = alice.refused("query", code=MISUSE)
    assert error["message"].startswith(f"no {name} is set in profile default: give --{name} ")
    assert f"ENC_{name.upper()}" in error["message"]


# 3: no answer


def test_a_node_that_cannot_be_reached(reader: Person, nowhere: str) -> None:
    error = reader.refused("head", "--node", nowhere, "--timeout", "0.01", code=NO_ANSWER)
    assert error["code"] == "UNREACHABLE"
    assert nowhere in error["message"]


def test_a_node_that_does_not_answer_in_time(reader: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        error = reader.refused("head", "--node", url, "--timeout", "0.01", code=NO_ANSWER)
    assert error["code"] == "TIMED_OUT"


@pytest.mark.parametrize(("error", "code"), [(Unavailable("full"), NO_ANSWER), (RateLimited("slower"), FAILED)])
def test_a_node_that_cannot_answer_now(error: Exception, code: int, tmp_path: Path) -> None:
    with pytest.raises(typer.Exit) as end, failures.report_errors(False, tmp_path):
        raise error
    assert end.value.exit_code == code


def test_the_installed_command_ends_with_the_code(anybody: Person, nowhere: str) -> None:
    anybody.run("head", "--node", nowhere, "--enclave", "00" * 32, "--timeout", "0.01", code=NO_ANSWER)
    assert anybody.stderr.startswith(f"enc: UNREACHABLE: cannot reach {nowhere}: ")


# 4: a lie was detected


def fork(alice: Person, node: RunningNode) -> str:
    """Make her believe that the node signed another log before; it did, by its own key."""
    (head,) = alice.ask_json("head")
    enclave = bytes.fromhex(head["enclave"])
    key = PrivateKey(bytes.fromhex((node.data / "node.key").read_text()))
    other = sign_head(key, enclave, head["t"], head["ts"], sha256(b"another log"))
    pins = FilePins(alice.pins)
    pins.remove(enclave)
    pins.store(enclave, Pin(key.public, other))
    return str(head["enclave"])


def test_a_lie_ends_with_evidence_that_convicts(alice: Person, running_node: RunningNode) -> None:
    fork(alice, running_node)
    result = alice.ask("head", code=DISTRUST)
    assert result.stderr.splitlines()[0].startswith("enc: FORK: the node signed two logs of the same size")
    assert result.stderr.splitlines()[1].startswith("enc: the evidence is in enc-evidence-fork-1.json; ")
    assert alice.refused("head", code=DISTRUST)["evidence"] == "enc-evidence-fork-2.json"
    (verdict,) = alice.ask_json("verify", "enc-evidence-fork-2.json")
    assert (verdict["ok"], verdict["kind"], verdict["sequencer"]) == (True, "fork", running_node.seq_pub.hex())
    assert alice.ask("verify", "enc-evidence-fork-1.json").stdout.startswith("The evidence convicts the sequencer.\n")


def test_evidence_goes_where_it_is_wanted(alice: Person, running_node: RunningNode, tmp_path: Path) -> None:
    enclave = fork(alice, running_node)
    error = alice.refused("head", "--evidence", tmp_path, code=DISTRUST)
    assert json.loads(Path(error["evidence"]).read_text())["enclave"] == enclave
    assert Path(error["evidence"]).parent == tmp_path
    lost = alice.ask("head", "--evidence", "no-such-place", code=DISTRUST)
    assert "enc: the evidence could not be saved: no-such-place/enc-evidence-fork-1.json: No such" in lost.stderr


def test_evidence_that_is_only_one_s_word_convicts_nobody(alice: Person) -> None:
    (head,) = alice.ask_json("head")
    pins, enclave = FilePins(alice.pins), bytes.fromhex(head["enclave"])
    pins.remove(enclave)
    pins.store(enclave, Pin(PrivateKey(b"o" * 32).public, None))
    assert alice.refused("query", code=DISTRUST)["code"] == "FOREIGN_SEQUENCER"
    shown = alice.ask("verify", "enc-evidence-foreign-1.json", code=FAILED).stdout
    assert shown.startswith("The evidence convicts nobody.\nNot proved:\n  anything: ")


# Commands that the user interrupted


def test_the_end_of_an_enclave_is_asked_for_on_a_terminal(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    assert "cannot be undone. Continue?" in alice.ask("terminate", stdin="n\n", code=FAILED).stderr
    result = alice.ask("terminate", "--json", stdin="n\n", code=FAILED)
    assert result.stderr.endswith('{"error": {"code": "ABORTED", "message": "nothing was done"}}\n')
    assert alice.ask_json("enclave", "info")[0]["lifecycle"] == "active"
    alice.ask("terminate", stdin="y\n")
    assert alice.refused("terminate", "--yes", code=FAILED)["code"] == "ENCLAVE_TERMINATED"


# Unforeseen errors


def test_what_nobody_foresaw_tells_programs_its_kind_and_no_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(typer.Exit) as end, failures.report_errors(True, tmp_path):
        raise KeyError("a secret")
    assert (end.value.exit_code, capsys.readouterr().err) == (
        FAILED,
        '{"error": {"code": "UNEXPECTED", "message": "KeyError"}}\n',
    )
    with pytest.raises(KeyError), failures.report_errors(False, tmp_path):
        raise KeyError("left to main")


def test_a_reader_that_has_heard_enough_is_no_failure_to_tell_of(reader: Person) -> None:
    with reader.start("query", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == FAILED


def test_messages_are_one_line_without_commands_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), failures.report_errors(False, tmp_path):
        raise RateLimited("one\ntwo\x1b[2J")
    assert capsys.readouterr().err == "enc: RATE_LIMITED: one\\ntwo\\x1b[2J\n"


def test_ctrl_c_is_130(reader: Person) -> None:
    with reader.watching("--after", "-1") as watch:
        assert watch.next()["seq"] == 0
        os.kill(watch.process.pid, 2)
        assert watch.process.wait(60) == 130
