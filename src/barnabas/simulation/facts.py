"""The facts of the notes about the controllers' decisions, for programs that read a time line."""

from __future__ import annotations

from typing import Final, NamedTuple

#: The name that the column of nodes shows for decisions.
DECIDED: Final = "cluster"


class PartitionDecided(NamedTuple):
    """The fact of a note that a partition has another leader, ISR, ELR or replicas."""

    partition: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class ControllerElected(NamedTuple):
    """The fact of a note that another controller is active. `node` is "" if there is none."""

    node: str


class BrokerFenced(NamedTuple):
    """The fact of a note that a broker is fenced, or serves again."""

    broker_id: int
    fenced: bool


class TopicDeleted(NamedTuple):
    """The fact of a note that a topic is deleted."""

    topic: str
