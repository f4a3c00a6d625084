"""The state of a cluster as a question finds it: brokers, settings and partitions, as plain values.

A situation comes from the table of a live cluster (`from_table.py`), from a recorded history, or from a simulated
cluster. What its source does not know is named in `gaps`, so that an answer can say what it assumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.decisions.partition import NO_LEADER, PartitionImage
from barnabas.decisions.strategies import ASSIGNMENT

#: A topic's name and a partition number.
Key = tuple[str, int]
NO_BROKER: Final = NO_LEADER


class BrokerFacts(NamedTuple):
    """A broker in the cluster. `problem` says why it does not answer; None if it does."""

    broker_id: int
    rack: str | None = None
    problem: str | None = None


class TopicFacts(NamedTuple):
    """The settings of a topic that decide about its partitions."""

    min_isr: int = 1
    is_unclean_allowed: bool = False


DEFAULT_FACTS: Final = TopicFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    #: The brokers that are registered and not fenced.
    brokers: Mapping[int, BrokerFacts]
    #: All partitions, in the order of their names and numbers.
    partitions: Mapping[Key, PartitionImage]
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    #: The active controller; -1 if it is unknown.
    controller: int = NO_BROKER
    #: Whether a metadata quorum decides; otherwise the controller of a cluster in ZooKeeper mode does.
    has_quorum: bool = True
    #: The voters of the metadata quorum; empty if they are unknown.
    voters: tuple[int, ...] = ()
    #: The voters that do not fetch the metadata log any more.
    lost_voters: frozenset[int] = frozenset()
    elr_enabled: bool = False
    #: The value of `barnabas.leader.election.strategy`.
    strategy: str = ASSIGNMENT
    #: The partitions with a replica in a log directory, by broker and path, for brokers that were asked.
    directories: Mapping[int, Mapping[str, frozenset[Key]]] = field(default_factory=dict)
    #: The directory of the metadata log, by broker. A node without it stops.
    metadata_directories: Mapping[int, str] = field(default_factory=dict)
    #: The bytes of the largest replica, by partition.
    sizes: Mapping[Key, int] = field(default_factory=dict)
    #: The facts that are not known, as sentences.
    gaps: tuple[str, ...] = ()

    def facts_of(self, topic: str) -> TopicFacts:
        return self.topics.get(topic, DEFAULT_FACTS)

    @property
    def silent(self) -> list[int]:
        """Returns the brokers that are registered and do not answer."""
        return sorted(broker.broker_id for broker in self.brokers.values() if broker.problem is not None)

    @property
    def absent(self) -> list[int]:
        """Returns the brokers that have replicas and are not registered, or fenced."""
        named = {replica for partition in self.partitions.values() for replica in partition.replicas}
        return sorted(named - self.brokers.keys())

    def is_known(self, node_id: int) -> bool:
        """Returns whether the cluster has, or had, a node with this id."""
        return node_id in self.brokers or node_id in self.voters or node_id in self.absent
