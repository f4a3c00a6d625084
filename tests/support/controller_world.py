"""The controller's pure decisions and an image: the records that a decision returns are replayed as the log would hold
them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from barnabas.common.config import BrokerConfig
from barnabas.controller.kraft import broker_registrations
from barnabas.controller.kraft.bootstrap import bootstrap_batches
from barnabas.controller.requests import brokers, topics
from barnabas.controller.requests.result import Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.strategies import NamedStrategy
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.frame import decode_record, encode_record
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.metadata.unwritable import unwritable_tags
from barnabas.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.records_metadata import ConfigRecord

T = TypeVar("T")
CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"

BASE_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "/data",
}


def make_config(properties: Mapping[str, str] | None = None) -> BrokerConfig:
    return BrokerConfig.from_properties({**BASE_PROPERTIES, **(properties or {})})


class SeededChance:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        return b"\x10" + self._random.randbytes(15)


def directory_of(broker_id: int) -> bytes:
    return b"D" * 14 + bytes([0, broker_id])


class ControllerWorld:
    """An image that decisions are applied to, without quorum, log or time."""

    def __init__(
        self, properties: Mapping[str, str] | None = None, *, features: Mapping[str, int] | None = None
    ) -> None:
        self.config = make_config(properties)
        self.random = SeededChance()
        #: The election strategy of all views from now on; None is Kafka's.
        self.strategy: NamedStrategy | None = None
        self.image: MetadataImage = EMPTY_IMAGE
        batches = bootstrap_batches(self.view(), [], in_transaction=False)
        for records, _ in batches:
            self.replay(records)
        for name, level in (features or {}).items():
            delta = MetadataDelta(self.image)
            delta.changed_features[name] = level
            self.image = delta.apply(self.image.offset, 1, 0)

    def view(self) -> ControllerView:
        return ControllerView(self.image, self.config, self.random, self.strategy)

    def replay(self, records: list[Versioned]) -> None:
        """Replays records through their encoding, which finds a record that its version cannot carry."""
        delta = MetadataDelta(self.image)
        for record, version in records:
            read, read_version = decode_record(encode_record(record, version))
            assert read_version == version
            delta.replay(read)
        self.image = delta.apply(self.image.offset + len(records), 1, 0)

    def apply(self, result: Result[T]) -> T:
        self.replay(result.records)
        return result.response

    def partition(self, topic: str, index: int = 0) -> PartitionImage:
        partition = self.image.partition(topic, index)
        assert partition is not None
        return partition

    def add_broker(self, broker_id: int, *, rack: str | None = None, unfenced: bool = True) -> None:
        self.apply(self.register(registration(broker_id, rack=rack), session_alive=False))
        if unfenced:
            self.beat(broker_id)

    @property
    def next_offset(self) -> int:
        return self.image.offset + 1

    def register(
        self, request: BrokerRegistrationRequest, *, session_alive: bool
    ) -> Result[BrokerRegistrationResponse]:
        return broker_registrations.register(
            self.view(),
            request,
            cluster_id=CLUSTER_ID,
            next_offset=lambda: self.next_offset,
            session_alive=session_alive,
        )

    def beat(
        self,
        broker_id: int,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        unwritable: Sequence[bytes] = (),
        epochs_earlier: int = 0,
    ) -> BrokerHeartbeatResponse:
        broker = self.image.brokers[broker_id]
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=broker.epoch - epochs_earlier,
            current_metadata_offset=self.image.offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            unknown_tags=unwritable_tags(unwritable) if unwritable else (),
        )
        return self.apply(
            broker_registrations.heartbeat(self.view(), request, lowest_offset=self.image.offset, shutdown_offset=-1)
        )

    def create(self, name: str, partitions: int = 1, replication_factor: int = 1, **configs: str) -> None:
        result = self.create_topic(
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        )
        assert result.error_code == 0, result.error_message

    def create_assigned(self, name: str, *replicas: list[int]) -> None:
        assignments = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas)
        ]
        result = self.create_topic(
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
            )
        )
        assert result.error_code == 0, result.error_message

    def configure(self, resource_type: int, name: str, key: str, value: str) -> None:
        """Writes a configuration record as it would be in the log, without a decision of the controller."""
        self.replay([(ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value), 0)])

    def fence(self, broker_id: int) -> None:
        self.replay(brokers.fence(self.view(), self.image.brokers[broker_id]).records)

    def unfence(self, broker_id: int) -> None:
        self.replay(brokers.unfence(self.view(), self.image.brokers[broker_id]).records)

    def create_topic(
        self, topic: CreateTopicsRequest.CreatableTopic, *, validate_only: bool = False
    ) -> CreateTopicsResponse.CreatableTopicResult:
        request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        response = self.apply(topics.create_topics(self.view(), request, "User:test"))
        assert len(response.topics) == 1
        return response.topics[0]


def registration(
    broker_id: int,
    *,
    rack: str | None = None,
    incarnation: bytes | None = None,
    previous_epoch: int = -1,
    cluster_id: str = CLUSTER_ID,
    directories: list[bytes] | None = None,
    features: Mapping[str, tuple[int, int]] | None = None,
) -> BrokerRegistrationRequest:
    offered = {f.name: (f.min_version, f.max_version) for f in SUPPORTED_FEATURES} if features is None else features
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation or b"I" * 14 + bytes([1, broker_id]),
        listeners=[
            BrokerRegistrationRequest.Listener(
                name="PLAINTEXT", host="localhost", port=9000 + broker_id, security_protocol=0
            )
        ],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in offered.items()
        ],
        rack=rack,
        log_dirs=[directory_of(broker_id)] if directories is None else directories,
        previous_broker_epoch=previous_epoch,
    )
