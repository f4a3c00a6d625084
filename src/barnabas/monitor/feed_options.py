"""The settings of the feeds of one cluster."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.monitor.broker_connection import Address
from barnabas.monitor.budget import SHARE


@dataclass(frozen=True, slots=True)
class FeedOptions:
    #: The topic that is watched; None for all.
    topic: str | None = None
    #: The time between two polls of the same partition. The budget can make it longer.
    interval_s: float = 1.0
    #: The longest wait for an answer.
    timeout_s: float = 3.0
    #: Whether polls include the offsets that consumers see, and the committed offsets of groups.
    wants_offsets: bool = False
    #: Whether the first poll waits for all sizes and offsets, and not only for those of the first chunk.
    wants_all_volumes: bool = True
    #: The listeners of the controllers, whose metadata log is read; the principal needs CLUSTER_ACTION for that.
    controllers: tuple[Address, ...] = ()
    #: The share of one core of each broker that polls can take.
    budget_share: float = SHARE
