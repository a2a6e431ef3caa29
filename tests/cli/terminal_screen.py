"""What a terminal shows: a small emulator of the control sequences that the chat writes."""

import re

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[=>]|([\r\n\x08])|([^\x1b\r\n\x08])")


class TerminalScreen:
    """`history` are the lines that have scrolled off the top."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._lines = [""] * height
        self._x = self._y = 0
        self.history: list[str] = []

    def feed(self, raw: str) -> "TerminalScreen":
        for match in _TOKEN.finditer(raw):
            numbers, command, control, character = match.groups()
            if command is not None:
                self._command(command, numbers)
            elif control is not None:
                self._control(control)
            elif character is not None:
                self._put(character)
        return self

    @property
    def text(self) -> str:
        """Return everything that was scrolled off or is shown, with each run of white space as one space."""
        return " ".join(" ".join([*self.history, *self._lines]).split())

    def _command(self, command: str, numbers: str) -> None:
        n = int(numbers.split(";")[0] or 1) if numbers.replace(";", "").isdecimal() or not numbers else 1
        if command == "A":
            self._y = max(0, self._y - n)
        elif command == "B":
            self._y = min(self._height - 1, self._y + n)
        elif command == "C":
            self._x = min(self._width - 1, self._x + n)
        elif command == "D":
            self._x = max(0, self._x - n)
        elif command == "K":
            self._lines[self._y] = "" if numbers == "2" else self._lines[self._y][: self._x]
        elif command == "J":
            self._lines[self._y] = self._lines[self._y][: self._x]
            self._lines[self._y + 1 :] = [""] * (self._height - self._y - 1)
        elif command not in "hlmq":
            raise AssertionError(f"the emulator does not know CSI {numbers}{command}")

    def _control(self, control: str) -> None:
        if control == "\r":
            self._x = 0
        elif control == "\x08":
            self._x = max(0, self._x - 1)
        elif self._y < self._height - 1:
            self._y += 1
        else:
            self.history.append(self._lines.pop(0))
            self._lines.append("")

    def _put(self, character: str) -> None:
        if self._x == self._width:
            self._x = 0
            self._control("\n")
        line = self._lines[self._y].ljust(self._x)
        self._lines[self._y] = line[: self._x] + character + line[self._x + 1 :]
        self._x += 1
