"""A line that is being typed: keys go in, lines come out. It knows nothing of a terminal but its bytes."""

from codecs import getincrementaldecoder
from collections.abc import Iterator

from rich.cells import cell_len

MAX_LINE = 1 << 16
"""Characters of one line; what is typed beyond them is dropped."""
MAX_HISTORY = 200
MAX_SEQUENCE = 32
"""Characters of one escape sequence."""


class Ended(Exception):
    """Ctrl-C, or Ctrl-D on an empty line."""


class LineEditor:
    """`feed` it what the keyboard sends; it yields each line that is entered. `text` and `cursor` are what stands."""

    def __init__(self) -> None:
        self.text, self.cursor = "", 0
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._escape: str | None = None
        self._is_pasting = False
        self._past: list[str] = []
        self._place = 0
        """Which line of the past is shown; at its end, the one that is new."""
        self._draft = ""
        self._keys = {
            "\x01": self._home,
            "\x05": self._end,
            "\x02": self._left,
            "\x06": self._right,
            "\x7f": self._rub_out,
            "\x08": self._rub_out,
            "\x0b": self._cut_end,
            "\x15": self._cut_start,
            "\x17": self._cut_word,
            "\x10": self._older,
            "\x0e": self._newer,
        }
        self._sequences = {
            "[A": self._older,
            "[B": self._newer,
            "[C": self._right,
            "[D": self._left,
            "[H": self._home,
            "[F": self._end,
            "[1~": self._home,
            "[4~": self._end,
            "[3~": self._delete,
            "[200~": self._start_paste,
            "[201~": self._end_paste,
        }

    def feed(self, data: bytes) -> Iterator[str]:
        for key in self._decoder.decode(data):
            line = self._take(key)
            if line is not None:
                yield line

    def set(self, text: str) -> None:
        """Put a text there, to be changed or entered."""
        self.text, self.cursor = text, len(text)

    def shown(self, width: int) -> tuple[str, int]:
        """The part of the line around the cursor that fits in so many cells, and the cursor's cell in it."""
        text = "".join("⏎" if c == "\n" else c for c in self.text)
        start = self.cursor
        while start > 0 and cell_len(text[start - 1 : self.cursor]) < width:
            start -= 1
        end = self.cursor
        while end < len(text) and cell_len(text[start : end + 1]) <= width:
            end += 1
        return text[start:end], cell_len(text[start : self.cursor])

    def _take(self, key: str) -> str | None:
        if self._escape is not None:
            self._in_sequence(key)
        elif key == "\x1b":
            self._escape = ""
        elif key in "\r\n":
            return self._entered()
        elif self._is_pasting:  # no key of it commands anything
            self._put(" " if key == "\t" else key if key.isprintable() else "")
        elif key == "\x03" or (key == "\x04" and not self.text):
            raise Ended
        elif key in self._keys:
            self._keys[key]()
        elif key == "\x04":
            self._delete()
        elif key.isprintable():
            self._put(key)
        return None

    def _in_sequence(self, key: str) -> None:
        """ESC [ and parameters up to a letter or ~; ESC O and a letter, as some keyboards have it."""
        self._escape = sequence = f"{self._escape}{key}"
        if sequence in ("[", "O"):
            return
        if sequence[0] in "[O" and not ("@" <= key <= "~") and len(sequence) < MAX_SEQUENCE:
            return
        self._escape = None
        self._sequences.get(f"[{sequence[1:]}" if sequence[0] == "O" else sequence, lambda: None)()

    def _entered(self) -> str | None:
        if self._is_pasting:
            self._put("\n")
            return None
        line = self.text
        self.set("")
        if line and line != (self._past[-1] if self._past else ""):
            self._past = [*self._past, line][-MAX_HISTORY:]
        self._place = len(self._past)
        return line

    def _put(self, text: str) -> None:
        if len(self.text) < MAX_LINE:
            self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
            self.cursor += len(text)

    def _start_paste(self) -> None:
        self._is_pasting = True

    def _end_paste(self) -> None:
        self._is_pasting = False

    def _home(self) -> None:
        self.cursor = 0

    def _end(self) -> None:
        self.cursor = len(self.text)

    def _left(self) -> None:
        self.cursor = max(0, self.cursor - 1)

    def _right(self) -> None:
        self.cursor = min(len(self.text), self.cursor + 1)

    def _rub_out(self) -> None:
        if self.cursor:
            self._cut(self.cursor - 1)

    def _delete(self) -> None:
        self.text = self.text[: self.cursor] + self.text[self.cursor + 1 :]

    def _cut_end(self) -> None:
        self.text = self.text[: self.cursor]

    def _cut_start(self) -> None:
        self._cut(0)

    def _cut_word(self) -> None:
        self._cut(self.text[: self.cursor].rstrip().rfind(" ") + 1)

    def _cut(self, start: int) -> None:
        """What stands between there and the cursor."""
        self.text, self.cursor = self.text[:start] + self.text[self.cursor :], start

    def _older(self) -> None:
        self._show(self._place - 1)

    def _newer(self) -> None:
        self._show(self._place + 1)

    def _show(self, place: int) -> None:
        if not 0 <= place <= len(self._past):
            return
        if self._place == len(self._past):
            self._draft = self.text
        self._place = place
        self.set(self._draft if place == len(self._past) else self._past[place])
