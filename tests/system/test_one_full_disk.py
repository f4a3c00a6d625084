"""A real disk of three is full, slow or hangs: every partition continues to acknowledge, and the broker returns when
its disk has worked for a while.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from tests.support.process_nodes import Nodes, until
from tests.support.small_disk import MEGABYTE, SmallDisk, mounted

_PARTITIONS = 6
#: The goal is 3 s; a machine that tests share may need longer.
_BOUND_S = 10.0
_SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}


class Cluster:
    """Three nodes that are broker and controller each, every one on a disk of its own."""

    def __init__(self, nodes: Nodes, disks: dict[int, SmallDisk]) -> None:
        self.nodes = nodes
        self.disks = disks

    def leaders(self) -> list[int]:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.nodes.bootstrap, "log_level": 0})
        return [row.leader for row in self.rows(admin).values()]

    def rows(self, admin: confluent_kafka.admin.AdminClient) -> dict[int, confluent_kafka.admin.PartitionMetadata]:
        found: dict[int, confluent_kafka.admin.PartitionMetadata] = (
            admin.list_topics("t", timeout=30).topics["t"].partitions
        )
        return found

    def is_whole(self) -> bool:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.nodes.bootstrap, "log_level": 0})
        return all(sorted(row.isrs) == [1, 2, 3] for row in self.rows(admin).values())


def started(nodes: Nodes, disks: dict[int, SmallDisk]) -> Cluster:
    nodes.start()
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    new = confluent_kafka.admin.NewTopic("t", _PARTITIONS, 3)
    until("the topic", lambda: admin.create_topics([new])["t"].result(60) is None)
    made = Cluster(nodes, disks)
    until("everything in sync", made.is_whole)
    return made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        disks = {
            number: stack.enter_context(mounted("tmpfs", tmp_path / f"disk-{number}", 64 * MEGABYTE))
            for number in (1, 2, 3)
        }
        nodes = Nodes(tmp_path, dict.fromkeys((1, 2, 3), "broker,controller"), properties=_SETTINGS)
        stack.callback(nodes.close)
        for number, disk in disks.items():
            nodes[number].settings["log.dirs"] = str(disk.root / "data")
        yield started(nodes, disks)


class Writers:
    """One producer for each partition, with one record under way at a time."""

    def __init__(self, bootstrap: str, **options: int) -> None:
        own = {key.replace("_", "."): value for key, value in options.items()}
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, **own}
        self._producers = [confluent_kafka.Producer(settings) for _ in range(_PARTITIONS)]
        self.acked: list[list[float]] = [[] for _ in range(_PARTITIONS)]
        self.failed: list[str] = []

    def run_for(self, duration_s: float) -> None:
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            for index, producer in enumerate(self._producers):
                if not len(producer):
                    producer.produce("t", bytes(100), partition=index, on_delivery=self._delivered)
                producer.poll(0)
            time.sleep(0.02)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acked[message.partition() or 0].append(time.monotonic())
        else:
            self.failed.append(str(error))

    def longest_gaps_s(self, begin: float) -> list[float]:
        now = time.monotonic()
        gaps = []
        for acked in self.acked:
            times = [begin, *(at for at in acked if at >= begin), now]
            gaps.append(max(later - earlier for earlier, later in itertools.pairwise(times)))
        return gaps


@pytest.mark.parametrize(
    ("who", "full_s"),
    [
        pytest.param("controller", 6.0, marks=pytest.mark.full),
        pytest.param("controller", 90.0, marks=pytest.mark.full),
        pytest.param("other", 90.0, marks=pytest.mark.full),
    ],
)
def test_every_partition_goes_on(cluster: Cluster, who: str, full_s: float) -> None:
    nodes = cluster.nodes
    leader = nodes.leader()
    victim = leader if who == "controller" else next(number for number in (1, 2, 3) if number != leader)
    writers = Writers(nodes.bootstrap)
    writers.run_for(3)
    log_before = {number: len(nodes[number].log) for number in (1, 2, 3)}
    cluster.disks[victim].leave(0)
    began = time.monotonic()
    writers.run_for(full_s)
    gaps = writers.longest_gaps_s(began)
    print(f"{who} full for {full_s:.0f} s: longest times without an acknowledgement {[f'{gap:.2f}' for gap in gaps]}")
    assert max(gaps) < _BOUND_S, gaps
    assert not writers.failed
    assert nodes.leader([number for number in (1, 2, 3) if number != victim]) != victim
    assert victim not in cluster.leaders()
    for number in (1, 2, 3):
        lines = nodes[number].log[log_before[number] :].splitlines()
        assert len(lines) <= 50, "\n".join(lines)
    cluster.disks[victim].leave(None)
    freed = time.monotonic()
    while not cluster.is_whole():
        writers.run_for(0.5)
        assert time.monotonic() < freed + 60
    print(f"in sync {time.monotonic() - freed:.1f} s after there was room again")
    assert time.monotonic() > freed + 8, "room is believed after ten seconds only"
    assert max(writers.longest_gaps_s(freed)) < _BOUND_S
    assert "can be written again" in nodes[victim].log


@pytest.fixture
def waiting_disks(tmp_path: Path) -> Iterator[tuple[Cluster, dict[int, Path]]]:
    """A cluster, and for each node the file that says how long its disk calls wait: "-MILLISECONDS DIRECTORY"."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    library = tmp_path / "failing_calls.so"
    source = Path(__file__).parent / "native" / "failing_calls.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    plans = {number: tmp_path / f"plan-{number}" for number in (1, 2, 3)}
    prefixes = {number: ("env", f"LD_PRELOAD={library}", f"FAILING_CALLS={plan}") for number, plan in plans.items()}
    nodes = Nodes(tmp_path, dict.fromkeys((1, 2, 3), "broker,controller"), properties=_SETTINGS, prefixes=prefixes)
    try:
        yield started(nodes, {}), plans
    finally:
        nodes.close()


@pytest.mark.full
@pytest.mark.parametrize(("wait_ms", "bound_s"), [(500, 25.0), (3_600_000, 30.0)], ids=["slow", "hangs"])
@pytest.mark.parametrize("who", ["controller", "other"])
def test_a_disk_that_is_slow_or_hangs_loses_its_leaderships(
    waiting_disks: tuple[Cluster, dict[int, Path]], who: str, wait_ms: int, bound_s: float
) -> None:
    """A process whose disk call does not return is like a dead one: it goes when its session ends. Its clients wait for
    their own request timeout, which is short here."""
    cluster, plans = waiting_disks
    nodes = cluster.nodes
    leader = nodes.leader()
    victim = leader if who == "controller" else next(number for number in (1, 2, 3) if number != leader)
    writers = Writers(nodes.bootstrap, request_timeout_ms=2_000, socket_timeout_ms=3_000)
    writers.run_for(3)
    began = time.monotonic()
    plans[victim].write_text(f"-{wait_ms} {nodes[victim].data}")
    writers.run_for(40)
    gaps = writers.longest_gaps_s(began)
    print(f"{who} waits {wait_ms} ms: longest times without an acknowledgement {[f'{gap:.2f}' for gap in gaps]}")
    assert max(gaps) < bound_s, gaps
    survivors = [number for number in (1, 2, 3) if number != victim]
    assert nodes.leader(survivors) != victim
    plans[victim].unlink()
    freed = time.monotonic()
    while not cluster.is_whole():
        writers.run_for(0.5)
        assert time.monotonic() < freed + 120
    print(f"in sync {time.monotonic() - freed:.1f} s after the disk was well")
