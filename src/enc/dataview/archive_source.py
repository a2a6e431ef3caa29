"""`spark.read.format("enc_archive").load("archives/")`: archives as raw rows, many files and parts of files at a time.

`path` is a file, a directory (its `*.enc`, `*.zst` and `*.enc-archive` files), or a pattern; several with commas.
`splits` is how many tasks share one file, at most (default: 4): an archive is one compressed stream, so that each task
decompresses what stands before its part, and only skips it. `eventsPerSplit` is how many events are worth a task of
their own (default: 10,000). `verify` is as for `format("enc")`: see `options`.

As a stream, each file is read once, whole, in the order of their names; `maxFilesPerTrigger` (default: 16) of them at
once. A file is what its name says: to add events, add a file.
"""

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import zstandard
from msgspec import Struct
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from enc.core.archive import MAX_LINE, Header, parse_header
from enc.core.errors import EncError, InvalidArchive, MisuseError, Unavailable
from enc.dataview.rows import Place, mark, now, raw_batches
from enc.dataview.verify import parse_verify
from enc.dataview.yielding import Yielding

SUFFIXES = (".enc", ".zst", ".enc-archive")
CHUNK = 1 << 20
_WINDOW = 1 << 27
_LOCAL = re.compile(r"^file:/+")
"""How Spark spells a path of this machine."""
_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_DEFAULTS = {"splits": 4, "eventspersplit": 10_000, "maxfilespertrigger": 16}


class Part(Struct, frozen=True):
    """The events of one file from the `first` to before the `last`, as lines; None: to the end."""

    path: str
    first: int
    last: int | None


class _PartOfFile(InputPartition):
    def __init__(self, part: Part) -> None:
        self.part = part


class ArchiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "enc_archive"

    def schema(self) -> StructType:
        return _Base(self.options).yielding.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self.options)


class _Base:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in options.items()}
        self.yielding = Yielding(parse_verify(self._given.get("verify", "no")), self._given.get("stage"))
        self.yielding.check()
        unknown = self._given.keys() - _DEFAULTS.keys() - {"path", "verify", "stage"}
        if unknown:
            raise MisuseError(f"{', '.join(sorted(unknown))}: no such option")
        if not self._given.get("path"):
            raise MisuseError('path: expected a file, a directory or a pattern: .load("archives/")')

    def _number(self, name: str) -> int:
        text = self._given.get(name.lower(), "")
        if text and not (text.isascii() and text.isdecimal() and int(text) > 0):
            raise MisuseError(f"{name}: expected a number from 1 on, and not {text!r}")
        return int(text or _DEFAULTS[name.lower()])

    def _parts(self, path: str) -> Iterator[_PartOfFile]:
        events = _events(path)
        count = max(1, min(self._number("splits"), events // self._number("eventsPerSplit")))
        bounds = [events * i // count for i in range(count)]
        for first, last in zip(bounds, [*bounds[1:], None], strict=True):
            yield _PartOfFile(Part(path, first, last))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark asks once without a partition where there is none."""
        return self.yielding.of(read_part(partition.part)) if isinstance(partition, _PartOfFile) else iter(())


class _Reader(_Base, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        paths = found_paths(self._given["path"])
        if not paths:
            raise MisuseError(f"{self._given['path']}: there is no archive")
        return [part for path in paths for part in self._parts(path)]


class _StreamReader(_Base, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset holds the files that are read: `{path: "read"}`."""

    _target: list[str] | None = None

    def initialOffset(self) -> dict[str, str]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._number("maxFilesPerTrigger"))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = found_paths(self._given["path"])

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        there = found_paths(self._given["path"]) if self._target is None else self._target
        new = _but(there, start)
        most = len(new) if isinstance(limit, ReadAllAvailable) else self._number("maxFilesPerTrigger")
        return {**start, **dict.fromkeys(new[:most], "read")}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        return [part for path in _but(end, start) for part in self._parts(path)]


def _but(paths: Iterable[str], read: Iterable[str]) -> list[str]:
    """Those that are not read yet. An offset may name a file from where the driver was then."""
    known = {os.path.abspath(path) for path in read}
    return [path for path in map(os.path.abspath, paths) if path not in known]


def found_paths(given: str) -> list[str]:
    """The files that a path stands for, by name; whoever reads them may be somewhere else."""
    found: set[str] = set()
    texts = [_LOCAL.sub("/", text.strip()) for text in given.split(",") if text.strip()]
    for text in texts:
        if _ADDRESS.match(text):
            raise MisuseError(f"{text[:100]}: archives are files in directories that this machine sees")
    for each in map(os.path.abspath, texts):
        if os.path.isdir(each):
            found |= {entry.path for entry in os.scandir(each) if entry.name.endswith(SUFFIXES) and entry.is_file()}
        else:
            found |= {path for path in glob.glob(each) if os.path.isfile(path)}
    return sorted(found)


def _events(path: str) -> int:
    """How many the header says; 0 where there is none: whoever reads the file then says so."""
    try:
        return _open(path)[0].events
    except (EncError, OSError):
        return 0


def _open(path: str) -> tuple[Header, Iterator[list[bytes]]]:
    blocks = _lines(path)
    first = next(blocks, None)
    if not first:
        raise InvalidArchive("the archive is empty")
    header = parse_header(first[0])

    def rest() -> Iterator[list[bytes]]:
        yield first[1:]
        yield from blocks

    return header, rest()


def _lines(path: str) -> Iterator[list[bytes]]:
    """Whole lines, as many at a time as come; the last one must end like the others, so that a cut file is noticed."""
    left = b""
    with open(path, "rb") as file, zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(file) as pieces:
        while piece := _piece(pieces):
            lines = (left + piece).split(b"\n")
            left = lines.pop()
            if len(left) > MAX_LINE:
                raise InvalidArchive(f"a line is over {MAX_LINE} bytes")
            if lines:
                yield lines
    if left:
        raise InvalidArchive("the archive is cut off within a line")


def _piece(pieces: zstandard.ZstdDecompressionReader) -> bytes:
    try:
        return pieces.read(CHUNK)
    except zstandard.ZstdError as e:
        raise InvalidArchive(f"not zstd: {e}") from None


def read_part(part: Part) -> Iterator[pa.RecordBatch]:
    """Raw rows of a part. What is wrong with a file is a row too, and goes to quarantine, which so names the file. One
    that is not there, or may not be read, is nobody's word: it is owed, and read when it is there.
    """
    place = Place(f"archive:{part.path}")
    try:
        header, blocks = _open(part.path)
        place = Place(place.origin, header.enclave.hex(), header.enc_v)
        yield from raw_batches(_between(blocks, part, header.events), place, now())
    except OSError as e:
        raise Unavailable(f"{part.path}: cannot be read: {e.strerror}", retry_after_ms=1000) from None
    except EncError as e:
        yield mark(e, place, now(), archive=part.path)


def _between(blocks: Iterator[list[bytes]], part: Part, events: int) -> Iterator[bytes]:
    """The lines of a part. What is wrong with the file is said once: by the part in which it ends."""
    at = 0
    try:
        for lines in blocks:
            start, at = at, at + len(lines)
            if at > part.first:
                yield from lines[max(part.first - start, 0) : None if part.last is None else max(part.last - start, 0)]
            if part.last is not None and at >= part.last:
                return
        if at < events:
            raise InvalidArchive(f"the header says {events} events, and there are {at}")
    except InvalidArchive:
        if at >= part.first:
            raise
