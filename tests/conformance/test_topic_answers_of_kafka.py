"""Metadata, DescribeTopicPartitions and DescribeCluster as Apache Kafka 4.1.0 answered them in the recorded frames.

The brokers are those of the recorded cluster's own metadata log; its topics are created as the answer shows them. The
answer to the recorded request must be the recorded answer, except for the controller's id (any broker) and the order of
what Kafka keeps in hash tables.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.support.controller_world import SeededChance, make_config
from tests.support.metadata_logs import snapshots

from barnabas.broker.handlers import describe_cluster, describe_topic_partitions, metadata
from barnabas.broker.recently_fenced import RecentlyFenced
from barnabas.common.portions import whole
from barnabas.common.types import uuid_from_text
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header
from barnabas.protocol.kafka_json import to_json_object
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import request_class
from barnabas.protocol.messages.records_metadata import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from barnabas.raft.snapshots import decode_snapshot

Json = dict[str, Any]
FRAMES = Path(__file__).resolve().parents[1] / "data" / "wire" / "frames-4.1.0.json.gz"
HANDLERS: dict[int, ModuleType] = {3: metadata, 60: describe_cluster, 75: describe_topic_partitions}
CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMw"
#: Errors that only a controller's listener answers.
_CONTROLLER_ERRORS = (42, 114)


def recorded() -> list[Any]:
    with gzip.open(FRAMES, "rt") as file:
        frames = [frame for frame in json.load(file) if frame["api_key"] in HANDLERS]
    asked_of_brokers = [
        frame
        for frame in frames
        if frame["response"]["body"].get("errorCode") not in _CONTROLLER_ERRORS
        and frame["request"]["body"].get("endpointType") != 2
    ]
    return [
        pytest.param(frame, id=f"{HANDLERS[frame['api_key']].__name__.split('.')[-1]}-{frame['version']}-{index}")
        for index, frame in enumerate(asked_of_brokers)
    ]


def brokers_of_the_cluster() -> MetadataImage:
    snapshot = decode_snapshot(snapshots("three-nodes")[0].read_bytes())
    delta = MetadataDelta(EMPTY_IMAGE)
    for record, _ in snapshot.records:
        if isinstance(record, RegisterBrokerRecord):
            delta.replay(record)
            change = BrokerRegistrationChangeRecord(
                broker_id=record.broker_id, broker_epoch=record.broker_epoch, fenced=-1
            )
            delta.replay(change)
    return delta.apply(0, 0, 0)


BROKERS = brokers_of_the_cluster()


def with_topics(answer: Json) -> MetadataImage:
    """Returns the image with the topics that the answer describes."""
    delta = MetadataDelta(BROKERS)
    for number, topic in enumerate(answer.get("topics", [])):
        if topic["errorCode"]:
            continue
        topic_id = uuid_from_text(topic["topicId"]) if "topicId" in topic else bytes([number + 1]) * 16
        delta.replay(TopicRecord(name=topic["name"], topic_id=topic_id))
        for partition in sorted(topic["partitions"], key=lambda partition: int(partition["partitionIndex"])):
            delta.replay(
                PartitionRecord(
                    partition_id=partition["partitionIndex"],
                    topic_id=topic_id,
                    replicas=partition["replicaNodes"],
                    isr=partition["isrNodes"],
                    leader=partition["leaderId"],
                    leader_epoch=partition.get("leaderEpoch", 0),
                    partition_epoch=0,
                    directories=[BROKERS.brokers[replica].directories[0] for replica in partition["replicaNodes"]],
                    eligible_leader_replicas=partition.get("eligibleLeaderReplicas"),
                    last_known_elr=partition.get("lastKnownElr"),
                )
            )
    cursor = answer.get("nextCursor")
    image = delta.apply(0, 0, 0)
    if cursor is not None:
        # The partitions outside the page: they exist, and are never compared.
        topic_image = image.topics_by_name[cursor["topicName"]]
        more = MetadataDelta(image)
        for index in range(cursor["partitionIndex"], cursor["partitionIndex"] + 2):
            more.replay(PartitionRecord(partition_id=index, topic_id=topic_image.topic_id, replicas=[1], isr=[1]))
        image = more.apply(0, 0, 0)
    return image


def in_order(answer: Json) -> Json:
    answer = json.loads(json.dumps(answer))
    answer.pop("controllerId", None)
    for topic in answer.get("topics", []):
        topic["partitions"].sort(key=lambda partition: partition["partitionIndex"])
    answer.get("topics", []).sort(key=lambda topic: str(topic["name"]))
    return answer


@pytest.mark.parametrize("frame", recorded())
def test_our_answer_is_kafkas(frame: Json) -> None:
    data = bytes.fromhex(frame["request_hex"])[4:]
    api_key, version, _, _, position = decode_request_header(data)
    request, _ = codec.decode(request_class(api_key), version, data, position)
    kafkas = frame["response"]["body"]
    hosts = {broker["host"] for broker in kafkas.get("brokers", [])}
    listener = "SASL" if hosts == {"127.0.0.4"} else "PLAINTEXT"
    services = SimpleNamespace(
        metadata=SimpleNamespace(image=with_topics(kafkas)),
        cluster_id=CLUSTER_ID,
        config=make_config({"auto.create.topics.enable": "false"}),
        host=SimpleNamespace(random=SeededChance()),
        recently_fenced=RecentlyFenced(),
        authorizer=None,
        throttles=None,
        side=SimpleNamespace(shown_controller=max),
    )
    context = SimpleNamespace(api_key=api_key, api_version=version, listener=listener, principal="User:test")
    answer = HANDLERS[api_key].handle(context, request, services)
    if answer is not None and not isinstance(answer, Message):
        answer = whole(answer)
    assert answer is not None
    assert in_order(to_json_object(answer, version)) == in_order(kafkas)
    encoded = codec.encode(answer, version)
    decoded, end = codec.decode(type(answer), version, bytes(encoded))
    assert (to_json_object(decoded, version), end) == (to_json_object(answer, version), len(encoded))
    if "controllerId" in kafkas:
        assert answer.controller_id in BROKERS.brokers


def test_there_are_frames_of_all_three() -> None:
    frames = [param.values[0] for param in recorded()]
    assert {frame["api_key"] for frame in frames} == set(HANDLERS)
    assert len({(frame["api_key"], frame["version"]) for frame in frames}) == 18
