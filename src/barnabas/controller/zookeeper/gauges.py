"""Counts of the controller of ZooKeeper mode for metrics; all are 0 while it is not active, as with Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.controller.zookeeper.deletions import DeletionCounts

if TYPE_CHECKING:
    from barnabas.controller.zookeeper.active_controller import ActiveController


class ControllerGauges:
    """The counts of the current controller epoch; all are 0 if there is none."""

    def __init__(self, active: Callable[[], ActiveController | None]) -> None:
        self._active = active

    def queue_sizes(self) -> Mapping[int, int]:
        """Returns the number of requests that wait to be sent, for each broker."""
        active = self._active()
        return {} if active is None else active.core.queues.sizes()

    def deletions(self) -> DeletionCounts:
        active = self._active()
        return DeletionCounts() if active is None else active.deletions.counts()
