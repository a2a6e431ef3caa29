"""Identities and their key files: atomic, private, and never quoted in errors."""

import base64
import hashlib
import json
import os
import pickle
import stat
import traceback
from pathlib import Path
from typing import Any

import pytest

from enc.client.keys.identity import Identity, PassphraseNeeded, WrongPassphrase
from enc.core.errors import MisuseError
from enc.core.primitives.sealing import open_sealed
from enc.core.primitives.signing import CURVE_ORDER, Alg, PrivateKey, check_signature
from enc.runtime.keys import key_file

SECRET = "7a" * 32
WORDS = "correct horse"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "COST", (2, 8, 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "me.key"


@pytest.fixture
def me() -> Identity:
    return Identity.from_secret(SECRET)


def put(path: Path, content: Any, mode: int = 0o600) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    path.chmod(mode)
    return path


def plain(**changes: Any) -> dict[str, Any]:
    """Return a key file in plain; a change to None leaves the field out."""
    me = Identity.from_secret(SECRET)
    whole = {"format": "enc-key", "version": 1, "public": me.hex, "secret": me.private_key().secret.hex(), **changes}
    return {name: value for name, value in whole.items() if value is not None}


def sealed(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Return a key file sealed with WORDS; `n`, `r`, `p`, `name` and `salt` change the kdf."""
    Identity.from_secret(SECRET).save(tmp_path / "other", WORDS)
    whole = json.loads((tmp_path / "other").read_bytes())
    kdf = {name: changes.pop(name) for name in ("n", "r", "p", "name", "salt") if name in changes}
    whole = {**whole, "kdf": {**whole["kdf"], **kdf}, **changes}
    return {name: value for name, value in whole.items() if value is not None}


def silent(error: MisuseError, *told: str) -> str:
    """Return the message, which contains each of `told`, and no secret."""
    printed = "".join(traceback.format_exception(error)).lower()
    even = Identity.from_secret(SECRET).private_key().secret
    for secret in (SECRET, even.hex(), base64.b64encode(even).decode().lower(), WORDS):
        assert secret not in printed
    for words in told:
        assert words in error.message
    return error.message


def refusal(path: Path, passphrase: str | None = None) -> str:
    with pytest.raises(MisuseError) as caught:
        Identity.load(path, passphrase)
    assert type(caught.value) is MisuseError
    return silent(caught.value, str(path))


# Keys


def test_every_new_identity_is_another() -> None:
    assert len({Identity.new() for _ in range(3)}) == 3


def test_names_of_one_key() -> None:
    key = PrivateKey(bytes.fromhex(SECRET))
    me = Identity(key)
    assert me.key is key
    assert (me.public, me.hex) == (key.public, key.public.hex())


@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
def test_it_signs_with_either_algorithm(me: Identity, alg: Alg) -> None:
    check_signature(alg, me.public, b"d" * 32, me.sign(alg, b"d" * 32))


@pytest.mark.parametrize("secret", [SECRET, SECRET.upper(), bytes.fromhex(SECRET)], ids=["hex", "HEX", "bytes"])
def test_a_secret_from_elsewhere(secret: bytes | str) -> None:
    assert Identity.from_secret(secret).private_key().secret == PrivateKey(bytes.fromhex(SECRET)).secret


@pytest.mark.parametrize(
    "secret",
    [
        SECRET[:-2],
        SECRET + "7a",
        SECRET + "\n",
        "7a " * 32,
        "0x" + SECRET[2:],
        "٧" * 64,
        "",
        b"",
        SECRET.encode(),
        bytes(32),
        "00" * 32,
        CURVE_ORDER.to_bytes(32, "big"),
    ],
    ids=range(12),
)
def test_what_is_no_secret(secret: bytes | str) -> None:
    with pytest.raises(MisuseError, match="a private key must be") as caught:
        Identity.from_secret(secret)
    silent(caught.value)


def test_only_the_public_key_is_shown_and_compared(me: Identity) -> None:
    negated = Identity.from_secret((CURVE_ORDER - int(SECRET, 16)).to_bytes(32, "big"))
    assert repr(me) == str(me) == f"Identity({me.hex})"
    assert me == negated
    assert hash(me) == hash(negated)
    assert me != Identity.new()
    assert me != me.public


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_is_not_pickled(me: Identity, protocol: int) -> None:
    with pytest.raises((MisuseError, TypeError)):
        pickle.dumps(me, protocol)


# The file


def test_a_plain_file(me: Identity, path: Path) -> None:
    me.save(path)
    assert json.loads(path.read_bytes()) == plain()
    assert path.read_bytes().endswith(b"}\n")
    assert Identity.load(path) == Identity.load(str(path)) == me
    assert Identity.load(path).private_key().secret == me.private_key().secret


def test_a_passphrase_that_is_not_needed_does_no_harm(me: Identity, path: Path) -> None:
    me.save(path)
    assert Identity.load(path, WORDS) == me


def test_a_sealed_file_opens_as_it_is_described(me: Identity, path: Path) -> None:
    """Opened with another scrypt implementation, from the file alone."""
    me.save(path, WORDS)
    file = json.loads(path.read_bytes())
    assert list(file) == sorted(["format", "version", "public", "kdf", "sealed"])
    assert (file["format"], file["version"], file["public"]) == ("enc-key", 1, me.hex)
    kdf = file["kdf"]
    assert kdf.pop("name") == "scrypt"
    key = hashlib.scrypt(WORDS.encode(), salt=bytes.fromhex(kdf.pop("salt")), dklen=32, **kdf)
    box = base64.b64decode(file["sealed"], validate=True)
    assert len(box) == 24 + 32 + 16
    assert open_sealed(key, box) == me.private_key().secret


def test_a_sealed_file_is_loaded_with_its_passphrase(me: Identity, path: Path) -> None:
    me.save(path, WORDS)
    assert Identity.load(path, WORDS).private_key().secret == me.private_key().secret
    assert me.private_key().secret not in path.read_bytes()
    assert me.private_key().secret.hex().encode() not in path.read_bytes()


def test_the_cost_of_a_passphrase(me: Identity, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    me.save(path, WORDS)
    kdf = json.loads(path.read_bytes())["kdf"]
    assert (kdf["n"], kdf["r"], kdf["p"]) == (2**17, 8, 1)
    assert Identity.load(path, WORDS) == me


def test_two_files_share_neither_salt_nor_nonce(me: Identity, tmp_path: Path) -> None:
    first, second = sealed(tmp_path), None
    os.unlink(tmp_path / "other")
    second = sealed(tmp_path)
    assert first["kdf"]["salt"] != second["kdf"]["salt"]
    assert first["sealed"][:32] != second["sealed"][:32]


def test_one_passphrase_however_its_letters_are_composed(me: Identity, path: Path) -> None:
    me.save(path, "caf\u00e9")
    assert Identity.load(path, "cafe\u0301") == me


def test_a_passphrase_that_is_no_text_is_one_all_the_same(me: Identity, path: Path) -> None:
    me.save(path, "\udcff")
    assert Identity.load(path, "\udcff") == me


def test_an_empty_passphrase_is_none_to_save_with(me: Identity, path: Path) -> None:
    with pytest.raises(MisuseError, match="the passphrase is empty"):
        me.save(path, "")
    assert not path.exists()


def test_a_sealed_file_asks_for_its_passphrase(tmp_path: Path, path: Path) -> None:
    put(path, sealed(tmp_path))
    with pytest.raises(PassphraseNeeded) as caught:
        Identity.load(path)
    silent(caught.value, str(path), "give its passphrase")


@pytest.mark.parametrize("passphrase", ["", "Correct horse", WORDS + " "])
def test_a_wrong_passphrase(tmp_path: Path, path: Path, passphrase: str) -> None:
    put(path, sealed(tmp_path))
    with pytest.raises(WrongPassphrase) as caught:
        Identity.load(path, passphrase)
    silent(caught.value, str(path), "passphrase")


def test_every_byte_of_what_is_sealed_counts(tmp_path: Path, path: Path) -> None:
    file = sealed(tmp_path)
    for place in (0, 23, 24, 55, 56, 71):
        box = bytearray(base64.b64decode(file["sealed"]))
        box[place] ^= 1
        put(path, {**file, "sealed": base64.b64encode(box).decode()})
        with pytest.raises(WrongPassphrase):
            Identity.load(path, WORDS)


# Writing


@pytest.mark.parametrize("umask", [0o000, 0o277])
def test_the_file_is_its_owner_s_whatever_the_umask(me: Identity, path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        me.save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_stays(me: Identity, path: Path) -> None:
    me.save(path)
    with pytest.raises(MisuseError) as caught:
        Identity.new().save(path)
    silent(caught.value, str(path), "exists already", "give another path")
    assert Identity.load(path) == me
    assert list(path.parent.iterdir()) == [path]


def test_a_link_that_leads_nowhere_is_there_too(me: Identity, path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MisuseError, match="exists already"):
        me.save(path)
    assert not (tmp_path / "elsewhere").exists()


def test_what_somebody_put_in_the_way_is_not_written_through(
    me: Identity, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enc.runtime.files.secrets.token_hex", lambda size: "00" * size)
    trap = put(tmp_path / "trap", b"")
    (tmp_path / f".enc-{'00' * 8}").symlink_to(trap)
    with pytest.raises(MisuseError):
        me.save(path)
    assert trap.read_bytes() == b""
    assert not path.exists()


def test_a_file_is_overwritten_where_that_is_asked(me: Identity, path: Path) -> None:
    put(path, b"open to all", 0o666)
    me.save(path, overwrite=True)
    assert Identity.load(path) == me
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_disk_has_the_key_before_its_name_and_the_name_before_save_returns(
    me: Identity, path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    done: list[str] = []
    fsync, link, replace = os.fsync, os.link, os.replace

    def note_fsync(fd: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        assert is_directory or os.fstat(fd).st_size > 128
        done.append("directory" if is_directory else "file")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", lambda *args: (done.append("name"), link(*args)))  # type: ignore[func-returns-value]
    monkeypatch.setattr(os, "replace", lambda *args: (done.append("name"), replace(*args)))  # type: ignore[func-returns-value]
    me.save(path, overwrite=overwrite)
    assert done == ["file", "name", "directory"]


@pytest.mark.parametrize(("call", "overwrite"), [("fsync", False), ("fsync", True), ("link", False), ("replace", True)])
def test_a_failure_leaves_everything_as_it_was(
    me: Identity, path: Path, monkeypatch: pytest.MonkeyPatch, call: str, overwrite: bool
) -> None:
    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    if overwrite:
        put(path, b"before")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(MisuseError) as caught:
        me.save(path, overwrite=overwrite)
    silent(caught.value, str(path), "cannot be written: No space left")
    assert [file.read_bytes() for file in path.parent.iterdir()] == [b"before"] * overwrite


@pytest.mark.parametrize("name", ["none/me.key", "a\0b", "x" * 300])
def test_a_path_where_no_file_can_be(me: Identity, tmp_path: Path, name: str) -> None:
    with pytest.raises(MisuseError, match="cannot be written"):
        me.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_not_overwritten(me: Identity, path: Path) -> None:
    path.mkdir()
    with pytest.raises(MisuseError, match="cannot be written: Is a directory"):
        me.save(path, overwrite=True)


# Which files are read


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_a_file_open_to_others(path: Path, mode: int) -> None:
    assert f"chmod 600 {path}" in refusal(put(path, plain(), mode))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_for_its_owner_alone(me: Identity, path: Path, mode: int) -> None:
    assert Identity.load(put(path, plain(), mode)) == me


def test_a_file_of_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(path, plain())
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "belongs to another user; run as that user" in refusal(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_is_judged_by_the_file_it_leads_to(me: Identity, tmp_path: Path, path: Path) -> None:
    path.symlink_to(put(tmp_path / "elsewhere", plain()))
    assert Identity.load(path) == me
    (tmp_path / "elsewhere").chmod(0o644)
    assert "users other than its owner" in refusal(path)


def test_what_is_no_file(path: Path) -> None:
    path.mkdir(mode=0o700)
    assert "is not a regular file" in refusal(path)


def test_a_pipe_does_not_hold_up_who_reads_it(path: Path) -> None:
    os.mkfifo(path, 0o600)
    assert "is not a regular file" in refusal(path)


def test_no_file(path: Path) -> None:
    assert "there is no such file" in refusal(path)
    assert "cannot be read: Not a directory" in refusal(put(path, plain()) / "below")


def test_a_path_that_is_none() -> None:
    with pytest.raises(MisuseError, match="null"):
        Identity.load(Path("a\0b"))


# What they hold


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("secret", [SECRET, SECRET.upper(), "11" * 32])
def test_a_node_s_key_file(path: Path, secret: str, end: str) -> None:
    assert "a bare private key, as nodes store theirs; to use that key, import it" in refusal(
        put(path, (secret + end).encode())
    )


def test_a_file_too_large(path: Path, me: Identity) -> None:
    whole = json.dumps(plain()).encode()
    assert Identity.load(put(path, whole.ljust(4096))) == me
    assert "more than 4096 bytes" in refusal(put(path, whole.ljust(4097)))


OTHER = Identity.from_secret("7b" * 32)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 4000, "expected `object`"),
        (json.dumps(plain()).encode()[:-9], "not JSON"),
        (SECRET, "expected `object`"),
        ([SECRET], "expected `object`"),
        ({}, "format"),
        (plain(format="enc-pin"), "format: expected enc-key"),
        (plain(format=SECRET), "format: expected enc-key"),
        (plain(format=None), "format"),
        (plain(version=2), "version: only 1 is supported"),
        (plain(version="1"), "version"),
        (plain(version=2, secret={"new": "form"}), "version: only 1 is supported"),
        (plain(public=None), "public"),
        (plain(secret=None), "either secret, or kdf and sealed"),
        (plain(sealed="AAAA"), "either secret, or kdf and sealed"),
        (plain(secret=7), "secret"),
        (plain(secret=SECRET[:-1]), "secret: expected 64"),
        (plain(secret=SECRET.upper()), "secret: expected 64"),
        (plain(secret="00" * 32), "not that of its secret"),
        (plain(public=OTHER.hex), "not that of its secret"),
        (plain(public=plain()["public"].upper()), "not that of its secret"),
    ],
    ids=range(22),
)
def test_what_is_no_key_file(path: Path, content: Any, why: str) -> None:
    assert why in refusal(put(path, content))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kdf": None}, "either secret, or kdf and sealed"),
        ({"sealed": None}, "either secret, or kdf and sealed"),
        ({"secret": SECRET}, "either secret, or kdf and sealed"),
        ({"name": "pbkdf2"}, "kdf.name: only scrypt"),
        ({"salt": "00" * 15}, "kdf.salt"),
        ({"salt": "00" * 17}, "kdf.salt"),
        ({"sealed": "!"}, "sealed: expected standard base64"),
        ({"sealed": base64.b64encode(bytes(71)).decode()}, "sealed: not the length"),
        ({"sealed": base64.b64encode(bytes(73)).decode()}, "sealed: not the length"),
        ({"n": 2**18 + 2}, "kdf.n"),
        ({"n": 2**19}, "kdf.n"),
        ({"n": 2**17, "r": 17}, "kdf.n"),
        ({"n": 2**100}, "kdf.n"),
        ({"n": 3}, "kdf.n"),
        ({"n": 1}, "kdf.n"),
        ({"n": 0}, "kdf.n"),
        ({"n": -2}, "kdf.n"),
        ({"n": 2.5}, "kdf.n"),
        ({"r": 7}, "r must be 8 to 32"),
        ({"r": 33}, "r must be 8 to 32"),
        ({"r": 0}, "r must be 8 to 32"),
        ({"p": 0}, "p must be 1 to 4"),
        ({"p": 5}, "p must be 1 to 4"),
        ({"p": 2**40}, "p must be 1 to 4"),
    ],
    ids=repr,
)
def test_a_hostile_file_costs_nothing(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], why: str
) -> None:
    put(path, sealed(tmp_path, **changes))
    monkeypatch.setattr(key_file, "Scrypt", None)
    assert why in refusal(path, WORDS)
    assert why in refusal(path), "no passphrase is requested that would not help"


@pytest.mark.parametrize("cost", [(2**18, 8, 4), (2**16, 32, 4), (2, 8, 1)], ids=repr)
def test_the_bounds_themselves_are_allowed(tmp_path: Path, path: Path, cost: tuple[int, int, int]) -> None:
    n, r, p = cost
    put(path, sealed(tmp_path, n=n, r=r, p=p))
    with pytest.raises(PassphraseNeeded):
        Identity.load(path)


def test_a_sealed_secret_of_another_key(tmp_path: Path, path: Path) -> None:
    assert "not that of its secret" in refusal(put(path, sealed(tmp_path, public=OTHER.hex)), WORDS)


def test_another_algorithm_is_none() -> None:
    with pytest.raises(MisuseError, match="alg: expected one of schnorr, ecdsa"):
        Identity.new().sign("rsa", bytes(32))  # type: ignore[arg-type]
