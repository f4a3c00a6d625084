"""Brokers that were fenced recently: Metadata responses list them for a further `_LISTED_MS`.

When librdkafka finds that a broker is no longer listed, it removes the broker immediately. If it is just moving
partitions from that broker to a new leader, it forgets the new leader too, and retries only after a second. A listed
broker that does not answer costs clients nothing extra: with Kafka, a dead broker stays listed until its session of 9 s
ends. Recently fenced brokers appear only in the list of brokers: they lead nothing, and their replicas count as
offline.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.host import Clock
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.registrations import BrokerImage
from barnabas.metadata.store import MetadataStore

_LISTED_MS: Final = 3_000


class RecentlyFenced:
    """The recently fenced brokers. There are none before `follow` is called."""

    def __init__(self) -> None:
        self._clock: Clock | None = None
        self._alive: dict[int, BrokerImage] = {}
        #: The last unfenced registration of each, and the time until which it is listed.
        self._fenced: dict[int, tuple[BrokerImage, int]] = {}

    def follow(self, store: MetadataStore, clock: Clock) -> None:
        self._clock = clock
        store.subscribe(self._on_image)

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert self._clock is not None, "`follow` was called before"
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                self._alive[broker_id] = broker
                self._fenced.pop(broker_id, None)
                continue
            before = self._alive.pop(broker_id, None)
            # A broker in controlled shutdown no longer leads partitions, so clients do not need it.
            if before is not None and not before.in_controlled_shutdown:
                self._fenced[broker_id] = (before, self._clock.now_ms() + _LISTED_MS)

    def listed(self) -> list[BrokerImage]:
        if not self._fenced or self._clock is None:
            return []
        now_ms = self._clock.now_ms()
        self._fenced = {broker_id: entry for broker_id, entry in self._fenced.items() if now_ms < entry[1]}
        return [broker for broker, _ in self._fenced.values()]
