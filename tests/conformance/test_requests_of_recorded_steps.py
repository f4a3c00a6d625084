"""The requests of our controller in ZooKeeper mode for the steps in which those of Apache Kafka 3.9.1 were recorded:
the same kinds, to the same brokers, about the same partitions, with the same contents but for ids, epochs and
addresses.

The recording (`tests/data/wire/controller-3.9.1.json.gz`) is a sample: up to twelve frames of each API. So each
recorded request must be among those of our controller for its step, in the recorded order, or in the table of
deviations; a request of ours that is not in the recording proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.conformance.test_recorded_controller_requests import FRAMES, decoded
from tests.support.zookeeper_controllers import Cluster

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest

ORDERS: Final = ((1, 2, 0), (2, 0, 1), (0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1))
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
_EPOCH_DURING_DELETE: Final = -2

#: A request: receiver, kind, live brokers, and a row for each partition.
Request = tuple[int, str, tuple[int, ...], tuple[Any, ...]]
#: The place of a recorded frame: the broker, its registration, the correlation id.
Frame = tuple[int, int, int]


def request_of(receiver: int, message: Any) -> Request:
    """Returns a request without ids, epochs and addresses."""
    live: tuple[int, ...] = ()
    if isinstance(message, LeaderAndIsrRequest):
        live = tuple(sorted(leader.broker_id for leader in message.live_leaders))
    elif isinstance(message, UpdateMetadataRequest):
        live = tuple(sorted(broker.id for broker in message.live_brokers))
    rows = [(topic.topic_name, *_content(row)) for topic in message.topic_states for row in topic.partition_states]
    return receiver, type(message).__name__.removesuffix("Request"), live, tuple(sorted(rows))


def _content(row: Any) -> tuple[Any, ...]:
    if hasattr(row, "delete_partition"):
        return row.partition_index, row.leader_epoch == _EPOCH_DURING_DELETE, row.delete_partition
    content = (row.partition_index, row.leader, tuple(row.isr), tuple(row.replicas))
    if hasattr(row, "offline_replicas"):
        return *content, tuple(sorted(row.offline_replicas))
    return *content, tuple(row.adding_replicas), tuple(row.removing_replicas), row.is_new, row.leader_recovery_state


class Steps:
    """The steps of the recording: three brokers, of which 1 is the controller."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.requests: dict[str, list[Request]] = {}

    def run(self) -> None:
        for step in STEPS:
            before = {number: len(broker.requests) for number, broker in self.cluster.brokers.items()}
            lives = dict(self.cluster.brokers)
            STEPS[step](self)
            self.cluster.settle()
            found: list[Request] = []
            for number, broker in self.cluster.brokers.items():
                first = before.get(number, 0) if lives.get(number) is broker else 0
                found += [request_of(number, message) for message in broker.requests[first:]]
            self.requests[step] = found

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.cluster.start(number)
            self.cluster.settle()

    def create(self, topics: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
        for name, replicas in topics.items():
            self.cluster.create_topic(name, *replicas)
            self.cluster.settle()

    def kill(self, number: int) -> None:
        self.cluster.kill(number)

    def back(self, number: int) -> None:
        """Starts a broker again; it joins the ISRs that it left."""
        self.start(number)
        for name, count in (("orders", len(ORDERS)), (OFFSETS, 1), (TRANSACTIONS, 1)):
            for index in range(count):
                isr = (*self.cluster.state(name, index).isr, number)
                assert self.cluster.alter_isr(name, index, isr) == ErrorCode.NONE

    def shut_down(self, number: int) -> None:
        cluster = self.cluster
        request = ControlledShutdownRequest(broker_id=number, broker_epoch=cluster.brokers[number].epoch)
        assert cluster.ask(cluster.controller.controlled_shutdown, request).error_code == ErrorCode.NONE
        cluster.kill(number)

    def elect(self) -> None:
        request = ElectLeadersRequest(topic_partitions=None)
        self.cluster.ask(self.cluster.controller.replication.elect_leaders, request, actor="User:a")

    def reassign(self) -> None:
        row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[0, 1])
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="orders", partitions=[row])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        self.cluster.ask(self.cluster.controller.replication.alter_reassignments, request, actor="User:a")

    def delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="orders")], timeout_ms=1_000)
        self.cluster.ask(self.cluster.controller.delete_topics, request)


STEPS: Final[Mapping[str, Callable[[Steps], None]]] = {
    "two brokers": lambda steps: steps.start(1, 2),
    "third broker": lambda steps: steps.start(0),
    "topic created": lambda steps: steps.create({"orders": ORDERS}),
    "internal topics created": lambda steps: steps.create({TRANSACTIONS: [(0, 2, 1)], OFFSETS: [(2, 0, 1)]}),
    "broker 0 killed": lambda steps: steps.kill(0),
    "broker 0 back": lambda steps: steps.back(0),
    "broker 2 shut down": lambda steps: steps.shut_down(2),
    "broker 2 back": lambda steps: steps.back(2),
    "preferred election": lambda steps: steps.elect(),
    "reassignment": lambda steps: steps.reassign(),
    "topic deleted": lambda steps: steps.delete(),
    "broker 0 shut down": lambda steps: steps.shut_down(0),
    "controller shut down": lambda steps: steps.shut_down(1),
}
#: The step of each recorded frame: broker, its registration, correlation id.
RECORDED: Final[Mapping[Frame, str]] = {
    (1, 58, 1): "two brokers",
    (2, 59, 1): "two brokers",
    (1, 58, 2): "third broker",
    (2, 59, 2): "third broker",
    (0, 64, 7): "third broker",
    (2, 59, 3): "topic created",
    (2, 59, 7): "internal topics created",
    (1, 58, 10): "broker 0 killed",
    (1, 58, 13): "broker 0 back",
    (2, 59, 13): "broker 0 back",
    (1, 58, 15): "broker 0 back",
    (2, 59, 15): "broker 0 back",
    (2, 59, 21): "broker 2 shut down",
    (2, 59, 23): "broker 2 shut down",
    (0, 118, 24): "broker 2 back",
    (1, 58, 25): "broker 2 back",
    (0, 118, 32): "reassignment",
    (1, 58, 33): "reassignment",
    (0, 118, 34): "reassignment",
    (1, 58, 35): "reassignment",
    (2, 151, 13): "reassignment",
    (2, 151, 14): "reassignment",
    (0, 118, 38): "topic deleted",
    (1, 58, 39): "topic deleted",
    (2, 151, 17): "topic deleted",
    (0, 118, 39): "topic deleted",
    (1, 58, 40): "topic deleted",
    (2, 151, 18): "topic deleted",
    (0, 118, 40): "broker 0 shut down",
    (1, 58, 41): "broker 0 shut down",
    (2, 151, 19): "broker 0 shut down",
    (0, 118, 42): "broker 0 shut down",
    (1, 58, 43): "broker 0 shut down",
    (2, 151, 21): "broker 0 shut down",
    (1, 58, 47): "controller shut down",
    (2, 151, 1): "controller shut down",
}


class Deviation(NamedTuple):
    """Recorded frames for which our controller sends other rows, and the reason."""

    reason: str
    frames: Sequence[Frame]
    rows: Sequence[tuple[Any, ...]]


_OFFSETS_ROLE: Final = (OFFSETS, 0, 2, (1, 2), (2, 0, 1), (), (), False, 0)
_TRANSACTIONS_ROLE: Final = (TRANSACTIONS, 0, 2, (1, 2), (0, 2, 1), (), (), False, 0)
_REMOVAL: Final = "a reassignment that only removes replicas is over with its first write"
_DELETION: Final = "a replica is stopped and deleted by one request"
_STOPPED: Final = "a broker that shuts down is stopped also where it has just led"
DEVIATIONS: Final = (
    Deviation(_REMOVAL, [(0, 118, 32), (1, 58, 33)], [("orders", 0, 1, (1, 0), (0, 1), (), (), False, 0)]),
    Deviation(_REMOVAL, [(2, 151, 13)], [("orders", 0, False, True)]),
    Deviation(_DELETION, [(0, 118, 38), (1, 58, 39)], [("orders", index, True, True) for index in range(6)]),
    Deviation(_DELETION, [(2, 151, 17)], [("orders", index, True, True) for index in range(1, 6)]),
    Deviation(
        "the partitions that a broker led and those that it followed are in one request when it shuts down",
        [(0, 118, 40), (1, 58, 41), (2, 151, 19), (1, 58, 43), (2, 151, 21)],
        [_OFFSETS_ROLE, _TRANSACTIONS_ROLE],
    ),
    Deviation(
        _STOPPED,
        [(2, 59, 21), (2, 59, 23)],
        [(OFFSETS, 0, False, False), (TRANSACTIONS, 0, False, False), *(("orders", i, False, False) for i in range(6))],
    ),
    Deviation(_STOPPED, [(0, 118, 42)], [(OFFSETS, 0, False, False), (TRANSACTIONS, 0, False, False)]),
    Deviation(
        "the partitions that lose their leader and those that lose an ISR member are in one request when a broker dies",
        [(1, 58, 10)],
        [
            (OFFSETS, 0, 2, (2, 1), (2, 0, 1), (0,)),
            (TRANSACTIONS, 0, 2, (2, 1), (0, 2, 1), (0,)),
            ("orders", 0, 1, (1, 2), (1, 2, 0), (0,)),
            ("orders", 1, 2, (2, 1), (2, 0, 1), (0,)),
            ("orders", 2, 1, (1, 2), (0, 1, 2), (0,)),
            ("orders", 3, 1, (1, 2), (1, 0, 2), (0,)),
            ("orders", 4, 2, (2, 1), (2, 1, 0), (0,)),
            ("orders", 5, 2, (2, 1), (0, 2, 1), (0,)),
        ],
    ),
)


def recorded() -> dict[Frame, Request]:
    """Returns the recorded requests, in the order of each connection."""
    found: dict[Frame, Request] = {}
    for frame in FRAMES:
        message = decoded(frame)
        broker = int(frame["listener"].removeprefix("broker"))
        found[broker, message.broker_epoch, frame["correlation_id"]] = request_of(broker, message)
    return dict(sorted(found.items()))


def test_our_controller_sends_what_was_recorded_except_on_purpose() -> None:
    steps = Steps()
    steps.run()
    requests = recorded()
    assert requests.keys() == RECORDED.keys()
    instead = {frame: tuple(sorted(each.rows)) for each in DEVIATIONS for frame in each.frames}
    reached: dict[tuple[int, str], int] = {}
    for frame, request in requests.items():
        step = RECORDED[frame]
        ours = [each for each in steps.requests[step] if each[0] == frame[0]]
        wanted = (*request[:3], instead.get(frame, request[3]))
        assert wanted != request or frame not in instead, f"{frame} is as recorded"
        first = reached.get((frame[0], step), 0)
        found = next((place for place in range(first, len(ours)) if ours[place] == wanted), None)
        told = "".join(f"\n  sent {each}" for each in ours)
        assert found is not None, f"frame {frame}, {step}:\n  expected {wanted}{told}"
        reached[frame[0], step] = found
