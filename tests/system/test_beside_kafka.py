"""Requests in every version to Barnabas and to Apache Kafka side by side: their answers are equal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.clients.servers import COMMON, BarnabasServer
from tests.clients.twin import Side, differences
from tests.clients.wire import batch, record, wait_until_led

import kafka_jars

pytestmark = pytest.mark.full

Pair = tuple[Side, Side]
ApiCall = tuple[str, range, dict[str, Any]]

T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    ours = BarnabasServer(tmp_path_factory.mktemp("ours"), properties=COMMON)
    theirs = kafka_jars.KafkaServer(tmp_path_factory.mktemp("theirs"), properties=COMMON)
    with_ours = Side(ours.start())
    with_theirs = Side(theirs.start())
    yield with_ours, with_theirs
    ours.stop()
    theirs.stop()


def versions(lowest: int, highest: int) -> range:
    return range(lowest, highest + 1)


def compare(pair: Pair, calls: list[ApiCall]) -> None:
    """Sends all requests to both servers, in order, and reports all differences together."""
    found: dict[str, list[int]] = {}
    for api, tested_versions, values in calls:
        for version in tested_versions:
            ours, theirs = (side.call(api, version, {"timeout_ms": 5000, **values}) for side in pair)
            for line in differences(ours, theirs):
                found.setdefault(f"{api} {_short(values)} {line}", []).append(version)
    assert not found, "\n".join(["ours / Kafka's", *(f"{line} in {at}" for line, at in found.items())])


def _short(values: dict[str, Any]) -> str:
    text = str(values)
    return text if len(text) < 160 else f"{text[:160]}..."


def create(pair: Pair, *names: str, partitions: int = 2) -> None:
    topics = [{"name": name, "num_partitions": partitions, "replication_factor": 1} for name in names]
    for side in pair:
        answer = side.call("CreateTopics", 7, {"topics": topics})
        assert [topic["error_code"] for topic in answer["topics"]] == [0] * len(names)
        for name in names:
            wait_until_led(side.server.port, name)


def topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


def produced(name: str, *records: bytes | None, index: int = 0, **more: Any) -> dict[str, Any]:
    data = [{"index": index, "records": each} for each in records]
    return {"acks": 1, "timeout_ms": 5000, "topic_data": [{"name": name, "partition_data": data}], **more}


def test_api_versions(pair: Pair) -> None:
    """The answers are equal except for the APIs and the feature that are not implemented yet."""
    for version in versions(0, 4):
        ours, theirs = (
            side.call("ApiVersions", version, {"client_software_name": "t", "client_software_version": "1"})
            for side in pair
        )
        keys = {each["api_key"] for each in ours["api_keys"]}
        theirs["api_keys"] = [each for each in theirs["api_keys"] if each["api_key"] in keys]
        if version >= 3:
            features = theirs["supported_features"]
            theirs["supported_features"] = [each for each in features if each["name"] != "share.version"]
        assert differences(ours, theirs) == [], version
    compare(pair, [("ApiVersions", versions(3, 4), {"client_software_name": "", "client_software_version": "1"})])
    compare(pair, [("ApiVersions", versions(3, 4), {"client_software_name": "a b", "client_software_version": "1"})])


def test_create_and_delete_topics(pair: Pair) -> None:
    every = versions(2, 7)
    names = ["", ".", "..", "a b", "ü", "x" * 250, "__consumer_offsets", "with.dot", "with_dot"]
    one = [{"partition_index": 0, "broker_ids": [1]}]
    calls: list[ApiCall] = [("CreateTopics", every, {"topics": [topic(name)], "validate_only": True}) for name in names]
    for more in (
        topic("t", 0),
        topic("t", -2),
        topic("t", 1, 2),
        topic("t", 1, 0),
        topic("t", 1, -2),
        topic("t", -1, -1),
        topic("t", 2, 1, assignments=one),
        topic("t", -1, -1, assignments=one),
        topic("t", -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
        topic("t", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [7]}]),
        topic("t", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1, 1]}]),
        topic("t", -1, -1, assignments=[{"partition_index": 0, "broker_ids": []}]),
        topic("t", -1, -1, assignments=one + one),
        topic("t", configs=[{"name": "no.such.config", "value": "1"}]),
        topic("t", configs=[{"name": "retention.ms", "value": "soon"}]),
        topic("t", configs=[{"name": "retention.ms", "value": None}]),
        topic("t", configs=[{"name": "segment.bytes", "value": "1"}]),
        topic("t", configs=[{"name": "cleanup.policy", "value": "burn"}]),
        topic("t", configs=[{"name": "min.insync.replicas", "value": "0"}]),
        topic("t", configs=[{"name": "compression.type", "value": "zstd"}, {"name": "retention.ms", "value": "5"}]),
    ):
        calls.append(("CreateTopics", every, {"topics": [more], "validate_only": True}))
    calls += [
        (
            "CreateTopics",
            versions(7, 7),
            {"topics": [topic("made", 3, configs=[{"name": "retention.ms", "value": "5"}])]},
        ),
        ("CreateTopics", every, {"topics": [topic("made")]}),
        ("CreateTopics", every, {"topics": [topic("twice"), topic("twice")]}),
        ("CreateTopics", every, {"topics": []}),
        ("CreateTopics", versions(7, 7), {"topics": [topic("col.lide")]}),
        ("CreateTopics", versions(7, 7), {"topics": [topic("col_lide")]}),
        ("DeleteTopics", versions(1, 5), {"topic_names": ["unknown", "unknown", "made"][:2]}),
        ("DeleteTopics", versions(6, 6), {"topics": [{"name": "unknown"}, {"name": None, "topic_id": b"\x01" * 16}]}),
        ("DeleteTopics", versions(6, 6), {"topics": [{"name": None}, {"name": "made", "topic_id": b"\x01" * 16}]}),
        ("DeleteTopics", versions(1, 1), {"topic_names": ["made"]}),
        ("DeleteTopics", versions(6, 6), {"topics": [{"name": "col.lide", "topic_id": bytes(16)}]}),
    ]
    compare(pair, calls)


def test_create_partitions(pair: Pair) -> None:
    create(pair, "grown")
    every = versions(0, 3)

    def request(count: int, name: str = "grown", **more: Any) -> ApiCall:
        return "CreatePartitions", every, {"topics": [{"name": name, "count": count, "assignments": None, **more}]}

    compare(
        pair,
        [
            request(1),
            request(2),
            request(0),
            request(-1),
            request(3, "unknown"),
            request(3, assignments=[]),
            request(3, assignments=[{"broker_ids": [9]}]),
            request(3, assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}]),
            request(3, assignments=[{"broker_ids": [1, 1]}]),
            ("CreatePartitions", every, {"topics": [{"name": "grown", "count": 3, "assignments": None}] * 2}),
            (
                "CreatePartitions",
                every,
                {"topics": [{"name": "grown", "count": 9, "assignments": None}], "validate_only": True},
            ),
            ("CreatePartitions", versions(3, 3), {"topics": [{"name": "grown", "count": 4, "assignments": None}]}),
            ("Metadata", versions(12, 12), {"topics": [{"name": "grown"}]}),
        ],
    )


def test_metadata_and_descriptions(pair: Pair) -> None:
    create(pair, "seen", "seen-too")
    every = versions(0, 13)
    quiet = {"allow_auto_topic_creation": False}
    by_id = [{"topic_id": b"\x05" * 16, "name": None}]
    no_creation = versions(4, 13)
    compare(
        pair,
        [
            ("Metadata", every, {"topics": [{"name": "seen"}, {"name": "seen-too"}], **quiet}),
            ("Metadata", versions(1, 13), {"topics": [], **quiet}),
            ("Metadata", no_creation, {"topics": [{"name": "nowhere"}], **quiet}),
            ("Metadata", no_creation, {"topics": [{"name": "in valid"}, {"name": ""}], **quiet}),
            ("Metadata", every, {"topics": [{"name": "in valid"}]}),
            ("Metadata", versions(10, 13), {"topics": by_id, **quiet}),
            ("Metadata", versions(8, 13), {"topics": [{"name": "seen"}], "include_topic_authorized_operations": True}),
            ("Metadata", versions(8, 10), {"topics": [], "include_cluster_authorized_operations": True}),
            ("DescribeCluster", versions(0, 2), {}),
            ("DescribeCluster", versions(0, 2), {"include_cluster_authorized_operations": True}),
            ("DescribeCluster", versions(1, 2), {"endpoint_type": 2}),
            ("DescribeCluster", versions(1, 2), {"endpoint_type": 9}),
            ("DescribeTopicPartitions", versions(0, 0), {"topics": [{"name": "seen"}, {"name": "nowhere"}]}),
            ("DescribeTopicPartitions", versions(0, 0), {"topics": [{"name": "seen"}], "response_partition_limit": 1}),
            (
                "DescribeTopicPartitions",
                versions(0, 0),
                {"topics": [{"name": "seen"}], "cursor": {"topic_name": "seen", "partition_index": 1}},
            ),
            ("DescribeTopicPartitions", versions(0, 0), {"topics": [{"name": "in valid"}]}),
            ("DescribeLogDirs", versions(1, 4), {"topics": [{"topic": "seen", "partitions": [0, 1, 7]}]}),
            ("DescribeLogDirs", versions(1, 4), {"topics": [{"topic": "nowhere", "partitions": [0]}]}),
            ("DescribeLogDirs", versions(1, 4), {"topics": []}),
            ("DescribeProducers", versions(0, 0), {"topics": [{"name": "seen", "partition_indexes": [0, 9]}]}),
            ("DescribeProducers", versions(0, 0), {"topics": [{"name": "nowhere", "partition_indexes": [0]}]}),
            ("DescribeProducers", versions(0, 0), {"topics": [{"name": "in valid", "partition_indexes": [0]}]}),
        ],
    )


def test_produce_and_fetch(pair: Pair) -> None:
    create(pair, "data")
    good = batch([record(n, b"k%d" % n, b"v%d" % n) for n in range(3)])
    every, fetches = versions(3, 13), versions(4, 18)
    calls: list[ApiCall] = [
        ("Produce", every, produced("data", good)),
        ("Produce", every, produced("data", good, acks=-1)),
        ("Produce", versions(3, 12), produced("unknown", good)),
        ("Produce", versions(13, 13), produced("unknown", good)),
        ("Produce", every, produced("data", good, index=7)),
        ("Produce", every, produced("data", good, acks=2)),
        ("Produce", every, produced("data", b"")),
        ("Produce", every, produced("data", batch([record(0, b"k", b"v")], crc_error=1))),
        ("Produce", every, produced("data", batch([record(0, b"k", b"v")], last_delta=2))),
        ("Produce", every, produced("data", good * 2)),
        ("Produce", every, produced("data", batch([record(0, None, bytes(1_100_000))]))),
        ("Produce", every, produced("data", batch([record(0, b"k", b"v")], timestamp=9_000_000_000_000))),
    ]

    def fetch(offset: int, *, name: str = "data", index: int = 0, size: int = 100_000, **more: Any) -> ApiCall:
        part = {"partition": index, "fetch_offset": offset, "partition_max_bytes": size}
        topics = [{"topic": name, "partitions": [part]}]
        return "Fetch", fetches, {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": size, "topics": topics, **more}

    calls += [
        fetch(0),
        fetch(1),
        fetch(4, size=1),
        fetch(66),
        fetch(67),
        fetch(-1),
        fetch(0, index=1),
        fetch(0, index=5),
        fetch(0, name="unknown"),
        fetch(0, isolation_level=1),
        fetch(0, session_epoch=0),
        fetch(0, session_id=12345, session_epoch=3),
        ("Fetch", fetches, {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, "topics": []}),
    ]
    compare(pair, calls)


def test_current_leader_epochs_are_checked(pair: Pair) -> None:
    create(pair, "epochs")
    good = batch([record(0, b"k", b"v")])
    calls: list[ApiCall] = [("Produce", versions(7, 7), produced("epochs", good))]
    for current in (-1, 0, 1):
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": current}
        topics = [{"topic": "epochs", "partitions": [part]}]
        calls.append(("Fetch", versions(9, 18), {"max_bytes": 1000, "topics": topics}))
        part = {"partition_index": 0, "current_leader_epoch": current, "timestamp": -1}
        calls.append(("ListOffsets", versions(4, 10), offsets_of("epochs", part)))
        for epoch in (-1, 0, 1, 5):
            part = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            topics = [{"topic": "epochs", "partitions": [part]}]
            calls.append(("OffsetForLeaderEpoch", versions(2, 4), {"replica_id": -1, "topics": topics}))
    topics = [{"topic": "unknown", "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    calls.append(("OffsetForLeaderEpoch", versions(2, 4), {"replica_id": -1, "topics": topics}))
    compare(pair, calls)


def offsets_of(name: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"replica_id": -1, "topics": [{"name": name, "partitions": list(parts)}], "timeout_ms": 5000, **more}


def test_list_offsets_and_delete_records(pair: Pair) -> None:
    create(pair, "listed")
    calls: list[ApiCall] = []
    for n in range(4):
        calls.append(
            ("Produce", versions(7, 7), produced("listed", batch([record(0, b"k", b"v")], timestamp=T0 + 10 * n)))
        )
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, T0 - 1, T0, T0 + 15, T0 + 30, T0 + 31):
        part = {"partition_index": 0, "timestamp": timestamp}
        calls.append(("ListOffsets", versions(1, 10), offsets_of("listed", part)))
        calls.append(("ListOffsets", versions(2, 10), offsets_of("listed", part, isolation_level=1)))
        empty = {"partition_index": 1, "timestamp": timestamp}
        calls.append(("ListOffsets", versions(1, 10), offsets_of("listed", empty)))
    nowhere = {"partition_index": 9, "timestamp": -1}
    calls.append(("ListOffsets", versions(1, 10), offsets_of("listed", nowhere)))
    calls.append(("ListOffsets", versions(1, 10), offsets_of("unknown", nowhere)))

    def delete(offset: int, name: str = "listed", index: int = 0) -> ApiCall:
        parts = [{"partition_index": index, "offset": offset}]
        return "DeleteRecords", versions(0, 2), {"topics": [{"name": name, "partitions": parts}], "timeout_ms": 5000}

    calls += [
        delete(2),
        delete(1),
        delete(9),
        delete(-2),
        delete(0, "unknown"),
        delete(0, index=8),
        ("ListOffsets", versions(7, 7), offsets_of("listed", {"partition_index": 0, "timestamp": -2})),
        ("ListOffsets", versions(7, 7), offsets_of("listed", {"partition_index": 0, "timestamp": T0})),
        ("Fetch", versions(4, 18), fetch_at("listed", 1)),
        ("Fetch", versions(4, 18), fetch_at("listed", 2)),
        delete(-1),
        ("ListOffsets", versions(7, 7), offsets_of("listed", {"partition_index": 0, "timestamp": -2})),
        ("Fetch", versions(4, 18), fetch_at("listed", 4)),
    ]
    compare(pair, calls)


def fetch_at(name: str, offset: int) -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
    return {"max_wait_ms": 0, "max_bytes": 1000, "topics": [{"topic": name, "partitions": [part]}]}


def test_idempotent_producers(pair: Pair) -> None:
    create(pair, "idempotent")
    for side in pair:  # Kafka calls for its block of ids with the first request, and refuses until it comes
        while side.call("InitProducerId", 5, {"transactional_id": None})["error_code"] != 0:
            pass
    every = versions(0, 5)
    calls: list[ApiCall] = [
        ("InitProducerId", every, {"transactional_id": None, "transaction_timeout_ms": 1000}),
        ("InitProducerId", every, {"transactional_id": "", "transaction_timeout_ms": 1000}),
    ]
    one = [record(0, b"k", b"v")]
    two = [record(0, b"k", b"v"), record(1, b"k", b"w")]
    for who, count in (
        ((1, 0, 0), one),
        ((1, 0, 0), one),
        ((1, 0, 1), two),
        ((1, 0, 1), two),
        ((1, 0, 1), one),
        ((1, 0, 9), one),
        ((1, 0, 3), one),
        ((1, 1, 5), one),
        ((1, 1, 0), one),
        ((1, 0, 4), one),
        ((2, 0, 7), one),
        ((3, -1, 0), one),
        ((3, 0, -1), one),
        ((1, 1, 2), one),
    ):
        calls.append(("Produce", versions(9, 9), produced("idempotent", batch(count, producer=who))))
    calls.append(("DescribeProducers", versions(0, 0), {"topics": [{"name": "idempotent", "partition_indexes": [0]}]}))
    compare(pair, calls)


def test_configs(pair: Pair) -> None:
    create(pair, "configured")
    both = versions(0, 1)

    def describe(kind: int, name: str, keys: list[str] | None, **more: Any) -> ApiCall:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        return "DescribeConfigs", versions(1, 4), {"resources": [resource], **more}

    def alter(name: str, *configs: tuple[str, int, str | None], kind: int = 2, **more: Any) -> ApiCall:
        listed = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
        resource = {"resource_type": kind, "resource_name": name, "configs": listed}
        return "IncrementalAlterConfigs", both, {"resources": [resource], **more}

    def replace(name: str, *configs: tuple[str, str | None]) -> ApiCall:
        listed = [{"name": key, "value": value} for key, value in configs]
        resource = {"resource_type": 2, "resource_name": name, "configs": listed}
        return "AlterConfigs", versions(0, 2), {"resources": [resource]}

    compare(
        pair,
        [
            describe(2, "configured", None),
            describe(2, "configured", ["retention.ms", "no.such"], include_synonyms=True),
            describe(2, "unknown", None),
            describe(2, "in valid", None),
            describe(4, "1", ["log.segment.bytes", "num.partitions", "node.id"], include_synonyms=True),
            describe(4, "2", None),
            describe(4, "x", None),
            describe(4, "", None),
            describe(99, "x", None),
            alter("configured", ("retention.ms", 0, "1000"), ("cleanup.policy", 2, "compact")),
            describe(2, "configured", ["retention.ms", "cleanup.policy"], include_synonyms=True),
            alter("configured", ("retention.ms", 0, "soon")),
            alter("configured", ("no.such", 0, "1")),
            alter("configured", ("retention.ms", 2, "1")),
            alter("configured", ("retention.ms", 0, None)),
            alter("configured", ("retention.ms", 0, "1"), ("retention.ms", 0, "2")),
            alter("configured", ("cleanup.policy", 3, "delete")),
            alter("configured", ("retention.ms", 1, None)),
            alter("unknown", ("retention.ms", 0, "1")),
            alter("configured", ("segment.bytes", 0, "99"), validate_only=True),
            alter("1", ("log.segment.bytes", 0, "2000000"), kind=4),
            alter("1", ("node.id", 0, "7"), kind=4),
            alter("7", ("log.segment.bytes", 0, "2000000"), kind=4),
            alter("", ("log.segment.bytes", 0, "3000000"), kind=4),
            describe(4, "1", ["log.segment.bytes"], include_synonyms=True),
            describe(2, "configured", ["segment.bytes"], include_synonyms=True),
            alter("1", ("log.segment.bytes", 1, None), kind=4),
            alter("", ("log.segment.bytes", 1, None), kind=4),
            describe(4, "1", ["log.segment.bytes"], include_synonyms=True),
            replace("configured", ("retention.ms", "77")),
            replace("configured", ("no.such", "77")),
            replace("unknown", ("retention.ms", "77")),
            describe(2, "configured", ["retention.ms", "cleanup.policy"]),
        ],
    )


def test_resources_with_a_configuration(pair: Pair) -> None:
    create(pair, "with-resources")
    set_for = ((32, "g", "consumer.session.timeout.ms", "50000"), (16, "sub", "interval.ms", "100000"))
    for kind, name, key, value in set_for:
        config = {"name": key, "config_operation": 0, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [config]}
        compare(pair, [("IncrementalAlterConfigs", versions(1, 1), {"resources": [resource]})])
    requested: tuple[list[int], ...] = ([], [2], [4], [8], [16], [32], [32, 2, 32], [0], [1], [2, 3], [64], [-1])
    both = versions(0, 1)
    deadline = time.monotonic() + 60
    while len(pair[1].call("ListConfigResources", 1, {"resource_types": [16, 32]})["config_resources"]) < 2:
        assert time.monotonic() < deadline, "Kafka takes configurations over a moment after it has answered"
        time.sleep(0.1)
    compare(pair, [("ListConfigResources", both, {"resource_types": types}) for types in requested])


def test_acls_without_an_authorizer(pair: Pair) -> None:
    every = versions(1, 3)
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    acl = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}
    wanted = {"resource_type_filter": 2, "operation": 3, "permission_type": 3}
    calls: list[ApiCall] = [("DescribeAcls", every, anything)]
    for count in (0, 1, 2):
        calls.append(("CreateAcls", every, {"creations": [{**acl, "permission_type": 3}] * count}))
        calls.append(("DeleteAcls", every, {"filters": [wanted] * count}))
    compare(pair, calls)


def test_groups_without_members(pair: Pair) -> None:
    create(pair, "grouped")
    part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 0, "committed_metadata": "note"}

    def commit(group: str, name: str = "grouped", **more: Any) -> ApiCall:
        listed = [{"name": name, "partitions": [{**part, **more.pop("part", {})}]}]
        return "OffsetCommit", versions(2, 9), {"group_id": group, "topics": listed, **more}

    def fetch(group: str, topics: list[dict[str, Any]] | None, **more: Any) -> ApiCall:
        groups = [{"group_id": group, "topics": topics}]
        lowest = 1 if topics is not None else 2
        return "OffsetFetch", versions(lowest, 9), {"group_id": group, "topics": topics, "groups": groups, **more}

    for side in pair:
        for group in ("some-group", "simple", "nobodys"):
            side.wait_for_group(group)
    calls: list[ApiCall] = [
        ("FindCoordinator", versions(0, 3), {"key": "some-group", "key_type": 0}),
        ("FindCoordinator", versions(4, 6), {"coordinator_keys": ["some-group", "other", ""], "key_type": 0}),
        ("FindCoordinator", versions(0, 3), {"key": "", "key_type": 0}),
        ("FindCoordinator", versions(1, 6), {"key": "x", "coordinator_keys": ["x"], "key_type": 7}),
        commit("simple"),
        commit("simple", part={"partition_index": 9}),
        commit("simple", "unknown"),
        commit("simple", part={"committed_metadata": "m" * 5000}),
        commit("simple", generation_id_or_member_epoch=3, member_id="nobody"),
        commit("", part={}),
        fetch("simple", [{"name": "grouped", "partition_indexes": [0, 1, 9]}]),
        fetch("simple", [{"name": "unknown", "partition_indexes": [0]}]),
        fetch("simple", None),
        fetch("nobodys", [{"name": "grouped", "partition_indexes": [0]}]),
        fetch("simple", [{"name": "grouped", "partition_indexes": [0]}], require_stable=True),
        fetch("", [{"name": "grouped", "partition_indexes": [0]}]),
        ("DescribeGroups", versions(0, 6), {"groups": ["simple", "nobodys", ""]}),
        ("DescribeGroups", versions(3, 6), {"groups": ["simple", "nobodys"], "include_authorized_operations": True}),
        ("ListGroups", versions(0, 5), {}),
        ("ListGroups", versions(4, 5), {"states_filter": ["Empty"]}),
        ("ListGroups", versions(4, 5), {"states_filter": ["Stable", "nonsense"]}),
        ("ListGroups", versions(5, 5), {"types_filter": ["classic"]}),
        ("ListGroups", versions(5, 5), {"types_filter": ["consumer"]}),
        ("OffsetDelete", versions(0, 0), delete_offsets("nobodys", 0)),
        ("OffsetDelete", versions(0, 0), delete_offsets("simple", 0, 9)),
        ("DeleteGroups", versions(0, 2), {"groups_names": ["nobodys", ""]}),
        commit("simple"),
        ("DeleteGroups", versions(2, 2), {"groups_names": ["simple"]}),
        fetch("simple", [{"name": "grouped", "partition_indexes": [0]}]),
    ]
    compare(pair, calls)


def delete_offsets(group: str, *partitions: int) -> dict[str, Any]:
    listed = [{"partition_index": each} for each in partitions]
    return {"group_id": group, "topics": [{"name": "grouped", "partitions": listed}]}


def test_group_membership_mistakes(pair: Pair) -> None:
    protocols = [{"name": "range", "metadata": b"m"}]
    join = {
        "group_id": "members",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 1_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    for side in pair:
        for group in ("members", "fresh"):
            side.wait_for_group(group)
    who = {"group_id": "members", "generation_id": 1, "member_id": "nobody"}
    compare(
        pair,
        [
            ("JoinGroup", versions(4, 9), join),
            ("JoinGroup", versions(0, 9), {**join, "session_timeout_ms": 1}),
            ("JoinGroup", versions(0, 9), {**join, "session_timeout_ms": 99_000_000}),
            ("JoinGroup", versions(0, 9), {**join, "group_id": ""}),
            ("JoinGroup", versions(0, 9), {**join, "member_id": "nobody"}),
            ("JoinGroup", versions(0, 9), {**join, "group_id": "fresh", "protocols": []}),
            ("JoinGroup", versions(0, 9), {**join, "group_id": "fresh", "protocol_type": ""}),
            ("SyncGroup", versions(0, 4), {**who, "assignments": []}),
            ("SyncGroup", versions(5, 5), {**who, "protocol_type": "consumer", "protocol_name": "range"}),
            ("Heartbeat", versions(0, 4), who),
            ("Heartbeat", versions(0, 4), {**who, "group_id": ""}),
            ("LeaveGroup", versions(0, 5), {**who, "members": [{"member_id": "nobody"}, {"member_id": "else"}]}),
            ("LeaveGroup", versions(0, 5), {**who, "group_id": "", "members": [{"member_id": "nobody"}]}),
        ],
    )
