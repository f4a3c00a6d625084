"""A whole broker in ZooKeeper mode, with its own controller: what clients see, and what its sessions do."""

from __future__ import annotations

import pytest
from tests.support.metrics import Metrics
from tests.support.wired_requests import batch_of
from tests.support.znode_memory import MemoryTree
from tests.support.zookeeper_broker import ZooKeeperBroker

from barnabas.broker.metrics.catalogue import collectors_of
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from barnabas.replication.partition import Role
from barnabas.znodes import paths
from barnabas.znodes.config_znodes import decode_config
from barnabas.znodes.topic_znodes import ReplicaAssignment, TopicAssignment, encode_topic
from barnabas.zookeeper.client.store import ZnodeContent
from barnabas.zookeeper.wire.codes import CreateFlags, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import OPEN_ACL, CreateRequest


def creation(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=2_000)


def alteration(name: str, key: str, value: str, resource_type: int = 2) -> IncrementalAlterConfigsRequest:
    entry = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[entry]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


@pytest.fixture
def alone() -> ZooKeeperBroker:
    return ZooKeeperBroker().start()


def test_a_broker_registers_and_lets_clients_in(alone: ZooKeeperBroker) -> None:
    assert alone.opened
    stat = alone.tree.stat(paths.broker(1))
    assert stat is not None
    assert (stat.ephemeral_owner, stat.version) == (alone.store.session_id, 1)
    assert alone.broker.side.broker_epoch == stat.czxid
    assert alone.broker.side.controller.is_active


def test_a_session_that_expires_while_the_logs_are_opened_is_followed_by_another() -> None:
    """G34: a broker with many logs opens them for longer than its session lasts."""
    broker = ZooKeeperBroker()
    first = broker.store.session_id
    broker.store.expire()
    broker.start()
    assert broker.opened
    assert broker.store.session_id not in (0, first)
    assert broker.broker.side.controller.is_active


@pytest.mark.parametrize(("topics", "partitions"), [(1, 5_000), (500, 10)])
def test_thousands_of_replicas_are_opened_in_slices(topics: int, partitions: int) -> None:
    """New ones, and those of a broker that was killed and starts again. The watch over all tests fails long turns."""
    broker = ZooKeeperBroker().start()
    assignment = {index: ReplicaAssignment((1,)) for index in range(partitions)}
    for number in range(topics):
        topic = TopicAssignment(number.to_bytes(16, "big"), assignment)
        broker.tree.set(paths.topic(f"topic-{number}"), encode_topic(topic))
    broker.settle(3_000)
    assert sum(partition.role is Role.LEADER for partition in broker.broker.replicas.partitions()) == 5_000
    broker.tree.end_session(broker.store.session_id)
    broker.host.disk.locked.clear()
    again = ZooKeeperBroker(broker.tree, broker.host.disk).start()
    again.settle(3_000)
    assert sum(partition.role is Role.LEADER for partition in again.broker.replicas.partitions()) == 5_000


def test_clients_see_the_apis_and_the_controller_of_kafka_3_9_1(alone: ZooKeeperBroker) -> None:
    client = alone.connect()
    offered = client.call(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, ApiVersionsResponse
    )
    keys = {row.api_key: row.max_version for row in offered.api_keys}
    assert (keys[0], keys[1], keys[4], keys[6]) == (11, 17, 7, 8)
    assert not keys.keys() & {55, 58, 62, 63, 64, 74, 75}
    assert (offered.supported_features, offered.finalized_features) == ([], [])
    cluster = client.call(DescribeClusterRequest(), 1, DescribeClusterResponse)
    assert (cluster.controller_id, [broker.broker_id for broker in cluster.brokers]) == (1, [1])
    answer = client.call(MetadataRequest(topics=[]), 12, MetadataResponse)
    assert answer.controller_id == 1


def test_groups_of_the_new_protocol_are_refused(alone: ZooKeeperBroker) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    answer = alone.connect().call(request, 0, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_topic_is_created_and_written(alone: ZooKeeperBroker) -> None:
    client = alone.connect()
    created = client.call(creation("orders"), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in created.topics] == [0]
    partition = ProduceRequest.PartitionProduceData(index=0, records=batch_of(b"a"))
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    written = client.call(request, 9, ProduceResponse)
    assert [row.error_code for each in written.responses for row in each.partition_responses] == [0]


def test_any_broker_changes_configurations_by_itself(alone: ZooKeeperBroker) -> None:
    client = alone.connect()
    client.call(creation("orders"), 7, CreateTopicsResponse)
    answer = client.call(alteration("orders", "retention.ms", "7"), 1, IncrementalAlterConfigsResponse)
    assert [row.error_code for row in answer.responses] == [0]
    path = paths.config(paths.TOPIC_CONFIGS, "orders")
    znode = alone.tree.content(path)
    assert znode is not None
    assert decode_config(path, znode.data) == {"retention.ms": "7"}
    assert dict(alone.broker.metadata.image.topic_config("orders")) == {"retention.ms": "7"}
    assert len(alone.tree.names(paths.CONFIG_CHANGES)) == 1
    missing = client.call(alteration("nothing", "retention.ms", "7"), 1, IncrementalAlterConfigsResponse)
    assert [row.error_code for row in missing.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_change_of_the_broker_itself_takes_effect(alone: ZooKeeperBroker) -> None:
    client = alone.connect()
    request = alteration("1", "log.retention.ms", "9000000", resource_type=4)
    answer = client.call(request, 1, IncrementalAlterConfigsResponse)
    assert [row.error_code for row in answer.responses] == [0]
    assert alone.config.log_retention_ms == 9_000_000


def test_what_others_write_is_followed(alone: ZooKeeperBroker) -> None:
    alone.connect().call(creation("orders"), 7, CreateTopicsResponse)
    alone.tree.set(paths.config(paths.TOPIC_CONFIGS, "orders"), b'{"version":1,"config":{"retention.ms":"8"}}')
    alone.tree.set(f"{paths.NEW_CONFIG_CHANGE}0000000007", b'{"version":2,"entity_path":"topics/orders"}')
    alone.settle()
    assert dict(alone.broker.metadata.image.topic_config("orders")) == {"retention.ms": "8"}


def test_what_is_written_without_a_notification_is_found_in_the_next_session(alone: ZooKeeperBroker) -> None:
    """G42: a configuration that another program changed, one that it created, and one that it deleted."""
    client = alone.connect()
    for name in ("changed", "deleted"):
        client.call(creation(name), 7, CreateTopicsResponse)
        client.call(alteration(name, "retention.ms", "7"), 1, IncrementalAlterConfigsResponse)
    alone.tree.set(paths.config(paths.TOPIC_CONFIGS, "changed"), b'{"version":1,"config":{"retention.ms":"8"}}')
    alone.tree.set(paths.config(paths.BROKER_CONFIGS, "1"), b'{"version":1,"config":{"log.retention.ms":"8000000"}}')
    alone.tree.delete(paths.config(paths.TOPIC_CONFIGS, "deleted"))
    alone.settle()
    alone.store.expire()
    alone.settle()
    image = alone.broker.metadata.image
    assert dict(image.topic_config("changed")) == {"retention.ms": "8"}
    assert dict(image.topic_config("deleted")) == {}
    assert alone.config.log_retention_ms == 8_000_000


def test_a_topic_whose_deletion_was_missed_is_not_shown_after_the_next_registration(alone: ZooKeeperBroker) -> None:
    """The deletion begins and ends while the broker has no session, so that no controller ever names the topic to it;
    another topic of the same name is shown.
    """
    client = alone.connect()
    for name in ("kept", "deleted", "replaced"):
        client.call(creation(name), 7, CreateTopicsResponse)
    alone.settle()
    assert {topic.name for topic in alone.broker.metadata.image.topics()} == {"kept", "deleted", "replaced"}
    known = alone.broker.metadata.image.topics_by_name["replaced"].topic_id
    for name in ("deleted", "replaced"):
        for path in (paths.state(name, 0), f"{paths.partitions(name)}/0", paths.partitions(name), paths.topic(name)):
            alone.tree.delete(path)
    alone.tree.set(paths.topic("replaced"), encode_topic(TopicAssignment(b"R" * 16, {0: ReplicaAssignment((1,))})))
    alone.store.expire()
    alone.settle(2_000)
    image = alone.broker.metadata.image
    assert {topic.name for topic in image.topics()} == {"kept", "replaced"}
    assert image.topics_by_name["replaced"].topic_id == b"R" * 16 != known


def test_notifications_end_after_a_quarter_of_an_hour(alone: ZooKeeperBroker) -> None:
    client = alone.connect()
    client.call(creation("orders"), 7, CreateTopicsResponse)
    client.call(alteration("orders", "retention.ms", "7"), 1, IncrementalAlterConfigsResponse)
    (before,) = alone.tree.names(paths.CONFIG_CHANGES)
    alone.host.time.run_for(16 * 60_000)
    client.call(alteration("orders", "retention.ms", "8"), 1, IncrementalAlterConfigsResponse)
    alone.settle()
    assert before not in alone.tree.names(paths.CONFIG_CHANGES)


def test_a_broken_configuration_changes_nothing_and_is_reported(alone: ZooKeeperBroker) -> None:
    alone.connect().call(creation("orders"), 7, CreateTopicsResponse)
    alone.tree.set(paths.config(paths.TOPIC_CONFIGS, "orders"), b"{nonsense")
    alone.tree.set(f"{paths.NEW_CONFIG_CHANGE}0000000007", b'{"version":2,"entity_path":"topics/orders"}')
    alone.settle()
    assert any("/config/topics/orders" in text for text, _ in alone.host.faults.reported)


def test_features_are_followed_over_a_reconnect(alone: ZooKeeperBroker) -> None:
    before = alone.broker.side.features().epoch
    alone.tree.set(paths.FEATURE, b'{"features":{},"version":2,"status":1}')
    alone.store.disconnect()
    alone.store.reconnect()
    alone.settle()
    assert alone.broker.side.features().epoch == before + 1


def feature_update(name: str, level: int, upgrade_type: int = 1) -> UpdateFeaturesRequest.FeatureUpdateKey:
    return UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)


@pytest.mark.parametrize("validate_only", [False, True])
def test_no_feature_can_be_updated_because_kafka_3_9_1_supports_none_in_this_mode(
    alone: ZooKeeperBroker, validate_only: bool
) -> None:
    """The brokers of 3.9.1 have empty `brokerFeatures`, so `validateFeatureUpdate` always finds an error."""
    updates = [
        feature_update("metadata.version", 21),
        feature_update("metadata.version", 0),
        feature_update("", 1),
        feature_update("a", 1, upgrade_type=0),
        feature_update("b", 0, upgrade_type=1),
        feature_update("c", 0, upgrade_type=2),
        feature_update("d", 0, upgrade_type=3),
    ]
    before = alone.tree.content(paths.FEATURE)
    assert before is not None
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    answer = alone.connect().call(request, 1, UpdateFeaturesResponse)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert [(row.feature, row.error_message) for row in answer.results] == [
        ("metadata.version", "Could not apply finalized feature update because the provided feature is not supported."),
        ("", "Feature name can not be empty."),
        ("a", "Received unknown upgrade type."),
        (
            "b",
            "Can not provide versionLevel: 0 less than 1 without setting the SAFE downgradeType in the request.",
        ),
        ("c", "Can not delete non-existing finalized feature."),
        ("d", "Can not delete non-existing finalized feature."),
    ]
    assert {row.error_code for row in answer.results} == {ErrorCode.INVALID_REQUEST}
    assert alone.tree.content(paths.FEATURE) == before


def test_version_0_of_update_features_says_by_a_flag_that_a_feature_may_go(alone: ZooKeeperBroker) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="a", max_version_level=0, allow_downgrade=True)
    answer = alone.connect().call(UpdateFeaturesRequest(feature_updates=[update]), 0, UpdateFeaturesResponse)
    assert [row.error_message for row in answer.results] == ["Can not delete non-existing finalized feature."]


def test_a_failed_directory_is_reported_to_the_controller(alone: ZooKeeperBroker) -> None:
    alone.broker.side.directory_failed("/data", OSError("broken"))
    alone.store.answer()
    (name,) = alone.tree.names(paths.LOG_DIR_EVENTS)
    znode = alone.tree.content(f"{paths.LOG_DIR_EVENTS}/{name}")
    assert znode is not None
    assert znode.data == b'{"version":1,"broker":1,"event":1}'


def test_metrics_are_those_of_a_broker_without_a_quorum(alone: ZooKeeperBroker) -> None:
    found = {family.name for collect in collectors_of(alone.broker).values() for family in collect(alone.broker)}
    assert "kafka_controller_kafkacontroller_activecontrollercount" in found
    assert not any(name.startswith("kafka_server_raft_metrics") for name in found)


def test_metrics_count_what_happens_to_sessions(alone: ZooKeeperBroker) -> None:
    session = "kafka_server_sessionexpirelistener_zookeeper"

    def counted() -> list[float]:
        metrics = Metrics.of(alone.broker)
        names = ("syncconnects", "disconnects", "expires", "authfailures")
        return [metrics(f"{session}{name}_total") for name in names]

    assert counted() == [1, 0, 0, 0]
    alone.store.disconnect()
    alone.store.reconnect()
    assert counted() == [2, 1, 0, 0]
    alone.store.expire()
    alone.settle()
    assert counted() == [3, 2, 1, 0]


def test_only_the_controller_reports_the_cluster() -> None:
    """A sum over the brokers counts each topic once, as with Kafka."""
    first = ZooKeeperBroker().start()
    first.connect().call(creation("orders"), 7, CreateTopicsResponse)
    second = ZooKeeperBroker(first.tree, broker_id="2", listeners="PLAINTEXT://localhost:9094").start()
    second.settle(6_000)
    prefix = "kafka_controller_kafkacontroller_"
    names = ("activecontrollercount", "globaltopiccount", "topicstodeletecount")
    metrics = [Metrics.of(each.broker) for each in (first, second)]
    assert [[each(prefix + name) for name in names] for each in metrics] == [[1, 1, 0], [0, 0, 0]]


def test_an_expired_session_is_followed_by_a_new_registration(alone: ZooKeeperBroker) -> None:
    """G34: the controller resigns, and everything is registered, claimed and read again."""
    before = alone.broker.side.broker_epoch
    alone.tree.set(paths.config(paths.BROKER_CONFIGS, "1"), b'{"version":1,"config":{"log.retention.ms":"8000000"}}')
    alone.store.expire()
    alone.settle()
    assert alone.broker.side.broker_epoch > before
    assert alone.tree.stat(paths.broker(1)) is not None
    assert alone.broker.side.controller.is_active
    assert alone.config.log_retention_ms == 8_000_000
    created = alone.connect().call(creation("orders"), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in created.topics] == [0]


def test_a_broker_that_stops_takes_its_znodes_along(alone: ZooKeeperBroker) -> None:
    stopped: list[int] = []
    alone.broker.stop(lambda: stopped.append(1))
    alone.settle()
    assert stopped
    assert alone.tree.stat(paths.broker(1)) is None
    assert alone.tree.stat(paths.CONTROLLER) is None


def test_the_last_broker_of_a_cluster_stops_immediately() -> None:
    """The broker does not ask the controller again after a pause: nobody can lead its replicated partition."""
    tree = MemoryTree({path: ZnodeContent(None, 0) for path in (paths.BROKER_IDS, paths.TOPICS)})
    tree.set(paths.topic("orders"), encode_topic(TopicAssignment(bytes(range(16)), {0: ReplicaAssignment((1, 2))})))
    last = ZooKeeperBroker(tree).start()
    partition = last.broker.metadata.image.partition("orders", 0)
    assert partition is not None
    assert partition.leader == 1
    stopped: list[int] = []
    last.broker.stop(lambda: stopped.append(1))
    last.settle()
    assert stopped


def test_another_broker_refuses_what_the_controller_decides() -> None:
    """Nothing is forwarded in ZooKeeper mode."""
    first = ZooKeeperBroker().start()
    second = ZooKeeperBroker(first.tree, broker_id="2", listeners="PLAINTEXT://localhost:9094").start()
    second.settle(6_000)
    assert not second.broker.side.controller.is_active
    created = second.connect().call(creation("orders"), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in created.topics] == [ErrorCode.NOT_CONTROLLER]
    request = UpdateFeaturesRequest(feature_updates=[feature_update("metadata.version", 21)])
    updated = second.connect().call(request, 1, UpdateFeaturesResponse)
    assert (updated.error_code, updated.results) == (ErrorCode.NOT_CONTROLLER, [])
    assert updated.error_message == "This is not the correct controller for this cluster."


def test_clients_are_let_in_when_the_broker_knows_the_topics() -> None:
    """The door stays closed for requests of clients, not for those of the controller (G40)."""
    broker = ZooKeeperBroker()
    broker.broker.start(on_open=lambda: broker.opened.append(1))
    early = broker.connect()
    early.send(MetadataRequest(topics=[]), 12)
    assert early.core.is_closed
    assert broker.broker.is_served_at_once("PLAINTEXT")
    broker.settle()
    assert broker.opened
    assert broker.connect().call(MetadataRequest(topics=[]), 12, MetadataResponse).controller_id == 1


def test_clients_are_let_in_when_the_broker_knows_all_partitions() -> None:
    """G40: a producer that saw a part of the partitions would choose others for its keys."""
    first = ZooKeeperBroker().start()
    created = first.connect().call(creation("orders", 250), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in created.topics] == [0]
    first.broker.stop(lambda: None)
    first.settle()
    again = ZooKeeperBroker(first.tree)
    known: list[bool] = []

    def on_open() -> None:
        image = again.broker.metadata.image
        known.extend(image.partition("orders", index) is not None for index in range(250))

    again.broker.start(on_open=on_open)
    again.settle()
    assert known == [True] * 250


def test_clients_are_let_in_although_a_partition_was_never_led() -> None:
    """A partition without a state znode is in no request."""
    assignment = TopicAssignment(bytes(range(16)), {0: ReplicaAssignment((1,)), 1: ReplicaAssignment((9,))})
    tree = MemoryTree({path: ZnodeContent(None, 0) for path in (paths.BROKER_IDS, paths.TOPICS)})
    tree.set(paths.topic("half"), encode_topic(assignment))
    broker = ZooKeeperBroker(tree).start()
    assert broker.opened
    assert broker.broker.metadata.image.partition("half", 0) is not None


def test_clients_do_not_wait_for_a_topic_whose_deletion_waits_for_a_dead_broker() -> None:
    assignment = TopicAssignment(bytes(range(16)), {0: ReplicaAssignment((9, 1))})
    content = {paths.BROKER_IDS: None, paths.DELETE_TOPICS: None, paths.TOPICS: None, paths.delete_topic("gone"): None}
    tree = MemoryTree({path: ZnodeContent(data, 0) for path, data in content.items()})
    tree.set(paths.topic("gone"), encode_topic(assignment))
    assert ZooKeeperBroker(tree).start().opened


def test_a_broker_that_waits_for_the_end_of_its_last_process_serves_nothing() -> None:
    """G37: requests of the controller are meant for that process, whatever their broker epoch."""
    tree = MemoryTree({paths.BROKER_IDS: ZnodeContent(None, 0)})
    tree.sessions += 1
    part = Part(OpCode.CREATE, CreateRequest(paths.broker(1), b"{}", OPEN_ACL, CreateFlags.EPHEMERAL))
    assert tree.apply([part], tree.sessions).refused_part is None
    broker = ZooKeeperBroker(tree).start()
    early = broker.connect()
    early.send(ApiVersionsRequest(), 0)
    assert early.core.is_closed
    tree.end_session(1)
    broker.settle()
    assert broker.opened
    broker.connect().call(ApiVersionsRequest(), 0, ApiVersionsResponse)


def test_a_broker_does_not_take_its_last_process_for_another_broker_when_zookeeper_was_away() -> None:
    """G35: the session of that process ends later by the time that ZooKeeper was away."""
    tree = MemoryTree({paths.BROKER_IDS: ZnodeContent(None, 0)})
    tree.sessions += 1
    part = Part(OpCode.CREATE, CreateRequest(paths.broker(1), b"{}", OPEN_ACL, CreateFlags.EPHEMERAL))
    assert tree.apply([part], tree.sessions).refused_part is None
    broker = ZooKeeperBroker(tree).start()
    broker.store.disconnect()
    broker.settle(30_000)
    broker.store.reconnect()
    broker.settle(15_000)
    assert not broker.opened
    tree.end_session(1)
    broker.settle()
    assert broker.opened


def test_a_partition_that_the_controller_has_not_named_is_missing_for_clients(alone: ZooKeeperBroker) -> None:
    """UpdateMetadata can name partitions 0 and 2 without 1, which has no state yet."""
    topic_id = b"T" * 16
    states = [
        UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=index, controller_epoch=9, leader=1, leader_epoch=0, isr=[1], zk_version=0, replicas=[1]
        )
        for index in (0, 2)
    ]
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name="orders", topic_id=topic_id, partition_states=states
    )
    endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint(
        port=9092, host="localhost", listener="PLAINTEXT", security_protocol=0
    )
    request = UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=9,
        broker_epoch=alone.broker.side.broker_epoch,
        topic_states=[topic],
        live_brokers=[UpdateMetadataRequest.UpdateMetadataBroker(id=1, endpoints=[endpoint])],
    )
    client = alone.connect()
    assert client.call(request, 8, UpdateMetadataResponse).error_code == 0
    wanted = [MetadataRequest.MetadataRequestTopic(name="orders")]
    answer = client.call(MetadataRequest(topics=wanted), 12, MetadataResponse)
    assert [row.partition_index for row in answer.topics[0].partitions] == [0, 2]
    assert alone.broker.metadata.image.partition("orders", 1) is None
