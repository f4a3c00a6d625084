"""Partitions without a leader: which ones, and what the operator can do to restore each of them.

The replicas that can lead without loss are those of the ISR, or of the ELR while the ISR is empty (KIP-966). If both
are empty, the last known leader is elected when it returns; it can lack records. The operator can have any other
replica elected (`barnabas elect --type unclean`), which loses the records that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from barnabas.cli.cluster_view import TIMEOUT_S
from barnabas.cli.raw_requests import Wire
from barnabas.embedded.failures import Failure
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

#: The version of Metadata requests, which brokers in ZooKeeper mode support too.
_METADATA_VERSION: Final = 9
#: The maximum number of partitions that are listed as text.
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Leaderless:
    """A partition without a leader. In ZooKeeper mode `elr` and `last_known` are empty."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        remedy = way_out(self.isr, self.elr, self.last_known)
        return {**asdict(self), "way_out": remedy}


def way_out(isr: Sequence[int], elr: Sequence[int], last_known: Sequence[int] = ()) -> str:
    """Returns the action with which the operator can restore a partition without a leader."""
    complete, name = (isr, "in sync") if isr else (elr, "in the ELR")
    if complete:
        return f"start {_any_of(complete)}, {name}: nothing is lost"
    unclean = "elect another replica with `barnabas elect --type unclean`, which can lose records"
    if last_known:
        return f"start {_any_of(last_known)}, the last known leader, or {unclean}"
    return unclean


def _any_of(brokers: Sequence[int]) -> str:
    return f"broker {brokers[0]}" if len(brokers) == 1 else f"one of the brokers {', '.join(map(str, brokers))}"


def leaderless(addresses: Iterable[tuple[str, int]]) -> list[Leaderless]:
    """Returns the partitions without a leader, according to the first broker that answers; none if no broker
    answers.
    """
    for address in addresses:
        try:
            with Wire(*address, timeout_s=TIMEOUT_S) as wire:
                found = _of_metadata(wire.call(MetadataRequest(topics=None), _METADATA_VERSION, MetadataResponse))
        except Failure:
            continue
        try:
            with Wire(*address, timeout_s=TIMEOUT_S) as wire:
                return _with_eligible(wire, found)
        except Failure:
            return found  # A broker in ZooKeeper mode has neither this request nor an ELR.
    return []


def _of_metadata(answer: MetadataResponse) -> list[Leaderless]:
    return [
        Leaderless(topic.name or "", row.partition_index, tuple(row.replica_nodes), tuple(sorted(row.isr_nodes)))
        for topic in sorted(answer.topics, key=lambda topic: topic.name or "")
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
        if row.leader_id == NO_LEADER
    ]


def _with_eligible(wire: Wire, found: Sequence[Leaderless]) -> list[Leaderless]:
    """Returns the same partitions with their ELRs and last known leaders."""
    wanted = {(each.topic, each.partition) for each in found}
    names = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in sorted({name for name, _ in wanted})]
    described: list[Leaderless] = []
    cursor: DescribeTopicPartitionsRequest.Cursor | None = None
    while names:
        request = DescribeTopicPartitionsRequest(topics=names, cursor=cursor)
        answer = wire.call(request, 0, DescribeTopicPartitionsResponse)
        described += [
            Leaderless(
                topic.name or "",
                row.partition_index,
                tuple(row.replica_nodes),
                tuple(sorted(row.isr_nodes)),
                tuple(row.eligible_leader_replicas or ()),
                tuple(row.last_known_elr or ()),
            )
            for topic in answer.topics
            for row in topic.partitions
            if row.leader_id == NO_LEADER and (topic.name, row.partition_index) in wanted
        ]
        if answer.next_cursor is None:
            break
        after = answer.next_cursor
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=after.topic_name, partition_index=after.partition_index
        )
    return described


def lines_of(found: Sequence[Leaderless]) -> list[str]:
    """Returns the text about these partitions. Partitions of one topic that need the same action share a line."""
    groups: dict[tuple[str, str], list[int]] = {}
    for each in found:
        groups.setdefault((each.topic, way_out(each.isr, each.elr, each.last_known)), []).append(each.partition)
    lines = [
        f"no leader: {topic}-{','.join(map(str, partitions[:SHOWN]))}"
        f"{f' and {len(partitions) - SHOWN} more' if len(partitions) > SHOWN else ''}: {remedy}"
        for (topic, remedy), partitions in groups.items()
    ]
    rest = len(lines) - SHOWN
    return lines if rest <= 0 else [*lines[:SHOWN], f"and {rest} more topics have partitions without a leader"]
