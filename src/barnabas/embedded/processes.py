"""Processes of an embedded cluster: started, watched, signalled.

A pid alone does not identify a process for long, because the system reuses it. So a process is identified by pid and
start time, and no other process is ever signalled.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

POLL_S: Final = 0.01


class Identified(Protocol):
    """A process, identified by its pid and its start time."""

    @property
    def pid(self) -> int: ...
    @property
    def start_ticks(self) -> int | None: ...


class Processes:
    """The processes that this object has started, for which it can wait, and processes of earlier starts."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, command: Sequence[str], log: Path) -> tuple[int, int | None]:
        """Starts a process in a separate session, with its output in `log`. Returns its pid and start time."""
        with log.open("wb") as out:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=log.parent, start_new_session=True
            )
        self._children[child.pid] = child
        return child.pid, start_ticks(child.pid)

    def is_alive(self, process: Identified) -> bool:
        child = self._children.get(process.pid)
        return child.poll() is None if child else is_running(process.pid, process.start_ticks)

    def stop(self, processes: Sequence[Identified], timeout_s: float) -> None:
        """Asks processes to end (SIGTERM), and kills those that do not end in time."""
        for process in processes:
            send(process, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        for process in processes:
            if not self._has_ended(process, deadline):
                self.kill([process])

    def kill(self, processes: Sequence[Identified]) -> None:
        """Kills processes (SIGKILL), one after the other, and waits for their ends."""
        for process in processes:
            send(process, signal.SIGKILL)
            self._has_ended(process, time.monotonic() + 5.0)

    def kill_children(self) -> None:
        """Kills all processes that this object has started."""
        for child in self._children.values():
            if child.poll() is None:
                child.kill()
                child.wait()

    def _has_ended(self, process: Identified, deadline: float) -> bool:
        while self.is_alive(process):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True


def is_running(pid: int, ticks: int | None) -> bool:
    """Returns whether the process with this pid and start time runs."""
    return start_ticks(pid) == ticks if ticks else _exists(pid)


def send(process: Identified, number: signal.Signals) -> None:
    """Sends a signal to the process if it still runs."""
    if is_running(process.pid, process.start_ticks):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def start_ticks(pid: int) -> int | None:
    """Returns field 22 of /proc/PID/stat; None for a process that has ended, or a system without /proc.

    A killed process is a zombie (Z) as soon as its first thread has ended. Its ports and its locks are free when the
    last of its threads (field 20) has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" and int(fields[17]) <= 1 else int(fields[19])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
