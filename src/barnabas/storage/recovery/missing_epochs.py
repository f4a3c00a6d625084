"""Leader epochs of a log's oldest records that `leader-epoch-checkpoint` lacks.

They are missing if the file was damaged or lost, or if the power failed between a change of the log start offset and
its checkpoint, which brings older records back. Every batch contains its epoch, so the headers from the log start
offset to the first known epoch are read. Batches of the old formats have no epoch; then nothing is missing.
"""

from __future__ import annotations

from barnabas.common.errors import RecordsRejected
from barnabas.storage.checkpoints import EpochEntry
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.segments import Segments


def find_missing_epochs(
    epochs: LeaderEpochCache, segments: Segments, log_start_offset: int, log_end_offset: int
) -> None:
    """Puts the missing epochs in front of the known ones. Raises OSError."""
    known = epochs.entries
    known_from = known[0].start_offset if known else log_end_offset
    if known_from <= log_start_offset:
        return
    epochs.prepend(_epochs_before(known_from, segments, log_start_offset))


def _epochs_before(end_offset: int, segments: Segments, start_offset: int) -> list[EpochEntry]:
    found: list[EpochEntry] = []
    for segment in segments.from_offset(start_offset):
        position = segment.locate(start_offset) if segment.base_offset < start_offset else 0
        if position is None:
            continue
        try:
            for _, header in segment.headers(position):
                epoch = header.partition_leader_epoch
                if header.base_offset >= end_offset or epoch < 0:
                    return found
                if not found or epoch > found[-1].epoch:
                    found.append(EpochEntry(epoch, max(header.base_offset, start_offset)))
        except RecordsRejected:
            break  # an unreadable batch has no epoch
    return found
