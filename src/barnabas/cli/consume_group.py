"""The two ways in which `barnabas consume` reads: partitions that it assigns itself, or partitions of a consumer group.

In a group, an offset is stored for the next commit only after its record was written out. A member that continues from
there misses nothing, but prints some records again after a crash. The end of a partition is committed even if nothing
was read, so that the group reads what arrives later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from barnabas.cli import output


class Reading(Protocol):
    """The interface between a way of reading and the loop that prints."""

    def reached_end(self, partition: int) -> None: ...

    @property
    def is_at_end(self) -> bool:
        """Whether the reader has reached the end of every partition."""

    def printed(self, next_offsets: Mapping[int, int]) -> None:
        """Stores the next offset of each partition whose records were printed."""


class OwnAssignment:
    """Reads fixed partitions from given offsets, and commits nothing."""

    def __init__(self, client: Consumer, start: Sequence[TopicPartition]) -> None:
        client.assign(list(start))
        self._left = {each.partition for each in start}

    def reached_end(self, partition: int) -> None:
        self._left.discard(partition)

    @property
    def is_at_end(self) -> bool:
        return not self._left

    def printed(self, next_offsets: Mapping[int, int]) -> None:
        return None


class Membership:
    """Reads as a member of the client's group. Reports each change of its partitions on stderr."""

    def __init__(self, client: Consumer, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._partitions: set[int] = set()
        self._ended: set[int] = set()
        self._has_joined = False
        client.subscribe([topic], on_assign=self._gained, on_revoke=self._lost, on_lost=self._lost)

    def reached_end(self, partition: int) -> None:
        self._ended.add(partition)

    @property
    def is_at_end(self) -> bool:
        return self._has_joined and self._partitions <= self._ended

    def printed(self, next_offsets: Mapping[int, int]) -> None:
        for partition, offset in next_offsets.items():
            try:
                self._client.store_offsets(offsets=[TopicPartition(self._topic, partition, offset)])
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise
                # Another member has the partition by now and prints these records again.

    def _gained(self, _client: Any, partitions: list[TopicPartition]) -> None:
        gained = {each.partition for each in partitions}
        self._has_joined = True
        self._partitions |= gained
        self._ended -= gained
        self._report()

    def _lost(self, _client: Any, partitions: list[TopicPartition]) -> None:
        self._partitions -= {each.partition for each in partitions}

    def _report(self) -> None:
        named = ", ".join(f"{self._topic}-{partition}" for partition in sorted(self._partitions))
        output.say(f"reading {named}" if named else "no partition: the other members read all of them")
