"""The metadata that this node follows: committed records in, images out, subscribers told of each change.

Invariants
- `image` holds exactly the records up to `image.offset`; it only moves forward.
- The records of a metadata transaction (KIP-868) become visible together, at its end record, or, when it is aborted,
  not at all. While one is open `image.offset` stays before it.
- Subscribers are called in the order of their subscription, once per published image, with what changed. They run to
  completion; what they publish in turn (a controller that reacts) is appended behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

Subscriber = Callable[[MetadataDelta, MetadataImage], None]


class MetadataLoader:
    """Turns committed batches into images. Holds back an open transaction's records."""

    __slots__ = ("_delta", "_last_offset", "_rollback", "_taken", "image")

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self._delta: MetadataDelta | None = None
        self._last_offset = image.offset
        #: Records taken in since `image` that an abort would not undo, and how many of them there were when the open
        #: transaction began.
        self._taken: list[Message] = []
        self._rollback: int | None = None

    @property
    def last_offset(self) -> int:
        """Of the last record taken in, visible or not."""
        return self._last_offset

    @property
    def in_transaction(self) -> bool:
        return self._rollback is not None

    def load(
        self, base_offset: int, epoch: int, timestamp_ms: int, records: Sequence[Message]
    ) -> tuple[MetadataDelta, MetadataImage] | None:
        """Take one batch in. Returns the change it makes visible, None while a transaction is open."""
        assert base_offset > self._last_offset, f"batch at {base_offset} after offset {self._last_offset}"
        for record in records:
            self._take(record)
        self._last_offset = base_offset + len(records) - 1
        if self._rollback is not None:
            return None
        return self._publish(self._last_offset, epoch, timestamp_ms)

    def skip(self, offset: int, epoch: int, timestamp_ms: int) -> tuple[MetadataDelta, MetadataImage] | None:
        """A control batch of the quorum that ends at `offset`: no metadata in it, but the image moves on."""
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
            assert self._rollback is not None, "end of no metadata transaction"
            self._rollback = None
        elif isinstance(record, AbortTransactionRecord):
            assert self._rollback is not None, "abort of no metadata transaction"
            del self._taken[self._rollback :]
            self._rollback = None
            self._delta = MetadataDelta(self.image)
            for earlier in self._taken:
                self._delta.replay(earlier)
        else:
            if self._delta is None:
                self._delta = MetadataDelta(self.image)
            self._delta.replay(record)
            self._taken.append(record)

    def _publish(self, offset: int, epoch: int, timestamp_ms: int) -> tuple[MetadataDelta, MetadataImage]:
        delta = self._delta if self._delta is not None else MetadataDelta(self.image)
        self._delta = None
        self._taken.clear()
        self.image = delta.apply(offset, epoch, timestamp_ms)
        return delta, self.image


class MetadataStore:
    """The published image and who listens to it."""

    __slots__ = ("_past_subscribers", "_pending", "_publishing", "_subscribers", "image", "in_transaction")

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        #: Whether the committed log ends within a metadata transaction, which `image` does not show.
        self.in_transaction = False
        self._subscribers: list[Subscriber] = []
        self._past_subscribers: list[Subscriber] = []
        self._pending: deque[tuple[MetadataDelta, MetadataImage]] = deque()
        self._publishing = False

    def subscribe(self, callback: Subscriber, past: Subscriber | None = None) -> None:
        """`callback(delta, image)` from the next publication on. What is there already is in `image`. `past(delta,
        image)` for each change that is published only together with others, because this node was behind."""
        self._subscribers.append(callback)
        if past is not None:
            self._past_subscribers.append(past)

    def on_past(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """One of the changes that are going to be published together."""
        for subscriber in self._past_subscribers:
            subscriber(delta, image)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Make `image` the current one and tell everybody. Called from within a subscriber, it waits its turn, so that
        all subscribers see all images in one order."""
        assert delta.image.offset <= image.offset, "metadata goes forward"
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
