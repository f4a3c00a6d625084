"""A combined node's metadata side, in memory: formatting, quorum, store, controller, wired as in the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.controller_world import directory_of, make_config, registration

from barnabas.controller.kraft.controller import Controller
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.records_metadata import NoOpRecord
from barnabas.raft.formatting import ensure_formatted
from barnabas.raft.node import RaftNode
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.host import MemoryHost

LOG_DIR = "/data"
METADATA_DIR = "/data/__cluster_metadata-0"


class NodeWorld:
    """A start of a node. Another start with the same disk is a restart."""

    def __init__(
        self, properties: Mapping[str, str] | None = None, *, disk: MemoryDisk | None = None, seed: int = 0
    ) -> None:
        self.config = make_config(properties)
        self.host = MemoryHost(seed, disk=disk)
        self.formatted = ensure_formatted(self.host, self.config)
        self.store = MetadataStore()
        self.raft = RaftNode(self.host, self.config, self.store, self.formatted)
        self.controller = Controller(self.host, self.config, self.raft, self.store, self.formatted.cluster_id, None)
        self.published: list[tuple[MetadataDelta, MetadataImage]] = []
        self.store.subscribe(lambda delta, image: self.published.append((delta, image)))
        self.epoch = -1

    def start(self) -> NodeWorld:
        self.raft.start()
        return self

    def in_one_event(self, step: Callable[[], None]) -> None:
        """Runs the step after the completion of a proposal; everything that the step proposes is flushed together
        afterwards.
        """
        self.raft.propose([(NoOpRecord(), 0)], wall_ms=0, done=lambda _: step())

    @property
    def said(self) -> list[str]:
        """Returns the faults and warnings that its log would contain."""
        return [*(message for message, _ in self.host.faults.reported), *self.host.faults.warned]

    @property
    def image(self) -> MetadataImage:
        return self.store.image

    def register(
        self, broker_id: int = 1, *, previous_epoch: int = -1, directory: bytes | None = None
    ) -> BrokerRegistrationResponse:
        (answer,) = self.begin_registration(broker_id, previous_epoch=previous_epoch, directory=directory)
        if broker_id == self.config.node_id:
            self.epoch = answer.broker_epoch
        return answer

    def begin_registration(
        self, broker_id: int = 1, *, previous_epoch: int = -1, directory: bytes | None = None
    ) -> list[BrokerRegistrationResponse]:
        """Returns the list that gets the response, possibly in a later turn."""
        answers: list[BrokerRegistrationResponse] = []
        request = registration(
            broker_id,
            incarnation=self.host.random.uuid(),
            previous_epoch=previous_epoch,
            cluster_id=self.formatted.cluster_id,
            directories=[directory or directory_of(broker_id)],
        )
        self.controller.register_broker(request, answers.append)
        return answers

    def beat(self, broker_id: int = 1, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        (answer,) = self.begin_beat(broker_id, want_shut_down=want_shut_down)
        return answer

    def begin_beat(self, broker_id: int = 1, *, want_shut_down: bool = False) -> list[BrokerHeartbeatResponse]:
        """Returns the list that gets the response, possibly in a later turn."""
        answers: list[BrokerHeartbeatResponse] = []
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.image.offset,
            want_shut_down=want_shut_down,
        )
        self.controller.broker_heartbeat(request, answers.append)
        return answers

    def join(self, *, previous_epoch: int = -1) -> NodeWorld:
        """Starts the node, and registers and unfences broker 1."""
        self.start()
        assert self.register(previous_epoch=previous_epoch).error_code == 0
        assert not self.beat().is_fenced
        return self

    def create(self, *names: str, partitions: int = 1) -> CreateTopicsResponse:
        answers: list[CreateTopicsResponse] = []
        topics = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ]
        self.controller.create_topics(CreateTopicsRequest(topics=topics), answers.append)
        (answer,) = answers
        return answer


def content(image: MetadataImage) -> MetadataImage:
    """Returns the image without its position in the log."""
    return MetadataDelta(image).apply(0, 0, 0)
