"""A real terminal (pty) with a command on it, and eyes that see what it wrote."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes.fork_server import CAN_FORK, FORK_SERVER, ForkedProcess

DRIVER = Path(__file__).with_name("driver.py")
PATIENCE_S = 30.0

# What rich itself writes: colours, cursor movements, erasing, showing and hiding the cursor.
RICH = re.compile(r"\x1b\[[0-9;]*[mAKGH]|\x1b\[\?25[lh]|\x1b\[2K")

CTRL_C = "\x03"
AGAIN_S = 3.0
# Where rich goes back to draw over a line.
REDRAWN = re.compile(r"\r|\x1b\[1A|\x1b\[2K")


class Terminal:
    """One command on one terminal."""

    def __init__(self, url: str, *argv: str, columns: int = 80, env: Mapping[str, str] | None = None) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        clean = {key: value for key, value in os.environ.items() if key not in _LOOKS}
        surroundings = {**clean, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}
        self.process = _started([str(DRIVER), url, *argv], surroundings, slave)
        os.close(slave)
        self.raw = ""
        self._bytes = b""
        self._pressed_again = ""

    @property
    def text(self) -> str:
        """What was written, without rich's own sequences; later drawings follow earlier ones."""
        return RICH.sub("", self.raw).replace("\r", "")

    @property
    def lines(self) -> list[str]:
        """Every line that ever stood on the screen, as it stood there."""
        return RICH.sub("", REDRAWN.sub("\n", self.raw)).split("\n")

    @property
    def display(self) -> list[str]:
        """What stands on the screen in the end, as a terminal would have drawn it."""
        rows, row, column = [""], 0, 0
        for piece in re.findall(r"\x1b\[\??[0-9;]*[A-Za-z]|.", self.raw, re.DOTALL):
            match piece:
                case "\n":
                    row += 1
                    rows += [""] * (row + 1 - len(rows))
                case "\r":
                    column = 0
                case "\x1b[1A":
                    row -= 1
                case "\x1b[2K":
                    rows[row] = ""
                case _ if not RICH.fullmatch(piece):
                    rows[row] = rows[row].ljust(column)[:column] + piece + rows[row][column + 1 :]
                    column += 1
        return [text.rstrip() for text in rows if text.strip()]

    def until(self, words: str) -> None:
        """Read until the command has written `words`."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.text:
            if not self._read(deadline):
                raise AssertionError(f"{words!r} never came; the terminal shows:\n{self.text}")

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def answer(self, keys: str) -> None:
        """Type at a question.

        A Ctrl-C that comes in the moment before the system begins to read is noticed only with the next key:
        a person presses again, and so do we.
        """
        self.type(keys)
        self._pressed_again = keys if keys == CTRL_C else ""

    def end(self) -> int:
        """Read all the rest and return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def _next_press(self, deadline: float) -> float:
        return min(deadline, time.monotonic() + AGAIN_S) if self._pressed_again else deadline

    def _ready(self, deadline: float) -> bool:
        return bool(select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0])

    def _read(self, deadline: float) -> bool:
        while not self._ready(self._next_press(deadline)):
            if time.monotonic() < deadline:
                self.type(self._pressed_again)
                continue
            raise AssertionError(f"nothing more came in time; the terminal shows:\n{self.text}")
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # Linux says EIO when the last process on the other side is gone
            return False
        self._bytes += chunk
        self.raw = self._bytes.decode(errors="replace")
        return bool(chunk)


# Whatever the developer's own terminal says must not change what the tests see.
_LOOKS = frozenset(
    {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "PYTHONIOENCODING"}
)


def _started(command: list[str], env: dict[str, str], slave: int) -> subprocess.Popen[bytes] | ForkedProcess:
    if CAN_FORK and "PYTHONIOENCODING" not in env:
        return FORK_SERVER.make(command[0], command[1:], env, (slave, slave, slave))
    # Python itself looks at this when it starts, and never again.
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env=env,
    )


@contextmanager
def terminal(
    url: str, *argv: str, columns: int = 80, env: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    screen = Terminal(url, *argv, columns=columns, env=env)
    try:
        yield screen
    finally:
        screen.close()
