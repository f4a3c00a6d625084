"""An operator at work: changes of topics while clients write and read, drawn from the seed.

It sends bare requests to any broker, and accepts any response: under faults changes are often refused. It guarantees
two things on which the check of the history depends: partitions that it announces to producers exist, and a topic that
is deleted and created again is deleted by its id, so that a late request cannot delete its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.simulation.admin_client import TIMEOUT_MS, AdminClient
from barnabas.simulation.history import TopicIncarnation
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.simulated_cluster import Cluster

_GAP_MS_MEAN = 6_000
_RETRY_MS = 700
_CANCELLED_AFTER_MS = 1_500
_PARTITIONS_MAX = 6
_NO_ID = bytes(16)
_TOPIC, _SET = 2, 0
#: The settings of a topic that decide about elections.
_OF_ELECTIONS = ("min.insync.replicas", "unclean.leader.election.enable")


class AdminOperation(Enum):
    """The kinds of administrative changes that an operator makes."""

    REASSIGN = "reassign"  # moves a partition: to other brokers, in another order, or without one of its replicas
    CANCEL = "cancel"  # a reassignment is cancelled
    ELECT = "elect"  # preferred leaders
    CONFIGURE = "configure"  # min.insync.replicas and the like of topics that allow it
    ENLARGE = "enlarge"  # one more partition
    REPLACE = "replace"  # a topic is deleted and made again under its name
    CANCEL_ADDITION = "cancel_addition"  # a replica is added, and that is cancelled immediately
    SHIFT = "shift"  # a replica moves to another log directory of its broker
    LIMIT = "limit"  # quotas of clients
    THROTTLE = "throttle"  # limits on the traffic of replicas and on moves between log directories
    TUNE = "tune"  # properties of brokers, valid ones and others


#: The changes that `SettingsOperator` makes.
SETTINGS = (AdminOperation.SHIFT, AdminOperation.LIMIT, AdminOperation.THROTTLE, AdminOperation.TUNE)
#: The changes that `Operator` makes.
TOPIC_CHANGES = tuple(kind for kind in AdminOperation if kind not in SETTINGS)


class Operator:
    """An operator, which `start` starts; after `stopping` it only completes what it has begun, until `is_idle`."""

    def __init__(self, cluster: Cluster, topics: Sequence[Topic], kinds: Sequence[AdminOperation], name: str) -> None:
        self._cluster = cluster
        self._topics = list(topics)
        self.name = name
        self.kinds = tuple(kinds)
        self._client = AdminClient(cluster, name)
        self._random = self._client.random
        self._brokers = self._client.brokers
        self._send = self._client.send
        self.stopping = False
        #: The requested moves: (time in us, topic, partition, replicas).
        self.moves: list[tuple[int, str, int, tuple[int, ...]]] = []
        self._replacing = False
        #: Ids of deleted topics that a broker with old metadata can still return.
        self._deleted: set[bytes] = set()
        #: The number of changes of each kind that were answered without an error.
        self.done: dict[AdminOperation, int] = dict.fromkeys(TOPIC_CHANGES, 0)

    @property
    def is_idle(self) -> bool:
        return not self._replacing

    def start(self) -> None:
        if self.kinds:
            self._client.run(self._later)

    def _later(self) -> None:
        self._client.later(1 + int(self._random.expovariate(1 / _GAP_MS_MEAN)), self._next)

    def _next(self) -> None:
        if self.stopping:
            return
        kind = self._random.choice(self.kinds)
        if AdminOperation.CONFIGURE in self.kinds and any(map(self._lacks_replicas, self._configurable())):
            # The rare moment in which the settings of elections decide something.
            kind = self._random.choice((kind, AdminOperation.CONFIGURE))
        getattr(self, f"_{kind.value}")()
        self._later()

    def _try(self, kind: AdminOperation, what: str, request: Message, node: str | None = None) -> None:
        """Sends an administrative request and counts its response, whatever the result."""
        self._note(kind, what)

        def answered(response: Message | None) -> None:
            if response is not None:
                self.done[kind] += 1

        self._send(request, Message, answered, node)

    def _note(self, kind: AdminOperation, text: str) -> None:
        self._cluster.world.note(self.name, text, kind)

    def _place(self) -> tuple[Topic, int]:
        topic = self._random.choice([topic for topic in self._topics if not topic.is_replaced])
        return topic, self._random.randrange(topic.partitions)

    # -- one request each

    def _reassign(self) -> None:
        topic, index = self._place()
        full = min(len(self._brokers), 3)
        count = full if full < 3 or self._random.random() < 0.7 else full - 1
        ids = sorted(int(name.removeprefix("broker")) for name in self._brokers)
        replicas = self._random.sample(ids, count)
        self._try(
            AdminOperation.REASSIGN,
            f"moves {topic.name}-{index} to {replicas}",
            self._move(topic.name, index, replicas),
        )

    def _move(self, topic: str, index: int, replicas: list[int]) -> AlterPartitionReassignmentsRequest:
        self.moves.append((self._cluster.world.now_us, topic, index, tuple(replicas)))
        return reassignment(topic, index, replicas)

    def _cancel(self) -> None:
        topic, index = self._place()
        what = f"cancels the move of {topic.name}-{index}"
        self._try(AdminOperation.CANCEL, what, reassignment(topic.name, index, None))

    def _elect(self) -> None:
        topic, _ = self._place()
        chosen = ElectLeadersRequest.TopicPartitions(topic=topic.name, partitions=list(range(topic.partitions)))
        request = ElectLeadersRequest(election_type=0, topic_partitions=[chosen], timeout_ms=TIMEOUT_MS)
        self._try(AdminOperation.ELECT, f"elects preferred leaders of {topic.name}", request)

    def _configure(self) -> None:
        changeable = self._configurable()
        if not changeable:
            return
        topic = self._random.choice(changeable)
        choices = list(topic.choices.items())
        if self._lacks_replicas(topic):
            choices = [(key, values) for key, values in choices if key in _OF_ELECTIONS] or choices
        key, values = self._random.choice(choices)
        value = self._random.choice(values)
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=_SET, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=_TOPIC, resource_name=topic.name, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        self._try(AdminOperation.CONFIGURE, f"sets {key}={value} of {topic.name}", request)

    def _configurable(self) -> list[Topic]:
        return [topic for topic in self._topics if topic.choices]

    def _lacks_replicas(self, topic: Topic) -> bool:
        """Returns whether a partition of the topic has an ELR or no leader, as far as a broker knows."""
        brokers = [node.broker for node in self._cluster.nodes.values() if node.broker is not None]
        images = [broker.metadata.image.topics_by_name.get(topic.name) for broker in brokers]
        return any(
            partition.elr or not partition.has_leader
            for image in images
            if image is not None
            for partition in image.partitions
        )

    def _enlarge(self) -> None:
        topic, _ = self._place()
        count = topic.partitions + 1
        if count > _PARTITIONS_MAX:
            return
        self._note(AdminOperation.ENLARGE, f"gives {topic.name} {count} partitions")
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=topic.name, count=count, assignments=None)

        def answered(response: CreatePartitionsResponse | None) -> None:
            # An earlier attempt can have succeeded although its response was lost.
            if response is not None and response.results[0].error_code in (
                ErrorCode.NONE,
                ErrorCode.INVALID_PARTITIONS,
            ):
                self.done[AdminOperation.ENLARGE] += 1
                topic.partitions = max(topic.partitions, count)

        self._send(CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), CreatePartitionsResponse, answered)

    def _cancel_addition(self) -> None:
        """Removes a replica, adds one a little later, and cancels that while the new replica is still catching up."""
        topic, index = self._place()
        ids = self._random.sample([int(name.removeprefix("broker")) for name in self._brokers], len(self._brokers))
        fewer, more = ids[: min(2, len(ids))], ids[: min(3, len(ids))]
        node = self._random.choice(self._brokers)
        what = f"moves {topic.name}-{index} to {fewer}"
        self._try(AdminOperation.CANCEL_ADDITION, what, self._move(topic.name, index, fewer), node)

        def add_and_cancel() -> None:
            for replicas in (more, None):
                what = f"{'cancels the move of' if replicas is None else 'moves'} {topic.name}-{index}, to {more}"
                self._try(AdminOperation.CANCEL_ADDITION, what, reassignment(topic.name, index, replicas), node)

        self._client.later(_CANCELLED_AFTER_MS, add_and_cancel)

    # -- replacement of a topic

    def _replace(self) -> None:
        candidates = [topic for topic in self._topics if topic.is_replaced]
        if self._replacing or not candidates:
            return
        self._replacing = True
        topic = self._random.choice(candidates)
        self._note(AdminOperation.REPLACE, f"replaces {topic.name}")
        self._find_id(topic)

    def _again(self, step: Callable[[], None]) -> None:
        self._client.later(_RETRY_MS, step)

    def _find_id(self, topic: Topic) -> None:
        requested = MetadataRequest.MetadataRequestTopic(name=topic.name)

        def answered(response: MetadataResponse | None) -> None:
            found = response.topics[0].topic_id if response is not None and response.topics else _NO_ID
            if found == _NO_ID or found in self._deleted:
                self._again(lambda: self._find_id(topic))
            else:
                topic.incarnation = TopicIncarnation(self._cluster.world.now_us, is_over=True)
                self._delete(topic, found)

        self._send(MetadataRequest(topics=[requested], allow_auto_topic_creation=False), MetadataResponse, answered)

    def _delete(self, topic: Topic, topic_id: bytes) -> None:
        state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)

        def answered(response: DeleteTopicsResponse | None) -> None:
            code = None if response is None else response.responses[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                self._deleted.add(topic_id)
                self._again(lambda: self._create(topic))
            else:
                self._again(lambda: self._delete(topic, topic_id))

        self._send(DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS), DeleteTopicsResponse, answered)

    def _find_created(self, topic: Topic) -> None:
        """Checks whether the topic with this name is the new one, and creates it otherwise."""
        requested = MetadataRequest.MetadataRequestTopic(name=topic.name)

        def answered(response: MetadataResponse | None) -> None:
            found = response.topics[0].topic_id if response is not None and response.topics else _NO_ID
            if found == _NO_ID or found in self._deleted:
                self._again(lambda: self._create(topic))
            else:
                self._created(topic)

        self._send(MetadataRequest(topics=[requested], allow_auto_topic_creation=False), MetadataResponse, answered)

    def _create(self, topic: Topic) -> None:
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=min(len(self._brokers), 3),
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
        )

        def answered(response: CreateTopicsResponse | None) -> None:
            code = None if response is None else response.topics[0].error_code
            if code == ErrorCode.TOPIC_ALREADY_EXISTS and self._cluster.layout.zookeeper:
                # The deleted topic has the name until all of its replicas are deleted.
                self._again(lambda: self._find_created(topic))
            elif code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._created(topic)
            else:
                self._again(lambda: self._create(topic))

        self._send(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), CreateTopicsResponse, answered)

    def _created(self, topic: Topic) -> None:
        topic.incarnation = TopicIncarnation(topic.incarnation.deleted_us)
        self._note(AdminOperation.REPLACE, f"{topic.name} exists again")
        self.done[AdminOperation.REPLACE] += 1
        self._replacing = False


def reassignment(topic: str, index: int, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    """Returns a request that moves a partition; None: that cancels its move."""
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
    wanted = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])
    return AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[wanted])
