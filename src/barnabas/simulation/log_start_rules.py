"""The rules of log start offsets: why a replica deletes its oldest records.

    asked for     a client has asked for the deletion of all records below this offset
    retention     whole segments, each older than `retention.ms`, or without which `retention.bytes` are left
    followed      another replica of the partition had begun there before, for one of these reasons

No log start passes the HW, and none goes back while its process runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from barnabas.metadata.image import MetadataImage
from barnabas.replication.partition import Partition
from barnabas.simulation.history import Place, Violation
from barnabas.simulation.node import Node
from barnabas.simulation.replication_checkers import State
from barnabas.storage.segment import Segment


class LogStarts:
    """Checks the log start offsets of some topics."""

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics
        #: The highest log start that a replica may have.
        self.highest: dict[Place, int] = defaultdict(int)
        #: Partitions whose records can be deleted up to the HW, because a client requested it.
        self.up_to_hw: set[Place] = set()
        self._segments: dict[Partition, list[Segment]] = {}

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        tp = partition.topic_partition
        if tp.topic not in self._topics:
            return
        place = (tp.topic, tp.partition)
        known = self._segments.get(partition, [])
        self._segments[partition] = list(now.log.segments)
        if before is None or before.log is not now.log or before.log_start_offset == now.log_start_offset:
            return
        where = f"{tp} on {node.name}"
        if now.log_start_offset < before.log_start_offset:
            text = f"a log start went back: {where} from {before.log_start_offset} to {now.log_start_offset}"
            raise Violation(text, (place, now.log_start_offset))
        if now.log_start_offset > now.high_watermark:
            text = f"deleted above the HW: {where} begins at {now.log_start_offset}, its HW is {now.high_watermark}"
            raise Violation(text, (place, now.high_watermark))
        if now.log_start_offset <= self.highest[place]:
            return
        wrong = None if place in self.up_to_hw else _wrong_retention(node, known, now)
        if wrong is not None:
            text = f"deleted without reason: {where} begins at {now.log_start_offset}: {wrong}"
            raise Violation(text, (place, before.log_start_offset))
        self.highest[place] = now.log_start_offset

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Does nothing: an image has no log starts."""


def _wrong_retention(node: Node, known: Collection[Segment], now: State) -> str | None:
    """Returns why retention does not explain a new log start, given the segments before it."""
    config, start = now.log.config, now.log_start_offset
    if start != now.log.segments.bases[0]:
        return f"no segment begins there, but at {now.log.segments.bases}"
    left_bytes = now.log.segments.size_bytes
    if 0 <= config.retention_bytes <= left_bytes:
        return None
    wall_ms = node.machine.clock.wall_ms()
    for segment in known:
        newest = segment.known_timestamp
        if segment.base_offset >= start or newest is None or newest[0] < 0:
            continue
        if config.retention_ms < 0 or wall_ms - newest[0] <= config.retention_ms:
            return f"the segment from {segment.base_offset} has a record from {newest[0]}, it is {wall_ms}, {config}"
    return None
