"""`enc node adopt` and `enc node mark-restored`: what they ask, refuse and say."""

import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from msgspec.json import encode
from typer.testing import CliRunner

from enc.cli import app
from enc.core.machine.archive import read_archive, write_archive
from enc.core.machine.archive_check import header_of, verify_archive
from enc.core.machine.replay import Replay
from enc.core.primitives.types import Event
from enc.core.trees.cosigning import cosign, wire_cosigned
from enc.node.ops import key_file
from enc.node.store.sqlite.store import SqliteStore
from tests.cli.ops.node_command import enc, failure
from tests.core.world import START, person
from tests.node.running import free_port
from tests.node.store_host import NODE, Host, live

pytestmark = pytest.mark.usefixtures("plain_environment")

WITNESS = person("wanda")


class Lines:
    """Serves the heads that a witness has co-signed."""

    def __init__(self, *lines: bytes, status: int = 200) -> None:
        body = b"".join(lines)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.named = f"{self.url}={WITNESS.public.hex()}"

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Data:
    """A node's data, whose store is marked as a copy."""

    def __init__(self, folder: Path) -> None:
        self.path, self.file = folder, folder / "enc.db"
        folder.mkdir()
        (folder / "node.key").write_text(NODE.secret.hex())
        (folder / "node.key").chmod(0o600)
        with closing(SqliteStore(self.file)) as store:
            host = Host(store)
            self.id, self.events = live(host)
            self.last = host.store.head(self.id)
            store.provenance.mark("a backup of some day")

    @property
    def is_restored(self) -> bool:
        with closing(SqliteStore(self.file)) as store:
            return bool(store.restored())

    def line(self, root: bytes | None = None, size: int = 2) -> bytes:
        """Return a line of a witness, by default with the store's last head."""
        from enc.core.trees.tree_head import sign_head

        assert self.last is not None
        head = self.last if root is None else sign_head(NODE, self.id, START, size, root)
        return encode({**wire_cosigned(cosign(WITNESS, self.id, NODE.public, head, START)), "n": 1}) + b"\n"

    def archive(self, events: list[Event]) -> Path:
        replay = Replay()
        for event in events:
            replay.add(event)
        file = self.path.parent / "backup.enc"
        file.write_bytes(b"".join(write_archive(header_of(replay, None), events)))
        return file

    def later(self) -> list[Event]:
        """Return the log as it was when the node was lost."""
        with closing(SqliteStore(self.path.parent / "later.db")) as store:
            host = Host(store)
            live(host)
            host.send(self.id, "alice", "message", "lost")
            return store.events(self.id, 0, 100)


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data(tmp_path / "data")


def refused(data: Data, *args: str | Path) -> tuple[str, str]:
    """Return what a refusal prints on stdout and on stderr."""
    result = enc("adopt", "--data", data.path, "--yes", *args)
    assert result.exit_code == 1, result.output
    assert data.is_restored
    return result.stdout, result.stderr


def adopted(data: Data, *args: str | Path) -> str:
    result = enc("adopt", "--data", data.path, *args)
    assert result.exit_code == 0, result.output
    assert not data.is_restored
    return result.stdout


def test_it_says_what_the_operator_vouches_for(data: Data) -> None:
    *first, statement, last = adopted(data, "--yes").splitlines()
    assert first == ["this store is a backup of some day", "nobody was asked"]
    assert statement == (
        f"By adopting the store you vouch that the node with the key {NODE.public.hex()} has signed no event, receipt "
        "or head that is missing here, where the newest event is of 2026-09-21T14:13:25Z and the last events of 1 of 1 "
        "enclaves are in no bundle that a witness can know; if it has, everybody who holds that can convict the node."
    )
    assert last == "adopted: the node signs again when it starts"


def test_it_asks_first(data: Data) -> None:
    for answer in ("n\n", ""):
        result = CliRunner().invoke(app, ["node", "adopt", "--data", str(data.path)], input=answer)
        assert result.exit_code == 1
        assert "Do you vouch for that?" in result.stderr
        assert data.is_restored
    result = CliRunner().invoke(app, ["node", "adopt", "--data", str(data.path)], input="y\n")
    assert result.exit_code == 0
    assert not data.is_restored


def test_a_store_that_is_no_copy(data: Data) -> None:
    adopted(data, "--yes")
    result = enc("adopt", "--data", data.path, "--yes")
    assert failure(result) == f"{data.file}: not restored: the node may run as it is"


def test_a_store_that_was_marked_by_hand(data: Data) -> None:
    adopted(data, "--yes")
    result = enc("mark-restored", "--data", data.path)
    assert (result.exit_code, result.stdout) == (0, "the node signs nothing until `enc node adopt`\n")
    assert data.is_restored
    assert adopted(data, "--yes").startswith("this store is marked by its operator\n")


def test_the_store_of_a_running_node(data: Data) -> None:
    with closing(SqliteStore(data.file)):
        for command in (["adopt", "--yes"], ["mark-restored"]):
            assert "in use by another process" in failure(enc(*command, "--data", data.path), code=1)


def test_a_path_without_a_store(tmp_path: Path) -> None:
    for command in ("adopt", "mark-restored"):
        assert failure(enc(command, "--data", tmp_path)) == f"{tmp_path / 'enc.db'}: no such file"


# Witnesses


def test_a_witness_with_the_same_head(data: Data) -> None:
    with Lines(data.line()) as witness:
        said = adopted(data, "--yes", "--witness", witness.named)
    assert f"\n{witness.url}: nothing newer; it has 1 head of this node's enclaves\n" in said


def test_a_witness_that_follows_none_of_its_enclaves(data: Data) -> None:
    with Lines() as witness:
        said = adopted(data, "--yes", "--witness", witness.named)
    assert f"\n{witness.url}: nothing newer; it has 0 heads of this node's enclaves\n" in said


def test_a_witness_with_another_head(data: Data) -> None:
    with Lines(data.line(), data.line(bytes(32))) as witness:
        shown, why = refused(data, "--witness", witness.named)
    assert shown == f"{data.id.hex()}: {witness.url} has another log of 2 bundles\n"
    assert why == (
        f"enc node: not adopted: {witness.url} has something newer than this store: restore a newer copy, or see "
        "--new-key\n"
    )


def test_pages_of_a_witness(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    from enc.cli.ops import adopt_sources
    from enc.client.wire.flow import Answer, Call
    from enc.client.wire.transport import Transport

    asked: list[str] = []

    def send(self: Transport, call: Call) -> Answer:
        asked.append(call.path)
        line = data.line() if len(asked) < 3 else b""
        return Answer(200, line.replace(b'"n":1}', b'"n":%d}' % (10 * len(asked))))

    monkeypatch.setattr(adopt_sources, "LINES", 1)
    monkeypatch.setattr(Transport, "send", send)
    assert "it has 2 heads" in adopted(data, "--yes", "--witness", f"http://w.example={WITNESS.public.hex()}")
    assert asked == [f"/heads?after={after}&limit=1" for after in (0, 10, 20)]


def test_a_head_that_the_witness_did_not_sign_keeps_nobody_from_anything(data: Data) -> None:
    forged = data.line(bytes(32), 9).replace(b'"seen":1', b'"seen":2')
    with Lines(forged) as witness:
        shown, why = refused(data, "--witness", witness.named)
    assert shown == ""
    assert f"{witness.url}: cosigned: not signed by this witness; try again, or go on without it" in why


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        (b"nonsense\n", 200, "not JSON"),
        (b"", 404, "it answers 404, and not as a witness does"),
    ],
)
def test_an_answer_of_no_witness(data: Data, line: bytes, status: int, message: str) -> None:
    with Lines(line, status=status) as other:
        shown, why = refused(data, "--witness", other.named)
    assert shown == ""
    assert message in why


def test_another_key_than_the_witness_s(data: Data) -> None:
    with Lines(data.line()) as witness:
        _, why = refused(data, "--witness", f"{witness.url}={person('mallory').public.hex()}")
    assert f"its key is {WITNESS.public.hex()}" in why


def test_a_witness_that_does_not_answer_must_be_left_out_by_name(data: Data) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    named = f"{url}={WITNESS.public.hex()}"
    shown, why = refused(data, "--witness", named)
    assert shown == ""
    assert why.startswith(f"enc node: {url}: cannot reach {url}: ")
    assert why.endswith(f"; try again, or go on without it: --without {url}\n")
    said = adopted(data, "--yes", "--witness", named, "--without", f"{url}/")
    assert f"\n{url}: not asked\n" in said


def test_what_is_left_out_must_be_named_as_it_is(data: Data) -> None:
    result = enc("adopt", "--data", data.path, "--yes", "--without", "http://w.example")
    assert failure(result) == "--without http://w.example: expected one of those to ask: nobody"
    assert data.is_restored


def test_wrong_sources(data: Data) -> None:
    assert failure(enc("adopt", "--data", data.path, "--witness", "x")).startswith("witness: expected URL=KEY")
    assert failure(enc("adopt", "--data", data.path, "--registry", "x")) == "registry: expected URL#ID or URL#ID:KEY"
    assert failure(enc("adopt", "--data", data.path, "--archive", "none.enc")).startswith("none.enc: ")


def test_the_registry_of_the_settings_is_asked(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("ENC_NODE_REGISTRY_ANNOUNCE_TO", f"{url}#{'ab' * 32}")
    assert f"{url}: the registry does not answer" in refused(data)[1]
    assert f"\n{url}: not asked\n" in adopted(data, "--yes", "--without", url)


# Archives


def test_an_archive_that_has_more(data: Data) -> None:
    file = data.archive(data.later())
    shown, why = refused(data, "--archive", file)
    assert shown == f"{data.id.hex()}: {file} has event 7; this store has events up to 6\n"
    assert f"not adopted: {file} has something newer" in why


def test_an_enclave_that_was_lost_as_a_whole(data: Data) -> None:
    file = data.archive(data.events)
    with closing(SqliteStore(data.path.parent / "other.db")) as store:
        store.provenance.mark("salvaged")
    (data.path.parent / "other.db").replace(data.file)
    with Lines(data.line()) as witness:
        sources = "--witness", witness.named, "--archive", file
        shown, why = refused(data, *sources)
        assert shown.endswith("has an enclave that this store lacks\n")
        assert why.endswith("; for an enclave that `enc node salvage` left out: --lost ID\n")
        assert "--lost ID" in refused(data, "--archive", file)[1]
        said = adopted(data, "--yes", *sources, "--lost", data.id.hex())
    assert ", except for 1 lost enclave, which it must never sign for again; " in said


def test_an_enclave_of_which_something_is_left_is_not_lost(data: Data) -> None:
    assert failure(enc("adopt", "--data", data.path, "--yes", "--lost", data.id.hex())) == (
        f"--lost {data.id.hex()}: this store has the enclave; name only those that it lacks"
    )
    assert failure(enc("adopt", "--data", data.path, "--lost", "x")) == "--lost: expected 64 hex digits"
    assert data.is_restored


def test_an_archive_that_has_no_more(data: Data) -> None:
    file = data.archive(data.events)
    said = adopted(data, "--yes", "--archive", file)
    assert f"\n{file}: nothing newer; it has 1 log of this node's enclaves\n" in said


def test_a_file_that_is_no_archive(data: Data, tmp_path: Path) -> None:
    (tmp_path / "none.enc").write_bytes(b"nonsense")
    assert f"{tmp_path / 'none.enc'}: " in refused(data, "--archive", tmp_path / "none.enc")[1]


# A new key


def test_moves_to_a_new_key_are_prepared(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_NODE_PUBLIC_URL", "https://new.example")
    fresh = tmp_path / "fresh"
    result = enc("adopt", "--data", data.path, "--new-key", fresh)
    assert result.exit_code == 0, result.output
    new = key_file.load(fresh / "node.key").public
    assert new != NODE.public
    moves = fresh / "moves.txt"
    assert result.stdout == f"1 enclave can move to the key {new.hex()}: {moves} says how\n"
    lines, archive = moves.read_text().splitlines(), f"archives/{data.id.hex()}.enc"
    assert lines[-2:] == [
        f"# created by {person('alice').public.hex()}; 7 events, the last of 2026-09-21T14:13:25Z",
        f"enc migrate {data.id.hex()} --force --archive {archive} --to https://new.example",
    ]
    header, events = read_archive([(fresh / archive).read_bytes()])
    verify_archive(header, events)
    assert (header.events, header.sth) == (7, data.last)
    assert data.is_restored, "the old key signs nothing"
    assert (fresh / archive).stat().st_mode & 0o077 == fresh.stat().st_mode & 0o077 == 0


def test_a_new_key_needs_nobody_s_consent(data: Data, tmp_path: Path) -> None:
    for flags in (["--yes"], ["--witness", "x"], ["--registry", "x"], ["--archive", "x"], ["--without", "x"]):
        result = enc("adopt", "--data", data.path, "--new-key", tmp_path / "fresh", *flags)
        assert failure(result) == "--new-key: asks nobody and adopts nothing: leave out the other flags"
    assert not (tmp_path / "fresh").exists()


def test_an_enclave_that_is_damaged_keeps_no_other_from_moving(data: Data, tmp_path: Path) -> None:
    with closing(SqliteStore(data.file)) as store:
        other = Host(store).create(meta={"n": 2})
        ended = Host(store)
        ended.create(meta={"n": 3})
        store.database.writer.db.execute("UPDATE events SET timestamp = 1 WHERE k = (1 << 40) + 3")
        store.database.writer.db.execute("UPDATE events SET content = 'x' WHERE k = (1 << 40) + 3")
    result = enc("adopt", "--data", data.path, "--new-key", tmp_path / "fresh")
    assert "2 enclaves can move to the key" in result.stdout
    assert ", 1 could not be archived: " in result.stdout
    text = (tmp_path / "fresh/moves.txt").read_text()
    assert f"# {data.id.hex()}: not archived: " in text
    assert f"enc migrate {other.hex()} --force" in text
    assert f"enc migrate {data.id.hex()} " not in text


def test_a_terminated_enclave_does_not_move(data: Data, tmp_path: Path) -> None:
    with closing(SqliteStore(data.file)) as store:
        Host(store).send(data.id, "alice", "Terminate")
    assert "0 enclaves can move" in enc("adopt", "--data", data.path, "--new-key", tmp_path / "fresh").stdout


def test_a_new_key_takes_no_directory_s_place(data: Data) -> None:
    result = enc("adopt", "--data", data.path, "--new-key", data.path)
    assert failure(result) == f"--new-key: {data.path}: File exists"
