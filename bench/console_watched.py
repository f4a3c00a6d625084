"""Costs of being watched: the CPU of brokers in a quiet cluster, with one and with ten pages (docs/console.md).

    python bench/console_watched.py                        3 brokers, 250 topics of 4 partitions with 3 replicas
    python bench/console_watched.py --topics 25 --seconds 20

The brokers are real processes, and nobody writes. A page is its live stream, as a browser keeps it open. The first
measurement is without a console; each is the mean of its time. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.embedded.cluster import EmbeddedCluster
from console import Child, Visitor
from targets import cpu_s

_BROKERS, _PARTITIONS, _REPLICAS = 3, 4, 3
_SETTLE_S = 10.0
#: The screens of the pages, which are opened in this order.
_SCREENS = (
    "screen=map",
    "screen=topic&name=quiet-0000",
    "screen=overview",
    "screen=partition&topic=quiet-0001&partition=0",
    "screen=brokers",
    "screen=topics",
    "screen=timeline",
    "screen=groups",
    "screen=topic&name=quiet-0002",
    "screen=topic&name=quiet-0003",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = EmbeddedCluster(Path(folder) / "quiet")
        cluster.start(brokers=_BROKERS)
        try:
            _create(cluster.bootstrap, given.topics)
            _measure(cluster, given.seconds)
        finally:
            cluster.kill()


def _create(bootstrap: str, topics: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(f"quiet-{number:04d}", _PARTITIONS, _REPLICAS) for number in range(topics)]
    for made in admin.create_topics(wanted, request_timeout=60).values():
        made.result(90)


def _measure(cluster: EmbeddedCluster, seconds: float) -> None:
    pids = [node.pid for node in cluster.nodes]
    print("| watched by | CPU of each broker, % of a core | more than unwatched |\n|---|---|---|")
    time.sleep(_SETTLE_S)
    unwatched = _shares(pids, seconds)
    _print("nobody", unwatched, unwatched)
    console = Child("barnabas.cli", "console", "--bootstrap", cluster.bootstrap, "--port", "0")
    try:
        url = console.read().removeprefix("console: ").rstrip("/")
        visitor = Visitor(url)
        while not visitor.get("overview")["is_filled"]:
            time.sleep(0.05)
        for pages in (0, 1, 10):
            with ExitStack() as stack:
                for query in _SCREENS[:pages]:
                    events = stack.enter_context(Visitor(url).live(query))
                    threading.Thread(target=_follow, args=(events,), daemon=True).start()
                time.sleep(_SETTLE_S)
                _print(f"a console with {pages} pages", _shares(pids, seconds), unwatched)
    finally:
        console.end()


def _follow(events: Iterator[str]) -> None:
    # The other thread closes the connection while this one reads.
    with suppress(OSError, AttributeError, ValueError):
        for _ in events:
            pass


def _shares(pids: Sequence[int], seconds: float) -> list[float]:
    """Returns the CPU time of each process, as a share of the time."""
    before, begin_s = [cpu_s(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    taken_s = time.monotonic() - begin_s
    return [(cpu_s(pid) - first) / taken_s for pid, first in zip(pids, before, strict=True)]


def _print(name: str, shares: Sequence[float], unwatched: Sequence[float]) -> None:
    more = [share - before for share, before in zip(shares, unwatched, strict=True)]
    cells = (", ".join(f"{each:.2%}" for each in values) for values in (shares, more))
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
    sys.exit(0)
