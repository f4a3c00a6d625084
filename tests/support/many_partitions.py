"""Thousands of partitions on real brokers: created through the API, and watched as a client of one broker sees them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.process_nodes import Address, call, until

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

TOPICS: Final = 50
PARTITIONS: Final = 100
TOTAL: Final = TOPICS * PARTITIONS
REPLICAS: Final = 3
NAMES: Final = tuple(f"many-{number:02d}" for number in range(TOPICS))
#: Thousands of partitions are created and led within minutes, on a busy machine too.
_CREATED_S: Final = 300.0
_PAUSE_S: Final = 0.02

Partition = MetadataResponse.MetadataResponsePartition
Condition = Callable[[Partition], bool]


def create_many(bootstrap: str) -> None:
    """Creates the topics, and returns when every broker says that all partitions are in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {"min.insync.replicas": "2"}
    for name in NAMES:
        topic = NewTopic(name, PARTITIONS, REPLICAS, config=settings)
        admin.create_topics([topic], request_timeout=120)[name].result(_CREATED_S)
    for place in bootstrap.split(","):
        address = place.rpartition(":")[0], int(place.rpartition(":")[2])
        until("all are led and in sync", lambda address=address: holds(address, NAMES, is_in_sync), _CREATED_S)  # type: ignore[misc]


def partitions(address: Address, names: Sequence[str]) -> list[Partition]:
    """Returns the partitions of topics, as this broker describes them."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    answer = call(address, request, 9, MetadataResponse, timeout_s=10.0)
    return [partition for topic in answer.topics for partition in topic.partitions]


def holds(address: Address, names: Sequence[str], condition: Condition) -> bool:
    """Returns whether all partitions of these topics exist and fulfil a condition."""
    found = partitions(address, names)
    return len(found) == PARTITIONS * len(names) and all(map(condition, found))


def is_in_sync(partition: Partition) -> bool:
    return partition.leader_id != -1 and len(partition.isr_nodes) == REPLICAS


class ClusterWatch(threading.Thread):
    """Notes when the first topic fulfils a condition at a broker, and when all topics do, in seconds since 1970. It
    asks for one topic at a time, so that the brokers have no other work because of it: the second time can be a tenth
    of a second late.
    """

    def __init__(self, address: Address, condition: Condition, first: str = NAMES[0]) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._condition = condition
        self._names = (first, *(name for name in NAMES if name != first))
        self.first_s = 0.0
        self.last_s = 0.0
        self.start()

    def run(self) -> None:
        for name in self._names:
            until(name, lambda name=name: self._is_done(name), 120.0)  # type: ignore[misc]
            self.last_s = time.time()
            self.first_s = self.first_s or self.last_s

    def _is_done(self, name: str) -> bool:
        time.sleep(_PAUSE_S)
        return holds(self._address, (name,), self._condition)

    def wait(self) -> ClusterWatch:
        """Waits until all topics fulfil the condition."""
        self.join(130.0)
        assert self.last_s, "no topic fulfils the condition"
        assert not self.is_alive(), "not all topics fulfil the condition"
        return self


def led_by_others(broker: int) -> Condition:
    """Returns the condition that a partition has a leader, which is not this broker."""
    return lambda partition: partition.leader_id not in (broker, -1)


def address_of(bootstrap: str, broker: int) -> Address:
    """Returns the address of a broker of a cluster whose brokers are 1, 2 and so on."""
    host, _, port = bootstrap.split(",")[broker - 1].rpartition(":")
    return host, int(port)


def resident_peak_mb(pid: int) -> float:
    """Returns the most memory that a process had resident, in MB (10^6 bytes)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6
