"""Change sets: the rows that one version of the table changed, with their values before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.monitor.columns import IntArray, States
from barnabas.monitor.delta import Source, TopicName
from barnabas.monitor.partition_state import BrokerState


class TopicChange(NamedTuple):
    """A topic that was created or deleted. A topic with the same name and a new id was deleted and created."""

    topic: TopicName
    is_created: bool


class BrokerChange(NamedTuple):
    """A broker before and after; None before it joined and after it left."""

    broker_id: int
    before: BrokerState | None
    after: BrokerState | None


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """One version. `topic` in the states is the number of a topic in `topics`."""

    version: int
    time_ms: int
    source: Source
    topics: Mapping[int, TopicName]
    topic_changes: tuple[TopicChange, ...]
    #: Partitions that were created.
    created_rows: IntArray
    created: States
    #: Partitions that were removed, alone or with their topic.
    removed_rows: IntArray
    removed: States
    #: Partitions whose state changed.
    rows: IntArray
    before: States
    after: States
    #: By changed partition: elections between the two states that no feed delivered.
    missed_elections: IntArray
    brokers: tuple[BrokerChange, ...]
    #: The active controller before and after; None if it is the same.
    controller: tuple[int, int] | None
    silent_before: frozenset[int]
    silent_after: frozenset[int]
    #: Rows whose sizes or offsets changed.
    volume_rows: IntArray

    @property
    def is_of_states(self) -> bool:
        """Whether anything but sizes and offsets changed."""
        return bool(
            len(self.rows)
            or len(self.created_rows)
            or len(self.removed_rows)
            or self.topic_changes
            or self.brokers
            or self.controller
            or self.silent_before != self.silent_after
        )
