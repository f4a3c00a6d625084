"""Codecs of znodes with random values: what is written is read back; random bytes are read or refused."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.types import TopicPartition
from barnabas.metadata.registrations import Endpoint, FeatureRange
from barnabas.znodes import acl_znodes, broker_znodes, cluster_znodes, config_znodes, paths, token_znodes, topic_znodes
from barnabas.znodes.jvm_order import hash_map_order, immutable_order, java_hash, mutable_order, properties_order
from barnabas.znodes.kinds import codec_of
from barnabas.znodes.topic_text import TopicText
from barnabas.znodes.znode_json import ZnodeError, write_text

_TEXT = st.text(max_size=12)
_NAME = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=12)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_BROKER = st.integers(0, 2**31 - 1)
_BROKERS = st.lists(_BROKER, unique=True, max_size=5).map(tuple)
_PARTITION = st.integers(0, 2**31 - 1)
_TOPIC_PARTITION = st.builds(TopicPartition, _NAME, _PARTITION)
_LISTENER = st.text("ABCXYZ_", min_size=1, max_size=8)
_HOST = st.sampled_from(["h", "10.0.0.1", "::1", "fe80::1%eth0", "a-b.c", ""])

_STATES = st.builds(
    topic_znodes.PartitionState, st.integers(-1, 2**31 - 1), _INT32, _BROKERS, _INT32, st.sampled_from([0, 1])
)
_TOPICS = st.builds(
    topic_znodes.TopicAssignment,
    st.none() | st.binary(min_size=16, max_size=16),
    st.dictionaries(_PARTITION, st.builds(topic_znodes.ReplicaAssignment, _BROKERS, _BROKERS, _BROKERS), max_size=30),
)
_CHANGES = st.lists(
    st.dictionaries(st.integers(0, 40), st.builds(topic_znodes.ReplicaAssignment, *[_BROKERS | st.just(())] * 3)),
    max_size=6,
)
_REGISTRATIONS = st.builds(
    broker_znodes.BrokerRegistration,
    st.lists(
        st.builds(Endpoint, _LISTENER, _HOST, st.integers(0, 65535), st.integers(0, 3)),
        unique_by=lambda endpoint: endpoint.name,
        max_size=8,
    ).map(tuple),
    st.none() | _TEXT,
    _INT32,
    _INT64,
    st.just(()) | st.lists(st.builds(FeatureRange, _TEXT, _INT32, _INT32), max_size=1).map(tuple),
)
_TOKENS = st.builds(
    token_znodes.DelegationToken,
    _TEXT,
    _TEXT.map("User:{}".format),
    _TEXT.map("User:{}".format),
    st.lists(_TEXT.map("User:{}".format), max_size=3).map(tuple),
    _INT64,
    _INT64,
    _INT64,
)
_RESOURCE_TYPE = st.sampled_from(list(acl_znodes.RESOURCE_TYPES))
_ACLS = st.lists(
    st.builds(
        acl_znodes.AclEntry,
        _TEXT.map("User:{}".format),
        st.sampled_from(list(acl_znodes.PERMISSIONS)),
        st.sampled_from(list(acl_znodes.OPERATIONS)),
        _TEXT,
    ),
    unique=True,
    max_size=5,
)
_FEATURES = st.builds(
    cluster_znodes.Features,
    st.sampled_from(cluster_znodes.FEATURE_VERSIONS),
    st.booleans(),
    st.dictionaries(_TEXT, st.integers(1, 2**15 - 1), max_size=9),
)

_VALUES = {
    paths.state("t", 0): _STATES,
    paths.topic("t"): _TOPICS,
    paths.broker(1): _REGISTRATIONS,
    paths.config("topics", "t"): st.dictionaries(_TEXT, _TEXT, max_size=30),
    paths.CONTROLLER: st.builds(cluster_znodes.ControllerRegistration, _INT32, _INT64, _INT32),
    paths.CONTROLLER_EPOCH: st.integers(-1, 2**31 - 1),
    paths.CLUSTER_ID: _NAME,
    paths.PRODUCER_ID_BLOCK: st.builds(
        cluster_znodes.ProducerIdBlock, _INT32, st.integers(0, 2**62), st.integers(2**62, 2**63 - 1)
    ),
    paths.FEATURE: _FEATURES,
    paths.MIGRATION: st.builds(cluster_znodes.MigrationState, _INT32, _INT32, _INT64, _INT32),
    paths.PREFERRED_REPLICA_ELECTION: st.lists(_TOPIC_PARTITION, unique=True, max_size=5),
    paths.REASSIGN_PARTITIONS: st.dictionaries(_TOPIC_PARTITION, _BROKERS, max_size=5),
    f"{paths.LOG_DIR_EVENTS}/e": _INT32,
    f"{paths.CONFIG_CHANGES}/c": st.builds("{}/{}".format, st.sampled_from(paths.CONFIG_TYPES), _NAME),
    "/kafka-acl/Topic/t": _ACLS,
    f"{paths.ACL_CHANGES}/c": st.builds(acl_znodes.ResourcePattern, _RESOURCE_TYPE, _NAME, st.just(3)),
    f"{paths.EXTENDED_ACL_CHANGES}/c": st.builds(acl_znodes.ResourcePattern, _RESOURCE_TYPE, _NAME, st.just(4)),
    paths.token("i"): _TOKENS,
}


@given(st.data())
def test_what_is_written_is_read_back(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(_VALUES)))
    value = data.draw(_VALUES[path])
    codec = codec_of(path)
    assert codec is not None
    encoded = codec.encode(value)
    assert codec.decode(path, encoded) == value
    assert codec.decode(path, memoryview(encoded)) == value


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT,
    lambda items: st.lists(items, max_size=3) | st.dictionaries(_TEXT, items, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_a_damaged_znode_is_read_or_refused_with_its_path(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(_VALUES)))
    codec = codec_of(path)
    assert codec is not None
    content = codec.encode(data.draw(_VALUES[path]))
    if content.startswith(b"{") and data.draw(st.booleans()):
        fields = json.loads(content)
        fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(_JSON)
        damaged = json.dumps(fields, ensure_ascii=True).encode()
    else:
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 4)))
        damaged = content[:start] + data.draw(st.binary(max_size=4)) + content[end:]
    refusal = None
    try:
        codec.decode(path, damaged)
    except ZnodeError as error:
        refusal = error
    assert refusal is None or refusal.path == path


@given(st.text())
def test_text_is_written_as_json(text: str) -> None:
    assert json.loads(write_text(text)) == text


@given(st.lists(_TEXT, unique=True, max_size=60))
def test_every_order_is_a_permutation(keys: list[str]) -> None:
    orders = (mutable_order, properties_order, immutable_order, hash_map_order)
    assert all(sorted(order(keys)) == sorted(keys) for order in orders)


@given(st.lists(_TEXT, unique=True, max_size=60), st.randoms())
def test_scalas_orders_do_not_depend_on_the_insertion(keys: list[str], random: Random) -> None:
    other = random.sample(keys, len(keys))
    collisions = len({java_hash(key) for key in keys}) < len(keys)
    assert collisions or mutable_order(keys) == mutable_order(other)
    assert collisions or len(keys) <= 4 or immutable_order(keys) == immutable_order(other)


def test_hashes_of_texts() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == 1 << 31
    assert java_hash("€") == 0x20AC
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00


@given(st.dictionaries(_TEXT, _TEXT, max_size=30))
def test_overrides_that_were_read_are_written_and_read_again(overrides: dict[str, str]) -> None:
    once = config_znodes.decode_config("/config/topics/t", config_znodes.encode_config(overrides))
    assert config_znodes.decode_config("/config/topics/t", config_znodes.encode_config(once)) == overrides


@given(_TOPICS, _CHANGES)
def test_a_text_that_was_changed_is_that_of_the_whole_assignment(
    first: topic_znodes.TopicAssignment, changes: list[dict[int, topic_znodes.ReplicaAssignment]]
) -> None:
    text = TopicText(first.topic_id)
    partitions: dict[int, topic_znodes.ReplicaAssignment] = {}
    for changed in (dict(first.partitions), *changes):
        partitions.update(changed)
        for number, item in changed.items():
            text.put(number, item.replicas, item.adding, item.removing)
        whole = topic_znodes.encode_topic(topic_znodes.TopicAssignment(first.topic_id, partitions))
        assert text.encoded() == whole
