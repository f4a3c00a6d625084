"""The kinds of faults of the score of `explain` that exist with real processes: three brokers on this machine, signals,
and requests of operators. `explain` reads the journal as its command does.

    python bench/explain_processes.py FILE ROUNDS MINUTES      writes the cases as a pickle
"""

from __future__ import annotations

import pickle
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from barnabas.cli.journal_reader import JournalReader, JournalSession
from barnabas.embedded.failures import Failure
from barnabas.testing import Cluster
from explain_cases import Case, case_of
from explain_report import PROCESSES
from explain_truth import NOTHING, Episode, Event, Truth, Waiting

_LASTS_S: Final = 14.0
_SETTLES_S: Final = 6.0
_POLL_S: Final = 0.5


def _now_ms() -> int:
    return round(time.time() * 1000)


class Processes:
    """A cluster of real processes, and the journal as it can be read."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(folder, brokers=3)
        self.journal: dict[str, tuple[int, Event]] = {}
        self.waiting: list[Waiting] = []

    def warm_up(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        placed = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        self.admin.create_topics([NewTopic("orders", 3, replica_assignment=placed)])["orders"].result(timeout=30)
        self.cluster.stop_broker(2)
        self.cluster.start_broker(2)
        deadline = time.monotonic() + 60
        while not self.is_whole() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        time.sleep(_SETTLES_S)

    def is_whole(self) -> bool:
        topics = self.admin.list_topics(timeout=20).topics
        whole = all(
            set(each.isrs) == set(each.replicas) for topic in topics.values() for each in topic.partitions.values()
        )
        return whole and "__cluster_events" in topics

    def read(self, since_ms: int) -> None:
        try:
            with JournalSession(self.cluster.bootstrap, None) as session:
                reader = JournalReader(session, lambda _: None)
                reader.read_since(since_ms)
        except Failure as error:
            print(f"  not readable: {error}", file=sys.stderr)
            return
        if reader.problem is not None:
            print(f"  the journal is not readable: {reader.problem}", file=sys.stderr)
        now_ms = _now_ms()
        for event in reader.events:
            if "waiting" not in event:
                self.journal.setdefault(event["id"], (now_ms, event))
        self.waiting.append(Waiting(now_ms, tuple(event for event in reader.events if "waiting" in event)))

    def watch(self, since_ms: int, duration_s: float) -> None:
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            self.read(since_ms)
            time.sleep(_POLL_S)


_End = Callable[[], None]
#: The cause, the component, and what ends the fault.
_Struck = tuple[str, str, _End]


def _nothing_to_end() -> None: ...


def _of_broker(cause: str, begin: str, end: str) -> Callable[[Processes], _Struck]:
    def strike(processes: Processes) -> _Struck:
        broker, cluster = processes.random.choice([1, 2, 3]), processes.cluster
        getattr(cluster, begin)(broker)
        return cause, f"broker {broker}", lambda: getattr(cluster, end)(broker)

    return strike


def _config(processes: Processes) -> _Struck:
    entry = ConfigEntry(
        "retention.ms", str(processes.random.randrange(10**6, 10**7)), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
    for future in processes.admin.incremental_alter_configs([resource]).values():
        future.result(timeout=20)
    return "config-asked", "topic orders", _nothing_to_end


def _rolling_restart(processes: Processes) -> _Struck:
    for broker in (1, 2, 3):
        processes.cluster.stop_broker(broker)
        processes.cluster.start_broker(broker)
        time.sleep(2)
    return "restarted", "cluster", _nothing_to_end


def _election(processes: Processes) -> _Struck:
    partitions = [TopicPartition("orders", index) for index in range(3)]
    processes.admin.elect_leaders(ElectionType.PREFERRED, partitions).result(timeout=20)
    return "election-asked", "topic orders", _nothing_to_end


KINDS: Final[Mapping[str, Callable[[Processes], _Struck]]] = {
    "kill": _of_broker("crashed", "kill", "start_broker"),
    # The kill before it has moved leaderships away from the preferred replicas.
    "election": _election,
    "stop": _of_broker("stopped", "stop_broker", "start_broker"),
    "pause": _of_broker("paused", "pause", "resume"),
    "config": _config,
    "rolling-restart": _rolling_restart,
    "nothing": lambda _: (NOTHING, "", _nothing_to_end),
}


def run(kind: str, seed: int, processes: Processes) -> Case:
    since_ms = _now_ms()
    processes.journal.clear()
    processes.waiting.clear()
    time.sleep(1)
    begin_ms = _now_ms()
    cause, component, end = KINDS[kind](processes)
    processes.watch(since_ms, _LASTS_S)
    end()
    truth = Truth(cause, component, begin_ms, _now_ms())
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        processes.watch(since_ms, _SETTLES_S)
        if processes.is_whole():
            break
    journal = sorted(processes.journal.values(), key=lambda read: read[0])
    return case_of(Episode(PROCESSES + kind, seed, (truth,), _now_ms(), journal, (), processes.waiting))


def measure(rounds: int, minutes: float, seed: int = 1_000) -> list[Case]:
    end = time.monotonic() + minutes * 60
    found: list[Case] = []
    for number in range(seed, seed + rounds):
        with tempfile.TemporaryDirectory() as folder:
            processes = Processes(Path(folder) / "cluster", number)
            with processes.cluster:
                processes.warm_up()
                for kind in KINDS:
                    if time.monotonic() < end:
                        found.append(run(kind, number, processes))
                        print(f"  {found[-1].kind} {number}: {found[-1].answers[-1][:2]}", flush=True)
        if time.monotonic() >= end:
            break
    return found


if __name__ == "__main__":
    cases = measure(int(sys.argv[2]), float(sys.argv[3]))
    Path(sys.argv[1]).write_bytes(pickle.dumps(cases))
