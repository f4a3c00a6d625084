"""The situation in a table of the monitor, with the facts that the table does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from barnabas.decisions.partition import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, PartitionImage
from barnabas.decisions.strategies import ASSIGNMENT
from barnabas.monitor.columns import UNKNOWN, IntArray, unpacked
from barnabas.monitor.table_state import TableState
from barnabas.whatif.situation import BrokerFacts, Key, Situation, TopicFacts


@dataclass(slots=True)
class ClusterFacts:
    """The facts that the table of a cluster does not have."""

    has_quorum: bool = True
    voters: tuple[int, ...] = ()
    lost_voters: frozenset[int] = frozenset()
    elr_enabled: bool = False
    strategy: str = ASSIGNMENT
    #: The topics that allow unclean elections.
    unclean_topics: frozenset[str] = frozenset()
    directories: Mapping[int, Mapping[str, frozenset[Key]]] = field(default_factory=dict)
    metadata_directories: Mapping[int, str] = field(default_factory=dict)
    #: The facts that could not be learned, as sentences.
    gaps: tuple[str, ...] = ()


def situation_of(table: TableState, facts: ClusterFacts) -> Situation:
    """Returns the situation of the cluster that the table describes."""
    gaps = list(facts.gaps)
    min_isrs = _min_isrs(table)
    unknown = [name for name, value in min_isrs.items() if value == UNKNOWN]
    if unknown:
        gaps.append(f"min.insync.replicas of {len(unknown)} topics is not known, and counts as 1")
    return Situation(
        brokers={
            broker.broker_id: BrokerFacts(broker.broker_id, broker.rack, broker.problem)
            for broker in table.brokers.values()
        },
        partitions=_partitions(table),
        topics={name: TopicFacts(max(value, 1), name in facts.unclean_topics) for name, value in min_isrs.items()},
        controller=table.controller,
        has_quorum=facts.has_quorum,
        voters=facts.voters,
        lost_voters=facts.lost_voters,
        elr_enabled=facts.elr_enabled,
        strategy=facts.strategy,
        directories=facts.directories,
        metadata_directories=facts.metadata_directories,
        sizes=_sizes(table),
        gaps=tuple(gaps),
    )


def _min_isrs(table: TableState) -> dict[str, int]:
    """Returns the configured min ISR of each topic; -1 where it is unknown."""
    states, rows = table.states, table.rows
    by_number = dict(zip(states.topic[rows].tolist(), states.min_isr[rows].tolist(), strict=True))
    return {table.topics.by_number[number].name: value for number, value in by_number.items()}


def _partitions(table: TableState) -> dict[Key, PartitionImage]:
    """Returns the partitions by name and number. Rows with equal lists, of which a cluster has many, share them."""
    states = table.states
    rows = _in_order(table)
    lists = _Lists()
    found: dict[Key, PartitionImage] = {}
    names = {number: topic.name for number, topic in table.topics.by_number.items()}
    registered = frozenset(table.brokers)
    columns = (states.replicas, states.isr, states.elr, states.offline, states.adding, states.removing)
    packed = zip(*(column[rows] for column in columns), strict=True)
    scalars = zip(
        states.topic[rows].tolist(),
        states.partition[rows].tolist(),
        states.leader[rows].tolist(),
        states.leader_epoch[rows].tolist(),
        states.partition_epoch[rows].tolist(),
        strict=True,
    )
    for (topic, partition, leader, epoch, partition_epoch), row in zip(scalars, packed, strict=True):
        replicas, isr, elr, offline, adding, removing = map(lists.of, row)
        found[names[topic], partition] = PartitionImage(
            replicas,
            isr,
            leader,
            epoch,
            max(partition_epoch, 0),
            _directories(replicas, frozenset(offline) & registered),
            removing,
            adding,
            elr=elr,
        )
    return found


def _in_order(table: TableState) -> IntArray:
    ranks = table.topics.ranks()[table.states.topic[table.rows]]
    return table.rows[np.lexsort((table.states.partition[table.rows], ranks))]


def _directories(replicas: tuple[int, ...], lost: frozenset[int]) -> tuple[bytes, ...]:
    """Returns the directories of the replicas: the lost one if the replica is offline on a broker that is not."""
    if not lost:
        return _UNASSIGNED[: len(replicas)] if len(replicas) <= len(_UNASSIGNED) else (_ANY,) * len(replicas)
    return tuple(LOST_DIRECTORY if replica in lost else _ANY for replica in replicas)


_ANY: Final = UNASSIGNED_DIRECTORY
_UNASSIGNED: Final = (_ANY,) * 8


class _Lists:
    """The lists of a column, each kept once."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, ...]] = {}

    def of(self, row: IntArray) -> tuple[int, ...]:
        key = row.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = unpacked(row)
        return found


def _sizes(table: TableState) -> dict[Key, int]:
    """Returns the bytes of the largest replica of each partition whose size is known."""
    rows = table.rows
    if not len(rows):
        return {}
    largest = table.volumes.size[rows].max(axis=1)
    names = {number: topic.name for number, topic in table.topics.by_number.items()}
    known = largest != UNKNOWN
    return {
        (names[topic], partition): size
        for topic, partition, size in zip(
            table.states.topic[rows[known]].tolist(),
            table.states.partition[rows[known]].tolist(),
            largest[known].tolist(),
            strict=True,
        )
    }
