"""Which owners were notified of the evacuation, kept in a file across restarts."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.json import Decoder, encode

from enc.core.errors import InvalidProof, Unavailable
from enc.core.primitives.encoding import decode_json
from enc.core.registry.evacuation import Evacuation
from enc.runtime.files import write_atomic

NoticeResult = Literal["notified", "closed", "no_store", "failed"]


class NoticeOutcome(Struct, frozen=True, omit_defaults=True):
    """What came of the notice to one owner. `result`: notified; closed (the owner's store accepts no
    notices); no_store (none was found); failed, for `reason`.
    """

    owner: str
    result: NoticeResult
    at: int
    store: str = ""
    reason: str = ""


class _Header(Struct, frozen=True):
    """The evacuation that the outcomes belong to."""

    to_key: str
    since: int


_header, _outcome = Decoder(_Header), Decoder(NoticeOutcome)


class NoticeLog:
    """A header line, then one line for each outcome; an owner's last one counts. For one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header: _Header | None = None
        self._outcomes: dict[str, NoticeOutcome] = {}
        self._may_append = False
        """Whether the file is known to end with a whole line of this evacuation."""

    def outcomes(self, to: Evacuation) -> Mapping[str, NoticeOutcome]:
        """Return the outcomes of this evacuation by owner; raise Unavailable if the file cannot be
        read.
        """
        return self._load(to)

    def _load(self, to: Evacuation) -> dict[str, NoticeOutcome]:
        wanted = _Header(to.to_key.hex(), to.since)
        if self._header != wanted:
            self._outcomes = self._read(wanted)
            self._header, self._may_append = wanted, False
        return self._outcomes

    def record(self, to: Evacuation, outcome: NoticeOutcome) -> None:
        """Add an outcome; when this returns, the disk has it."""
        known = self._load(to)
        lines = [outcome] if self._may_append else [self._header, *{**known, outcome.owner: outcome}.values()]
        data = b"".join(encode(line) + b"\n" for line in lines)
        try:
            if self._may_append:
                _append(self._path, data)
            else:
                write_atomic(self._path, data)
        except OSError as e:
            self._may_append = False
            raise Unavailable(f"{self._path}: cannot be written: {e.strerror}") from None
        known[outcome.owner], self._may_append = outcome, True

    def _read(self, wanted: _Header) -> dict[str, NoticeOutcome]:
        try:
            first, *rest = self._path.read_bytes().split(b"\n")
            header = decode_json(first, _header, InvalidProof)
        except FileNotFoundError:
            return {}
        except OSError as e:
            raise Unavailable(f"{self._path}: cannot be read: {e.strerror}") from None
        except InvalidProof:
            todo = "remove the file, and every owner is notified again"
            raise Unavailable(f"{self._path}: does not say which owners were notified; {todo}") from None
        return {each.owner: each for each in map(_parse, rest) if each is not None} if header == wanted else {}


def _parse(line: bytes) -> NoticeOutcome | None:
    """Return the outcome; None for the end of the file, or a line that a crash has cut."""
    try:
        return decode_json(line, _outcome, InvalidProof)
    except InvalidProof:
        return None


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
