"""Transaction markers: sent to the leaders of a decided transaction's partitions until all of them have written them.

    decided -> one WriteTxnMarkers per broker, for everything to be sent in this event of the loop
            -> a partition that has written its marker is done; one that cannot is retried at its leader of that time
            -> after the last partition: `MarkerDelivery.on_delivered`

Invariants
- A repeated marker has no effect, so every marker without a successful response is sent again, for as long as this
  broker coordinates the transaction. Nothing else ends a decided transaction (the LSO never stays stuck, G24).
- A partition that no longer exists needs no marker. A partition whose producer epoch is above the marker's has no open
  records of this transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.common.types import TopicPartition
from barnabas.coordinators.deadlines import Deadline, Deadlines
from barnabas.coordinators.transactions.state import TxnImage, TxnState
from barnabas.protocol.message import Message
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

#: A tagged field of Barnabas in a marker: the version of the transaction protocol, one byte. Kafka's brokers ignore it.
#: With version 2 the marker has a higher epoch than the records, by which a late marker is recognised.
VERSION_TAG: Final = 9001

_RETRY_MS: Final = 20
_RETRY_MS_MAX: Final = 1_000
_DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)


class PartitionLeaders(Protocol):
    """The port to the leaders of partitions, which receive markers."""

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Returns the broker that leads the partition; -1 while no reachable broker leads it; None if the partition
        does not exist."""

    def send_markers(
        self, broker_id: int, request: WriteTxnMarkersRequest, reply: Callable[[Message | None], None]
    ) -> None:
        """Sends a request. Calls `reply` once, never during this call, with None if there was no response."""


class MarkerDelivery:
    """The markers of one transaction. `cancel` ends it when this broker no longer coordinates the transaction."""

    __slots__ = (
        "_retry",
        "_retry_ms",
        "cancelled",
        "coordinator_epoch",
        "image",
        "missing",
        "on_delivered",
        "on_fenced",
    )

    def __init__(
        self,
        image: TxnImage,
        coordinator_epoch: int,
        deadlines: Deadlines,
        on_delivered: Callable[[], None],
        on_fenced: Callable[[], None],
    ) -> None:
        assert image.is_prepared, "only a decided transaction has markers"
        self.image = image
        self.coordinator_epoch = coordinator_epoch
        self.missing = set(image.partitions)
        self.cancelled = False
        self.on_delivered = on_delivered
        #: The callback for a marker of another coordinator with a later coordinator epoch.
        self.on_fenced = on_fenced
        self._retry: Deadline = deadlines.new()
        self._retry_ms = _RETRY_MS

    def cancel(self) -> None:
        self.cancelled = True
        self._retry.cancel()

    def later(self, again: Callable[[], None]) -> None:
        """Schedules one retry for all markers that failed in the meantime. Each retry has a longer delay."""
        if not self._retry.is_scheduled:
            self._retry.schedule(self._retry_ms, again)
            self._retry_ms = min(2 * self._retry_ms, _RETRY_MS_MAX)


class MarkerSender:
    """The sender of markers for all shards of one broker."""

    __slots__ = ("_host", "_leaders", "_outbox")

    def __init__(self, host: Host, leaders: PartitionLeaders) -> None:
        self._host = host
        self._leaders = leaders
        #: The markers per broker that are sent at the end of this event.
        self._outbox: dict[int, list[tuple[MarkerDelivery, list[TopicPartition]]]] = {}

    def deliver(self, delivery: MarkerDelivery) -> None:
        """Starts a delivery. `on_delivered` is called later, even if there are no partitions."""
        self._enqueue(delivery, delivery.missing)
        if not delivery.missing:
            self._host.timers.call_soon(lambda: self._conclude(delivery))

    def _enqueue(self, delivery: MarkerDelivery, partitions: Iterable[TopicPartition]) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            leader = self._leaders.leader_of(partition)
            if leader is None:
                delivery.missing.discard(partition)
            elif leader < 0:
                delivery.later(lambda: self._resend_missing(delivery))
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, led in by_leader.items():
            if not self._outbox:
                self._host.timers.call_soon(self._flush)
            self._outbox.setdefault(leader, []).append((delivery, led))

    def _resend_missing(self, delivery: MarkerDelivery) -> None:
        """Sends all missing markers again, including those in flight: a second marker has no effect."""
        if not delivery.cancelled:
            self._enqueue(delivery, delivery.missing)
            self._conclude(delivery)

    def _conclude(self, delivery: MarkerDelivery) -> None:
        if not delivery.missing and not delivery.cancelled:
            delivery.cancel()
            delivery.on_delivered()

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, {}
        for broker_id, entries in outbox.items():
            live = [entry for entry in entries if not entry[0].cancelled]
            if live:
                self._send(broker_id, live)

    def _send(self, broker_id: int, entries: list[tuple[MarkerDelivery, list[TopicPartition]]]) -> None:
        request = WriteTxnMarkersRequest(markers=[_marker(delivery, led) for delivery, led in entries])

        def answered(response: Message | None) -> None:
            codes = _codes(response)
            for delivery, led in entries:
                self._on_codes(delivery, led, codes.get(delivery.image.producer_id, {}))

        self._leaders.send_markers(broker_id, request, answered)

    def _on_codes(
        self, delivery: MarkerDelivery, led: list[TopicPartition], codes: Mapping[TopicPartition, int]
    ) -> None:
        if delivery.cancelled:
            return
        for partition in led:
            code = codes.get(partition, ErrorCode.NETWORK_EXCEPTION)
            if code in _DONE:
                delivery.missing.discard(partition)
            elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                delivery.cancel()
                delivery.on_fenced()
                return
            else:
                delivery.later(lambda: self._resend_missing(delivery))
        self._conclude(delivery)


def _marker(delivery: MarkerDelivery, partitions: list[TopicPartition]) -> WriteTxnMarkersRequest.WritableTxnMarker:
    image = delivery.image
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=image.producer_id,
        producer_epoch=image.producer_epoch,
        transaction_result=image.state is TxnState.PREPARE_COMMIT,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic.items()
        ],
        coordinator_epoch=delivery.coordinator_epoch,
        unknown_tags=((VERSION_TAG, bytes([image.client_version])),),
    )


def version_of(marker: WriteTxnMarkersRequest.WritableTxnMarker) -> int:
    """Returns the protocol version of the transaction that this marker ends; 0 if the marker does not contain it."""
    return next((data[0] for tag, data in marker.unknown_tags if tag == VERSION_TAG and len(data) == 1), 0)


def _codes(response: Message | None) -> dict[int, dict[TopicPartition, int]]:
    """Returns the error codes by producer id, as Kafka groups them; empty if there was no response."""
    codes: dict[int, dict[TopicPartition, int]] = {}
    for result in response.markers if isinstance(response, WriteTxnMarkersResponse) else ():
        of_producer = codes.setdefault(result.producer_id, {})
        for topic in result.topics:
            for row in topic.partitions:
                of_producer[TopicPartition(topic.name, row.partition_index)] = row.error_code
    return codes
