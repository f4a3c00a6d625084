"""A command at a terminal of its own: what it draws, and when.

with Terminal([sys.executable, "-m", "barnabas.cli", "monitor"]) as terminal:
    drawn = terminal.until(r"all in sync")     # the time of the text, and the place behind it
    terminal.until(r"offline", after=drawn.end)
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple

_CONTROL: Final = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9])|[\r\x00]")
#: The longest beginning of a control sequence that a read can end with.
_BEGUN: Final = re.compile(r"\x1b[^A-Za-z\x07]{0,40}$")


class Drawn(NamedTuple):
    """A text on the terminal: when it was complete there, in seconds since 1970, and the place behind it."""

    time_s: float
    end: int
    text: str


class Terminal:
    """A context manager that runs the command, and ends it as Ctrl-C does. All that was drawn is kept, without control
    sequences.
    """

    def __init__(self, command: Sequence[str], *, rows: int = 50, columns: int = 200) -> None:
        self._command = list(command)
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self._text = ""
        #: The end of the text after each read, and its time.
        self._ends: list[tuple[int, float]] = []

    def __enter__(self) -> Terminal:
        self._own, others = pty.openpty()
        fcntl.ioctl(others, termios.TIOCSWINSZ, self._size)
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.begin_s = time.time()
        self.process = subprocess.Popen(
            self._command, stdin=others, stdout=others, stderr=others, env=environment, start_new_session=True
        )
        os.close(others)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self._reader.join(10)
            os.close(self._own)

    @property
    def end(self) -> int:
        """Returns the place behind all that was drawn until now."""
        return len(self._text)

    def until(
        self,
        pattern: str,
        *,
        after: int = 0,
        accept: Callable[[re.Match[str]], bool] = lambda _: True,
        within_s: float = 60.0,
    ) -> Drawn:
        """Waits for a text behind a place, which the condition accepts."""
        deadline = time.monotonic() + within_s
        while True:
            found = next(filter(accept, re.compile(pattern).finditer(self._text, after)), None)
            if found is not None:
                time_s = next(time_s for end, time_s in tuple(self._ends) if end >= found.end())
                return Drawn(time_s, found.end(), found[0])
            assert self.process.poll() is None, f"it ended:\n{self._text[-3000:]}"
            assert time.monotonic() < deadline, f"not drawn: {pattern}\n{self._text[-6000:]}"
            time.sleep(0.02)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while True:
            try:
                data = os.read(self._own, 1 << 16)
            except OSError:
                return  # the command has ended
            now_s = time.time()
            rest += decoder.decode(data)
            begun = _BEGUN.search(rest)
            whole, rest = (rest, "") if begun is None else (rest[: begun.start()], rest[begun.start() :])
            text = self._text + _CONTROL.sub("", whole)
            self._ends.append((len(text), now_s))
            self._text = text
