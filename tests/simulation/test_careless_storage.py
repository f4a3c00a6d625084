"""Known mistakes, made on purpose one by one: the power failures find each of them.

A suite that finds none of them would prove nothing when it passes. The mistakes are patched into the product from here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulation.test_power_failures import fail_everywhere
from tests.support.power_disk import PowerDisk, PowerFile

from barnabas.common.errors import ConfigError, RecordsRejected
from barnabas.simulation.crashing_disk import Fate
from barnabas.storage import directories
from barnabas.storage.compaction import swap as compaction_swap
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.log import Log
from barnabas.storage.recovery import recovery
from barnabas.storage.segment import Segment
from barnabas.storage.upkeep import LogUpkeep

pytestmark = pytest.mark.long_turns("logs are opened from the disk, and compared, within turns of the broker")

Patch = pytest.MonkeyPatch


def checkpoints_are_not_synced_before_their_rename(patch: Patch) -> None:
    real = PowerDisk.write
    patch.setattr(PowerDisk, "write", lambda self, path, data, sync=False: real(self, path, data))


def directories_are_not_synced(patch: Patch) -> None:
    patch.setattr(PowerDisk, "sync_dir", lambda self, path: None)


def segments_are_not_synced(patch: Patch) -> None:
    patch.setattr(PowerFile, "sync", lambda self: None)


def the_recovery_point_runs_ahead_of_the_sync(patch: Patch) -> None:
    def flush(log: Log) -> None:
        log.recovery_point = log.log_end_offset

    patch.setattr(Log, "flush", flush)


def a_rolled_segment_counts_as_synced(patch: Patch) -> None:
    real = Log.roll

    def roll(log: Log, next_offset: int | None = None) -> Segment:
        segment = real(log, next_offset)
        log.recovery_point = segment.base_offset
        return segment

    patch.setattr(Log, "roll", roll)


def a_truncation_is_not_synced(patch: Patch) -> None:
    real = Log.truncate_to

    def truncate_to(log: Log, offset: int) -> None:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(PowerFile, "sync", lambda self: None)
            inside.setattr(PowerDisk, "sync_dir", lambda self, path: None)
            inside.setattr(LogUpkeep, "on_truncated", lambda self, log: None)
            real(log, offset)

    patch.setattr(Log, "truncate_to", truncate_to)


def epochs_are_not_truncated(patch: Patch) -> None:
    patch.setattr(LeaderEpochCache, "truncate_from_end", lambda self, end_offset: None)


def torn_indexes_are_trusted(patch: Patch) -> None:
    patch.setattr(recovery, "are_indexes_complete", lambda disk, segment: True)


def every_stop_is_taken_for_a_clean_one(patch: Patch) -> None:
    real = directories.LogDirectories.open

    def open_clean(self: directories.LogDirectories, path: str) -> directories.LogDirectory:
        directory = real(self, path)
        directory.clean = True
        return directory

    patch.setattr(directories.LogDirectories, "open", open_clean)


def old_segments_go_before_the_swap_begins(patch: Patch) -> None:
    real = compaction_swap._swap

    def swap(disk, directory, log, replaced, placeholders):  # type: ignore[no-untyped-def]
        for segment in reversed(replaced):
            log.signals.keeper.on_segments_deleted(log, segment.mark_deleted())
        real(disk, directory, log, replaced, placeholders)

    patch.setattr(compaction_swap, "_swap", swap)


def an_earlier_topics_checkpoints_count(patch: Patch) -> None:
    patch.setattr(directories.LogDirectories, "has_checkpoint_entry", lambda self, topic_partition: False)


def compaction_does_not_wait_for_the_sync(patch: Patch) -> None:
    def nothing_to_do(log: Log, end_offset: int) -> tuple[Callable[[], None], Callable[[], None]]:
        return (lambda: None), (lambda: None)

    patch.setattr(Log, "sync_job", nothing_to_do)


#: The mistake is found near the end of the work, after some seconds.
LATE = pytest.mark.full

#: The mistakes, each with the worlds in which it is found.
MISTAKES = [
    (checkpoints_are_not_synced_before_their_rename, [Fate.TORN]),
    (directories_are_not_synced, [Fate.LOST]),
    (segments_are_not_synced, [Fate.LOST]),
    (the_recovery_point_runs_ahead_of_the_sync, [Fate.LOST]),
    (a_rolled_segment_counts_as_synced, [Fate.LOST]),
    (a_truncation_is_not_synced, [Fate.LOST]),
    pytest.param(epochs_are_not_truncated, [Fate.KEPT], marks=LATE),
    pytest.param(torn_indexes_are_trusted, [Fate.TORN] * 3, marks=LATE),
    (every_stop_is_taken_for_a_clean_one, [Fate.TORN]),
    pytest.param(old_segments_go_before_the_swap_begins, [Fate.KEPT], marks=LATE),
    pytest.param(an_earlier_topics_checkpoints_count, [Fate.KEPT], marks=LATE),
    (compaction_does_not_wait_for_the_sync, [Fate.LOST]),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("mistake", "fates"), MISTAKES)
def test_the_mistake_is_found(mistake: Callable[[Patch], None], fates: list[Fate], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, OSError, RecordsRejected, ConfigError)):
        fail_everywhere(fates)
