"""Requests and notifications as znodes: preferred election, reassignment, changed ISRs, failed log directories.

Kafka keeps the partitions of these znodes in sets, so their order has no meaning; the codecs here preserve it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.common.host import Buffer
from barnabas.common.portions import PARTITIONS_IN_PORTION, Portions, whole
from barnabas.common.types import TopicPartition
from barnabas.znodes.znode_json import JsonObject, json_bytes, read_object, write_text

VERSION: Final = 1
#: The only event of a log directory: it failed.
LOG_DIR_FAILURE: Final = 1


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Returns the content of /admin/preferred_replica_election, and of a notification of changed ISRs."""
    listed = [{"topic": item.topic, "partition": item.partition} for item in partitions]
    return json_bytes({"version": VERSION, "partitions": listed})


def decode_partitions(path: str, data: Buffer | None) -> list[TopicPartition]:
    """Returns the partitions, each once. Raises ZnodeError for content that is not a list of partitions."""
    items = _items(path, data)
    return list(dict.fromkeys(_partition(item) for item in items))


def _items(path: str, data: Buffer | None) -> list[JsonObject]:
    content = read_object(path, data)
    if content.has("version"):
        content.version(1, VERSION)
    return content.nested_list("partitions")


def _partition(item: JsonObject) -> TopicPartition:
    number = item.int32("partition")
    if number < 0:
        raise item.wrong("partition", f"is {number}")
    return TopicPartition(item.text("topic"), number)


def encode_reassignment(targets: Mapping[TopicPartition, Iterable[int]]) -> bytes:
    """Returns the content of /admin/reassign_partitions: the target replicas of each partition."""
    topics = {name: write_text(name) for name in {item.topic for item in targets}}
    listed = [
        f'{{"topic":{topics[item.topic]},"partition":{item.partition},"replicas":[{",".join(map(str, replicas))}]}}'
        for item, replicas in targets.items()
    ]
    return f'{{"version":{VERSION},"partitions":[{",".join(listed)}]}}'.encode()


def decode_reassignment(path: str, data: Buffer | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the target replicas of each partition. Raises ZnodeError for content that is not a reassignment."""
    return whole(reassignment_in_portions(path, data))


def reassignment_in_portions(path: str, data: Buffer | None) -> Portions[dict[TopicPartition, tuple[int, ...]]]:
    """Does the same as `decode_reassignment`, up to a thousand partitions at a time."""
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for count, item in enumerate(_items(path, data)):
        if count and not count % PARTITIONS_IN_PORTION:
            yield
        found[_partition(item)] = item.broker_ids("replicas")
    return found


def encode_log_dir_event(broker_id: int) -> bytes:
    """Returns the notification that a log directory of this broker failed."""
    return json_bytes({"version": VERSION, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: Buffer | None) -> int:
    """Returns the broker whose log directory failed."""
    return read_object(path, data).int32("broker")
