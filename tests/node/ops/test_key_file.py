"""The node's key file: created once, complete or not at all, and rejected if others could have read it."""

import fcntl
import multiprocessing
import os
import signal
import stat
import traceback
from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.signing import CURVE_ORDER, PrivateKey
from enc.node.ops import key_file
from enc.node.ops.key_file import load, load_or_create
from enc.runtime.keys import key_file as sealed_format
from enc.runtime.keys.key_file import PassphraseNeeded, WrongPassphrase

SECRET = "7a" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.key"


def put(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def refusal(path: Path) -> str:
    """Return why both readers reject the file; no error may contain `held`, the file's secret."""
    held = path.read_bytes().strip()[:16].decode() if path.is_file() else ""
    messages = set()
    for read in (load, load_or_create):
        with pytest.raises(MisuseError) as caught:
            read(path)
        text = "".join(traceback.format_exception(caught.value))
        assert not held or held not in text
        assert caught.value.__context__ is None or isinstance(caught.value.__context__, OSError | ValueError)
        assert str(path) in caught.value.message
        messages.add(caught.value.message)
    return str(messages.pop())


def test_the_first_start_makes_a_key_and_the_next_finds_it(path: Path) -> None:
    key = load_or_create(path)
    assert load_or_create(path).public == load(path).public == key.public
    assert path.read_text() == key.secret.hex() + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file of root")
def test_a_credential_of_systemd_may_be_readable_by_its_group(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(path, SECRET, 0o440)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(path.parent / "other"))
    assert "accessible to other users" in refusal(path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(path.parent))
    assert load_or_create(path).public == PrivateKey(bytes.fromhex(SECRET)).public
    for mode in (0o444, 0o460):
        assert "accessible to other users" in refusal(put(path, SECRET, mode))
    os.chown(put(path, SECRET, 0o440), 12345, -1)
    assert "accessible to other users" in refusal(path)


def test_every_node_has_its_own(tmp_path: Path) -> None:
    assert load_or_create(tmp_path / "a").public != load_or_create(tmp_path / "b").public


@pytest.mark.parametrize("umask", [0o000, 0o277])
def test_the_umask_changes_nothing(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        load_or_create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_load_makes_none(path: Path) -> None:
    with pytest.raises(MisuseError, match="cannot be read: No such file"):
        load(path)
    assert not path.exists()


@pytest.mark.parametrize("text", [SECRET, SECRET + "\n"], ids=["bare", "line"])
def test_a_key_that_was_brought(path: Path, text: str) -> None:
    assert load_or_create(put(path, text)).public == PrivateKey(bytes.fromhex(SECRET)).public


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        SECRET[:-1],
        SECRET + "0",
        SECRET + "\n\n",
        SECRET + "\r\n",
        " " + SECRET,
        SECRET.upper(),
        "0x" + SECRET[2:],
        "zz" * 32,
        SECRET * 1000,
        "00" * 32,
        f"{CURVE_ORDER:064x}",
        "é" * 32,
    ],
    ids=lambda text: f"{len(text)} characters",
)
def test_what_is_no_key(path: Path, text: str) -> None:
    assert "does not contain a private key" in refusal(put(path, text))
    assert path.read_bytes() == text.encode(), "an existing file is left as it is"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_a_file_open_to_others(path: Path, mode: int) -> None:
    assert "accessible to other users" in refusal(put(path, SECRET, mode))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_for_its_owner_alone(path: Path, mode: int) -> None:
    load(put(path, SECRET, mode))


def test_what_is_no_file(path: Path) -> None:
    path.mkdir(mode=0o700)
    assert "is not a file" in refusal(path)


def test_a_pipe_does_not_hold_up_the_start(path: Path) -> None:
    os.mkfifo(path, 0o600)
    assert "is not a file" in refusal(path)


def test_a_link_to_a_file_of_our_own(tmp_path: Path, path: Path) -> None:
    path.symlink_to(put(tmp_path / "elsewhere", SECRET))
    assert load_or_create(path).public == load(tmp_path / "elsewhere").public


def test_a_link_to_a_file_of_another_user(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.symlink_to(put(tmp_path / "elsewhere", SECRET))
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "a link to a file of another user" in refusal(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_does_not_hide_how_open_a_file_is(tmp_path: Path, path: Path) -> None:
    path.symlink_to(put(tmp_path / "elsewhere", SECRET, 0o644))
    assert "accessible to other users" in refusal(path)


def test_a_link_that_leads_nowhere_makes_no_key_there(tmp_path: Path, path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    assert "cannot be read" in refusal(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="cannot be created: No such file"):
        load_or_create(tmp_path / "none" / "node.key")


@pytest.mark.parametrize("read", [load, load_or_create])
def test_a_path_that_is_none(read: Any) -> None:
    with pytest.raises(MisuseError, match="null"):
        read(Path("a\0b"))


def test_the_disk_has_the_key_before_its_name_and_the_name_before_the_node_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, link = os.fsync, os.link

    def note_fsync(fd: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        assert is_directory or os.fstat(fd).st_size == 65
        done.append("directory" if is_directory else "file")
        fsync(fd)

    def note_link(*args: Any) -> None:
        done.append("link")
        link(*args)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    load_or_create(path)
    assert done == ["file", "link", "directory"]


def test_who_comes_second_takes_the_first_one_s_key(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def create_both(path: Path) -> None:
        create(path)
        first.append(load(path))
        create(path)

    create, first = key_file._create, list[PrivateKey]()
    monkeypatch.setattr(key_file, "_create", create_both)
    assert load_or_create(path).public == first[0].public
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_failure_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(Unavailable, match=f"key file {path}: cannot be created: No space left"):
        load_or_create(path)
    assert list(path.parent.iterdir()) == []


def _die(path: Path, call: str) -> None:
    """Make a key, and be killed in the middle: before or after this call of the system."""
    name, _, when = call.partition(" ")
    real = getattr(os, name)

    def kill(*args: Any) -> None:
        if when == "after":
            real(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, name, kill)
    load_or_create(path)


@pytest.mark.parametrize("call", ["fchmod before", "fsync before", "link before", "link after", "unlink before"])
def test_a_crash_leaves_a_whole_key_or_none_and_the_next_start_clears_its_draft(path: Path, call: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_die, args=(path, call))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (draft,) = (found for found in path.parent.iterdir() if found != path)
    assert stat.S_IMODE(draft.stat().st_mode) == 0o600
    whole = load(path).public if path.exists() else None
    assert (whole is not None) == (call in ("link after", "unlink before"))
    key = load_or_create(path)
    assert whole in (None, key.public)
    assert list(path.parent.iterdir()) == [path]


def test_only_drafts_of_this_key_are_cleared(path: Path) -> None:
    others = [".node.key.swp", ".other.key.0123456789abcdef", "node.key.0123456789abcdef", ".node.key.0123456789ABCDEF"]
    for name in others:
        put(path.with_name(name), SECRET)
    path.with_name(".node.key.00000000deadbeef").mkdir()
    load_or_create(path), load_or_create(path)
    assert {found.name for found in path.parent.iterdir()} == {*others, ".node.key.00000000deadbeef", path.name}


def test_a_draft_that_cannot_be_cleared_does_not_keep_a_key_from_being_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise OSError(30, "Read-only file system")

    put(path, SECRET), put(path.with_name(".node.key.0123456789abcdef"), SECRET)
    monkeypatch.setattr(os, "unlink", fail)
    assert load_or_create(path).public == load(path).public


@pytest.mark.parametrize("is_there", [False, True], ids=["made", "found"])
def test_one_process_at_a_time_has_drafts_so_none_is_cleared_that_is_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    unlink, cleared = os.unlink, list[str]()

    def try_lock(draft: Any) -> None:
        fd = os.open(path.parent, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
        unlink(draft)
        cleared.append(Path(draft).name)

    put(path.with_name(".node.key.0123456789abcdef"), SECRET)
    if is_there:
        put(path, SECRET)
    monkeypatch.setattr(os, "unlink", try_lock)
    load_or_create(path)
    assert cleared[0] == ".node.key.0123456789abcdef"
    assert len(cleared) == (1 if is_there else 2), "and the temporary file of the new key"


def _start(path: Path, gate: Any, found: Any) -> None:
    gate.wait()
    found.put(load_or_create(path).public)


def test_processes_that_start_at_once_end_with_one_key(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    gate, found = context.Barrier(4), context.Queue()
    starts = [context.Process(target=_start, args=(path, gate, found)) for _ in range(4)]
    for start in starts:
        start.start()
    publics = {found.get(timeout=60) for _ in starts}
    for start in starts:
        start.join()
    assert publics == {load(path).public}
    assert list(path.parent.iterdir()) == [path]


# Sealed


WORDS = "correct horse"


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_format, "COST", (2, 8, 1))


@pytest.mark.usefixtures("cheap")
def test_a_sealed_key_opens_with_its_passphrase_alone(path: Path) -> None:
    key = load_or_create(path)
    assert not key_file.is_sealed(path)
    key_file.save(path, key, WORDS)
    assert key.secret.hex().encode() not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key_file.is_sealed(path)
    assert key_file.public(path) == key.public
    assert load(path, lambda _: WORDS).secret == load_or_create(path, lambda _: WORDS).secret == key.secret
    with pytest.raises(PassphraseNeeded):
        load(path)
    with pytest.raises(WrongPassphrase, match="does not open with this passphrase") as caught:
        load(path, lambda _: "battery staple")
    assert caught.value.message == f"{path}: does not open with this passphrase; give the one it was saved with"
    key_file.save(path, key, None)
    assert path.read_text() == key.secret.hex() + "\n"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.usefixtures("cheap")
def test_nobody_is_asked_for_the_passphrase_of_a_key_that_is_not_sealed(path: Path) -> None:
    def ask(path: Path) -> str:
        raise AssertionError("asked")

    key = load_or_create(path, ask)
    assert load(path, ask).public == key_file.public(path) == key.public


@pytest.mark.usefixtures("cheap")
def test_sealing_replaces_the_file_that_a_link_names(tmp_path: Path, path: Path) -> None:
    path.symlink_to(put(tmp_path / "elsewhere", SECRET))
    key_file.save(path, load(path), WORDS)
    assert path.is_symlink()
    assert SECRET not in (tmp_path / "elsewhere").read_text()
    assert load(path, lambda _: WORDS).public == PrivateKey(bytes.fromhex(SECRET)).public


@pytest.mark.parametrize("text", ["{", "{}", '{"format": "enc-key", "version": 2, "public": ""}'])
def test_a_damaged_sealed_file(path: Path, text: str) -> None:
    put(path, text)
    for read in (load, load_or_create, key_file.public):
        with pytest.raises(MisuseError, match="is not a complete key file, restore it from a copy"):
            read(path)
