"""`__consumer_offsets` as Apache Kafka 4.1.0 wrote it: Barnabas loads what Kafka's tool reads, and writes the same
bytes.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.consumer_members import consumer_group
from tests.support.finished import finished
from tests.support.group_world import GroupWorld, MemoryPartitions

from barnabas.common.types import TopicPartition
from barnabas.coordinators.deadlines import Deadlines
from barnabas.coordinators.groups.classic.images import generation_record, new_group_record, restore_group
from barnabas.coordinators.groups.consumer import consumer_records
from barnabas.coordinators.groups.consumer.consumer_records import ConsumerRecordType
from barnabas.coordinators.groups.consumer.member import Assignment, Member, partitions_of
from barnabas.coordinators.groups.group_records import (
    GroupKey,
    OffsetKey,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    parse_group,
    parse_key,
    parse_offset,
)
from barnabas.coordinators.runtime import KeyValue
from barnabas.records.batch import decode_batch, encode_batch, iter_headers
from barnabas.simulation.host import VirtualTime

DATA = Path(__file__).parent.parent / "data" / "consumer_offsets"
NAMES = ["groups", "clients"]
#: Group, member, epoch of the target, target, what a member has.
CONSUMER_TYPES = ("3", "5", "6", "7", "8")
PARTITION = TopicPartition("__consumer_offsets", 0)


class Dumped(NamedTuple):
    """The state at the end of a dump."""

    groups: dict[str, dict[str, Any]]
    offsets: dict[str, dict[tuple[str, int], dict[str, Any]]]
    #: The records of the consumer protocol: record type -> (group id, member id) -> value.
    consumers: dict[str, dict[tuple[str, str], dict[str, Any]]]


def read_dump(text: str) -> Dumped:
    """Replays Kafka's dump: transactional records take effect at their commit marker."""
    dumped = Dumped({}, {}, {})
    producer, transactional = "", False
    waiting: dict[str, list[tuple[dict[str, Any], dict[str, Any] | None]]] = {}
    for line in text.splitlines():
        if line.startswith("$ ") and "--offsets-decoder" not in line:
            break
        if line.startswith("baseOffset:"):
            found = re.search(r"producerId: (-?\d+) .*isTransactional: (\w+)", line)
            assert found is not None
            producer, transactional = found[1], found[2] == "true"
        elif " endTxnMarker: " in line:
            for record in waiting.pop(producer, []):
                if "endTxnMarker: COMMIT" in line:
                    take(dumped, *record)
        elif line.startswith("| offset:"):
            found = re.search(r" key: (\{.*\}) payload: (.*)$", line)
            assert found is not None, line
            value = None if found[2] == "<DELETE>" else json.loads(found[2])["data"]
            record = (json.loads(found[1]), value)
            if transactional:
                waiting.setdefault(producer, []).append(record)
            else:
                take(dumped, *record)
    return dumped


def take(dumped: Dumped, key: dict[str, Any], value: dict[str, Any] | None) -> None:
    data = key["data"]
    if key["type"] == "1":
        offsets = dumped.offsets.setdefault(data["group"], {})
        if value is None:
            offsets.pop((data["topic"], data["partition"]), None)
        else:
            offsets[data["topic"], data["partition"]] = value
    elif key["type"] == "2":
        if value is None:
            dumped.groups.pop(data["group"], None)
        else:
            dumped.groups[data["group"]] = value
    elif key["type"] in CONSUMER_TYPES:
        records = dumped.consumers.setdefault(key["type"], {})
        place = (data["groupId"], data.get("memberId", ""))
        records.pop(place, None)
        if value is not None:
            records[place] = value


def load(name: str) -> GroupWorld:
    log = MemoryPartitions()
    log.install(PARTITION, (DATA / f"{name}.log").read_bytes())
    return GroupWorld(log=log)


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_log_loads_to_what_kafka_reads_in_it(name: str) -> None:
    dumped = read_dump((DATA / f"{name}.dump.txt").read_text())
    world = load(name)
    for group_id, expected in dumped.groups.items():
        group = world.group(group_id)
        assert (group.protocol_type or "", group.generation, group.protocol_name, group.leader_id) == (
            expected["protocolType"],
            expected["generation"],
            expected["protocol"],
            expected["leader"],
        )
        assert group.state_timestamp_ms == expected["currentStateTimestamp"]
        assert group.state.value == ("Stable" if expected["members"] else "Empty")
        assert [
            (m.member_id, m.instance_id, m.client_id, m.client_host, m.rebalance_timeout_ms, m.session_timeout_ms)
            for m in group.members.values()
        ] == [
            (
                m["memberId"],
                m["groupInstanceId"],
                m["clientId"],
                m["clientHost"],
                m["rebalanceTimeout"],
                m["sessionTimeout"],
            )
            for m in expected["members"]
        ]
        topics = frozenset(topic for member in expected["members"] for topic in member["subscription"]["topics"])
        if group.protocol_type == "consumer":
            assert group.subscribed == topics
    for group_id, offsets in dumped.offsets.items():
        assert {
            partition: (kept.offset, kept.leader_epoch, kept.metadata, kept.commit_timestamp_ms)
            for partition, kept in world.offsets(group_id).items()
        } == {
            partition: (value["offset"], value["leaderEpoch"], value["metadata"], value["commitTimestamp"])
            for partition, value in offsets.items()
        }
    listed = {group.group_id for group in world.list().response.groups}
    with_offsets = {group_id for group_id, offsets in dumped.offsets.items() if offsets}
    consumers = {group_id for group_id, _ in dumped.consumers.get("3", {})}
    assert listed == set(dumped.groups) | with_offsets | consumers
    assert {group.group_id for group in world.list(types=["consumer"]).response.groups} == consumers


@pytest.mark.parametrize("name", NAMES)
def test_recorded_groups_of_the_consumer_protocol_load_to_what_kafka_reads_in_them(name: str) -> None:
    dumped = read_dump((DATA / f"{name}.dump.txt").read_text()).consumers
    world = load(name)
    assert dumped["3"]
    for (group_id, _), value in dumped["3"].items():
        group = consumer_group(world, group_id)
        assert (group.epoch, group.metadata_hash) == (value["epoch"], value.get("metadataHash", 0))
        assert group.assignment_epoch == dumped["6"][group_id, ""]["assignmentEpoch"]
        assert set(group.members) == {member_id for of, member_id in dumped["5"] if of == group_id}
        for member in group.members.values():
            requested = dumped["5"][group_id, member.member_id]
            assert sorted(member.topic_names) == requested["subscribedTopicNames"]
            assert (member.client_id, member.client_host) == (requested["clientId"], requested["clientHost"])
            assert (member.instance_id, member.server_assignor) == (
                requested["instanceId"],
                requested["serverAssignor"],
            )
            assert member.rebalance_timeout_ms == requested["rebalanceTimeoutMs"]
            target = dumped["7"][group_id, member.member_id]["topicPartitions"]
            assert _places(group.target(member.member_id)) == _dumped_places(target)
            current = dumped["8"][group_id, member.member_id]
            assert (member.epoch, member.previous_epoch) == (current["memberEpoch"], current["previousMemberEpoch"])
            assert member.state == current["state"]
            assert _places(member.assigned) == _dumped_places(current["assignedPartitions"])
            assert _places(member.revoking) == _dumped_places(current["partitionsPendingRevocation"])


def _places(assignment: Assignment) -> set[tuple[bytes, int]]:
    return set(partitions_of(assignment))


def _dumped_places(topics: list[dict[str, Any]]) -> set[tuple[bytes, int]]:
    """Converts ids, which Kafka shows as base64 without padding."""
    return {(urlsafe_b64decode(one["topicId"] + "=="), index) for one in topics for index in one["partitions"]}


def test_the_recording_has_what_the_test_above_is_for() -> None:
    groups = read_dump((DATA / "groups.dump.txt").read_text())
    assert groups.groups["java-classic"]["members"]
    assert groups.offsets["deleted-group"] == {}
    assert groups.offsets["admin-group"]
    assert "tx-group" not in groups.offsets, "its transactions were aborted"
    clients = read_dump((DATA / "clients.dump.txt").read_text())
    assert clients.offsets["tx-group"], "its transactions were committed"
    assert {"golden-classic", "aio-group", "kp"} <= set(clients.groups)


@pytest.mark.parametrize("name", NAMES)
def test_our_records_are_those_of_kafka_byte_for_byte(name: str) -> None:
    view = memoryview((DATA / f"{name}.log").read_bytes())
    time = VirtualTime()
    deadlines = Deadlines(time, time)
    seen = {OffsetKey: 0, GroupKey: 0}
    for place, header in iter_headers(view):
        if header.is_control:
            continue
        for record in decode_batch(view[place : place + header.size_bytes]):
            assert record.key is not None
            key = parse_key(record.key)
            recorded = (record.key, record.value)
            if isinstance(key, OffsetKey):
                seen[OffsetKey] += 1
                if record.value is None:
                    assert offset_tombstone(*key) == recorded
                else:
                    assert offset_record(*key, parse_offset(record.value)) == recorded
            elif isinstance(key, GroupKey):
                seen[GroupKey] += 1
                if record.value is None:
                    assert group_tombstone(key.group_id) == recorded
                    continue
                value = parse_group(record.value)
                assert group_record(key.group_id, value) == recorded
                group = restore_group(key.group_id, value, deadlines)
                assignment = {member.member_id: member.assignment for member in group.members.values()}
                assert generation_record(group, assignment) == recorded
                if not value.generation:
                    assert new_group_record(group) == recorded
    assert min(seen.values()) >= 3


def encoded_again(key: consumer_records.ConsumerKey, value: bytes) -> KeyValue | None:
    """Returns the encoded value; None for one with several topics, whose order is that of a hash table of Java."""
    group_id, member_id = key.group_id, key.name
    match key.type:
        case ConsumerRecordType.GROUP:
            return consumer_records.group_record(group_id, *consumer_records.parse_group_epoch(value))
        case ConsumerRecordType.MEMBER:
            return finished(consumer_records.member_record(group_id, consumer_records.parse_member(member_id, value)))
        case ConsumerRecordType.TARGET_EPOCH:
            return consumer_records.target_epoch_record(group_id, consumer_records.parse_target_epoch(value))
        case ConsumerRecordType.TARGET:
            target = consumer_records.parse_target(value)
            return finished(consumer_records.target_record(group_id, member_id, target)) if len(target) < 2 else None
        case ConsumerRecordType.CURRENT:
            current = consumer_records.parse_current(value)
            member = replace(Member(member_id), **current._asdict())
            topics = max(len(current.assigned), len(current.revoking))
            return finished(consumer_records.current_record(group_id, member)) if topics < 2 else None
    raise AssertionError(f"{key.type.name} was not recorded")


def test_our_records_of_consumer_groups_are_those_of_kafka_byte_for_byte() -> None:
    seen: dict[ConsumerRecordType, int] = {}
    for name in NAMES:
        view = memoryview((DATA / f"{name}.log").read_bytes())
        for place, header in iter_headers(view):
            for record in [] if header.is_control else decode_batch(view[place : place + header.size_bytes]):
                assert record.key is not None
                key = consumer_records.parse_consumer_key(record.key)
                if key is None:
                    continue
                if record.value is None:
                    assert consumer_records.tombstone(key) == (record.key, None)
                    continue
                ours = encoded_again(key, record.value)
                if ours is not None:
                    assert ours == (record.key, record.value)
                    seen[key.type] = seen.get(key.type, 0) + 1
    assert sorted(seen) == [3, 5, 6, 7, 8]


@pytest.mark.parametrize("name", NAMES)
def test_our_batches_are_those_of_kafka_byte_for_byte(name: str) -> None:
    view = memoryview((DATA / f"{name}.log").read_bytes())
    compared = 0
    for place, header in iter_headers(view):
        if header.producer_id != -1 or header.is_control:
            continue
        recorded = view[place : place + header.size_bytes]
        ours = encode_batch(
            decode_batch(recorded),
            base_offset=header.base_offset,
            leader_epoch=header.partition_leader_epoch,
            base_sequence=0,
        )
        assert bytes(ours) == bytes(recorded)
        compared += 1
    assert compared > 10


def test_a_loaded_log_is_gone_on_with() -> None:
    world = load("groups")
    [member] = world.group("java-classic").members
    world.commit("java-classic", {("orders", 0): 61}, generation=1, member_id=member, instance_id="static-1")
    again = world.restart()
    assert again.offsets("java-classic")["orders", 0].offset == 61
    assert set(again.group("java-classic").members) == {member}
