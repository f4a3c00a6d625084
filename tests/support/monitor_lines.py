"""`barnabas monitor --json` as a process, and its lines as they arrive."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from barnabas.cli.app import run

Line = dict[str, Any]


class MonitorProcess:
    """A context manager that runs the process. Lines are kept; `until` waits for one."""

    def __init__(self, bootstrap: str, *arguments: str, errors: Path, timeout_s: float = 120.0) -> None:
        self._command = [sys.executable, "-m", "barnabas.cli", "monitor", *arguments, "--json", "-b", bootstrap]
        self._errors = errors
        self._timeout_s = timeout_s
        self.lines: list[Line] = []

    def __enter__(self) -> MonitorProcess:
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self.exit_code = self._process.wait(60)
        self._reader.join(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(json.loads(line))

    def until(self, condition: Callable[[Line], bool], what: str) -> Line:
        """Returns the first line for which the condition is true."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            for line in tuple(self.lines):
                if condition(line):
                    return line
            told = [f"{line.get('subject')} {line.get('kind')}: {line.get('text')}" for line in self.lines]
            assert time.monotonic() < deadline, f"not told: {what}\n" + "\n".join(told)
            assert self._process.poll() is None, f"it ended: {self._errors.read_text()}"
            time.sleep(0.05)

    def change(self, subject: str, kind: str, after: Line | None = None) -> Line:
        """Returns the line about a change of the subject, after the line `after` if given."""
        begin = self.lines.index(after) + 1 if after is not None else 0

        def is_it(line: Line) -> bool:
            found = line.get("subject") == subject and line.get("kind") == kind
            return found and self.lines.index(line) >= begin

        return self.until(is_it, f"{subject} {kind}")


def check(bootstrap: str, *arguments: str) -> int:
    """Returns the exit code of `barnabas monitor --check`."""
    return run(["monitor", *arguments, "--check", "-b", bootstrap])


def await_check(bootstrap: str, code: int, *arguments: str, within_s: float = 120.0) -> None:
    deadline = time.monotonic() + within_s
    while (found := check(bootstrap, *arguments)) != code:
        assert time.monotonic() < deadline, f"--check {' '.join(arguments)} exits with {found}, not {code}"
        time.sleep(0.2)
