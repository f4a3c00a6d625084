"""Clients of the replication explorer: they write, read, delete, move and recreate under faults, and record the
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from barnabas.common.errors import ErrorCode
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.simulation.world import World
from barnabas.simulation.worlds.replicated import (
    CONTROLLER,
    RawClient,
    Replicated,
    batch_of,
    fetch_request,
    list_offsets_request,
    produce_request,
    values_in,
)

TOPIC = "orders"
PARTITIONS = 2
#: The topic that is deleted and created again and again.
AGAIN = "again"
BROKERS = ("broker1", "broker2", "broker3")


@dataclass
class Write:
    value: bytes
    index: int
    #: The base offset that was acknowledged.
    offset: int | None = None
    #: The error code of an answer after which it is unknown whether the records exist.
    failed: int | None = None


@dataclass
class History:
    writes: list[Write] = field(default_factory=list)
    #: Values of the idempotent producer by partition, in the order of their acknowledgement.
    ordered: dict[int, list[bytes]] = field(default_factory=lambda: {index: [] for index in range(PARTITIONS)})
    deleted_to: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    #: The number of `writes` with an offset.
    acked: int = 0


class WorkedRun(Protocol):
    """The run as its workers see it."""

    @property
    def world(self) -> World: ...

    @property
    def rig(self) -> Replicated: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def history(self) -> History: ...

    @property
    def violations(self) -> list[str]:
        """The promises that workers found broken."""

    @property
    def pace_ms(self) -> Sequence[int]:
        """The pauses between the actions of one client."""

    def committed_end(self, index: int) -> int:
        """Returns the offset up to which the partition was committed."""


class Worker:
    """A client with its own metadata of leaders, which can be outdated. As clients do (KIP-951), it never returns to an
    older leader epoch than it has seen.
    """

    def __init__(self, run: WorkedRun, name: str) -> None:
        self.run = run
        self.random = run.world.stream(f"worker/{name}")
        self.client = RawClient(run.rig.cluster, name)
        self._leaders: dict[int, str] = {}
        self._newest: dict[int, tuple[int, int]] = {}
        self.stopping = False

    def start(self) -> None:
        """Begins the work, inside the client's own process."""

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.client.host.timers.call_later(delay_ms, callback)

    def leader(self, index: int) -> str:
        if index not in self._leaders:
            self._leaders[index] = self._look_up(index)
        return self._leaders[index]

    def _look_up(self, index: int) -> str:
        """Returns the leader in some broker's present metadata."""
        images = [
            node.broker.metadata.image.partition(TOPIC, index)
            for name, node in self.run.rig.cluster.nodes.items()
            if name != CONTROLLER and node.is_running and node.broker is not None
        ]
        known = self._newest.get(index, (-1, 0))
        leaders = [(image.leader_epoch, image.leader) for image in images if image is not None and image.leader > 0]
        leaders = [found for found in leaders if found[0] >= known[0]] or [known]
        self._newest[index] = found = self.random.choice(leaders)
        return f"broker{found[1]}" if found[1] else self.random.choice(BROKERS)

    def forget(self, index: int) -> None:
        self._leaders.pop(index, None)


class Producer(Worker):
    """A producer that sends every batch once."""

    def start(self) -> None:
        self.number = 0
        for index in range(PARTITIONS):
            self._next(index)

    def _next(self, index: int) -> None:
        if self.stopping:
            return
        self.number += 1
        write = Write(b"p%d-%d" % (index, self.number), index)
        self.run.history.writes.append(write)
        request = produce_request(self.run.topic_id, index, batch_of(write.value), timeout_ms=600, name=TOPIC)
        self.client.send(
            self.leader(index), request, lambda response: self._on_answer(write, response), timeout_ms=1500
        )

    def _on_answer(self, write: Write, response: Message | None) -> None:
        if isinstance(response, ProduceResponse):
            row = response.responses[0].partition_responses[0]
            if row.error_code == ErrorCode.NONE:
                write.offset = row.base_offset
                self.run.history.acked += 1
            else:
                write.failed = row.error_code
        if write.offset is None:
            self.forget(write.index)
        self.later(self.random.choice(self.run.pace_ms), lambda: self._next(write.index))


class IdempotentProducer(Worker):
    """An idempotent producer of one batch at a time per partition, which is repeated until it is acknowledged."""

    PRODUCER_ID = 4711

    def start(self) -> None:
        self.sequences = dict.fromkeys(range(PARTITIONS), 0)
        for index in range(PARTITIONS):
            self._next(index)

    def _next(self, index: int) -> None:
        if not self.stopping:
            sequence = self.sequences[index]
            self._send(index, b"i%d-%d" % (index, sequence), sequence)

    def _send(self, index: int, value: bytes, sequence: int) -> None:
        data = batch_of(value, producer_id=self.PRODUCER_ID, base_sequence=sequence)
        request = produce_request(self.run.topic_id, index, data, timeout_ms=600, name=TOPIC)

        def answered(response: Message | None) -> None:
            code = ErrorCode.REQUEST_TIMED_OUT
            if isinstance(response, ProduceResponse):
                row = response.responses[0].partition_responses[0]
                code = ErrorCode(row.error_code)
                if code is ErrorCode.NONE:
                    self.run.history.writes.append(Write(value, index, row.base_offset))
                    self.run.history.acked += 1
                    self.run.history.ordered[index].append(value)
                    self.sequences[index] = sequence + 1
                    self.later(self.random.choice(self.run.pace_ms), lambda: self._next(index))
                    return
            if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                self.run.violations.append(f"idempotent producer was refused with {code.name}: {value!r}")
            self.forget(index)
            self.later(self.random.choice((5, 20, 60)), lambda: self._send(index, value, sequence))

        self.client.send(self.leader(index), request, answered, timeout_ms=1500)


class Reader(Worker):
    """A reader of one partition from its beginning, which sometimes requests the end offset. In some runs it sends the
    newest leader epoch that it knows, as clients do: then no deposed leader is allowed to answer it (G4).
    """

    def start(self) -> None:
        self.names_epochs = self.random.random() < 0.5
        self.asks_for_the_end = self.random.choice((0.2, 0.6))
        self.position = dict.fromkeys(range(PARTITIONS), 0)
        self.latest = dict.fromkeys(range(PARTITIONS), 0)
        self.read: dict[int, dict[int, bytes | None]] = {index: {} for index in range(PARTITIONS)}
        for index in range(PARTITIONS):
            self._next(index)

    def _next(self, index: int) -> None:
        if self.stopping:
            return
        leader = self.leader(index)
        epoch = self._newest.get(index, (-1, 0))[0] if self.names_epochs else -1
        if self.names_epochs and self.random.random() < 0.2:
            leader = self.random.choice(BROKERS)
        if self.random.random() < self.asks_for_the_end:
            request: Message = list_offsets_request(TOPIC, index, epoch=epoch)
        else:
            request = fetch_request(self.run.topic_id, index, self.position[index], max_wait_ms=100, epoch=epoch)
        self.client.send(leader, request, lambda response: self._on_answer(index, response), timeout_ms=1500)

    def _on_answer(self, index: int, response: Message | None) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(response, ListOffsetsResponse):
            row = response.topics[0].partitions[0]
            code = ErrorCode(row.error_code)
            if code is ErrorCode.NONE:
                self._on_latest(index, row.offset)
        elif isinstance(response, FetchResponse):
            answer = response.responses[0].partitions[0]
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                self._on_records(index, bytes(answer.records or b""))
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._on_out_of_range(index)
        if code is not ErrorCode.NONE:
            self.forget(index)
        self.later(self.random.choice(self.run.pace_ms), lambda: self._next(index))

    def _on_out_of_range(self, index: int) -> None:
        """Continues at the log start. A deposed leader without the newest records can refuse a client that sends no
        epoch.
        """
        start = self.run.history.deleted_to[index]
        if self.position[index] >= start:
            if not self.names_epochs and not self._is_new(index):
                return
            self.run.violations.append(f"a reader's offset is out of range: {self.position[index]} of {index}")
        self.position[index] = start

    def _on_latest(self, index: int, offset: int) -> None:
        if offset < self.latest[index] and (self.names_epochs or self._is_new(index)):
            self.run.violations.append(
                f"the end offset that clients see went back: {index} from {self.latest[index]} to {offset}"
            )
        self.latest[index] = max(self.latest[index], offset)

    def _is_new(self, index: int) -> bool:
        """Returns whether the current leader answered: a deposed leader can still answer with its old state."""
        return self.leader(index) == f"broker{self.run.rig.leader(TOPIC, index)}"

    def _on_records(self, index: int, data: bytes) -> None:
        for offset, value in values_in(data):
            if offset >= self.position[index]:
                known = self.read[index].setdefault(offset, value)
                if known != value:
                    self.run.violations.append(f"two values at one offset: {index}-{offset}: {known!r} and {value!r}")
                self.position[index] = offset + 1
        if self.position[index] > self.run.committed_end(index):
            self.run.violations.append(f"read an uncommitted record: {index} up to {self.position[index]}")


class Deleter(Worker):
    """An administrator that sends DeleteRecords from time to time."""

    def start(self) -> None:
        self.later(self.random.randrange(500, 3000), self._next)

    def _next(self) -> None:
        if self.stopping:
            return
        index = self.random.randrange(PARTITIONS)
        end = self.run.committed_end(index)
        offset = self.random.randrange(end + 1)
        if offset <= self.run.history.deleted_to[index]:
            self.later(1000, self._next)
            return
        self.run.history.deleted_to[index] = offset
        request = DeleteRecordsRequest(
            timeout_ms=500,
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=TOPIC,
                    partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)],
                )
            ],
        )
        again = self.random.randrange(500, 3000)
        self.client.send(self.leader(index), request, lambda response: self.later(again, self._next), timeout_ms=1500)


class Mover(Worker):
    """An administrator that reassigns to two or three brokers in any order, changes and cancels that, and elects
    preferred leaders.
    """

    def start(self) -> None:
        self.later(self.random.randrange(200, 2000), self._next)

    def _next(self) -> None:
        if self.stopping:
            return
        index = self.random.randrange(PARTITIONS)
        again = self.random.randrange(200, 2000)
        if self.random.random() < 0.5:
            self._elect(index, lambda response: self.later(again, self._next))
            return
        replicas = None if self.random.random() < 0.15 else self.random.sample((1, 2, 3), self.random.choice((2, 2, 3)))
        self._call(index, replicas, lambda response: self.later(again, self._next))

    def _elect(self, index: int, reply: Callable[[Message | None], None]) -> None:
        """Elects the preferred leader, so that leaderships move between live brokers."""
        requested = ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[index])
        request = ElectLeadersRequest(election_type=0, topic_partitions=[requested], timeout_ms=500)
        self.client.send(self.random.choice(BROKERS), request, reply, timeout_ms=1500)

    def _call(self, index: int, replicas: list[int] | None, reply: Callable[[Message | None], None]) -> None:
        """Requests a reassignment; `None` cancels it."""
        row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=TOPIC, partitions=[row])
        request = AlterPartitionReassignmentsRequest(timeout_ms=500, topics=[topic])
        self.client.send(self.random.choice(BROKERS), request, reply, timeout_ms=1500)

    def restore(self) -> None:
        """Makes all brokers replicas again at the end."""
        for index in range(PARTITIONS):
            if not has_all_brokers(self.run.rig.image(TOPIC, index)):
                self._call(index, [1, 2, 3], lambda response: None)
        self.later(500, self.restore)


def has_all_brokers(image: PartitionImage) -> bool:
    return len(image.replicas) == len(BROKERS) and not image.adding_replicas and not image.removing_replicas


class Renewer(Worker):
    """A client that creates a topic, writes to it, deletes it and creates it again (G14). Values carry the number of
    the incarnation.
    """

    def start(self) -> None:
        self.incarnation = 0
        self.number = 0
        #: The incarnations that were created, by topic id.
        self.incarnations: dict[bytes, int] = {}
        self._make()

    def _make(self) -> None:
        if self.stopping:
            return
        self.incarnation += 1
        incarnation = self.incarnation
        assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 3, 1])
        topic = CreateTopicsRequest.CreatableTopic(
            name=AGAIN, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        topic.configs = [CreateTopicsRequest.CreatableTopicConfig(name="min.insync.replicas", value="2")]
        request = CreateTopicsRequest(topics=[topic], timeout_ms=500)

        def made(response: Message | None) -> None:
            if not isinstance(response, CreateTopicsResponse) or response.topics[0].error_code != ErrorCode.NONE:
                self.later(100, self._delete)  # the topic can exist nevertheless
                return
            topic_id = response.topics[0].topic_id
            self.incarnations[topic_id] = incarnation
            self.later(self.random.randrange(100, 1500), self._delete)
            self._write(topic_id, incarnation)

        self.client.send(self.random.choice(BROKERS), request, made, timeout_ms=1500)

    def _write(self, topic_id: bytes, incarnation: int) -> None:
        if self.stopping or incarnation != self.incarnation:
            return
        self.number += 1
        request = produce_request(
            topic_id, 0, batch_of(b"g%d-%d" % (incarnation, self.number)), timeout_ms=300, name=AGAIN
        )
        node = self.random.choice(BROKERS)
        self.client.send(
            node, request, lambda _: self.later(20, lambda: self._write(topic_id, incarnation)), timeout_ms=500
        )

    def _delete(self) -> None:
        request = DeleteTopicsRequest(timeout_ms=500, topics=[DeleteTopicsRequest.DeleteTopicState(name=AGAIN)])
        self.client.send(
            self.random.choice(BROKERS), request, lambda _: self.later(self._pause_ms(), self._make), timeout_ms=1500
        )

    def _pause_ms(self) -> int:
        return self.random.choice((0, 0, 50, 500))
