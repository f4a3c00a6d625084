"""The moment at which a broker in ZooKeeper mode opens to clients: when it knows the cluster (G40).

The first UpdateMetadata of a controller can name brokers only. A broker that served clients then would report every
partition as unknown, and clients would drop them. So the broker opens to clients when the image shows this broker and
all topics that were in ZooKeeper when it registered; in any case some seconds later, because a topic that never had a
live replica, or one that is being deleted, is in no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from barnabas.common.host import Timer, Timers
from barnabas.metadata.image import MetadataImage

_OPEN_MS_MAX: Final = 5_000


class ClientDoor:
    """The one-time signal `on_open`; it is never revoked."""

    def __init__(self, timers: Timers, node_id: int) -> None:
        self._timers = timers
        self._node_id = node_id
        self._topics: frozenset[str] | None = None
        self._on_open: Callable[[], None] | None = None
        self._timer: Timer | None = None

    def start(self, on_open: Callable[[], None]) -> None:
        self._on_open = on_open

    def registered(self, topics: Iterable[str], image: MetadataImage) -> None:
        """Records the topics that exist at the registration."""
        self._topics = frozenset(topics)
        if self._on_open is not None and self._timer is None:
            self._timer = self._timers.call_later(_OPEN_MS_MAX, self._open)
        self.check(image)

    def check(self, image: MetadataImage) -> None:
        if self._topics is None or self._on_open is None or self._node_id not in image.brokers:
            return
        if all(name in image.topics_by_name for name in self._topics):
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
