"""Brokers without logs around the controllers of ZooKeeper mode: sessions, registrations, and answers to requests.

Everything runs in one process on virtual time: `Cluster.settle` answers all reads, writes and requests until none is
left. A broker answers as a real one would: by broker epoch, controller epoch and leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.support.process_links import Listening, ProcessLinks
from tests.support.znode_memory import MemoryTree, ZnodeMemory

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.controller.zookeeper.lifecycle import ControllerSignal
from barnabas.controller.zookeeper.runtime import ZookeeperController
from barnabas.metadata.registrations import Endpoint
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.simulation.host import MemoryHost, SeededRandom, VirtualTime
from barnabas.znodes import paths
from barnabas.znodes.broker_znodes import BrokerRegistration, encode_registration
from barnabas.znodes.topic_znodes import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    decode_state,
    decode_topic,
    encode_topic,
)
from barnabas.zookeeper.client.store import MultiReply, ZnodeContent
from barnabas.zookeeper.wire.codes import CreateFlags, EventType, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import OPEN_ACL, CreateRequest, SetDataRequest

CLUSTER_ID = "mXlaWKrERa-ZxMUJhTZPXw"
#: The port of broker 0.
PORT = 9561
_EPOCH_DURING_DELETE = -2
_Role = LeaderAndIsrRequest.LeaderAndIsrPartitionState


def config_of(broker_id: int, properties: Mapping[str, str] | None = None) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "broker.id": str(broker_id),
            "zookeeper.connect": "localhost:2181",
            "listeners": f"PLAINTEXT://localhost:{PORT + broker_id}",
            "log.dirs": "/data",
            "auto.leader.rebalance.enable": "false",
            **(properties or {}),
        }
    )


class WriteLog(MemoryTree):
    """A tree that keeps every write that took effect: operation, path, content."""

    def __init__(self, znodes: Mapping[str, ZnodeContent]) -> None:
        super().__init__(znodes)
        self.writes: list[tuple[OpCode, str, bytes | None]] = []
        #: The transaction of each write.
        self.zxids: list[int] = []
        #: The paths that an operator wrote last.
        self.edited: set[str] = set()

    def apply(self, parts: Sequence[Part], session_id: int) -> MultiReply:
        # The watches fire within the call; the controllers that are notified write later.
        reply = super().apply(parts, session_id)
        if reply.refused_part is None:
            for part in parts:
                if part.type != OpCode.CHECK:
                    data = None if part.type == OpCode.DELETE else part.record[1]
                    self.writes.append((OpCode(part.type), part.record[0], data))
                    self.zxids.append(self.zxid)
                    (self.edited.add if not session_id else self.edited.discard)(part.record[0])
        return reply


class FakeBroker:
    """A broker: its session, its controller, and the roles that controllers gave it."""

    def __init__(self, cluster: Cluster, broker_id: int, properties: Mapping[str, str] | None) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.host = MemoryHost(cluster.random.below(1 << 30), time=cluster.time)
        self.links = ProcessLinks(cluster.time, self._found, cluster.is_serving)
        self.host.links = self.links  # type: ignore[assignment]
        self.store = ZnodeMemory(tree=cluster.tree, listener=self, is_open=False)
        self.controller = ZookeeperController(
            self.host, config_of(broker_id, properties), self.store, self._send, CLUSTER_ID, None
        )
        self.epoch = -1
        self.is_alive = True
        #: The outcomes of dials to other brokers, where the brokers do not decide them.
        self.finds: dict[int, Listening] = {}
        #: Whether the process is stopped: it reads no answer and no request.
        self.is_paused = False
        #: Whether the broker answers requests of controllers; if not, they wait forever.
        self.is_answering = True
        self.controller_epoch = 0
        self.roles: dict[tuple[str, int], _Role] = {}
        #: The partition epochs that the broker knows, from its roles and from answers to its requests.
        self.versions: dict[tuple[str, int], int] = {}
        self.logs: set[tuple[str, int]] = set()
        #: Replicas whose directory failed.
        self.failed: set[tuple[str, int]] = set()
        self.requests: list[Message] = []
        self._unanswered: list[Callable[[], None]] = []

    def _found(self, port: int) -> Listening:
        broker_id = port - PORT
        if broker_id in self.finds:
            return self.finds[broker_id]
        return Listening.ACCEPTS if self.cluster.brokers[broker_id].is_alive else Listening.REFUSES

    @property
    def has_work(self) -> bool:
        """Whether the controller runs, and an answer of ZooKeeper waits for it."""
        may_answer = self.store.is_connected or not self.store.session_id
        return self.store.waiting > 0 and may_answer and not self.is_paused

    # -- the session

    def session_opened(self, session_id: int) -> None:
        registration = BrokerRegistration(
            (Endpoint("PLAINTEXT", "localhost", PORT + self.broker_id, 0),), f"rack{self.broker_id}"
        )
        path = paths.broker(self.broker_id)
        parts = [
            Part(OpCode.CREATE, CreateRequest(path, None, OPEN_ACL, CreateFlags.EPHEMERAL)),
            Part(OpCode.SET_DATA, SetDataRequest(path, encode_registration(registration), 0)),
        ]
        self.store.multi(parts, self._on_registered)

    def _on_registered(self, reply: MultiReply) -> None:
        if reply.is_lost:
            if self.is_alive and self.store.session_id:
                self.session_opened(self.store.session_id)
            return
        node = self.cluster.tree.nodes.get(paths.broker(self.broker_id))
        assert node is not None
        assert node.owner == self.store.session_id, reply
        self.epoch = node.czxid
        self.controller.on_signal(ControllerSignal.SESSION_OPENED)

    def disconnected(self) -> None:
        self.controller.disconnected()

    def reconnected(self) -> None:
        self.controller.reconnected()

    def session_expired(self) -> None:
        self.controller.on_signal(ControllerSignal.SESSION_EXPIRED)
        self.cluster.time.call_soon(self._open_session)

    def _open_session(self) -> None:
        if self.is_alive and not self.store.session_id:
            self.store.open_session()

    def auth_failed(self) -> None:
        self.controller.on_signal(ControllerSignal.AUTH_FAILED)

    def changed(self, path: str, event_type: EventType) -> None:
        self.controller.changed(path, event_type)

    # -- requests

    def _send(
        self, broker_id: int, broker_epoch: int, request: Message, reply: Callable[[Message | None], None]
    ) -> None:
        self.cluster.deliver(broker_id, request, reply)

    def receive(self, request: Message, reply: Callable[[Message | None], None]) -> None:
        if not self.is_answering:
            self._unanswered.append(lambda: self.receive(request, reply))
            return
        self.requests.append(request)
        reply(self._answer(request))

    def answer_again(self) -> None:
        self.is_answering = True
        waiting, self._unanswered = self._unanswered, []
        for each in waiting:
            each()

    def _answer(self, request: Any) -> Message:
        code = ErrorCode.NONE
        if request.broker_epoch < self.epoch:
            code = ErrorCode.STALE_BROKER_EPOCH
        elif request.controller_epoch < self.controller_epoch:
            code = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            self.controller_epoch = request.controller_epoch
        if isinstance(request, UpdateMetadataRequest):
            return UpdateMetadataResponse(error_code=code)
        if isinstance(request, StopReplicaRequest):
            return StopReplicaResponse(error_code=code) if code else self._stop(request)
        assert isinstance(request, LeaderAndIsrRequest)
        return LeaderAndIsrResponse(error_code=code) if code else self._take_roles(request)

    def _take_roles(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        response = LeaderAndIsrResponse()
        for topic in request.topic_states:
            rows = []
            for row in topic.partition_states:
                place = (topic.topic_name, row.partition_index)
                code = self._refusal(place, row)
                if not code:
                    self.roles[place] = row
                    self.versions[place] = row.partition_epoch
                    self.logs.add(place)
                rows.append(
                    LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                        partition_index=row.partition_index, error_code=code
                    )
                )
            response.topics.append(
                LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=rows)
            )
        return response

    def _refusal(self, place: tuple[str, int], row: _Role) -> ErrorCode:
        if place in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = self.roles.get(place)
        is_old = known is not None and row.leader_epoch <= known.leader_epoch
        return ErrorCode.STALE_CONTROLLER_EPOCH if is_old else ErrorCode.NONE

    def _stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        rows = []
        for topic in request.topic_states:
            for row in topic.partition_states:
                place = (topic.topic_name, row.partition_index)
                known = self.roles.get(place)
                is_fenced = known is not None and _EPOCH_DURING_DELETE != row.leader_epoch < known.leader_epoch
                code = ErrorCode.FENCED_LEADER_EPOCH if is_fenced else ErrorCode.NONE
                if place in self.failed:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                if not code:
                    self.roles.pop(place, None)
                    if row.delete_partition:
                        self.logs.discard(place)
                rows.append(
                    StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=row.partition_index, error_code=code
                    )
                )
        return StopReplicaResponse(partition_errors=rows)


class Cluster:
    """Brokers on one tree of znodes."""

    def __init__(self, *broker_ids: int, properties: Mapping[str, str] | None = None) -> None:
        self.time = VirtualTime()
        self.tree = WriteLog({path: ZnodeContent(None, 0) for path in _roots()})
        self.properties = properties
        self.random = SeededRandom(1_000)
        #: How many of the next requests to brokers are lost in transit.
        self.drops = 0
        self.brokers: dict[int, FakeBroker] = {}
        for broker_id in broker_ids:
            self.start(broker_id)
            self.settle()

    # -- brokers

    def start(self, broker_id: int) -> FakeBroker:
        """Starts a broker, with the logs that an earlier broker of this id left."""
        before = self.brokers.get(broker_id)
        broker = self.brokers[broker_id] = FakeBroker(self, broker_id, self.properties)
        if before is not None:
            broker.logs = before.logs
        broker.store.open_session()
        return broker

    def kill(self, broker_id: int) -> None:
        """Ends the process and the session."""
        self.crash(broker_id)
        self.brokers[broker_id].store.expire()

    def crash(self, broker_id: int) -> None:
        """Ends the process; its session has not ended yet."""
        broker = self.brokers[broker_id]
        broker.is_alive = False
        broker.controller.on_signal(ControllerSignal.SESSION_EXPIRED)
        broker.store.disconnect()
        for other in self.brokers.values():
            other.links.cut(PORT + broker_id)

    def is_serving(self, port: int) -> bool:
        """Whether the process at this port answers requests: it is registered."""
        broker = self.brokers[port - PORT]
        return broker.is_alive and not broker.is_paused and broker.epoch >= 0

    def pause(self, broker_id: int) -> FakeBroker:
        """Stops the process for longer than its session lasts; it is not notified."""
        broker = self.brokers[broker_id]
        broker.is_paused = True
        broker.is_answering = False
        self.tree.end_session(broker.store.session_id)
        return broker

    def bounce(self, broker_id: int) -> FakeBroker:
        """Ends the process and starts the next one, which replaces the znode before the controller reads it."""
        self.kill(broker_id)
        broker = self.start(broker_id)
        broker.store.answer()
        return broker

    @property
    def controller(self) -> ZookeeperController:
        active = [broker.controller for broker in self.brokers.values() if broker.controller.is_active]
        assert len(active) == 1, f"{len(active)} controllers"
        return active[0]

    def deliver(self, broker_id: int, request: Message, reply: Callable[[Message | None], None]) -> None:
        def arrive() -> None:
            broker = self.brokers.get(broker_id)
            self.drops -= 1
            if broker is None or not broker.is_alive or self.drops >= 0:
                reply(None)
            else:
                broker.receive(request, reply)

        self.time.call_soon(arrive)

    # -- time

    def settle(self, duration_ms: int = 0) -> None:
        """Completes everything that is under way, and lets this time pass."""
        self.time.run_for(duration_ms)
        for _ in range(20_000):
            stores = [broker.store for broker in self.brokers.values() if broker.has_work]
            for store in stores:
                store.answer()
            before = self.moves
            self.time.run_for(0)
            if not stores and before == self.moves and not any(broker.has_work for broker in self.brokers.values()):
                return
        raise AssertionError("the cluster does not come to rest")

    # -- what leaders ask for

    def alter_isr(self, name: str, index: int, isr: tuple[int, ...], **fields: int) -> int:
        """Asks the controller for another ISR, as the leader does. Returns the error of the answer."""
        leader = self.brokers[self.leader(name, index)]
        role = leader.roles[name, index]
        content = self.tree.content(paths.state(name, index))
        topic_id = self.assignment(name).topic_id
        assert content is not None
        assert topic_id is not None
        row = AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=fields.get("leader_epoch", role.leader_epoch),
            new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=member) for member in isr],
            partition_epoch=fields.get("partition_epoch", content.version),
        )
        request = AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.epoch,
            topics=[AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[row])],
        )
        answers: list[AlterPartitionResponse] = []
        self.controller.alter_partition(request, answers.append)
        self.settle()
        (answer,) = answers
        return answer.error_code or answer.topics[0].partitions[0].error_code

    def ask(self, method: Callable[..., None], request: Message, **arguments: Any) -> Any:
        """Gives a request to the controller, and returns its response."""
        answers: list[Any] = []
        method(request, answers.append, **arguments)
        self.settle()
        assert len(answers) == 1, answers
        return answers[0]

    @property
    def moves(self) -> int:
        return self.tree.zxid + sum(len(broker.requests) for broker in self.brokers.values())

    # -- znodes

    def create_topic(self, name: str, *replicas: tuple[int, ...], config: bytes = b'{"version":1,"config":{}}') -> None:
        """Creates a topic as a tool does."""
        assignment = {index: ReplicaAssignment(each) for index, each in enumerate(replicas)}
        topic_id = self.random.uuid()
        self.tree.set(paths.config(paths.TOPIC_CONFIGS, name), config)
        self.tree.set(paths.topic(name), encode_topic(TopicAssignment(topic_id, assignment)))

    def state(self, name: str, index: int) -> PartitionState:
        path = paths.state(name, index)
        content = self.tree.content(path)
        assert content is not None, path
        return decode_state(path, content.data)

    def assignment(self, name: str) -> TopicAssignment:
        path = paths.topic(name)
        content = self.tree.content(path)
        assert content is not None, path
        return decode_topic(path, content.data)

    def leader(self, name: str, index: int) -> int:
        return self.state(name, index).leader

    def exists(self, path: str) -> bool:
        return path in self.tree.nodes


def _roots() -> list[str]:
    found: list[str] = []
    for path in paths.PERSISTENT_PATHS:
        names = path.split("/")[1:]
        found += ["/" + "/".join(names[: index + 1]) for index in range(len(names))]
    return list(dict.fromkeys(found))
