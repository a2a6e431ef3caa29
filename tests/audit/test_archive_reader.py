"""Archives read in parts: the same lines from every start, and errors for damaged files."""

import hashlib
import os
import re
from pathlib import Path

import pytest
import zstandard
from msgspec.structs import replace

from enc.audit import archive_reader
from enc.audit.archive_reader import digest_of, found_archives, read_header, read_lines
from enc.audit.plan import VerifiedPrefix, plan, spread, survey
from enc.core.errors import InvalidArchive, MisuseError
from enc.core.machine import archive
from enc.core.machine.archive import write_lines
from tests.audit.logs import audit, reported, talk, write
from tests.core.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return talk(40)


@pytest.fixture
def path(world: World, tmp_path: Path) -> str:
    return write(tmp_path / "a.enc", world)


def lines(path: str, first: int = 0, last: int | None = None) -> list[bytes]:
    return [line for block in read_lines(path, first, last) for line in block]


@pytest.mark.parametrize("chunk", [64, 1000, 1 << 18])
def test_every_part_has_the_same_lines(path: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_reader, "CHUNK", chunk)
    monkeypatch.setattr(archive, "_PIECE", 700)
    whole = lines(path)
    assert len(whole) == 41
    for first in range(0, 42, 3):
        for last in (None, first, first + 1, 20, 41, 50):
            assert lines(path, first, last) == whole[first:last], (first, last)


def test_what_expands_a_thousandfold_is_met_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "bomb.enc"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"{}\n" * (1 << 20)))
    assert path.stat().st_size < 1000
    blocks = [len(block) for block in read_lines(str(path))]
    assert (sum(blocks), max(blocks) <= archive._PIECE) == ((1 << 20) - 1, True)


@pytest.mark.parametrize("name", ["seq", "timestamp", "exp"])
@pytest.mark.parametrize("number", [-5, 1 << 53, (1 << 64) - 1])
def test_a_number_out_of_bounds_is_one_fault_however_it_is_read(path: str, name: str, number: int) -> None:
    """Also without signatures: an impossible event does not end the audit."""
    kept, header = lines(path), read_header(path)
    kept[5] = re.sub(rb'"%b":\d+' % name.encode(), b'"%b":%d' % (name.encode(), number), kept[5])
    Path(path).write_bytes(b"".join(write_lines(header, kept)))
    for cores in (1, 2):
        assert reported(audit(path, part=3, cores=cores)) == [("altered_content", 5)]


def test_a_digest_is_of_the_first_lines(path: str) -> None:
    whole = lines(path)
    for count in (1, 20, 41):
        expected = hashlib.sha256(b"".join(line + b"\n" for line in whole[:count])).hexdigest()
        assert digest_of(path, count) == expected
        told_ = hashlib.sha256()
        assert [line for block in read_lines(path, 3, count, told_) for line in block] == whole[3:count]
        assert told_.hexdigest() == expected
    assert digest_of(path, 42) is None


def test_damaged_files(path: str, tmp_path: Path) -> None:
    data = Path(path).read_bytes()
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    compress = zstandard.ZstdCompressor().compress
    damaged = {
        "cut.enc": (data[:-20], "truncated"),
        "more.enc": (data + b"x", "follows"),
        "text.enc": (b"hello", "not zstd"),
        "empty.enc": (compress(b""), "empty"),
        "line.enc": (compress(plain[:-5]), "within a line"),
    }
    for name, (bad, words) in damaged.items():
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(InvalidArchive, match=words):
            read_header(str(tmp_path / name)), lines(str(tmp_path / name))
        found = audit(str(tmp_path / name))
        assert found.problems, name
        assert reported(found) == []
    with pytest.raises(InvalidArchive, match="cannot be read"):
        read_header(str(tmp_path / "nothing.enc"))


def test_a_line_has_a_bound(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_reader, "MAX_LINE", 500)
    monkeypatch.setattr(archive, "_PIECE", 100)
    for first in (0, 30):
        with pytest.raises(InvalidArchive, match="over 500 bytes"):
            lines(path, first)


def test_folders_are_looked_through(path: str, tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/b.enc").write_bytes(b"")
    (tmp_path / "heads.jsonl").write_bytes(b"")
    assert found_archives([tmp_path]) == [path, str(tmp_path / "deep/er/b.enc")]
    assert found_archives([tmp_path, path]) == found_archives([tmp_path])


def test_a_folder_that_cannot_be_opened_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "all/shut").mkdir(parents=True)
    scandir = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("shut"):  # as for everyone but root
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(MisuseError, match="shut: cannot be read"):
        found_archives([tmp_path / "all"])


def test_a_large_archive_is_many_tasks_and_gives_the_same(world: World, path: str, tmp_path: Path) -> None:
    trying, *parts = plan([survey(path, {})], {}, part=10)
    assert (trying.replays, trying.checks) == (True, False)
    assert all(item.checks and not item.replays for item in parts)
    bounds = [(item.first, item.last) for item in parts]
    assert [first for first, _ in bounds] == [0, *(last for _, last in bounds[:-1])]
    assert bounds[-1][1] is None
    assert len(parts) > 4
    (whole,) = plan([survey(path, {})], {}, part=10, cores=1)
    assert whole.replays
    assert whole.checks
    found = audit(path, part=10, cores=2)
    assert (found.verdicts[0].checked, found.verdicts[0].events, reported(found)) == (41, 41, [])
    events = list(world.events)
    events[33] = replace(events[33], sig=bytes(64))
    assert reported(audit(write(tmp_path / "b.enc", world, events), part=10, cores=2)) == [("invalid_signature", 33)]


def test_what_is_known_is_skipped_only_where_it_is_the_same(path: str) -> None:
    (item,) = plan([survey(path, {})], {})
    known = {item.enclave: VerifiedPrefix(20, digest_of(path, 20) or "")}
    assert survey(path, known).known == 20
    assert survey(path, {item.enclave: VerifiedPrefix(20, "00" * 32)}).known == 0
    assert survey(path, {item.enclave: VerifiedPrefix(99, digest_of(path, 20) or "")}).known == 0


def test_bins_are_of_about_one_weight() -> None:
    bins = spread([(weight, str(weight)) for weight in (9, 1, 8, 2, 7, 3, 6, 4, 5)], 3)
    assert [sum(weight for weight, _ in each) for each in bins] == [16, 15, 14]
    assert spread([], 3) == []
    assert len(spread([(1, "a")], 8)) == 1
