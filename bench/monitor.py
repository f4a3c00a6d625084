"""The monitor and its exporter with a phantom cluster: pictures, changes, scrapes, memory and CPU (docs/monitor.md).

    python bench/monitor.py                                10,000 topics of 4 partitions with 3 replicas
    python bench/monitor.py --topics 1000 --changes 5

Phantom and monitor are processes of their own, so that their CPU and memory are theirs. The monitor draws on a terminal
of 50 lines. Prints Markdown.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from console import Child
from targets import ROOT, cpu_percent, cpu_s, resident_mb

sys.path.insert(0, str(ROOT))

from tests.support.terminal import Terminal

#: The time after which the first sweep over sizes and offsets is complete, within the budget of the brokers' time, and
#: pages were compared in full a last time, two minutes after the last change.
_SWEPT_S = 200.0
#: The time after which the exporter has the table.
_FILLED_S = 20.0
#: The time within which everything that follows from a mass change is done.
_MASS_S = 12.0
_MASS_CHANGES = 3
_MONITOR = (sys.executable, "-m", "barnabas.cli", "monitor")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    for title, journal in (("By the journal", True), ("By polls alone", False)):
        print(f"## {title}\n", flush=True)
        with_phantom(given.topics, journal, lambda phantom, bootstrap: _screen(phantom, bootstrap, given))
        print(flush=True)
    print("## The exporter\n", flush=True)
    with_phantom(given.topics, True, lambda phantom, bootstrap: _exporter(phantom, bootstrap, given))


def with_phantom(topics: int, journal: bool, measure: Callable[[Child, str], None]) -> None:
    size = ("--topics", str(topics), "--partitions", "4", *(("--journal",) if journal else ()))
    phantom = Child("barnabas.testing.phantom_process", *size)
    try:
        measure(phantom, json.loads(phantom.read())["bootstrap"])
    finally:
        phantom.end()


def spread(values: list[float], digits: int) -> str:
    """Returns minimum, median and maximum."""
    shown = (min(values), statistics.median(values), max(values))
    return ", ".join(f"{each:.{digits}f}" for each in shown)


def _print_memory(pid: int) -> None:
    print(f"* memory at most {resident_mb(pid, 'VmHWM'):.0f} MB, at the end {resident_mb(pid):.0f} MB", flush=True)


# The screen.


def _screen(phantom: Child, bootstrap: str, given: argparse.Namespace) -> None:
    with Terminal([*_MONITOR, "--bootstrap", bootstrap]) as terminal:
        pid = terminal.process.pid
        # The journal has a partition too.
        first = terminal.until(rf"{given.topics * 4 // 10}\d partitions: all in sync", within_s=120)
        started_s = first.time_s - terminal.begin_s
        print(f"* the first screen: {started_s:.2f} s after the start, {cpu_s(pid):.2f} s of CPU")
        time.sleep(_SWEPT_S)
        print(f"* CPU while nothing changes: {cpu_percent(pid, given.seconds):.2f}% of a core")
        print(f"* memory: {resident_mb(pid):.0f} MB", flush=True)
        taken = [_change(phantom, terminal, number * 397 % given.topics) for number in range(given.changes)]
        print(
            f"* an ISR shrinks: on the screen after {spread(taken, 2)} s (min, median, max of {len(taken)})", flush=True
        )
        _mass_changes(phantom, terminal)
        _print_memory(pid)


def _change(phantom: Child, terminal: Terminal, number: int) -> float:
    """Returns the time from a change of one partition until the screen shows it."""
    topic, mark = f"topic-{number:05d}", terminal.end
    changed_s: float = phantom.ask(f"shrink {topic} 1 1")["time_s"]
    shown = terminal.until(rf"{topic}-1\b", after=mark, within_s=120)
    phantom.ask(f"expand {topic} 1 1")
    time.sleep(1 + number % 100 / 50)
    return shown.time_s - changed_s


def _mass_changes(phantom: Child, terminal: Terminal) -> None:
    """Prints when all partitions of a broker that dies and returns are on the screen, and what that costs."""
    pid = terminal.process.pid
    taken: dict[str, list[float]] = {}
    cost: dict[str, list[float]] = {}
    for command, pattern in [("kill 2", r"\d+ at min ISR"), ("start 2", r"partitions: all in sync")] * _MASS_CHANGES:
        time.sleep(_MASS_S / 2)
        mark, before_s = terminal.end, cpu_s(pid)
        changed_s = phantom.ask(command)["time_s"]
        shown = terminal.until(pattern, after=mark, within_s=120)
        taken.setdefault(command, []).append(shown.time_s - changed_s)
        time.sleep(_MASS_S)
        cost.setdefault(command, []).append(cpu_s(pid) - before_s)
    for command, times in taken.items():
        cpu = spread(cost[command], 1)
        print(f"* `{command}`: on the screen after {spread(times, 2)} s; CPU in the {_MASS_S:.0f} s after it {cpu} s")


# The exporter.


def _exporter(phantom: Child, bootstrap: str, given: argparse.Namespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [*_MONITOR, "--bootstrap", bootstrap, "--metrics", f"127.0.0.1:{port}", "--json"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True)
    try:
        time.sleep(_FILLED_S)
        first = _scrape(port, child.pid)
        print(f"* the first scrape: {first.size / 1e6:.1f} MB, {first.zipped / 1e6:.2f} MB as gzip, {first}")
        same = [_scrape(port, child.pid) for _ in range(given.changes)]
        print(f"* nothing has changed: {_both(same)}")
        changed = []
        for command_ in ("kill 2", "start 2") * _MASS_CHANGES:
            phantom.ask(command_)
            time.sleep(_MASS_S)
            changed.append(_scrape(port, child.pid))
        print(f"* every partition has changed: {_both(changed)}")
        _print_memory(child.pid)
    finally:
        child.terminate()
        child.wait(30)


class Scrape(NamedTuple):
    """Sizes, duration and CPU time of a request that asks for gzip, as Prometheus does."""

    size: int
    zipped: int
    seconds: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s, {self.cpu_s:.2f} s of CPU"


def _scrape(port: int, pid: int) -> Scrape:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    before_s, begin_s = cpu_s(pid), time.perf_counter()
    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    taken_s, used_s = time.perf_counter() - begin_s, cpu_s(pid) - before_s
    connection.close()
    assert answer.status == 200, body[:200]
    return Scrape(len(gzip.decompress(body)), len(body), taken_s, used_s)


def _both(scrapes: list[Scrape]) -> str:
    seconds, used_s = [each.seconds for each in scrapes], [each.cpu_s for each in scrapes]
    return f"{spread(seconds, 3)} s; CPU {spread(used_s, 2)} s (min, median, max of {len(scrapes)})"


if __name__ == "__main__":
    main()
