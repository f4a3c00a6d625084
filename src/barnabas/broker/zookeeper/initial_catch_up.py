"""Decides when a broker in ZooKeeper mode opens to clients: when it knows the cluster (G40).

The first UpdateMetadata of a controller can name brokers only, and a large one is applied to the image in slices. A
broker that served clients then would report partitions as unknown: clients would drop them, and producers would choose
other partitions for their keys. So the broker opens to clients when the image shows this broker and all partitions that
had a state in ZooKeeper after it registered; in any case some seconds later, because a partition whose state is
incomplete, or a topic that is being deleted, is in no request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common.host import Timer, Timers
from barnabas.metadata.image import MetadataImage

_OPEN_MS_MAX: Final = 5_000


class InitialCatchUp:
    """Calls `on_open` once, when clients can be served; this is never revoked."""

    def __init__(self, timers: Timers, node_id: int) -> None:
        self._timers = timers
        self._node_id = node_id
        #: The topics that the image possibly lacks, each with the number of its partitions that have a state.
        self._missing: dict[str, int] | None = None
        self._on_open: Callable[[], None] | None = None
        self._timer: Timer | None = None

    @property
    def is_waiting(self) -> bool:
        return self._on_open is not None

    def start(self, on_open: Callable[[], None]) -> None:
        self._on_open = on_open

    def registered(self) -> None:
        """Starts the maximum wait: when it ends, the broker opens even if topics are still missing."""
        if self.is_waiting and self._timer is None:
            self._timer = self._timers.call_later(_OPEN_MS_MAX, self._open)

    def expect(self, topics: Mapping[str, int], image: MetadataImage) -> None:
        """Records the topics in ZooKeeper, each with the number of its partitions that have a state."""
        self._missing = dict(topics)
        self.check(image)

    def check(self, image: MetadataImage) -> None:
        if self._missing is None or self._on_open is None or self._node_id not in image.brokers:
            return
        while self._missing:
            name = next(iter(self._missing))
            if not _has(image, name, self._missing[name]):
                return
            del self._missing[name]
        self._open()

    def close(self) -> None:
        self._on_open = None
        self._cancel()

    def _open(self) -> None:
        self._cancel()
        on_open, self._on_open = self._on_open, None
        if on_open is not None:
            on_open()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _has(image: MetadataImage, name: str, count: int) -> bool:
    topic = image.topics_by_name.get(name)
    return topic is not None and sum(partition.is_known for partition in topic.partitions) >= count
