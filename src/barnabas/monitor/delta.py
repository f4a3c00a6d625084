"""The input of the table: the content of one answer of a broker, one event or one metadata record.

A delta names the topics that it covers. A whole poll covers all topics, and a page covers a range of names: a topic
that is in that range of the table but not in the delta was deleted. Everything else stays unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from barnabas.monitor.columns import UNKNOWN, IntArray, States, packed
from barnabas.monitor.partition_state import BrokerState

NO_TOPIC_ID: Final = b"\0" * 16


class Source(StrEnum):
    """The feed that a delta comes from."""

    LOOK = "look"
    JOURNAL = "journal"
    METADATA_LOG = "metadata-log"


#: Feeds that deliver each change, in order.
EXACT: Final = frozenset({Source.JOURNAL, Source.METADATA_LOG})


class TopicName(NamedTuple):
    """A topic. Without an id (`NO_TOPIC_ID`), the cluster is too old to have them."""

    name: str
    topic_id: bytes = NO_TOPIC_ID


class NameRange(NamedTuple):
    """The names from `first` on, before `end`; all that follow if `end` is None."""

    first: str = ""
    end: str | None = None


class Rows(NamedTuple):
    """Partitions, column by column. `topics` has the index of each one's topic in `Partitions.topics`, `scalars` its
    number, leader, leader epoch and partition epoch.
    """

    topics: list[int]
    scalars: list[tuple[int, int, int, int]]
    replicas: list[Sequence[int]]
    isr: list[Sequence[int]]
    lists: Mapping[str, list[Sequence[int]]]


class Partitions:
    """The partitions in a delta, collected row by row. `known` names the optional columns that its source knows."""

    def __init__(self, known: frozenset[str] = frozenset()) -> None:
        self.known = known
        self.topics: list[TopicName] = []
        #: Whether the delta contains all partitions of the topic.
        self.is_complete: list[bool] = []
        self._topic: list[int] = []
        self._scalars: list[tuple[int, int, int, int]] = []
        self._replicas: list[Sequence[int]] = []
        self._isr: list[Sequence[int]] = []
        self._lists: dict[str, list[Sequence[int]]] = {
            name: [] for name in ("elr", "offline", "adding", "removing", "directories") if name in known
        }

    def __len__(self) -> int:
        return len(self._topic)

    def add_topic(self, name: str, topic_id: bytes = NO_TOPIC_ID, *, is_complete: bool) -> None:
        """Begins a topic; the partitions added next are its own."""
        self.topics.append(TopicName(name, bytes(topic_id) or NO_TOPIC_ID))
        self.is_complete.append(is_complete)

    def add(
        self,
        partition: int,
        leader: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        *,
        partition_epoch: int = UNKNOWN,
        **lists: Sequence[int],
    ) -> None:
        self._topic.append(len(self.topics) - 1)
        self._scalars.append((partition, leader, leader_epoch, partition_epoch))
        self._replicas.append(replicas)
        self._isr.append(isr)
        for name, column in self._lists.items():
            column.append(lists.get(name, ()))

    def extend(self, rows: Rows) -> None:
        """Adds rows of topics that were begun."""
        self._topic += rows.topics
        self._scalars += rows.scalars
        self._replicas += rows.replicas
        self._isr += rows.isr
        for name, column in self._lists.items():
            column += rows.lists[name]

    def only(self, name: str) -> Partitions:
        """Returns the part of one topic."""
        found = Partitions(self.known)
        wanted = {index for index, topic in enumerate(self.topics) if topic.name == name}
        last = UNKNOWN
        for row, index in enumerate(self._topic):
            if index in wanted:
                if index != last:
                    found.add_topic(*self.topics[index], is_complete=self.is_complete[index])
                    last = index
                partition, leader, epoch, partition_epoch = self._scalars[row]
                lists = {column: values[row] for column, values in self._lists.items()}
                found.add(
                    partition,
                    leader,
                    epoch,
                    self._replicas[row],
                    self._isr[row],
                    partition_epoch=partition_epoch,
                    **lists,
                )
        return found

    @property
    def width(self) -> int:
        """Returns the length of the longest list."""
        columns = (self._replicas, self._isr, *self._lists.values())
        return max((max(map(len, column), default=0) for column in columns), default=0)

    def states(self, width: int) -> States:
        """Returns the rows; `topic` is the index of each row's topic in `topics`."""
        found = States.empty(len(self), width)
        found.topic[:] = self._topic
        if self._scalars:
            scalars = np.array(self._scalars, np.int32)
            found.partition, found.leader = scalars[:, 0].copy(), scalars[:, 1].copy()
            found.leader_epoch, found.partition_epoch = scalars[:, 2].copy(), scalars[:, 3].copy()
        found.replicas, found.isr = packed(self._replicas, width), packed(self._isr, width)
        for name, column in self._lists.items():
            setattr(found, name, packed(column, width))
        return found

    def indexes(self) -> IntArray:
        return np.array(self._topic, np.int32)


@dataclass(slots=True)
class Delta:
    """The input of one feed at one time. Fields that are None or empty leave the table as it is."""

    time_ms: int
    source: Source = Source.LOOK
    #: The time at which the request was sent: the answer can be as old as that.
    asked_ms: int | None = None
    partitions: Partitions | None = None
    covers: NameRange | None = None
    deleted: Sequence[TopicName] = ()
    #: All brokers of the cluster. Their problems and times of answers come by `problems`.
    brokers: Mapping[int, BrokerState] | None = None
    #: By broker: why it did not answer, or None if it did.
    problems: Mapping[int, str | None] = field(default_factory=dict)
    controller: int | None = None
    cluster_id: str | None = None
    min_isrs: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        return self.source in EXACT


@dataclass(slots=True)
class VolumesSeen:
    """Sizes and offsets of partitions from one broker. Each mapping is by topic and partition."""

    time_ms: int
    broker: int
    sizes: Mapping[tuple[str, int], int] = field(default_factory=dict)
    reported_lags: Mapping[tuple[str, int], int] = field(default_factory=dict)
    end_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    high_watermarks: Mapping[tuple[str, int], int] = field(default_factory=dict)
    start_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
