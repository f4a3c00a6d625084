"""The cluster of real processes of the score of `explain`: three brokers on this machine, a steady load, and the
journal as `explain` reads it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from barnabas.cli.cluster_view import view_of
from barnabas.cli.controller_requests import ask_controller
from barnabas.cli.journal_reader import JournalReader, JournalSession
from barnabas.embedded.failures import Failure
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.testing import Cluster
from explain_truth import Event, Waiting

ORDERS: Final = "orders"
PAYMENTS: Final = "payments"
LOOSE: Final = "loose"
BROKERS: Final = (1, 2, 3)
_SETTLES_S: Final = 6.0
_POLL_S: Final = 0.5
_WHOLE_S_MAX: Final = 60
_RECORD: Final = b"x" * 1_000
_LOAD_RECORDS_PER_S: Final = 20
_BURST_RECORDS_PER_S: Final = 6_000
#: The data of the partition that a throttled move copies.
_PAYMENTS_BYTES: Final = 4_000_000
_SMALL_DISK_MB: Final = 96
#: The clients lose their brokers again and again, which librdkafka would log.
_QUIET: Final = {"log_level": 2}


def now_ms() -> int:
    return round(time.time() * 1000)


class Processes:
    """A context manager: inside, the cluster runs and is loaded."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(folder / "cluster", brokers=len(BROKERS))
        self.journal: dict[str, tuple[int, Event]] = {}
        self.waiting: list[Waiting] = []
        #: The broker whose data is on a small file system of its own; None if this user may not mount one.
        self.small: int | None = None
        self._stopped = threading.Event()
        self._load = threading.Thread(target=self._produce, daemon=True)
        self._topics: tuple[str, ...]
        self.end_burst()

    def __enter__(self) -> Processes:
        broker = self.random.choice(BROKERS)
        directory = self.cluster.directory / f"broker-{broker}" / "data"
        directory.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK_MB}m", "tmpfs", str(directory)]
        if os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            self.small = broker
        self.cluster.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._load.is_alive():
            self._load.join()
        self.cluster.close()
        if self.small is not None:
            subprocess.run(["umount", str(self.cluster.data_directory_of(self.small))], check=True)

    def warm_up(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, **_QUIET})
        three, two = [[1, 2, 3], [2, 3, 1], [3, 1, 2]], [[1, 2], [2, 3], [3, 1]]
        loose = {"unclean.leader.election.enable": "true"}
        topics = [
            NewTopic(ORDERS, 3, replica_assignment=three),
            NewTopic(PAYMENTS, 3, replica_assignment=two),
            NewTopic(LOOSE, 3, replica_assignment=two, config=loose),
        ]
        # librdkafka fails what it sent to an address that turns out to be a broker that it knows already.
        self.admin.list_topics(timeout=30)
        for future in self.admin.create_topics(topics).values():
            future.result(timeout=30)
        self._fill()
        self._load.start()
        self.cluster.stop_broker(2)
        self.cluster.start_broker(2)
        self.settle()
        time.sleep(_SETTLES_S)

    def _fill(self) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, **_QUIET})
        for number in range(_PAYMENTS_BYTES // len(_RECORD)):
            producer.produce(PAYMENTS, _RECORD, partition=number % 3)
            producer.poll(0)
        producer.flush(30)

    def _produce(self) -> None:
        """Sends a steady load, in portions each tenth of a second, until the context is left."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 5, **_QUIET})
        while not self._stopped.wait(0.1):
            for number in range(self._records_per_s // 10):
                try:
                    producer.produce(self._topics[number % len(self._topics)], _RECORD)
                except BufferError:
                    break
            producer.poll(0)

    def begin_burst(self) -> None:
        """Sends much more than usual, and all of it to one topic."""
        self._topics, self._records_per_s = (ORDERS,), _BURST_RECORDS_PER_S

    def end_burst(self) -> None:
        self._topics, self._records_per_s = (ORDERS, LOOSE), _LOAD_RECORDS_PER_S

    # -- the state

    def replicas(self, topic: str) -> dict[int, list[int]]:
        partitions = self.admin.list_topics(topic, timeout=20).topics[topic].partitions
        return {index: list(each.replicas) for index, each in partitions.items()}

    def leader(self, topic: str, index: int) -> int:
        return int(self.admin.list_topics(topic, timeout=20).topics[topic].partitions[index].leader)

    def active_controller(self) -> int:
        """Returns the leader of the metadata quorum; -1 while there is none."""
        addresses = (each.partition(":") for each in self.cluster.bootstrap.split(","))
        return view_of((host, int(port)) for host, _, port in addresses).controller

    def is_whole(self) -> bool:
        topics = self.admin.list_topics(timeout=20).topics
        whole = all(
            set(each.isrs) == set(each.replicas) for topic in topics.values() for each in topic.partitions.values()
        )
        return whole and "__cluster_events" in topics

    def settle(self) -> None:
        """Waits until all replicas are in sync, at most a minute."""
        deadline = time.monotonic() + _WHOLE_S_MAX
        while not self.is_whole() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    # -- requests of operators

    def configure(self, kind: ResourceType, name: str, values: Mapping[str, str | None]) -> None:
        """Sets dynamic configurations; None removes one."""
        entries = [
            ConfigEntry(
                key,
                "" if value is None else value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(timeout=20)

    def reassign(self, topic: str, index: int, replicas: Sequence[int]) -> None:
        row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=list(replicas))
        wanted = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[row])
        request = AlterPartitionReassignmentsRequest(topics=[wanted])
        answer = ask_controller(self.admin, request, 0, AlterPartitionReassignmentsResponse)
        failed = [each.error_code for found in answer.responses for each in found.partitions if each.error_code]
        if answer.error_code or failed:
            raise RuntimeError(f"the reassignment failed: {answer.error_code} {failed}")

    # -- the journal

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
        read_ms = now_ms()
        for event in reader.events:
            if "waiting" not in event:
                self.journal.setdefault(event["id"], (read_ms, event))
        self.waiting.append(Waiting(read_ms, tuple(event for event in reader.events if "waiting" in event)))

    def watch(self, since_ms: int, duration_s: float) -> None:
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            self.read(since_ms)
            time.sleep(_POLL_S)

    def watch_until_whole(self, since_ms: int) -> None:
        """Reads on until all replicas are in sync, at most a minute."""
        deadline = time.monotonic() + _WHOLE_S_MAX
        while time.monotonic() < deadline:
            self.watch(since_ms, _SETTLES_S)
            if self.is_whole():
                return
