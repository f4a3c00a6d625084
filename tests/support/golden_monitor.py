"""A Go program that watches orders-0 (tests/clients/monitor_go) during the 36 recorded steps (`golden_steps`)."""

from __future__ import annotations

import itertools
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.clients import programs

_RECORDED: Final = Path(__file__).resolve().parents[1] / "data" / "znodes" / "monitor.txt"
_BEGIN: Final = "02-start"
_MARK: Final = "### "
#: The time after which the monitor reads again after an error: 5 s.
_PATIENCE_S: Final = 8.0
_CHANGED: Final = ("Partition event: EventNodeDataChanged", "Partition state changed, checking new state...")


def shown(leader: int, isr: str) -> tuple[str, ...]:
    """Returns the lines about a state that has changed."""
    state = f"Topic: orders, Partition: 0, Leader: Broker {leader}, Replicas: [], ISR: [{isr}]"
    return (*_CHANGED, state, "Followers: []")


#: State in `golden_deviations` -> the output for our brokers, where it differs.
DEVIATIONS: Final = {
    "07-controller-killed": [*shown(1, "2 1")],
    "32-topic-deletion-pending": [*shown(0, "0 2"), *shown(-1, "0 2")],
}


class GoldenMonitor:
    """Runs the program against a ZooKeeper on this port from step 02 on, and keeps its output of each step."""

    def __init__(self, port: int, folder: Path) -> None:
        self._address = f"localhost:{port}"
        self._path = folder / "monitor.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._taken = 0
        self.steps: dict[str, list[str]] = {}

    def after_step(self, step: str) -> None:
        """Stores the lines that were printed in a step, once the program has printed whether the topic exists."""
        if self._process is not None:
            self._await(exists=int(step[:2]) != 33)
            lines = self._lines()
            self.steps[step] = lines[self._taken :]
            self._taken = len(lines)
        if step == _BEGIN:
            with self._path.open("wb") as output, self._path.with_suffix(".log").open("wb") as log:
                command = [programs.monitor_go(), self._address]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log)
            # The program polls once before the topic exists, even on a busy machine: its first line is an error.
            self._await(exists=False)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _await(self, *, exists: bool) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if any(self._lines()[-1:]) and self._lines()[-1].startswith("Followers: " if exists else "Error: "):
                return
            time.sleep(0.05)

    def _lines(self) -> list[str]:
        """Returns the lines. A repeated error is returned once: the number of repetitions depends on how long the steps
        take.
        """
        lines = self._path.read_text().splitlines()
        return [line for line, _ in itertools.groupby(lines)]


def recorded() -> dict[str, list[str]]:
    """Returns the program's output with the recorded brokers in the steps 03 to 34."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in _RECORDED.read_text().splitlines():
        if not line.startswith(_MARK):
            lines.append(line)
            continue
        found[line.removeprefix(_MARK)], lines = lines, []
    return {step: lines for step, lines in found.items() if 3 <= int(step[:2]) <= 34}
