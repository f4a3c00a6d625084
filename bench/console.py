"""The console's server with a phantom cluster: first bytes, changes, memory and CPU (docs/console.md).

    python bench/console.py                                10,000 topics of 4 partitions, 1,000 groups
    python bench/console.py --topics 1000 --requests 50

Phantom and console are processes of their own, so that their CPU and memory are theirs. Prints Markdown.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from barnabas.console.messages.worker import job_of, search_chunk
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from targets import cpu_s

#: Records of a search, and of a batch.
_SEARCHED, _PER_BATCH = 100_000, 500
_ROUTES = (
    "session",
    "overview",
    "map",
    "map?fill=size",
    "topics?limit=100",
    "topics?sort=severity&desc=1&limit=100",
    "topics?q=99&limit=100",
    "topics?offset=9000&limit=100",
    "topic?name=topic-00042",
    "partition?topic=topic-00042&partition=1",
    "brokers",
    "broker?id=2",
    "quorum",
    "timeline",
    "groups",
    "groups?sort=lag&desc=1&limit=100",
    "group?name=group-0042",
    "search?q=12",
)


class Child:
    """A process that is spoken to by lines."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> str:
        assert self._process.stdout is not None, "it is a pipe"
        return self._process.stdout.readline().strip()

    def ask(self, line: str) -> Any:
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return json.loads(self.read())

    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

    def rss_mb(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(20)


class Visitor:
    """A connection that is kept, as a browser keeps its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._where = (parts.hostname or "", parts.port)
        self._connection = http.client.HTTPConnection(*self._where, timeout=60)

    def first_byte_ms(self, route: str) -> tuple[float, int]:
        """Returns the time to the first byte, and the size of the body."""
        begin_s = time.perf_counter()
        self._connection.request("GET", f"/api/{route}")
        answer = self._connection.getresponse()
        taken_s = time.perf_counter() - begin_s
        body = answer.read()
        assert answer.status == 200, (route, body[:200])
        return taken_s * 1000, len(body)

    def get(self, route: str) -> Any:
        # The server closes a connection that was idle for some seconds.
        self._connection.close()
        self._connection.request("GET", f"/api/{route}")
        return json.loads(self._connection.getresponse().read())

    @contextmanager
    def live(self, query: str) -> Iterator[Iterator[str]]:
        connection = http.client.HTTPConnection(*self._where, timeout=60)
        connection.request("GET", f"/api/live?{query}")
        answer = connection.getresponse()
        try:
            yield (line.decode()[7:].strip() for line in answer if line.startswith(b"event: "))
        finally:
            connection.close()


class Watched(NamedTuple):
    """A phantom cluster and the console that shows it."""

    phantom: Child
    console: Child
    url: str
    begin_s: float
    first_page_s: float


@contextmanager
def watched(topics: int, partitions: int, groups: int) -> Iterator[Watched]:
    """Starts both, and ends them."""
    size = ("--topics", str(topics), "--partitions", str(partitions), "--groups", str(groups), "--journal")
    phantom = Child("barnabas.testing.phantom_process", *size)
    try:
        bootstrap = json.loads(phantom.read())["bootstrap"]
        begin_s = time.perf_counter()
        console = Child("barnabas.cli", "console", "--bootstrap", bootstrap, "--port", "0")
        try:
            url = console.read().removeprefix("console: ").rstrip("/")
            yield Watched(phantom, console, url, begin_s, time.perf_counter() - begin_s)
        finally:
            console.end()
    finally:
        phantom.end()


def options(repeated: str, times: int) -> argparse.Namespace:
    """Parses the command line. `repeated` names the action that is done `times` times by default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument(f"--{repeated}", type=int, default=times)
    return parser.parse_args()


def cells(values: list[float], digits: int) -> str:
    """Returns minimum, median, p99 and maximum as cells of a table."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    shown = (ordered[0], statistics.median(ordered), p99, ordered[-1])
    return " | ".join(f"{each:.{digits}f}" for each in shown)


def main() -> None:
    given = options("requests", 100)
    with watched(given.topics, given.partitions, given.groups) as found:
        _measure(Visitor(found.url), found, given.requests)


def _measure(visitor: Visitor, watched_cluster: Watched, requests: int) -> None:
    phantom, console, _, begin_s, first_page_s = watched_cluster
    while not visitor.get("overview")["is_filled"]:
        time.sleep(0.02)
    print(f"start to first page {first_page_s:.2f} s, to the first complete poll {time.perf_counter() - begin_s:.2f} s")
    _until(lambda: visitor.get("groups")["data"]["age_ms"] is not None)
    print(f"RSS after the first poll and sweep of the groups {console.rss_mb():.0f} MB")
    print("\n| route | kB | min ms | median ms | p99 ms | max ms | CPU ms |\n|---|---|---|---|---|---|---|")
    for route in _ROUTES:
        before_s = console.cpu_s()
        found = [visitor.first_byte_ms(route) for _ in range(requests)]
        cpu_ms = (console.cpu_s() - before_s) / requests * 1000
        times = cells([each for each, _ in found], 1)
        print(f"| `{route}` | {found[-1][1] / 1000:.1f} | {times} | {cpu_ms:.1f} |", flush=True)
    before_s, began_s = console.cpu_s(), time.perf_counter()
    time.sleep(20)
    share = (console.cpu_s() - before_s) / (time.perf_counter() - began_s)
    print(f"\nCPU, quiet, without a page: {share:.1%} of a core", flush=True)
    for query in ("screen=map", "screen=overview", "screen=topic&name=topic-00042"):
        _changes(visitor, phantom, console, query)
    _all_back(visitor, phantom)
    print(f"RSS at the end {console.rss_mb():.0f} MB", flush=True)
    _searches()


def _all_back(visitor: Visitor, phantom: Child) -> None:
    """Prints how long after the return of all brokers the console shows that all is well."""
    taken = []
    for _ in range(5):
        for broker in (1, 2, 3):
            phantom.ask(f"kill {broker}")
        _until(lambda: visitor.get("overview")["problem"] is not None)
        time.sleep(6)
        begin_s = max(phantom.ask(f"start {broker}")["time_s"] for broker in (1, 2, 3))
        _until(lambda: _is_well(visitor.get("overview")))
        taken.append((time.time() - begin_s) * 1000)
        time.sleep(4)
    print(f"all brokers return: until the overview says that all is well (min, median, p99, max) {cells(taken, 0)} ms")


def _is_well(answer: Any) -> bool:
    return not answer["problem"] and not answer["silent"] and answer["data"]["severity"] == "ok"


def _until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    begin_s = time.monotonic()
    while not condition():
        assert time.monotonic() - begin_s < within_s, "it does not come true"
        time.sleep(0.01)


def _searches() -> None:
    """Prints how many records a second the process of a search reads, by its CPU time: none of them matches."""
    values = [
        json.dumps({"order": number, "amount": number % 400, "country": "de", "text": "x" * 60}).encode()
        for number in range(_SEARCHED)
    ]
    records = [Record(number, 1_700_000_000_000, b"customer", value) for number, value in enumerate(values)]
    data = b"".join(
        encode_batch(records[first : first + _PER_BATCH], base_offset=first)
        for first in range(0, _SEARCHED, _PER_BATCH)
    )
    for name, conditions in (("raw text", {"q": "nowhere"}), ("a JSON field by CEL", {"filter": "value.amount > 400"})):
        rates = []
        for _ in range(5):
            begin_s = time.process_time()
            head = {"partition": 0, "from": 0, "to": _SEARCHED, "count_max": 50}
            found = search_chunk(job_of(conditions), head, data)
            rates.append(_SEARCHED / (time.process_time() - begin_s))
            assert (found.next, found.records, found.problem) == (_SEARCHED, [], None), found
        print(f"search, {name}: records/s (min, median, p99, max) {cells(rates, 0)}", flush=True)


def _changes(visitor: Visitor, phantom: Child, console: Child, query: str) -> None:
    """Prints the time until a kill is on a page, and its cost for the console."""
    seen: list[tuple[float, str]] = []

    def follow(events: Iterator[str]) -> None:
        # The other thread closes the connection while this one reads.
        with suppress(OSError, AttributeError, ValueError):
            for event in events:
                seen.append((time.time(), event))

    taken, cost = [], []
    with visitor.live(query) as events:
        threading.Thread(target=follow, args=(events,), daemon=True).start()
        for command in ("kill 2", "start 2") * 3:
            time.sleep(8)
            before_s = console.cpu_s()
            begin_s = phantom.ask(command)["time_s"]
            time.sleep(6)
            cost.append(console.cpu_s() - before_s)
            news = [at_s for at_s, event in seen if event in ("cells", "data") and at_s >= begin_s]
            taken.append((news[0] - begin_s) * 1000 if news else float("inf"))
    shown = ", ".join(f"{each:.0f}" for each in taken)
    print(
        f"`{query}`: first news after a kill or start: {shown} ms; CPU in 6 s: {statistics.median(cost):.2f} s (median)"
    )


if __name__ == "__main__":
    main()
