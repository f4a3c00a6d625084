"""Base and last offsets that are wrong in a batch at the end of a log: the offsets around it are reported as lost.

No checksum covers a base offset. The last offset is covered, but checksums are not verified when a log is opened after
a clean shutdown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.damage import Files, files_in
from tests.support.damaged_world import (
    CONFIG,
    DAMAGED,
    ROOT,
    TOPIC_ID,
    killed,
    logs_of,
    lost,
    readable,
    started,
    stopped,
    taken_up,
    without_files,
    write,
)

from barnabas.records.batch import iter_headers
from barnabas.storage.directories import NO_BROKER_EPOCH
from barnabas.storage.recovery.lost_offsets import Hole

#: The places of the lowest bytes of two fields in a batch: flipping the bit 8 in them adds eight to the offset.
BASE_OFFSET, LAST_OFFSET_DELTA = 7, 26


def flipped(files: Files, path: str, place: int, bit: int) -> Files:
    data = bytearray(files[path])
    data[place] ^= bit
    return files | {path: bytes(data)}


def last_batch(files: Files) -> tuple[str, int]:
    """Returns the path and the position of the batch with offset 39."""
    path = logs_of(files)[-1]
    return path, [at for at, _ in iter_headers(files[path])][-1]


def test_a_wrong_last_offset_does_not_move_the_end_of_a_log_that_was_closed() -> None:
    files = stopped()
    path, at = last_batch(files)
    manager, host = started(flipped(files, path, at + LAST_OFFSET_DELTA, 0x08))
    assert manager.damaged.waiting == {DAMAGED}
    (line,) = [text for text, _ in host.faults.reported]
    assert line.startswith("orders-0 is damaged: 1 offsets are lost (39)")
    log = taken_up(manager)
    assert lost(log) == {39}
    write(log, 2)
    assert sorted(readable(log)) == [*range(39), 40, 41]


@pytest.mark.parametrize("stop", [stopped, killed])
def test_a_wrong_base_offset_in_the_last_batch_leaves_a_reported_gap(stop: Callable[[], Files]) -> None:
    """The record itself appears at the wrong offset: there is no way to know which is the right one."""
    files = stop()
    path, at = last_batch(files)
    files = flipped(files, path, at + BASE_OFFSET, 0x08)
    manager, host = started(files)
    assert manager.previous_broker_epoch == NO_BROKER_EPOCH
    log = taken_up(manager)
    (line,) = [text for text, _ in host.faults.reported]
    assert line.startswith("orders-0 is damaged: 8 offsets are lost (39 to 46)")
    assert lost(log) == set(range(39, 47))
    assert sorted(readable(log)) == [*range(39), 47]
    write(log, 2)
    manager.shutdown(8)
    manager, host = started(files_in(host.disk, ROOT))
    assert host.faults.reported == []
    log = taken_up(manager)
    assert lost(log) == set(range(39, 47))
    assert sorted(readable(log)) == [*range(39), 47, 48, 49]


def test_another_replica_leads_so_the_log_is_cut_at_the_gap_between_two_batches() -> None:
    files = killed()
    path, at = last_batch(files)
    manager, _ = started(flipped(files, path, at + BASE_OFFSET, 0x08))
    log = manager.get(DAMAGED)
    assert log is not None
    manager.damaged.mark_damaged(log)
    manager.damaged.truncate(DAMAGED)
    assert log.log_end_offset == 39
    assert sorted(readable(log)) == list(range(39))


def test_a_missing_segment_and_a_gap_between_batches_are_both_reported() -> None:
    files = killed()
    path, at = last_batch(files)
    second = logs_of(files)[1]
    files = without_files(flipped(files, path, at + BASE_OFFSET, 0x08), lambda path: path == second)
    manager, _ = started(files)
    log = taken_up(manager)
    assert lost(log) == {*range(11, 22), *range(39, 47)}
    assert sorted(readable(log)) == [*range(11), *range(22, 39), 47]


def test_gaps_between_batches_of_a_compacted_log_are_no_loss() -> None:
    files = killed()
    path, at = last_batch(files)
    manager, host = started(flipped(files, path, at + BASE_OFFSET, 0x08))
    log = manager.get_or_create(DAMAGED, TOPIC_ID, replace(CONFIG, cleanup_policy=("compact",)))
    assert log.losses.suspected == (Hole(39, 47),)
    assert host.faults.reported == []
    assert not manager.damaged.has_any
