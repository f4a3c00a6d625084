"""The module test.service of kafka-python, which its sdist does not contain: a process that the fixtures start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO


class ExternalService:
    """A broker that the suite did not start; the suite runs without one."""

    def __init__(self, host: str, port: int) -> None:
        raise NotImplementedError(f"the suite starts its brokers; {host}:{port} is not one of them")


class SpawnedService:
    """A broker of ours in a process."""

    def __init__(self, args: Sequence[str], env: Mapping[str, str]) -> None:
        self._args = list(args)
        self._env = dict(env)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115, the process writes to it until `stop`
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.child = subprocess.Popen(
            self._args, env=self._env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT
        )

    def wait_for(self, pattern: str, timeout: float = 30) -> bool:
        """Waits until the broker serves. The patterns are lines of Kafka's log, for a start and for the first user."""
        assert self.child is not None
        end_s = time.monotonic() + max(timeout, 60)
        while self.child.poll() is None and time.monotonic() < end_s:
            if b"started: " in self._output():
                return True
            time.sleep(0.05)
        return False

    def dump_logs(self) -> None:
        sys.stderr.write(self._output().decode(errors="replace"))

    def stop(self) -> None:
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            self.child.wait(60)

    def _output(self) -> bytes:
        self._log.seek(0)
        return self._log.read()
