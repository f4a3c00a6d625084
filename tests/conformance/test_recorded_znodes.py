"""Znodes of Apache Kafka 3.9.1: what it wrote in 36 recorded steps, and what its encoders return for given values."""

from __future__ import annotations

import re

import pytest
from tests.support.recorded_znodes import EncodedZnode, encoded_znodes, recorded_contents, recorded_trees

from barnabas.metadata.registrations import Endpoint
from barnabas.znodes import acl_znodes, broker_znodes, cluster_znodes, config_znodes, paths, topic_znodes, znode_access
from barnabas.znodes.kinds import codec_of
from barnabas.zookeeper.wire.records import Acl, Id

#: Encoders of Kafka whose value is all in the content -> a path of such a znode.
_PATHS = {
    "controller": paths.CONTROLLER,
    "isr": f"{paths.NEW_ISR_CHANGE}0000000000",
    "logdir": f"{paths.NEW_LOG_DIR_EVENT}0000000000",
    "reassign": paths.REASSIGN_PARTITIONS,
    "preferred": paths.PREFERRED_REPLICA_ELECTION,
    "confchange": f"{paths.NEW_CONFIG_CHANGE}0000000000",
    "cluster": paths.CLUSTER_ID,
    "producer": paths.PRODUCER_ID_BLOCK,
    "migration": paths.MIGRATION,
    "migration0": paths.MIGRATION,
    "token": paths.token("tok-1"),
    "token0": paths.token("tok-2"),
    "tokenchange": f"{paths.NEW_TOKEN_CHANGE}0000000000",
    "acl": "/kafka-acl/Topic/t",
    "brokerfeatures": paths.broker(5),
    "odd": paths.config("topics", "odd"),
}


def _encoded(*encoders: str) -> list[EncodedZnode]:
    found = [znode for znode in encoded_znodes() if znode.encoder in encoders]
    assert {znode.encoder for znode in found} == set(encoders)
    return found


def test_all_36_steps_are_recorded() -> None:
    trees = recorded_trees()
    assert len(trees) == 36
    assert paths.state("orders", 5) in trees["34-topic-recreated"]
    assert paths.broker(0) not in trees["35-cluster-stopped"]


def test_every_recorded_content_is_decoded_and_encoded_to_the_same_bytes() -> None:
    kinds = set()
    for path, data in recorded_contents():
        codec = codec_of(path)
        if codec is None:
            assert not data or path.startswith("/zookeeper"), f"{path} has content and no codec"
            continue
        kinds.add(codec.kind)
        assert codec.encode(codec.decode(path, data)) == data, path
    assert kinds >= {
        "broker",
        "cluster id",
        "configuration",
        "configuration change",
        "controller",
        "controller epoch",
        "features",
        "partition state",
        "preferred replica election",
        "producer id block",
        "reassignment",
        "topic",
    }


@pytest.mark.parametrize("znode", _encoded(*_PATHS), ids=lambda znode: znode.encoder)
def test_what_an_encoder_of_kafka_returned_is_read_and_written_again(znode: EncodedZnode) -> None:
    path = _PATHS[znode.encoder]
    codec = codec_of(path)
    assert codec is not None
    assert codec.encode(codec.decode(path, znode.data)) == znode.data


@pytest.mark.parametrize("znode", _encoded("topic", "topicnoid"), ids=lambda znode: " ".join(znode.values))
def test_partitions_come_in_the_order_of_scalas_hash_map(znode: EncodedZnode) -> None:
    read = topic_znodes.decode_topic("/brokers/topics/t", znode.data)
    by_number = {number: read.partitions[number] for number in range(int(znode.values[0]))}
    assert read == topic_znodes.TopicAssignment(read.topic_id, by_number)
    assert (read.topic_id is None) == (znode.encoder == "topicnoid")
    assert topic_znodes.encode_topic(read._replace(partitions=by_number)) == znode.data


@pytest.mark.parametrize("znode", _encoded("props"), ids=lambda znode: " ".join(znode.values)[:30])
def test_overrides_come_in_the_order_of_javas_properties(znode: EncodedZnode) -> None:
    keys = [key for key in znode.values[1:] if key]
    overrides = {key: str(index) for index, key in enumerate(keys)}
    assert config_znodes.decode_config("/config/topics/t", znode.data) == overrides
    assert config_znodes.encode_config(overrides) == znode.data


@pytest.mark.parametrize("znode", _encoded("feature1", "feature2"), ids=lambda znode: str(len(znode.values)))
def test_features_come_in_the_order_of_scalas_trie(znode: EncodedZnode) -> None:
    levels = {name: index for index, name in enumerate(znode.values, 1)}
    features = cluster_znodes.Features(int(znode.encoder[-1]), znode.encoder == "feature1", levels)
    assert cluster_znodes.decode_features("/feature", znode.data) == features
    assert cluster_znodes.encode_features(features) == znode.data


@pytest.mark.parametrize("znode", _encoded("broker"), ids=lambda znode: str(len(znode.values)))
def test_registrations_with_one_to_seven_listeners(znode: EncodedZnode) -> None:
    rack, *listeners = znode.values
    endpoints = []
    for listener in listeners:
        name, host, port, protocol = listener.split(",")
        endpoints.append(Endpoint(name, host, int(port), int(protocol)))
    timestamp = re.search(rb'"timestamp":"([0-9]+)"', znode.data)
    assert timestamp is not None
    registration = broker_znodes.BrokerRegistration(
        tuple(endpoints), None if rack == "-" else rack, -1, int(timestamp.group(1))
    )
    assert broker_znodes.decode_registration("/brokers/ids/5", znode.data) == registration
    assert broker_znodes.encode_registration(registration) == znode.data


@pytest.mark.parametrize("znode", _encoded("aclchange"), ids=lambda znode: " ".join(znode.values[:2]))
def test_paths_and_notifications_of_acls(znode: EncodedZnode) -> None:
    kind, pattern_type, path, change_path = znode.values
    pattern = acl_znodes.ResourcePattern(int(kind), "n:a", int(pattern_type))
    assert acl_znodes.acl_path(pattern) == path
    assert acl_znodes.pattern_of(path) == pattern
    assert acl_znodes.acl_change(pattern) == (change_path, znode.data)
    assert acl_znodes.decode_acl_change(f"{change_path}0000000000", znode.data) == pattern


@pytest.mark.parametrize("znode", _encoded("acls"), ids=lambda znode: znode.values[0])
def test_the_acl_of_a_znode_with_zookeeper_set_acl(znode: EncodedZnode) -> None:
    (path,) = znode.values
    printed = re.findall(r"(\d+),s\{'(\w+),'(\w*)\}", znode.data.decode())
    assert znode_access.secure_acl(path) == tuple(Acl(int(p), Id(s, i)) for p, s, i in printed)


def test_lists_of_paths_are_kafkas() -> None:
    (persistent,) = _encoded("persistent")
    assert " ".join(paths.PERSISTENT_PATHS).encode() == persistent.data
    (secure_roots,) = _encoded("secureroots")
    assert " ".join(znode_access.SECURE_ROOTS).encode() == secure_roots.data


@pytest.mark.parametrize("znode", _encoded("sanitize"), ids=lambda znode: znode.values[0])
def test_names_in_paths(znode: EncodedZnode) -> None:
    name = znode.values[0] if znode.values[0] == "_.-" else znode.values[0].replace("_", " ")
    assert paths.sanitize(name).encode() == znode.data
    assert paths.desanitize(znode.data.decode()) == name
