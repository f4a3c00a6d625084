"""The steps recorded from Kafka 3.9.1, driven against the controller of ZooKeeper mode: each path has the same writes
in the same order.

A state is compared as (leader, ISR, recovering); leader epochs and versions are equal until step 06 and only rise
afterwards, because some writes of Kafka are left out here. `DIFFERENCES` is the table of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.zookeeper_controllers import Cluster

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition, uuid_from_text
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.znodes import paths
from barnabas.zookeeper.wire.codes import OpCode

_RECORDED: Final = Path(__file__).resolve().parents[2] / "data" / "znodes" / "recorded_writes.json"
_NAMES: Final = {OpCode.CREATE: "create", OpCode.SET_DATA: "set", OpCode.DELETE: "delete"}
#: The steps up to which epochs are those of Kafka, too.
_SAME_EPOCHS: Final = frozenset(f"0{number}" for number in range(7))

#: The beginnings of the paths that are recorded.
_RECORDED_KINDS: Final = (
    "/brokers/topics/",
    "/admin/",
    "/controller",
    "/feature",
    "/latest_producer",
    "/config/topics/",
)

Write = list[Any]

DIFFERENCES: Final = {
    "activation": "A leader that is offline at an activation is replaced at once: no state with the leader -1 before.",
    "asked again": "A reassignment to the target that is under way already changes nothing.",
    "move": "The end of a move is one write of the state, with the assignment: the ISR that brings the last replica in "
    "sync, the leader, and the ISR without the removed ones.",
    "removal": "A reassignment that only removes is begun and ended by one write.",
    "deletion": "A deletion writes one state without a leader; its ISR stays.",
}

#: The deviations, by step and path: the states, or the assignments, that are written here.
_STATES_HERE: Final[dict[tuple[str, str], tuple[str, list[tuple[int, list[int]]]]]] = {
    ("27", "orders-1"): ("removal", [(1, [1, 2])]),
    ("28", "orders-1"): ("asked again", []),
    ("28", "duo-0"): ("move", [(1, [1, 0])]),
    ("28", "solo-0"): ("move", [(1, [1])]),
    ("30", "orders-1"): ("move", [(1, [1, 2]), (1, [1, 2, 0])]),
    ("30", "solo-0"): ("move", [(1, [1]), (0, [0])]),
    **{
        ("32", f"orders-{index}"): ("deletion", [(leader, isr), (-1, isr)])
        for index, (leader, isr) in enumerate(
            [(0, [0, 2]), (2, [2, 0]), (2, [0, 2]), (0, [0, 2]), (0, [0, 2]), (2, [0, 2])]
        )
    },
}
#: Assignments that Kafka writes once more: (step, topic, index of the write).
_ASSIGNMENTS_LEFT_OUT: Final = {("27", "orders", 0): "removal", ("28", "orders", 0): "asked again"}


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[Write]]:
    content: dict[str, dict[str, list[Write]]] = json.loads(_RECORDED.read_text())
    return {
        step: [
            [each[0], path, *(each[1:] or [None])]
            for path, writes in paths_of.items()
            if path.startswith(_RECORDED_KINDS)
            for each in writes
        ]
        for step, paths_of in content.items()
    }


class Replay:
    """The recorded steps against a cluster of fake brokers."""

    def __init__(self, recorded: dict[str, list[Write]]) -> None:
        self.recorded = {step[:2]: writes for step, writes in recorded.items()}
        self.cluster = Cluster()
        self.step = "00"

    def content(self, path: str) -> bytes:
        """Returns what somebody else than the controller wrote to a path in this step."""
        found: str = next(data for _, each, data in self.recorded[self.step] if each == path)
        return found.encode()

    def put(self, *found: str) -> None:
        for path in found:
            self.cluster.tree.set(path, self.content(path))
        self.cluster.settle()

    def start(self, broker_id: int) -> None:
        self.cluster.start(broker_id)
        self.cluster.settle()

    def kill(self, broker_id: int, successor: int | None = None) -> None:
        """Kills a broker; the successor is the first to learn that the controller is gone."""
        self.cluster.kill(broker_id)
        first = None if successor is None else self.cluster.brokers[successor]
        while first is not None and first.has_work:
            first.store.answer()
        self.cluster.settle()

    def catch_up(self, topics: tuple[str, ...]) -> None:
        """Lets leaders change their ISRs to those that were recorded last in this step."""
        wanted: dict[tuple[str, int], list[int]] = {}
        for _, path, data in self.recorded[self.step]:
            if path.endswith("/state") and data is not None and path.split("/")[3] in topics:
                wanted[path.split("/")[3], int(path.split("/")[5])] = json.loads(data)["isr"]
        for (name, index), isr in sorted(wanted.items()):
            if tuple(isr) != self.cluster.state(name, index).isr:
                assert self.cluster.alter_isr(name, index, tuple(isr)) == ErrorCode.NONE

    def elect(self, *partitions: tuple[str, int], unclean: bool = False) -> None:
        topics = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
        request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=topics or None)
        self.cluster.ask(self.cluster.controller.replication.elect_leaders, request, actor="User:a")

    def reassign(self, name: str, index: int, target: list[int]) -> None:
        row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=target)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[row])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        self.cluster.ask(self.cluster.controller.replication.alter_reassignments, request, actor="User:a")

    def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=1_000)
        self.cluster.ask(self.cluster.controller.delete_topics, request)

    def shut_down(self, broker_id: int, successor: int | None = None) -> None:
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=self.cluster.brokers[broker_id].epoch)
        self.cluster.ask(self.cluster.controller.controlled_shutdown, request)
        self.kill(broker_id, successor)

    def back(self, broker_id: int, *topics: str) -> None:
        self.start(broker_id)
        self.catch_up(topics or ("orders",))

    def start_others(self) -> None:
        self.start(1)
        self.start(2)

    def topic(self, *names: str) -> None:
        for name in names:
            self.put(f"/config/topics/{name}", f"/brokers/topics/{name}")

    def all_back(self) -> None:
        self.back(2, "orders", "duo")
        self.elect()

    def reassignments(self) -> None:
        for name, index, target in (("solo", 0, [1]), ("orders", 1, [1, 2]), ("duo", 0, [0, 1])):
            self.reassign(name, index, target)

    def moved(self) -> None:
        self.reassignments()
        assert self.cluster.alter_isr("solo", 0, (0, 1)) == ErrorCode.NEW_LEADER_ELECTED
        assert self.cluster.alter_isr("duo", 0, (1, 2, 0)) == ErrorCode.NONE

    def moved_by_znode(self) -> None:
        self.put("/admin/reassign_partitions")
        assert self.cluster.alter_isr("orders", 1, (1, 2, 0)) == ErrorCode.NONE
        assert self.cluster.alter_isr("solo", 0, (1, 0)) == ErrorCode.NEW_LEADER_ELECTED

    def deletion_pending(self) -> None:
        self.topic("solo")
        self.kill(1)
        self.delete("orders")

    def producer_id(self) -> None:
        epoch = self.cluster.brokers[0].epoch
        self.cluster.controller.allocate_producer_ids(0, epoch, lambda *_: None)
        self.cluster.settle()

    def stopped(self) -> None:
        self.shut_down(0, 2)
        self.shut_down(1)
        self.shut_down(2)

    def steps(self) -> dict[str, Callable[[], None]]:
        return {
            "01": lambda: self.start(0),
            "02": self.start_others,
            "03": lambda: self.topic("orders"),
            "04": lambda: self.kill(1),
            "05": lambda: self.back(1),
            "06": self.elect,
            "07": lambda: self.kill(0, 2),
            "08": lambda: self.back(0),
            "09": lambda: self.put("/admin/preferred_replica_election"),
            "10": lambda: self.shut_down(2, 1),
            "11": lambda: self.back(2),
            "12": lambda: self.topic("solo", "duo"),
            "13": lambda: self.kill(1, 0),
            "14": lambda: self.kill(2),
            "15": lambda: self.back(1),
            "16": lambda: self.elect(("duo", 0), unclean=True),
            "17": self.all_back,
            "24": lambda: self.put("/brokers/topics/solo"),
            "25": self.producer_id,
            "26": lambda: self.topic("__consumer_offsets"),
            "27": self.reassignments,
            "28": self.moved,
            "30": self.moved_by_znode,
            "31": lambda: self.delete("solo"),
            "32": self.deletion_pending,
            "33": lambda: self.back(1, "duo", "__consumer_offsets"),
            "34": lambda: self.topic("orders"),
            "35": self.stopped,
        }


def of_topics(writes: list[Write]) -> dict[str, list[Write]]:
    """Returns the writes by path; `partition` for a state."""
    found: dict[str, list[Write]] = {}
    for operation, path, data in writes:
        words = path.split("/")
        key = f"{words[3]}-{words[5]}" if path.endswith("/state") else path
        found.setdefault(key, []).append([operation, json.loads(data) if data else None])
    return found


def kafka_writes(step: str, writes: list[Write]) -> dict[str, list[Write]]:
    """Returns what was recorded, as far as it is expected here."""
    found = of_topics(writes)
    for (at, key), (why, states) in _STATES_HERE.items():
        if at == step:
            assert why in DIFFERENCES
            last = found[key][-1][1]
            found[key] = [["set", {**last, "leader": leader, "isr": isr}] for leader, isr in states]
    for at, name, index in sorted(_ASSIGNMENTS_LEFT_OUT, reverse=True):
        if at == step:
            del found[f"/brokers/topics/{name}"][index]
    for key, states_of in found.items():
        offline = [each for each in states_of[:-1] if key[0] != "/" and each[1] and each[1]["leader"] == -1]
        if step in ("07", "13"):
            found[key] = [each for each in states_of if each not in offline]
    return {key: each for key, each in found.items() if each and not (step == "01" and key in paths.PERSISTENT_PATHS)}


def comparable(step: str, writes: dict[str, list[Write]]) -> dict[str, list[Any]]:
    """Returns the writes without what may differ: times, and epochs after the first failover."""
    found: dict[str, list[Any]] = {}
    for key, each in writes.items():
        for operation, content in each:
            if key == "/controller" and operation == "delete":
                continue  # the end of a session
            if key.startswith("/config/") and operation != "delete":
                continue  # the broker that gets the request writes this
            if isinstance(content, dict) and "isr" in content and step not in _SAME_EPOCHS:
                row: Any = (content["leader"], content["isr"], content.get("leader_recovery_state", 0))
            elif isinstance(content, dict) and "brokerid" in content:
                row = content["brokerid"]
            else:
                row = content
            found.setdefault(key, []).append((operation, row))
    return found


def test_each_recorded_step_is_written_as_kafka_writes_it(recorded: dict[str, list[Write]]) -> None:
    replay = Replay(recorded)
    for step, act in replay.steps().items():
        replay.step = step
        before = len(replay.cluster.tree.writes)
        act()
        here: list[Write] = [[_NAMES[op], path, data] for op, path, data in replay.cluster.tree.writes[before:]]
        wanted = comparable(step, kafka_writes(step, replay.recorded[step]))
        made = comparable(step, of_topics([each for each in here if each[1].startswith(_RECORDED_KINDS)]))
        assert made == wanted, f"step {step}"


def test_epochs_and_versions_only_rise(recorded: dict[str, list[Write]]) -> None:
    """Every write of the controller raises the leader epoch; a change of the ISR by its leader does not."""
    replay = Replay(recorded)
    for step, act in replay.steps().items():
        replay.step = step
        act()
    known: dict[str, dict[str, Any]] = {}
    for operation, path, data in replay.cluster.tree.writes:
        if not path.endswith("/state"):
            continue
        if operation is OpCode.DELETE:
            del known[path]
            continue
        state = json.loads(data or b"")
        if operation is OpCode.SET_DATA:
            raised = state["leader_epoch"] - known[path]["leader_epoch"]
            grown = set(state["isr"]) >= set(known[path]["isr"]) and state["leader"] == known[path]["leader"]
            assert raised == 1 or (raised == 0 and grown), (path, known[path], state)
        known[path] = state


def test_the_ids_of_topics_are_those_of_their_znodes(recorded: dict[str, list[Write]]) -> None:
    replay = Replay(recorded)
    for step in ("01", "02", "03"):
        replay.step = step
        replay.steps()[step]()
    topic = replay.cluster.controller.image.topics_by_name["orders"]
    assert topic.topic_id == uuid_from_text("WXBlSgzdTPu0BZlrqIF7mw")
    assert TopicPartition("orders", 5) in [TopicPartition("orders", index) for index in range(len(topic.partitions))]
