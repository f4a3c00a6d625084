"""The metadata that this node follows: applies committed records, publishes images, and notifies subscribers.

Invariants
- `image` contains exactly the records up to `image.offset`, and only moves forward.
- The records of a metadata transaction (KIP-868) become visible together, at its end record, or not at all if it is
  aborted. While one is open, `image.offset` stays before it.
- Subscribers are called in the order of their subscription, once per published image, with the change. Each runs to
  completion; what it publishes in turn (as a controller that reacts) is published afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

#: Records that begin or end a metadata transaction.
_MARKERS: Final[frozenset[type[Message]]] = frozenset(
    {BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord}
)

Subscriber = Callable[[MetadataDelta, MetadataImage], None]


class MetadataLoader:
    """Builds images from committed batches. Holds back the records of an open transaction."""

    __slots__ = ("_delta", "_last_offset", "_rollback", "_taken", "image")

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self._delta: MetadataDelta | None = None
        self._last_offset = image.offset
        #: The records applied since `image`, and the number of those before the open transaction, which an abort keeps.
        self._taken: list[Message] = []
        self._rollback: int | None = None

    @property
    def last_offset(self) -> int:
        """The offset of the last applied record, visible or not."""
        return self._last_offset

    @property
    def in_transaction(self) -> bool:
        return self._rollback is not None

    def load(
        self, base_offset: int, epoch: int, timestamp_ms: int, records: Sequence[Message]
    ) -> tuple[MetadataDelta, MetadataImage] | None:
        """Applies one batch. Returns the change that it makes visible, or None while a transaction is open."""
        assert base_offset > self._last_offset, f"batch at {base_offset} after offset {self._last_offset}"
        if not _MARKERS.isdisjoint(map(type, records)):
            for record in records:
                self._take(record)
        else:
            self._take_all(records)
        self._last_offset = base_offset + len(records) - 1
        if self._rollback is not None:
            return None
        return self._publish(self._last_offset, epoch, timestamp_ms)

    def skip(self, offset: int, epoch: int, timestamp_ms: int) -> tuple[MetadataDelta, MetadataImage] | None:
        """Moves the image past a control batch of the quorum, which has no metadata and ends at `offset`."""
        assert offset > self._last_offset, f"batch to {offset} after offset {self._last_offset}"
        self._last_offset = offset
        if self._rollback is not None:
            return None
        return self._publish(offset, epoch, timestamp_ms)

    def _take(self, record: Message) -> None:
        if isinstance(record, BeginTransactionRecord):
            assert self._rollback is None, "a metadata transaction inside another"
            self._rollback = len(self._taken)
        elif isinstance(record, EndTransactionRecord):
            assert self._rollback is not None, "end of a metadata transaction that has not begun"
            self._rollback = None
        elif isinstance(record, AbortTransactionRecord):
            assert self._rollback is not None, "abort of a metadata transaction that has not begun"
            del self._taken[self._rollback :]
            self._rollback = None
            self._delta = MetadataDelta(self.image)
            for earlier in self._taken:
                self._delta.replay(earlier)
        else:
            self._take_all([record])

    def _take_all(self, records: Sequence[Message]) -> None:
        if self._delta is None:
            self._delta = MetadataDelta(self.image)
        self._delta.replay_all(records)
        self._taken += records

    def _publish(self, offset: int, epoch: int, timestamp_ms: int) -> tuple[MetadataDelta, MetadataImage]:
        delta = self._delta if self._delta is not None else MetadataDelta(self.image)
        self._delta = None
        self._taken.clear()
        self.image = delta.apply(offset, epoch, timestamp_ms)
        return delta, self.image


class MetadataStore:
    """The published image and its subscribers."""

    __slots__ = ("_catch_up_subscribers", "_pending", "_publishing", "_subscribers", "image", "in_transaction")

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        #: Whether the committed log ends within a metadata transaction, whose records are not in `image`.
        self.in_transaction = False
        self._subscribers: list[Subscriber] = []
        self._catch_up_subscribers: list[Subscriber] = []
        self._pending: deque[tuple[MetadataDelta, MetadataImage]] = deque()
        self._publishing = False

    def subscribe(self, callback: Subscriber, catch_up: Subscriber | None = None) -> None:
        """Calls `callback(delta, image)` for each publication from now on; `image` is the image published before.

        `catch_up(delta, image)` is called for each change that is published only together with others, because this
        node is behind.
        """
        self._subscribers.append(callback)
        if catch_up is not None:
            self._catch_up_subscribers.append(catch_up)

    def on_catch_up_change(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Notifies `catch_up` subscribers of one of the changes that are about to be published together."""
        for subscriber in self._catch_up_subscribers:
            subscriber(delta, image)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Makes `image` the current image and notifies the subscribers.

        A call from within a subscriber is queued, so that all subscribers see all images in the same order.
        """
        assert delta.image.offset <= image.offset, "the offset of the image never decreases"
        self._pending.append((delta, image))
        if self._publishing:
            return
        self._publishing = True
        try:
            while self._pending:
                delta, image = self._pending.popleft()
                self.image = image
                for subscriber in self._subscribers:
                    subscriber(delta, image)
        finally:
            self._publishing = False
