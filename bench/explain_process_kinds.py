"""The kinds of faults of the score of `explain` with real processes: signals, requests of operators, and, for root, a
full file system and a process that takes the CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import ResourceType

from explain_real_cluster import BROKERS, LOOSE, ORDERS, PAYMENTS, Processes
from explain_truth import NOTHING

_BLOCK: Final = b"\0" * (1 << 20)


class Struck(NamedTuple):
    """A fault that has begun."""

    cause: str
    component: str
    #: Ends it.
    end: Callable[[], None] = lambda: None


def _of_broker(
    cause: str, begin: str, end: str, choose: Callable[[Processes], int] | None = None
) -> Callable[[Processes], Struck]:
    def strike(processes: Processes) -> Struck:
        broker = processes.random.choice(BROKERS) if choose is None else choose(processes)
        getattr(processes.cluster, begin)(broker)
        return Struck(cause, f"broker {broker}", lambda: getattr(processes.cluster, end)(broker))

    return strike


def _config(processes: Processes) -> Struck:
    value = str(processes.random.randrange(10**6, 10**7))
    processes.configure(ResourceType.TOPIC, ORDERS, {"retention.ms": value})
    return Struck("config-asked", f"topic {ORDERS}")


def _rolling_restart(processes: Processes) -> Struck:
    for broker in BROKERS:
        processes.cluster.stop_broker(broker)
        processes.cluster.start_broker(broker)
        time.sleep(2)
    return Struck("restarted", "cluster")


def _election(processes: Processes) -> Struck:
    """Asks for preferred leaders. A kill before this kind has moved leaderships away from them."""
    partitions = [TopicPartition(ORDERS, index) for index in range(3)]
    processes.admin.elect_leaders(ElectionType.PREFERRED, partitions).result(timeout=20)
    return Struck("election-asked", f"topic {ORDERS}")


def _reassignment(processes: Processes) -> Struck:
    index, replicas = processes.random.choice(sorted(processes.replicas(PAYMENTS).items()))
    outside = next(each for each in BROKERS if each not in replicas)
    processes.reassign(PAYMENTS, index, [outside, replicas[0]])
    return Struck("reassignment-asked", f"topic {PAYMENTS}")


def _throttle(processes: Processes) -> Struck:
    """Sets a limit of replication, as a tool for moves does, and forgets it: a new replica does not catch up."""
    index, replicas = processes.random.choice(sorted(processes.replicas(PAYMENTS).items()))
    follower = next(each for each in BROKERS if each not in replicas)
    topic, broker = (ResourceType.TOPIC, PAYMENTS), (ResourceType.BROKER, str(follower))
    processes.configure(*topic, {"follower.replication.throttled.replicas": "*"})
    processes.configure(*broker, {"follower.replication.throttled.rate": "1000"})
    time.sleep(1)
    processes.reassign(PAYMENTS, index, [*replicas, follower])

    def end() -> None:
        processes.configure(*broker, {"follower.replication.throttled.rate": None})
        processes.configure(*topic, {"follower.replication.throttled.replicas": None})
        processes.settle()
        processes.reassign(PAYMENTS, index, replicas)

    return Struck("throttled", f"broker {follower}", end)


def _unclean_election(processes: Processes) -> Struck:
    """Kills a follower, then the leader, and starts the follower: it must lead without what it lacks."""
    cluster, leader = processes.cluster, processes.leader(LOOSE, 0)
    follower = next(each for each in processes.replicas(LOOSE)[0] if each != leader)
    cluster.kill(follower)
    time.sleep(6)
    cluster.kill(leader)
    time.sleep(1)
    # The metadata quorum waits for the follower too: one of its three voters is left.
    cluster.start_broker(follower)
    return Struck("unclean-election", f"topic {LOOSE}", lambda: cluster.start_broker(leader))


def _burst(processes: Processes) -> Struck:
    processes.begin_burst()
    return Struck("burst", f"topic {ORDERS}", processes.end_burst)


def _full_disk(processes: Processes) -> Struck:
    broker = processes.small
    assert broker is not None
    filler = processes.cluster.data_directory_of(broker) / "filler"
    stopped = threading.Event()

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            while not stopped.is_set():
                try:
                    file.write(_BLOCK)
                except OSError:
                    time.sleep(0.1)

    thread = threading.Thread(target=fill)
    thread.start()

    def end() -> None:
        stopped.set()
        thread.join()
        filler.unlink()

    return Struck("disk-full", f"broker {broker}", end)


def _cpu_hog(processes: Processes) -> Struck:
    """Lets a real-time process take the CPU of a broker: the system leaves 5 % to all others on that CPU."""
    broker = processes.random.choice(BROKERS)
    pid, cpus = processes.cluster.pids[broker], os.sched_getaffinity(0)
    cpu = min(cpus)
    for task in _tasks(pid):
        os.sched_setaffinity(task, {cpu})
    hog = subprocess.Popen(["chrt", "-f", "50", "taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"])

    def end() -> None:
        hog.kill()
        hog.wait()
        for task in _tasks(pid):
            os.sched_setaffinity(task, cpus)

    return Struck("starved", f"broker {broker}", end)


def _tasks(pid: int) -> Iterator[int]:
    for name in os.listdir(f"/proc/{pid}/task"):
        yield int(name)


KINDS: Final[Mapping[str, Callable[[Processes], Struck]]] = {
    "kill": _of_broker("crashed", "kill", "start_broker"),
    "election": _election,
    "stop": _of_broker("stopped", "stop_broker", "start_broker"),
    "pause": _of_broker("paused", "pause", "resume"),
    "controller-kill": _of_broker("crashed", "kill", "start_broker", Processes.active_controller),
    "controller-pause": _of_broker("paused", "pause", "resume", Processes.active_controller),
    "config": _config,
    "reassignment": _reassignment,
    "throttle": _throttle,
    "burst": _burst,
    "full-disk": _full_disk,
    "cpu-hog": _cpu_hog,
    "unclean-election": _unclean_election,
    "rolling-restart": _rolling_restart,
    "nothing": lambda _: Struck(NOTHING, ""),
}
#: The kinds that only root can cause, on a machine with more than one CPU.
FOR_ROOT: Final = frozenset({"full-disk", "cpu-hog"})


def possible(processes: Processes) -> Iterator[str]:
    """Yields the kinds that can be caused on this machine, in their order."""
    is_allowed = processes.small is not None and len(os.sched_getaffinity(0)) > 1
    yield from (kind for kind in KINDS if is_allowed or kind not in FOR_ROOT)
