"""`spark.read.format("enc_archive").load("archives/")`: archives as raw rows, read in parallel.

`path` is a file, a directory (its `*.enc`, `*.zst` and `*.enc-archive` files) or a pattern; several
are separated by commas. `splits` is the most tasks that share one file (default: 4): an archive is
one compressed stream, so each task decompresses and skips what precedes its part. `eventsPerSplit`
is the fewest events for a task of their own (default: 10,000). `verify` is as for `format("enc")`:
see `options`.

As a stream, each file is read once, as a whole, in order of name; `maxFilesPerTrigger` (default:
16) files per batch. A file is identified by its name: to add events, add a file.
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

from enc.core.errors import EncError, InvalidArchive, MisuseError, Unavailable
from enc.core.machine.archive import MAX_LINE, Header, parse_header
from enc.dataview.rows.raw_rows import RowOrigin, now, raw_batches, unread_row
from enc.dataview.rows.verify import parse_verify
from enc.dataview.source.output_mode import OutputMode

SUFFIXES = (".enc", ".zst", ".enc-archive")
CHUNK = 1 << 20
_WINDOW = 1 << 27
_LOCAL = re.compile(r"^file:/+")
"""How Spark writes a local path."""
_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_DEFAULTS = {"splits": 4, "eventspersplit": 10_000, "maxfilespertrigger": 16}


class Part(Struct, frozen=True):
    """The events of one file from `first` to before `last`, as lines; None: to the end."""

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
        return _ArchiveReader(self.options).output_mode.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self.options)


class _ArchiveReader:
    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in options.items()}
        self.output_mode = OutputMode(parse_verify(self._given.get("verify", "no")), self._given.get("stage"))
        self.output_mode.check()
        unknown = self._given.keys() - _DEFAULTS.keys() - {"path", "verify", "stage"}
        if unknown:
            raise MisuseError(f"{', '.join(sorted(unknown))}: no such option")
        if not self._given.get("path"):
            raise MisuseError('path: expected a file, a directory or a pattern: .load("archives/")')

    def _number(self, name: str) -> int:
        text = self._given.get(name.lower(), "")
        if text and not (text.isascii() and text.isdecimal() and int(text) > 0):
            raise MisuseError(f"{name}: expected a number of at least 1, not {text!r}")
        return int(text or _DEFAULTS[name.lower()])

    def _parts(self, path: str) -> Iterator[_PartOfFile]:
        events = _events(path)
        count = max(1, min(self._number("splits"), events // self._number("eventsPerSplit")))
        bounds = [events * i // count for i in range(count)]
        for first, last in zip(bounds, [*bounds[1:], None], strict=True):
            yield _PartOfFile(Part(path, first, last))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition. If there is none, Spark calls this once without one."""
        return self.output_mode.convert(read_part(partition.part)) if isinstance(partition, _PartOfFile) else iter(())


class _BatchReader(_ArchiveReader, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        paths = find_archives(self._given["path"])
        if not paths:
            raise MisuseError(f"{self._given['path']}: no archive found")
        return [part for path in paths for part in self._parts(path)]


class _StreamReader(_ArchiveReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams archives. An offset lists the files that have been read: `{path: "read"}`."""

    _target: list[str] | None = None

    def initialOffset(self) -> dict[str, str]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._number("maxFilesPerTrigger"))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = find_archives(self._given["path"])

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        there = find_archives(self._given["path"]) if self._target is None else self._target
        new = _unread(there, start)
        most = len(new) if isinstance(limit, ReadAllAvailable) else self._number("maxFilesPerTrigger")
        return {**start, **dict.fromkeys(new[:most], "read")}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        return [part for path in _unread(end, start) for part in self._parts(path)]


def _unread(paths: Iterable[str], read: Iterable[str]) -> list[str]:
    """Return the paths that have not been read. An offset may hold a path relative to an earlier
    driver's directory.
    """
    known = {os.path.abspath(path) for path in read}
    return [path for path in map(os.path.abspath, paths) if path not in known]


def find_archives(given: str) -> list[str]:
    """Return the files that a path matches, sorted by name, as absolute paths: readers may run
    elsewhere.
    """
    found: set[str] = set()
    texts = [_LOCAL.sub("/", text.strip()) for text in given.split(",") if text.strip()]
    for text in texts:
        if _ADDRESS.match(text):
            raise MisuseError(f"{text[:100]}: expected a path on a file system of this machine, not a URL")
    for each in map(os.path.abspath, texts):
        if os.path.isdir(each):
            found |= {entry.path for entry in os.scandir(each) if entry.name.endswith(SUFFIXES) and entry.is_file()}
        else:
            found |= {path for path in glob.glob(each) if os.path.isfile(path)}
    return sorted(found)


def _events(path: str) -> int:
    """Return the number of events in the header; 0 if it cannot be read: the reader of the file
    reports that.
    """
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
    """Yield whole lines in blocks. The last line must be terminated, so that a truncated file is
    detected.
    """
    left = b""
    with open(path, "rb") as file, zstandard.ZstdDecompressor(max_window_size=_WINDOW).stream_reader(file) as pieces:
        while piece := _piece(pieces):
            lines = (left + piece).split(b"\n")
            left = lines.pop()
            if len(left) > MAX_LINE:
                raise InvalidArchive(f"a line is longer than {MAX_LINE} bytes")
            if lines:
                yield lines
    if left:
        raise InvalidArchive("the archive is truncated within a line")


def _piece(pieces: zstandard.ZstdDecompressionReader) -> bytes:
    try:
        return pieces.read(CHUNK)
    except zstandard.ZstdError as e:
        raise InvalidArchive(f"not zstd: {e}") from None


def read_part(part: Part) -> Iterator[pa.RecordBatch]:
    """Yield raw rows of a part.

    An invalid file becomes a row that names it and goes to quarantine. A file that is missing or
    unreadable is not evidence of anything: it stays pending, and is read once it is available.
    """
    place = RowOrigin(f"archive:{part.path}")
    try:
        header, blocks = _open(part.path)
        place = RowOrigin(place.origin, header.enclave.hex(), header.enc_v)
        yield from raw_batches(_between(blocks, part, header.events), place, now())
    except OSError as e:
        raise Unavailable(f"{part.path}: cannot be read: {e.strerror}", retry_after_ms=1000) from None
    except EncError as e:
        yield unread_row(e, place, now(), archive=part.path)


def _between(blocks: Iterator[list[bytes]], part: Part, events: int) -> Iterator[bytes]:
    """Yield the lines of a part. An invalid file is reported once: by the part in which the error
    is.
    """
    at = 0
    try:
        for lines in blocks:
            start, at = at, at + len(lines)
            if at > part.first:
                yield from lines[max(part.first - start, 0) : None if part.last is None else max(part.last - start, 0)]
            if part.last is not None and at >= part.last:
                return
        if at < events:
            raise InvalidArchive(f"the header declares {events} events, but the file has {at}")
    except InvalidArchive:
        if at >= part.first:
            raise
