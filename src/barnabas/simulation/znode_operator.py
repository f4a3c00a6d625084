"""An operator who edits znodes, as tools of ZooKeeper's time do: elections, moves, partitions and topics by znode, and
`/controller` deleted by hand.

Each edit is tried once, whatever the result. Producers learn of a new partition only when its znode is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from barnabas.common.types import TopicPartition
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from barnabas.simulation.admin_client import AdminClient
from barnabas.simulation.machine import Machine, MachineHost
from barnabas.simulation.operator import reassignment
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.simulated_cluster import ZOOKEEPER, Cluster
from barnabas.simulation.zookeeper_node import PORT
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import encode_partitions, encode_reassignment
from barnabas.znodes.topic_znodes import ReplicaAssignment, TopicAssignment, decode_topic, encode_topic
from barnabas.zookeeper.client.hosts import parse_connect_string
from barnabas.zookeeper.client.store import MultiReply, ReadReply
from barnabas.zookeeper.client.zookeeper_client import ClientSettings, ZooKeeperClient
from barnabas.zookeeper.wire.codes import ANY_VERSION, CreateFlags, EventType, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import OPEN_ACL, CreateRequest, DeleteRequest, SetDataRequest

_GAP_MS_MEAN = 6_000
_SESSION_TIMEOUT_MS = 6_000
_PARTITIONS_MAX = 6
_TOUCHES = 8
_ODD_SHARE = 0.3
#: A topic that only this operator makes and deletes.
OWN_TOPIC = "letters"


class ZnodeEdit(Enum):
    """The kinds of edits."""

    ELECT = "elect"  # /admin/preferred_replica_election
    MOVE = "move"  # /admin/reassign_partitions
    ENLARGE = "enlarge"  # one more partition in /brokers/topics/T
    TOPIC = "topic"  # a topic is made below /brokers/topics, or deleted by /admin/delete_topics
    DEPOSE = "depose"  # /controller is deleted
    COLLIDE = "collide"  # a topic's znode is written again while the controller moves its replicas


class ZnodeOperator:
    """An operator with a ZooKeeper client; a `StoreListener`. `start` begins, and nothing follows after `stopping`."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[Topic],
        kinds: Sequence[ZnodeEdit],
        name: str,
        *,
        gap_ms: int = _GAP_MS_MEAN,
    ) -> None:
        self._cluster = cluster
        self._topics = [topic for topic in topics if not topic.is_replaced]
        self.kinds = tuple(kinds)
        self.name = name
        self._gap_ms = gap_ms
        self._random = cluster.world.stream(f"operator/{name}")
        machine = Machine(cluster.world, cluster.network, name)
        self._process = machine.spawn()
        self._host = MachineHost(machine, self._process)
        settings = ClientSettings(parse_connect_string(f"{ZOOKEEPER}:{PORT}"), _SESSION_TIMEOUT_MS)
        self._client = ZooKeeperClient(self._host, settings, self)
        self._broker_ids = sorted(int(node.removeprefix("broker")) for node in cluster.nodes)
        #: Another machine: a znode and a request can arrive in either order.
        self._admin = AdminClient(cluster, f"{name} of topics")
        self.stopping = False
        #: The number of edits of each kind that took effect.
        self.done: dict[ZnodeEdit, int] = dict.fromkeys(ZnodeEdit, 0)

    def start(self) -> None:
        if self.kinds:
            self._process.enter(self._begin)

    def _begin(self) -> None:
        self._client.open()
        self._later()

    def _later(self) -> None:
        self._host.timers.call_later(1 + int(self._random.expovariate(1 / self._gap_ms)), self._next)

    def _next(self) -> None:
        if self.stopping:
            return
        edits: dict[ZnodeEdit, Callable[[], None]] = {
            ZnodeEdit.ELECT: self._elect,
            ZnodeEdit.MOVE: self._move,
            ZnodeEdit.ENLARGE: self._enlarge,
            ZnodeEdit.TOPIC: self._change_own_topic,
            ZnodeEdit.DEPOSE: self._depose,
            ZnodeEdit.COLLIDE: self._collide,
        }
        edits[self._random.choice(self.kinds)]()
        self._later()

    def _write(self, kind: ZnodeEdit, what: str, parts: Sequence[Part], then: Callable[[], None] | None = None) -> None:
        self._cluster.world.note(self.name, what, kind)

        def answered(reply: MultiReply) -> None:
            if not reply.is_lost and reply.refused_part is None:
                self.done[kind] += 1
                if then is not None:
                    then()

        self._client.multi(parts, answered)

    def _some_replicas(self) -> tuple[int, ...]:
        full = min(len(self._broker_ids), 3)
        count = full if full < 3 or self._random.random() < 0.7 else full - 1
        return tuple(self._random.sample(self._broker_ids, count))

    # -- edits

    def _elect(self) -> None:
        topic = self._random.choice(self._topics)
        partitions = [TopicPartition(topic.name, index) for index in range(topic.partitions)]
        part = _create(paths.PREFERRED_REPLICA_ELECTION, encode_partitions(partitions))
        self._write(ZnodeEdit.ELECT, f"elects preferred leaders of {topic.name} by znode", [part])

    def _move(self) -> None:
        topic = self._random.choice(self._topics)
        index, replicas = self._random.randrange(topic.partitions), self._some_replicas()
        part = _create(paths.REASSIGN_PARTITIONS, encode_reassignment({TopicPartition(topic.name, index): replicas}))
        self._write(ZnodeEdit.MOVE, f"moves {topic.name}-{index} to {list(replicas)} by znode", [part])

    def _enlarge(self) -> None:
        topic, replicas = self._random.choice(self._topics), self._some_replicas()
        path = paths.topic(topic.name)

        def on_read(reply: ReadReply) -> None:
            if reply.znode is None or self.stopping:
                return
            found = decode_topic(path, reply.znode.data)
            count = len(found.partitions) + 1
            if count > _PARTITIONS_MAX:
                return
            more = found._replace(partitions={**found.partitions, count - 1: ReplicaAssignment(replicas)})
            part = Part(OpCode.SET_DATA, SetDataRequest(path, encode_topic(more), reply.znode.version))

            def announce() -> None:
                topic.partitions = max(topic.partitions, count)

            self._write(ZnodeEdit.ENLARGE, f"gives {topic.name} {count} partitions by znode", [part], announce)

        self._client.read(path, on_read)

    def _change_own_topic(self) -> None:
        """Makes the operator's own topic, half the time without an id as old tools do, or deletes it, at times with a
        foreign znode below it. A marker can also name a topic that does not exist.
        """
        path = paths.topic(OWN_TOPIC)

        def on_read(reply: ReadReply) -> None:
            if reply.is_lost or self.stopping:
                return
            if reply.znode is not None:
                parts = [_create(f"{path}/note", b"not ours")] if self._random.random() < _ODD_SHARE else []
                self._write(ZnodeEdit.TOPIC, f"deletes {OWN_TOPIC} by znode", [*parts, self._marker()])
                return
            if self._random.random() < _ODD_SHARE:
                self._write(ZnodeEdit.TOPIC, f"deletes {OWN_TOPIC} by znode, which does not exist", [self._marker()])
                return
            topic_id = self._random.choice((None, self._random.randbytes(16)))
            partitions = {index: ReplicaAssignment(self._some_replicas()) for index in range(2)}
            self._write(
                ZnodeEdit.TOPIC,
                f"makes {OWN_TOPIC} by znode",
                [_create(path, encode_topic(TopicAssignment(topic_id, partitions)))],
            )

        self._client.read(path, on_read)

    def _marker(self) -> Part:
        return _create(f"{paths.DELETE_TOPICS}/{OWN_TOPIC}", None)

    def _depose(self) -> None:
        part = Part(OpCode.DELETE, DeleteRequest(paths.CONTROLLER, ANY_VERSION))
        self._write(ZnodeEdit.DEPOSE, "deletes /controller", [part])

    def _collide(self) -> None:
        """Requests a move, and writes the znode of the topic again and again, unchanged, while it is decided."""
        topic = self._random.choice(self._topics)
        index, replicas = self._random.randrange(topic.partitions), list(self._some_replicas())
        self._cluster.world.note(self.name, f"moves {topic.name}-{index} to {replicas}, and writes its znode again")
        request = reassignment(topic.name, index, replicas)
        for broker in self._admin.brokers:
            self._admin.run(partial(self._admin.send, request, AlterPartitionReassignmentsResponse, _ignore, broker))
        self._touch(paths.topic(topic.name), _TOUCHES)

    def _touch(self, path: str, times: int) -> None:
        def on_read(reply: ReadReply) -> None:
            if reply.znode is None or self.stopping:
                return
            part = Part(OpCode.SET_DATA, SetDataRequest(path, reply.znode.data, reply.znode.version))
            self._write(ZnodeEdit.COLLIDE, f"writes {path} again", [part])
            if times > 1:
                self._host.timers.call_later(1, lambda: self._touch(path, times - 1))

        self._client.read(path, on_read)

    # -- client.store.StoreListener

    def session_opened(self, session_id: int) -> None:
        """Does nothing: edits do not wait for the session."""

    def disconnected(self) -> None: ...

    def reconnected(self) -> None: ...

    def session_expired(self) -> None:
        self._client.open()

    def auth_failed(self) -> None:
        raise AssertionError("no credentials were given")

    def changed(self, path: str, event_type: EventType) -> None: ...


def _ignore(_: object) -> None:
    """Ignores the answer to a request."""


def _create(path: str, data: bytes | None) -> Part:
    return Part(OpCode.CREATE, CreateRequest(path, data, OPEN_ACL, CreateFlags.PERSISTENT))
