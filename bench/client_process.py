"""A run of a client: a separate process that measures, and that is notified of events."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_TIMEOUT_S = 600


class Client:
    """A process that runs `workload` of the program `script`, which is in this directory."""

    def __init__(self, workload: str, bootstrap: str, options: Mapping[str, Any], script: str = "client.py") -> None:
        command = [sys.executable, str(_HERE / script), workload, bootstrap, json.dumps(options)]
        self._workload = workload
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != "ready":
            raise RuntimeError(f"the client of {self._workload} is not ready: {line!r}")

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def finish(self, word: str = "") -> dict[str, float]:
        """Tells the process to continue, and returns what it measured."""
        output, _ = self._process.communicate(f"{word}\n", timeout=_TIMEOUT_S)
        if self._process.returncode != 0:
            raise RuntimeError(f"the client of {self._workload} ended with code {self._process.returncode}")
        measured: dict[str, float] = json.loads(output.splitlines()[-1])
        return measured

    def is_silent(self) -> bool:
        """Returns whether the process runs and has printed nothing since the last line that was read."""
        assert self._process.stdout is not None
        return not select.select([self._process.stdout], [], [], 0)[0]

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
