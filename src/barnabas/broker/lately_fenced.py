"""Brokers that were fenced a moment ago: Metadata goes on listing them for `_LISTED_MS`.

librdkafka that finds a broker no longer listed removes it at once, and with it takes the new leader from partitions
that it is just moving away from there; it looks again only after a second. A broker that is listed and does not
answer costs clients nothing that they would not meet with Kafka, which fences a dead broker when its session of 9 s
is over. Only the list of brokers has them: they lead nothing, and no replica of theirs counts as there.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.host import Clock
from barnabas.metadata.cluster import BrokerImage
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore

_LISTED_MS: Final = 3_000


class LatelyFenced:
    """Knows nobody before `follow`."""

    def __init__(self) -> None:
        self._clock: Clock | None = None
        self._alive: dict[int, BrokerImage] = {}
        #: As they were, and until when they are listed.
        self._fenced: dict[int, tuple[BrokerImage, int]] = {}

    def follow(self, store: MetadataStore, clock: Clock) -> None:
        self._clock = clock
        store.subscribe(self._on_image)

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert self._clock is not None, "it follows"
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                self._alive[broker_id] = broker
                self._fenced.pop(broker_id, None)
                continue
            before = self._alive.pop(broker_id, None)
            # One that stops in order has been left by its partitions before.
            if before is not None and not before.in_controlled_shutdown:
                self._fenced[broker_id] = (before, self._clock.now_ms() + _LISTED_MS)

    def listed(self) -> list[BrokerImage]:
        if not self._fenced or self._clock is None:
            return []
        now_ms = self._clock.now_ms()
        self._fenced = {broker_id: entry for broker_id, entry in self._fenced.items() if now_ms < entry[1]}
        return [broker for broker, _ in self._fenced.values()]
