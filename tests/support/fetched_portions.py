"""A large answer to a follower's fetch, which the fetcher appends in several events."""

from __future__ import annotations

from tests.support.follower_world import FollowerWorld
from tests.support.log_world import TOPIC_ID, encode_records

from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.simulation.history import Violation


def _check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"fetcher: {what} is {found!r}, it should be {expected!r}")


def check_portions() -> None:
    """Checks that a large answer is appended in portions of a MiB; the rest in later events, before the next fetch."""
    world = FollowerWorld()
    for index in range(4):
        world.follower(index)
    world.run()
    half = 1 << 19
    _, reply = world.channel.requested.pop(0)
    rows = []
    for index in range(4):
        data = encode_records(1000, value=b"x" * (half - 100), leader_epoch=5)
        data = encode_records(1000, value=b"x" * (half - 100 + half - len(data)), leader_epoch=5)
        _check("the size of a batch", len(data), half)
        rows.append(FetchResponse.PartitionData(partition_index=index, records=memoryview(data), high_watermark=1))
    topics = [FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)]
    reply(FetchResponse(session_id=900, responses=topics))
    ends = [world.partitions[index].log.log_end_offset for index in range(4)]
    _check("the first portion", ends, [1, 1, 0, 0])
    _check("requests within an answer", len(world.channel.requested), 0)
    _check("the records that wait", type(rows[2].records), bytes)
    world.run()
    ends = [world.partitions[index].log.log_end_offset for index in range(4)]
    _check("all portions", ends, [1, 1, 1, 1])
    _check("the bytes that were replicated", world.partitions[0].traffic.replication_bytes_in, half)
    request = world.request()
    _check("the session", (request.session_id, request.session_epoch), (900, 1))
