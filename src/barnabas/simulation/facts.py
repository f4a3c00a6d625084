"""The decisions of controllers as data of time line entries, for programs that read a time line."""

from __future__ import annotations

from typing import Final, NamedTuple

#: The name that stands in the column of nodes for decisions.
DECIDED: Final = "cluster"


class PartitionDecided(NamedTuple):
    """Data of a time line entry: a partition has another leader, ISR, ELR or other replicas."""

    partition: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class ControllerElected(NamedTuple):
    """Data of a time line entry: another controller is active. `node` is "" if there is none."""

    node: str


class BrokerFenced(NamedTuple):
    """Data of a time line entry: a broker is fenced, or serves again."""

    broker_id: int
    fenced: bool


class TopicDeleted(NamedTuple):
    """Data of a time line entry: a topic is deleted."""

    topic: str
