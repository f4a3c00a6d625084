"""The controllers of ZooKeeper mode over znodes in memory: a small world of which a seed takes hundredths of a second.

To the faults and requests of a `Schedule` come controllers whose process ends before its session, answers that get lost
while another broker deposes them, registrations that change, znodes that are damaged and mended, topics that a tool
replaces, and requests to brokers that are no controller. In the end the image of the controller is what the znodes say,
and processes are watched over one connection each.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.support.zookeeper_controllers import PORT, FakeBroker
from tests.support.zookeeper_schedule import BROKERS, Schedule

from barnabas.common.errors import ErrorCode
from barnabas.controller.zookeeper.runtime import ZookeeperController
from barnabas.metadata.registrations import Endpoint
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.znodes import paths
from barnabas.znodes.broker_znodes import BrokerRegistration, decode_registration, encode_registration
from barnabas.znodes.topic_znodes import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    decode_state,
    encode_state,
    encode_topic,
)

_ACTIONS: Final = 40
#: A process that has ended is noticed within this time, and its claim ends.
_NOTICED_MS: Final = 3_000


class ZookeeperControllerExplorer(Schedule):
    """The run of one seed. `execute` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = Random(f"zookeeper controllers {seed}")
        self._racks = 0
        more: tuple[Callable[[int], None], ...] = (self.end_process, self.end_process, self.register_again)
        more += (self.register_again, self.damage, self.damage, self.replace_topic, self.replace_topic)
        more += (self.ask_anybody, self.ask_anybody, self.ask_anybody, self.end_process_of_another)
        self.actions += more

    def execute(self) -> None:
        with second_decisions().judging():
            for _ in range(_ACTIONS):
                self.act(self._random.randrange(len(self.actions)), self._random.randrange(1_000))
            self.heal()
            self.check()
            self.check_image()
            self.check_links()

    # -- processes that end before their sessions

    def _live(self) -> list[FakeBroker]:
        return [each for each in self.cluster.brokers.values() if each.is_alive and not each.is_paused]

    def end_process(self, number: int) -> None:
        """Ends the process of the controller while its session continues: another broker deposes it."""
        self.cluster.settle(1)
        broker = self._controller()
        others = [each for each in self._live() if each is not broker and each.store.session_id]
        if broker is None or not others or not broker.is_alive:
            return
        self.cluster.settle(2_000)
        if self._controller() is not broker:
            return
        self.cluster.crash(broker.broker_id)
        for _ in range(number % 5):
            self._answer_and_lose(others)
        self.cluster.settle(_NOTICED_MS)
        if not any(each.controller.is_active for each in self._live()):
            raise Violation(f"the process of controller {broker.broker_id} has ended, and nobody takes over")
        broker.store.expire()

    def _answer_and_lose(self, brokers: list[FakeBroker]) -> None:
        """Lets some time pass, and answers of ZooKeeper get lost, whether their requests have happened or not."""
        self.cluster.time.run_for(self._random.choice((0, 0, 5, 12)))
        for other in brokers:
            for _ in range(self._random.choice((0, 1, 1, 2, 3))):
                if other.has_work:
                    other.store.answer()
            if other.store.waiting and other.store.is_connected and self._random.random() < 0.6:
                other.store.disconnect(self._random.randrange(other.store.waiting + 1))
                self.cluster.time.run_for(self._random.choice((0, 1, 12)))
                other.store.reconnect()

    def end_process_of_another(self, number: int) -> None:
        """Ends the process of a broker that is not the controller; later its session ends, too."""
        broker = self._broker(number)
        controller = self._controller()
        if broker is controller or controller is None or not broker.is_alive or broker.is_paused:
            return
        if not broker.store.session_id:
            return
        self.cluster.crash(broker.broker_id)
        self.cluster.settle(number % 1_000)
        broker.store.expire()

    # -- what other clients do to znodes

    def register_again(self, number: int) -> None:
        """A broker writes its registration again, with another rack or with the same."""
        path = paths.broker(number % len(BROKERS))
        if not self.cluster.exists(path):
            return
        self._racks += number // 3 % 2
        endpoints = (Endpoint("PLAINTEXT", "localhost", PORT + number % len(BROKERS), 0),)
        self.cluster.tree.set(path, encode_registration(BrokerRegistration(endpoints, f"rack{self._racks}")))

    def damage(self, number: int) -> None:
        """Writes what no release reads into the znode of a topic or a state, and later mends it."""
        tree = self.cluster.tree
        found = [path for path in sorted(tree.nodes) if paths.partition_of_state(path) is not None]
        found += [paths.topic(name) for name in sorted(tree.names(paths.TOPICS))]
        if not found:
            return
        path = found[number % len(found)]
        content, bad = tree.content(path), (b"", b"{", b"[]", b'{"version":9}')[number // 7 % 4]
        assert content is not None
        self.damage_done.add(bad)
        tree.set(path, bad)
        (self.run, self.settle, self.lose_answers)[number // 28 % 3](number)
        now, data = tree.content(path), content.data
        if now is not None and now.data == bad:
            if paths.partition_of_state(path) is not None:
                # Leaders take only a higher epoch.
                state = decode_state(path, data)
                data = encode_state(state._replace(leader_epoch=state.leader_epoch + 1))
            tree.set(path, data)

    def replace_topic(self, number: int) -> None:
        """A tool replaces a topic by another one of its name, of which it also writes states without a leader."""
        self.cluster.settle()
        name, tree = self._topic(number), self.cluster.tree
        epochs = [role.leader_epoch for each in self.cluster.brokers.values() for role in each.roles.values()]
        states = [path for path in tree.nodes if paths.partition_of_state(path) is not None]
        epochs += [decode_state(each, tree.nodes[each].data).leader_epoch for each in states]
        path = paths.topic(name)
        if not self.cluster.exists(path) or self.cluster.exists(paths.delete_topic(name)):
            return
        for each in sorted((each for each in tree.nodes if each.startswith(path + "/")), reverse=True):
            tree.delete(each)
        if number // 3 % 2:
            tree.delete(path)
        rows = {index: ReplicaAssignment((index % 3, (index + 1) % 3)) for index in range(1 + number // 6 % 3)}
        tree.set(path, encode_topic(TopicAssignment(self.cluster.random.uuid(), rows)))
        for parent in (paths.partitions(name), *(paths.partition(name, index) for index in rows)):
            tree.set(parent, None)
        for index, (replicas, *_) in rows.items():
            leader = (-1, replicas[0], replicas[1])[number // 18 % 3]
            for more in range(10, 14):
                # A version that no controller expects: the tool does not ask for one.
                state = PartitionState(leader, max(epochs, default=0) + more, replicas, 0)
                tree.set(paths.state(name, index), encode_state(state))
        self.moved.add(name)

    # -- requests

    def ask_anybody(self, number: int) -> None:
        """Sends a request to any broker: one that is not the active controller refuses it, and only such a one does."""
        broker = self._broker(number)
        controller = broker.controller
        if not broker.is_alive or broker.is_paused:
            return
        was_active, answers = controller.is_active, list[object]()
        self._send_to(controller, broker, number // 3 % 6, answers.append)
        codes = {_code_of(answer) for answer in answers}
        if not was_active and codes != {ErrorCode.NOT_CONTROLLER}:
            raise Violation(f"{broker.broker_id} is not the controller and answers {codes}")
        if was_active and ErrorCode.NOT_CONTROLLER in codes:
            raise Violation(f"{broker.broker_id} is the controller and denies it")

    def _send_to(
        self, controller: ZookeeperController, broker: FakeBroker, kind: int, reply: Callable[[object], None]
    ) -> None:
        if kind == 0:
            topics = [CreateTopicsRequest.CreatableTopic(name="b/d", num_partitions=1, replication_factor=1)]
            controller.create_topics(CreateTopicsRequest(topics=topics), reply)
        elif kind == 1:
            rows = [DeleteTopicsRequest.DeleteTopicState(name="unknown")]
            controller.delete_topics(DeleteTopicsRequest(topics=rows), reply)
        elif kind == 2:
            more = [CreatePartitionsRequest.CreatePartitionsTopic(name="unknown", count=3)]
            controller.create_partitions(CreatePartitionsRequest(topics=more), reply)
        elif kind == 3:
            controller.alter_partition(
                AlterPartitionRequest(broker_id=broker.broker_id, broker_epoch=broker.epoch), reply
            )
        elif kind == 4:
            controller.controlled_shutdown(ControlledShutdownRequest(broker_id=99, broker_epoch=1), reply)
        else:
            controller.allocate_producer_ids(broker.broker_id, broker.epoch, lambda *answer: reply(answer))

    # -- the end

    def check_image(self) -> None:
        """Compares the image of the controller with the znodes."""
        cluster, image = self.cluster, self.cluster.controller.image
        found: dict[object, object] = {}
        expected: dict[object, object] = {}
        for broker_id, broker in image.brokers.items():
            found[broker_id] = broker.epoch, broker.rack
        for name in cluster.tree.names(paths.BROKER_IDS):
            node = cluster.tree.nodes[paths.broker(int(name))]
            expected[int(name)] = node.czxid, decode_registration(name, node.data).rack
        for name, topic in image.topics_by_name.items():
            found[name] = topic.topic_id, len(topic.partitions)
            for index, partition in enumerate(topic.partitions):
                found[name, index] = partition.replicas
                if paths.state(name, index) not in cluster.tree.edited:
                    found[name, "state", index] = partition.leader, partition.leader_epoch, partition.isr
        for name in cluster.tree.names(paths.TOPICS):
            assignment = cluster.assignment(name)
            expected[name] = assignment.topic_id, len(assignment.partitions)
            for index, replicas in assignment.partitions.items():
                expected[name, index] = replicas.replicas
                if paths.state(name, index) not in cluster.tree.edited:
                    state = cluster.state(name, index)
                    expected[name, "state", index] = state.leader, state.leader_epoch, state.isr
        if found != expected:
            wrong = {each for each in {*found, *expected} if found.get(each) != expected.get(each)}
            raise Violation(
                f"the controller differs from the znodes: {[(e, found.get(e), expected.get(e)) for e in wrong]}"
            )

    def check_links(self) -> None:
        """Checks that the controller watches the process of each broker, and each broker that of the controller."""
        self.cluster.settle(_NOTICED_MS)
        controller = self._controller()
        assert controller is not None
        for broker in self.cluster.brokers.values():
            others = [each for each in BROKERS if each != broker.broker_id]
            expected = others if broker is controller else [controller.broker_id]
            found = [port - PORT for port in broker.links.open_ports]
            if found != expected:
                raise Violation(f"{broker.broker_id} is connected to {found}, the controller is {controller.broker_id}")


def _code_of(answer: Any) -> ErrorCode:
    """Returns the error of an answer, or of its only row."""
    if isinstance(answer, tuple):
        return ErrorCode(answer[2])
    rows = getattr(answer, "topics", None) or getattr(answer, "responses", None) or getattr(answer, "results", None)
    return ErrorCode(rows[0].error_code if rows else answer.error_code)
