"""The check of the last stable offset of every replica, computed only from the batches of its log.

The LSO is the first offset of the oldest transaction that is open, or whose marker is not yet below the HW; else the
HW. The broker's own state is not used, and no stop, kill or truncation changes the rule. Compaction can remove the
records of a transaction before its marker: the broker still knows where it began, and its log does not show it.
"""

from __future__ import annotations

from barnabas.metadata.image import MetadataImage
from barnabas.records.batch import iter_headers
from barnabas.replication.partition import Partition
from barnabas.simulation.history import Violation
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import State, read_without_effects
from barnabas.storage.log import Log


class _Transactions:
    """The transactions of one log, followed up to the offset `end`."""

    __slots__ = ("end", "ended", "epoch", "log", "open", "orphans")

    def __init__(self, log: Log, epoch: int, start: int) -> None:
        self.log = log
        self.epoch = epoch
        self.end = start
        #: Producer id -> first offset.
        self.open: dict[int, int] = {}
        #: The first offset, and the offset of the marker.
        self.ended: list[tuple[int, int]] = []
        #: The markers of transactions without records.
        self.orphans: list[int] = []

    def may_begin_earlier(self, high_watermark: int) -> bool:
        """Returns whether a transaction whose records were removed can have begun before those that the log shows."""
        return self.log.config.is_compacted and any(marker >= high_watermark for marker in self.orphans)

    def stable(self, high_watermark: int) -> int:
        self.ended = [(first, marker) for first, marker in self.ended if marker >= high_watermark]
        return min((high_watermark, *self.open.values(), *(first for first, _ in self.ended)))


class StableOffsets:
    """Checks the last stable offsets; `Replicas` calls it for each change."""

    def __init__(self) -> None:
        self._known: dict[Partition, _Transactions] = {}

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        known = self._known.get(partition)
        if (
            known is None
            or before is None
            or known.log is not now.log
            or known.epoch != now.leader_epoch
            or now.log_end_offset < max(known.end, before.log_end_offset)
            or now.log_start_offset != before.log_start_offset
        ):
            # A part may have been truncated and written again.
            known = self._known[partition] = _Transactions(now.log, now.leader_epoch, now.log_start_offset)
        self._read_on(node, partition, known, now.log_end_offset)
        expected, found = known.stable(now.high_watermark), partition.last_stable_offset
        if found != expected and not (found < expected and known.may_begin_earlier(now.high_watermark)):
            raise Violation(
                f"the LSO is not where it should be: {partition.topic_partition} on {node.name} says {found}, its log "
                f"says {expected}; HW {now.high_watermark}, open {known.open}, ended {known.ended}"
            )

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Does nothing: an image has no transactions."""

    def _read_on(self, node: Node, partition: Partition, known: _Transactions, end: int) -> None:
        while known.end < end:
            data = read_without_effects(node, partition, known.end, end)
            if not data:
                return
            for _, header in iter_headers(memoryview(data)):
                if header.is_transactional:
                    if not header.is_control:
                        known.open.setdefault(header.producer_id, header.base_offset)
                    elif header.producer_id in known.open:
                        known.ended.append((known.open.pop(header.producer_id), header.base_offset))
                    else:
                        known.orphans.append(header.base_offset)
                known.end = header.next_offset
