"""Random histories for the controllers of ZooKeeper mode: brokers die, bounce, stop and lose answers while tools and
leaders ask for changes.

`Schedule.act` takes one action by numbers, so that any generator can drive it. `heal` ends all faults and lets leaders
fill their ISRs; then `check` demands what holds for a cluster at rest, and `History` what held for every write.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection

from tests.support.zookeeper_controllers import Cluster, FakeBroker

from barnabas.common.types import TopicPartition
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import encode_partitions, encode_reassignment
from barnabas.znodes.topic_znodes import PartitionState, decode_state, decode_topic, encode_state
from barnabas.zookeeper.wire.codes import OpCode

BROKERS = (0, 1, 2)
TOPICS = ("a", "b", "c")
_ASSIGNMENTS = (((0, 1, 2),), ((1, 2), (2, 0)), ((2,),), ((0, 1), (1, 2), (2, 0)))


class Schedule:
    """A random history of a cluster in ZooKeeper mode."""

    def __init__(self) -> None:
        self.cluster = Cluster(*BROKERS, properties={"unclean.leader.election.enable": "false"})
        #: The ISRs that leaders asked for.
        self.asked: set[tuple[tuple[str, int], frozenset[int]]] = set()
        self.shut: set[int] = set()
        #: The contents that were written into znodes to damage them.
        self.damage_done: set[bytes] = set()
        #: Topics that were reassigned: as with Kafka, a replica that left while its broker was dead keeps its log.
        self.moved: set[str] = set()
        self.actions: tuple[Callable[[int], None], ...] = (
            self.run,
            self.run,
            self.run_one,
            self.run_one,
            self.kill,
            self.start,
            self.bounce,
            self.lose_answers,
            self.lose_answers,
            self.expire,
            self.pause,
            self.wake,
            self.stop_answering,
            self.answer_again,
            self.create,
            self.request_topic,
            self.grow,
            self.delete,
            self.alter_isr,
            self.alter_isr,
            self.elect,
            self.elect_by_znode,
            self.reassign,
            self.reassign_by_znode,
            self.shut_down,
            self.pass_time,
            self.drop_requests,
            self.edit_state,
            self.edit_state,
            self.sleep_through_a_succession,
            self.sleep_through_a_succession,
            self.lose_answers_in_a_decision,
            self.lose_answers_in_a_decision,
            self.settle,
            self.settle,
            self.create,
        )

    def act(self, kind: int, number: int) -> None:
        self.actions[kind % len(self.actions)](number)

    # -- progress

    def run(self, number: int) -> None:
        """Answers some requests of every broker."""
        for _ in range(number % 30):
            for broker in self.cluster.brokers.values():
                if broker.has_work:
                    broker.store.answer()
            self.cluster.time.run_for(0)

    def run_one(self, number: int) -> None:
        """Answers requests of one broker only."""
        broker = self._broker(number)
        for _ in range(number % 20):
            if broker.has_work:
                broker.store.answer()

    def pass_time(self, number: int) -> None:
        self.cluster.time.run_for(number % 500)

    # -- faults

    def _broker(self, number: int) -> FakeBroker:
        return self.cluster.brokers[number % len(BROKERS)]

    def kill(self, number: int) -> None:
        broker = self._broker(number)
        if broker.is_alive and sum(each.is_alive for each in self.cluster.brokers.values()) > 1:
            broker.is_paused = False
            self.cluster.kill(broker.broker_id)

    def start(self, number: int) -> None:
        if not self._broker(number).is_alive:
            self.cluster.start(number % len(BROKERS))

    def bounce(self, number: int) -> None:
        broker = self._broker(number)
        if broker.is_alive and broker.store.session_id and not broker.is_paused:
            self.cluster.bounce(broker.broker_id)

    def lose_answers(self, number: int) -> None:
        broker = self._broker(number)
        if broker.store.is_connected and not broker.is_paused:
            broker.store.disconnect(number // 3 % (broker.store.waiting + 1))
            broker.store.reconnect()

    def expire(self, number: int) -> None:
        broker = self._broker(number)
        if broker.is_alive and broker.store.session_id and not broker.is_paused:
            broker.store.expire()

    def pause(self, number: int) -> None:
        broker = self._broker(number)
        if broker.is_alive and broker.store.session_id and not broker.is_paused:
            self.cluster.pause(broker.broker_id)

    def wake(self, number: int) -> None:
        """Continues a stopped process: it handles what has arrived meanwhile, and learns that its session has
        expired.
        """
        broker = self._broker(number)
        if broker.is_paused:
            broker.is_paused = False
            for _ in range(number % 10):
                if broker.has_work:
                    broker.store.answer()
            if broker.store.session_id:
                broker.store.expire()
            broker.answer_again()

    def stop_answering(self, number: int) -> None:
        self._broker(number).is_answering = False

    def answer_again(self, number: int) -> None:
        broker = self._broker(number)
        if not broker.is_paused:
            broker.answer_again()

    def settle(self, number: int) -> None:
        """Runs until nothing more happens."""
        self.cluster.settle(number % 200)

    def drop_requests(self, number: int) -> None:
        self.cluster.drops = number % 6

    def _controller(self) -> FakeBroker | None:
        active = [each for each in self.cluster.brokers.values() if each.controller.is_active and not each.is_paused]
        return active[0] if active else None

    def _something(self, number: int) -> None:
        """Causes a change that the controller has to decide on."""
        (self.create, self.grow, self.alter_isr, self.reassign, self.kill, self.start, self.elect)[number % 7](number)

    def sleep_through_a_succession(self, number: int) -> None:
        """Stops the controller in the middle of a decision, until another one has done its work."""
        broker = self._controller()
        self._something(number)
        if broker is None or not broker.is_alive or not broker.store.session_id:
            return
        for _ in range(number % 9):
            if broker.has_work:
                broker.store.answer()
        self.cluster.pause(broker.broker_id)
        self.cluster.settle()
        self._something(number // 7)
        self.cluster.settle()
        self.wake(9 + broker.broker_id)

    def lose_answers_in_a_decision(self, number: int) -> None:
        """Cuts the controller's connection in the middle of a decision."""
        broker = self._controller()
        self._something(number)
        if broker is None:
            return
        for _ in range(number % 8):
            if broker.has_work:
                broker.store.answer()
        if broker.store.is_connected:
            broker.store.disconnect(number // 8 % 3)
            broker.store.reconnect()

    def edit_state(self, number: int) -> None:
        """Changes a state as an operator does: another leader of the ISR, under a higher epoch."""
        found = [path for path in sorted(self.cluster.tree.nodes) if paths.partition_of_state(path) is not None]
        if found:
            path = found[number % len(found)]
            content = self.cluster.tree.content(path)
            assert content is not None
            state = decode_state(path, content.data)
            leader = state.isr[number // 3 % len(state.isr)]
            edited = state._replace(leader=leader, leader_epoch=state.leader_epoch + 1)
            self.cluster.tree.set(path, encode_state(edited))

    # -- what others ask for

    def _topic(self, number: int) -> str:
        return TOPICS[number % len(TOPICS)]

    def create(self, number: int) -> None:
        name = self._topic(number)
        if not self.cluster.exists(paths.topic(name)) and not self.cluster.exists(paths.delete_topic(name)):
            self.cluster.create_topic(name, *_ASSIGNMENTS[number % len(_ASSIGNMENTS)])

    def request_topic(self, number: int) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(name=self._topic(number), num_partitions=2, replication_factor=2)
            ]
        )
        self._broker(number // 7).controller.create_topics(request, _ignore)

    def grow(self, number: int) -> None:
        path = paths.topic(self._topic(number))
        content = self.cluster.tree.content(path)
        if content is not None:
            topic = json.loads(content.data or b"")
            topic["partitions"][str(len(topic["partitions"]))] = [number % 3, (number + 1) % 3]
            self.cluster.tree.set(path, json.dumps(topic).encode())

    def delete(self, number: int) -> None:
        name = self._topic(number)
        if self.cluster.exists(paths.topic(name)):
            self.cluster.tree.set(paths.delete_topic(name), None)

    def alter_isr(self, number: int) -> None:
        """Lets a leader change the ISR of one of its partitions."""
        broker = self._broker(number)
        led = [place for place, role in sorted(broker.roles.items()) if role.leader == broker.broker_id]
        if led and broker.is_alive:
            place = led[number // 3 % len(led)]
            role = broker.roles[place]
            others = [each for each in role.replicas if each != broker.broker_id]
            isr = [broker.broker_id, *(each for bit, each in enumerate(others) if number >> bit & 1)]
            self.ask_for_isr(broker, place, isr)

    def ask_for_isr(self, broker: FakeBroker, place: tuple[str, int], isr: list[int]) -> None:
        topic = self.cluster.tree.content(paths.topic(place[0]))
        if topic is None:
            return
        row = AlterPartitionRequest.PartitionData(
            partition_index=place[1],
            leader_epoch=broker.roles[place].leader_epoch,
            new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=member) for member in isr],
            partition_epoch=broker.versions[place],
        )
        self.asked.add((place, frozenset(isr)))
        topic_id = decode_topic(place[0], topic.data).topic_id or b""
        request = AlterPartitionRequest(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[row])],
        )
        for other in self.cluster.brokers.values():
            if other.controller.is_active and not other.is_paused:
                other.controller.alter_partition(request, lambda answer: _note_version(broker, place, answer))

    def elect(self, number: int) -> None:
        request = ElectLeadersRequest(election_type=number % 2 * (number % 5 == 0), topic_partitions=None)
        self._broker(number).controller.replication.elect_leaders(request, _ignore, actor="User:a")

    def elect_by_znode(self, number: int) -> None:
        asked = [TopicPartition(self._topic(number), index) for index in range(3)]
        self.cluster.tree.set(paths.PREFERRED_REPLICA_ELECTION, encode_partitions(asked))

    def _target(self, number: int) -> list[int]:
        order = sorted(BROKERS, key=lambda broker: (broker * 7 + number) % 5)
        return order[: 1 + number % 3]

    def reassign(self, number: int) -> None:
        self.moved.add(self._topic(number))
        row = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=number % 2, replicas=self._target(number // 2) if number % 5 else None
        )
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=self._topic(number), partitions=[row])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        self._broker(number // 3).controller.replication.alter_reassignments(request, _ignore, actor="User:a")

    def reassign_by_znode(self, number: int) -> None:
        self.moved.add(self._topic(number))
        targets = {TopicPartition(self._topic(number), index): self._target(number + index) for index in range(2)}
        self.cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment(targets))

    def shut_down(self, number: int) -> None:
        broker = self._broker(number)
        request = ControlledShutdownRequest(broker_id=broker.broker_id, broker_epoch=broker.epoch)
        self.shut.add(broker.broker_id)
        for other in self.cluster.brokers.values():
            if other.controller.is_active:
                other.controller.controlled_shutdown(request, _ignore)

    # -- the end

    def heal(self) -> None:
        """Ends all faults, starts every broker afresh, and lets leaders fill their ISRs."""
        for number in BROKERS:
            self.start(number)
            self.wake(number)
            broker = self.cluster.brokers[number]
            if not broker.store.is_connected and broker.store.session_id:
                broker.store.reconnect()
            broker.answer_again()
        self.cluster.drops = 0
        self.cluster.settle(1_000)
        for number in sorted(self.shut):
            # A broker that was asked to shut down does so, and comes back.
            self.cluster.kill(number)
            self.cluster.settle()
            self.cluster.start(number)
            self.cluster.settle(500)
            self._fill_isrs()
        for _ in range(4):
            self.cluster.settle(500)
            self._fill_isrs()
        self.cluster.settle(500)

    def _fill_isrs(self) -> None:
        for broker in self.cluster.brokers.values():
            for place, role in sorted(broker.roles.items()):
                if role.leader == broker.broker_id:
                    self.ask_for_isr(
                        broker, place, [broker.broker_id, *(each for each in role.replicas if each != broker.broker_id)]
                    )
        self.cluster.settle()

    def check(self) -> None:
        """Checks a cluster at rest: the znodes, and the state that brokers have received."""
        cluster = self.cluster
        assert cluster.controller.is_active, "one controller"
        assert not list(cluster.controller.problems)
        assert not cluster.tree.names(paths.DELETE_TOPICS), "deletions end"
        assert not cluster.exists(paths.REASSIGN_PARTITIONS)
        assert not cluster.exists(paths.PREFERRED_REPLICA_ELECTION)
        known = set()
        for name in cluster.tree.names(paths.TOPICS):
            for index, assigned in cluster.assignment(name).partitions.items():
                assert not assigned.adding, (name, index, assigned)
                assert not assigned.removing, (name, index, assigned)
                state = cluster.state(name, index)
                assert state.leader in state.isr, (name, index, state)
                assert sorted(state.isr) == sorted(assigned.replicas), (name, index, state, assigned)
                known |= {(replica, (name, index)) for replica in assigned.replicas}
                for replica in assigned.replicas:
                    role = cluster.brokers[replica].roles.get((name, index))
                    assert role is not None, (replica, name, index, state)
                    if paths.state(name, index) not in cluster.tree.edited:
                        # no controller reads a state without an event
                        told = (role.leader, role.leader_epoch)
                        assert told == (state.leader, state.leader_epoch), (replica, name, index)
        for broker in cluster.brokers.values():
            logs = {name for name, _ in broker.logs} - self.moved
            assert logs <= {name for _, (name, _) in known}, "logs of topics that are gone"
        image = cluster.controller.image
        assert sorted(image.topics_by_name) == sorted(cluster.tree.names(paths.TOPICS))
        check_writes(cluster, self.asked, self.damage_done)


def check_writes(
    cluster: Cluster, asked: set[tuple[tuple[str, int], frozenset[int]]], excused: Collection[bytes]
) -> None:
    """Checks every write of the history: states follow each other, and no epoch decreases. What is excused was written
    to do damage.
    """
    known: dict[str, PartitionState] = {}
    moves = set(zip(cluster.tree.zxids, (path for _, path, _ in cluster.tree.writes), strict=True))
    for zxid, (operation, path, data) in zip(cluster.tree.zxids, cluster.tree.writes, strict=True):
        partition = paths.partition_of_state(path)
        if partition is None:
            continue
        if operation is OpCode.DELETE:
            known.pop(path, None)
            continue
        if data in excused:
            known.pop(path, None)
            continue
        state = decode_state(path, data)
        assert state.leader == -1 or state.leader in state.isr, (path, state)
        before = known.get(path)
        if before is not None:
            assert state.controller_epoch >= before.controller_epoch, (path, before, state)
            assert state.leader_epoch >= before.leader_epoch, (path, before, state)
            if state.leader_epoch == before.leader_epoch:
                assert (tuple(partition), frozenset(state.isr)) in asked, f"no new epoch: {path} {before} {state}"
            if state.leader != before.leader:
                assert state.leader_epoch > before.leader_epoch, (path, before, state)
                # The end of a move writes the ISR that the leader asked for, without the replicas that are removed.
                is_move = (zxid, paths.topic(partition.topic)) in moves
                clean = is_move or state.leader in (-1, *before.isr) or state.leader_recovery_state
                assert clean, f"a leader that was not in the ISR: {path} {before} {state}"
        known[path] = state


def run_seed(seed: int, length: int = 40) -> None:
    """Runs one history of random actions."""
    chance = random.Random(seed)
    schedule = Schedule()
    for _ in range(length):
        schedule.act(chance.randrange(1_000), chance.randrange(1_000))
    schedule.heal()
    schedule.check()


def _note_version(broker: FakeBroker, place: tuple[str, int], answer: AlterPartitionResponse) -> None:
    for topic in answer.topics:
        for row in topic.partitions:
            role = broker.roles.get(place)
            if not row.error_code and role is not None and role.leader_epoch == row.leader_epoch:
                broker.versions[place] = row.partition_epoch


def _ignore(*_: object) -> None:
    """Ignores the answer."""
