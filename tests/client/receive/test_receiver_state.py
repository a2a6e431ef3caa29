"""A receiver's state file, its log lines, and its construction."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from enc.client import Distrust, ForeignSequencer, PushReceiver
from enc.client.errors import Unreachable
from enc.client.receive.delivery_worker import MIN_INTERVAL_S
from enc.core.errors import InternalError, MisuseError, PeerError, Unauthorized, Unavailable
from tests.client.pushing import HOOK, OTHER, SCHEMA, Post, log_lines, note, push, unreachable, until
from tests.client.stage import URL
from tests.core.world import person

# The state file


def test_two_receivers_cannot_share_a_state_file(post: Post) -> None:
    post.receiver()
    with pytest.raises(MisuseError, match="another receiver is using it"):
        post.receiver()


def test_a_state_file_is_its_owner_s_alone(post: Post) -> None:
    receiver = post.started()
    receiver.take(push(1, *post.enclave()))
    for path in post.state.parent.glob("inbox.db*"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    receiver.close()
    post.state.chmod(0o644)
    with pytest.raises(MisuseError, match="users other than its owner"):
        post.receiver()


@pytest.mark.parametrize("other", [{"identity": "carol"}, {"url": HOOK + "/2"}])
def test_a_state_file_is_one_identity_s_at_one_url(post: Post, other: dict[str, Any]) -> None:
    post.receiver().close()
    with pytest.raises(MisuseError, match="is the inbox of"):
        post.receiver(**other)


def test_what_is_no_inbox_is_refused_and_left_as_it_is(post: Post) -> None:
    post.state.write_bytes(b"my diary, " * 100)
    post.state.chmod(0o600)
    with pytest.raises(MisuseError, match="is not an inbox"):
        post.receiver()
    assert post.state.read_bytes() == b"my diary, " * 100
    post.state.unlink()
    with closing(sqlite3.connect(post.state)) as db:
        db.execute("CREATE TABLE diary (day)")
    post.state.chmod(0o600)
    with pytest.raises(MisuseError, match="is not an inbox"):
        post.receiver()


@pytest.mark.parametrize(("schema", "what"), [("CREATE", "schema"), ("BEGIN", "leaves a transaction open")])
def test_a_wrong_schema_is_refused(post: Post, schema: str, what: str) -> None:
    with pytest.raises(MisuseError, match=what):
        post.receiver(schema=schema)
    post.receiver(schema=SCHEMA)


def test_a_disk_that_takes_nothing_loses_nothing(post: Post) -> None:
    events = post.enclave(["one"])
    receiver = post.started()
    receiver.worker.submit(lambda: receiver.inbox.db.execute("PRAGMA query_only = 1")).result()
    with pytest.raises(Unavailable) as found:
        receiver.take(push(1, *events))
    assert str(post.state) not in found.value.message
    receiver.worker.submit(lambda: receiver.inbox.db.execute("PRAGMA query_only = 0")).result()
    receiver.take(push(1, *events))
    assert post.seqs(receiver) == [0, 1]


def test_what_nobody_foresaw_is_told_to_no_peer(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = post.started()
    monkeypatch.setattr("enc.client.receive.receiver.parse_batch", lambda _: 1 // 0)
    with pytest.raises(InternalError) as found:
        receiver.take(push(1))
    assert found.value.message == "the push could not be processed"


def test_a_push_that_is_refused_is_told_of_once_in_a_while_for_each_reason(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = post.started(nodes={OTHER.public: URL})
    for _ in range(3):
        for what in (b"{", push(1, to="carol"), push(1), push(1, key=OTHER, url=HOOK + "/2")):
            with pytest.raises(PeerError):
                receiver.take(what)
    lines = [line for line in log_lines(caplog) if line.startswith("a push was rejected")]
    assert lines.pop(0).startswith("a push was rejected: DECRYPT_FAILED: ")
    assert lines == [
        "a push was rejected: DECRYPT_FAILED: to: addressed to another identity; "
        f"this receiver's is {person('bob').public.hex()}",
        "a push was rejected: UNAUTHORIZED: from: not a node that may push here",
        "a push was rejected: UNAUTHORIZED: url: not the URL of this receiver",
    ]
    post.now += MIN_INTERVAL_S
    with pytest.raises(Unauthorized):
        receiver.take(push(1))
    assert log_lines(caplog)[-1] == f"{lines[1]} (2 more times since the last report)"


def test_a_disk_that_takes_nothing_is_told_of(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    receiver = post.started()
    receiver.worker.submit(lambda: receiver.inbox.db.execute("PRAGMA query_only = 1")).result()
    for _ in range(2):
        with pytest.raises(Unavailable):
            receiver.take(push(1, *post.enclave(["one"])))
    (line,) = [line for line in log_lines(caplog) if line.startswith("a push was rejected")]
    assert "the inbox cannot be written" in line
    assert line.endswith("attempt to write a readonly database")


def test_a_node_whose_key_cannot_be_had_is_told_of(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    post.node.arrives = unreachable
    receiver = post.started(nodes=[URL])
    with pytest.raises(Unavailable):
        receiver.take(push(1))
    (catch_up,) = receiver._catch_ups.values()
    until(receiver, lambda: catch_up._is_down)
    catch_up._log_failure(Unreachable("cut"))
    lines = log_lines(caplog)
    assert "a push was rejected: UNAVAILABLE: from: not every node's key is known yet" in lines
    assert len([line for line in lines if line.startswith(f"{URL} cannot be asked")]) == 1


def test_what_is_refused_while_it_closes_is_no_news(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    receiver = post.started()
    receiver.close()
    with pytest.raises(Unavailable):
        receiver.take(push(1))
    assert not [line for line in log_lines(caplog) if "refused" in line]


# Making one


@pytest.mark.parametrize(
    "wrong",
    [
        {"nodes": {}},
        {"nodes": URL},
        {"nodes": ["ftp://node.test"]},
        {"nodes": {b"short": URL}},
        {"url": "bob.test/hook"},
        {"group": 0},
        {"group": 1001},
        {"handle": None},
        {"enclave": "general"},
        {"enclave": [b"short"]},
        {"url": "https://b\u00f6b.test/hook"},
        {"url": "https://bob.test/h ook"},
        {"url": "https://bob.test/hook#2"},
        {"url": "https://bob.test/hook\\2"},
        {"url": "https://[bob.test/hook"},
    ],
)
def test_a_wrong_call_is_misuse(post: Post, wrong: dict[str, Any]) -> None:
    with pytest.raises(MisuseError):
        post.receiver(**wrong)
    assert not list(post.state.parent.glob("inbox.db*"))


@pytest.mark.parametrize("state", ["", ".", "/", "missing/inbox.db"])
def test_a_state_file_is_a_file_in_a_directory_that_is_there(
    post: Post, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(post.state.parent)
    with pytest.raises(MisuseError, match=r"expected the path of a file|there is no directory missing"):
        post.receiver(state=state)
    assert not Path("missing").exists()


def test_an_identity_is_one(post: Post) -> None:
    with pytest.raises(MisuseError):
        PushReceiver(b"key", HOOK, [URL], post.state, note)  # type: ignore[arg-type]


def test_a_node_s_key_is_asked_for_once_and_kept(post: Post) -> None:
    first, *_ = post.enclave()
    post.node.arrives = unreachable
    receiver = post.started(nodes=[URL])
    with pytest.raises(Unavailable):
        receiver.take(push(1, first))
    post.node.arrives = lambda request: None
    until(receiver, lambda: not receiver._nodes_without_key)
    receiver.take(push(1, first))
    assert post.seqs(receiver) == [0]
    with pytest.raises(Unauthorized):
        receiver.take(push(1, key=OTHER))
    receiver.close()

    post.node.calls.clear()
    post.node.lie("info", lambda _: {"seq_pub": OTHER.public.hex()})
    again = post.started(nodes=[URL])
    again.take(push(2))
    with pytest.raises(Unauthorized):
        again.take(push(1, key=OTHER))
    until(again, lambda: post.lies)
    assert isinstance(post.lies[0], ForeignSequencer)
    assert isinstance(post.lies[0], Distrust)
