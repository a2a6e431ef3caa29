"""Lines of a chat that were entered and are not in the log yet."""

from collections.abc import Sequence

from msgspec import Struct

from enc.cli.chat.slash_commands import LineAttempt, parse


class PendingLine(Struct, eq=False):
    """A line that was entered. Its seq is known once it has run."""

    text: str
    attempt: LineAttempt | None = None
    seq: int | None = None
    is_in_log: bool = False
    """The log has it, whatever its answer was."""


class PendingLines:
    """The lines that are being sent, and those that no node has accepted."""

    def __init__(self) -> None:
        self._sending: list[PendingLine] = []
        self._unsent: list[PendingLine] = []

    @property
    def entered(self) -> Sequence[PendingLine]:
        """The lines that were entered and that the log does not show yet."""
        return self._sending

    @property
    def sending(self) -> list[str]:
        return [each.text for each in self._sending]

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def add(self, line: PendingLine) -> PendingLine:
        if line.text.strip():
            self._sending.append(line)
        return line

    def confirm(self, text: str) -> None:
        """Remove a message that the log has. Its answer may have been lost on the way."""
        for lines in (self._sending, self._unsent):
            for each in lines:
                if parse(each.text) == ("", text):
                    each.is_in_log = True
                    lines.remove(each)
                    return

    def settle(self, seen: int) -> None:
        """Remove lines that have run and that the log shows, as it is read up to `seen`."""
        self._sending = [each for each in self._sending if each.seq is None or each.seq > seen]

    def keep(self, line: PendingLine) -> None:
        """Keep a failed line for /retry, unless the log has it or it is itself a /retry."""
        if not line.is_in_log and not _is_retry(line):
            self._unsent.append(line)

    def is_unsent(self, text: str) -> bool:
        return any(each.text == text for each in self._unsent)

    def take_unsent(self) -> list[PendingLine]:
        """Return the unsent lines, to enter them again."""
        lines, self._unsent = self._unsent, []
        return lines

    def give_up(self) -> list[str]:
        """Count the lines that have not run yet as unsent; return all unsent lines that are not stored."""
        self._unsent += [each for each in self._sending if each.seq is None and not _is_retry(each)]
        self._unsent = [each for each in self._unsent if each.attempt is None or not each.attempt.is_stored]
        return [each.text for each in self._unsent]


def _is_retry(line: PendingLine) -> bool:
    return parse(line.text)[0] == "retry"
