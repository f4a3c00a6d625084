"""Znodes as earlier releases wrote them, and as no release writes them but Kafka reads them."""

from __future__ import annotations

import pytest

from barnabas.common.types import TopicPartition
from barnabas.metadata.registrations import Endpoint, FeatureRange
from barnabas.znodes import (
    acl_znodes,
    admin_znodes,
    broker_znodes,
    cluster_znodes,
    config_znodes,
    paths,
    token_znodes,
    topic_znodes,
)


@pytest.mark.parametrize(
    ("content", "endpoints", "rack"),
    [
        (b'{"version":1,"host":"h","port":9,"jmx_port":7,"timestamp":"5"}', ["PLAINTEXT h 9 0"], None),
        (
            b'{"version":2,"host":"h","port":9,"jmx_port":7,"timestamp":"5","endpoints":["PLAINTEXT://h:9","SSL://i:8"]}',
            ["PLAINTEXT h 9 0", "SSL i 8 1"],
            None,
        ),
        (b'{"version":3,"jmx_port":7,"timestamp":"5","endpoints":["SSL://[::1]:8"],"rack":"r"}', ["SSL ::1 8 1"], "r"),
        (
            b'{"version":4,"jmx_port":7,"timestamp":"5","endpoints":["IN://h:9"],"rack":"r",'
            b'"listener_security_protocol_map":{"IN":"SASL_SSL"}}',
            ["IN h 9 3"],
            "r",
        ),
        (b'{"version":6,"jmx_port":7,"timestamp":"5","endpoints":["SSL://h:9"],"news":[]}', ["SSL h 9 1"], None),
    ],
)
def test_registrations_of_every_version(content: bytes, endpoints: list[str], rack: str | None) -> None:
    read = broker_znodes.decode_registration("/brokers/ids/1", content)
    assert [" ".join(map(str, endpoint)) for endpoint in read.endpoints] == endpoints
    assert (read.rack, read.jmx_port, read.timestamp_ms, read.features) == (rack, 7, 5, ())
    assert broker_znodes.decode_registration("/brokers/ids/1", broker_znodes.encode_registration(read)) == read


def test_a_broker_with_features_and_without_a_plaintext_listener() -> None:
    registration = broker_znodes.BrokerRegistration(
        (Endpoint("SSL", "h", 9, 1),), features=(FeatureRange("metadata.version", 1, 21),)
    )
    encoded = broker_znodes.encode_registration(registration)
    assert b'"port":-1,"host":null' in encoded
    assert broker_znodes.decode_registration("/brokers/ids/1", encoded) == registration


def test_topics_of_versions_1_and_2_have_no_id() -> None:
    old = topic_znodes.decode_topic("/brokers/topics/t", b'{"version":1,"partitions":{"2":[3],"0":[1,2]}}')
    assert old == topic_znodes.TopicAssignment(
        None, {2: topic_znodes.ReplicaAssignment((3,)), 0: topic_znodes.ReplicaAssignment((1, 2))}
    )
    moving = topic_znodes.decode_topic(
        "/brokers/topics/t",
        b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{"0":[1]},"removing_replicas":{"0":[2]}}',
    )
    assert moving.partitions == {0: topic_znodes.ReplicaAssignment((1, 2), (1,), (2,))}


def test_a_state_in_another_order_with_spaces_is_read() -> None:
    content = b'{"isr": [1], "leader": 1, "leader_epoch": 4, "version": 1, "controller_epoch": 9, "more": {}}'
    read = topic_znodes.decode_state(paths.state("t", 0), content)
    assert read == topic_znodes.PartitionState(1, 4, (1,), 9)
    assert topic_znodes.decode_state(paths.state("t", 0), topic_znodes.encode_state(read)) == read


def test_a_state_without_isr_members_is_read_and_written() -> None:
    state = topic_znodes.PartitionState(-1, 0, (), 1, 1)
    encoded = topic_znodes.encode_state(state)
    assert encoded == (
        b'{"controller_epoch":1,"leader":-1,"version":1,"leader_recovery_state":1,"leader_epoch":0,"isr":[]}'
    )
    assert topic_znodes.decode_state(paths.state("t", 0), encoded) == state


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"version":1}', b'{"version":1,"config":null}'])
def test_a_configuration_without_content_has_no_overrides(content: bytes | None) -> None:
    assert config_znodes.decode_config("/config/topics/t", content) == {}


def test_a_notification_of_version_1_names_type_and_entity() -> None:
    content = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert config_znodes.decode_config_change("/config/changes/config_change_0000000001", content) == "topics/t"


def test_controllers_of_version_1_have_no_kraft_epoch() -> None:
    content = b'{"version":1,"brokerid":4,"timestamp":"7"}'
    assert cluster_znodes.decode_controller("/controller", content) == cluster_znodes.ControllerRegistration(4, 7, -1)


def test_before_the_first_block_of_producer_ids_there_is_none() -> None:
    assert cluster_znodes.decode_producer_id_block("/latest_producer_id_block", None) is None


def test_partitions_named_twice_count_once() -> None:
    content = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}'
    assert admin_znodes.decode_partitions("/admin/preferred_replica_election", content) == [TopicPartition("t", 0)]


def test_acls_without_content_are_none_and_names_are_read_in_any_case() -> None:
    assert acl_znodes.decode_acls("/kafka-acl/Topic/t", b"") == []
    content = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"ALLOW","operation":"describe_configs",'
    read = acl_znodes.decode_acls("/kafka-acl/Topic/t", content + b'"host":"*"}]}')
    assert read == [acl_znodes.AclEntry("User:a", 3, 10, "*")]


def test_paths_that_hold_no_acls() -> None:
    for path in ("/kafka-acl", "/kafka-acl/Topic", "/kafka-acl/Thing/t", "/brokers/ids/1"):
        assert acl_znodes.pattern_of(path) is None
    with pytest.raises(ValueError, match="is not a resource"):
        acl_znodes.acl_path(acl_znodes.ResourcePattern(1, "t", acl_znodes.LITERAL))


def test_the_owner_of_an_older_token_requested_it() -> None:
    content = (
        b'{"version":1,"owner":"User%3Aa","renewers":["User%3Ab"],"issueTimestamp":1,"maxTimestamp":2,'
        b'"expiryTimestamp":3,"tokenId":"i"}'
    )
    read = token_znodes.decode_token(paths.token("i"), content)
    assert read == token_znodes.DelegationToken("i", "User:a", "User:a", ("User:b",), 1, 2, 3)


def test_numbers_and_partitions_in_paths() -> None:
    assert paths.sequence_number("/config/changes/config_change_0000000012") == 12
    assert paths.sequence_number("/config/changes/config_change_x") is None
    assert paths.partition_of_state("/brokers/topics/t/partitions/3/state") == TopicPartition("t", 3)
    assert paths.partition_of_state("/brokers/topics/t/partitions/03/state") is None
    assert paths.partition_of_state("/brokers/topics/t") is None
