"""Leader epochs: assignment, the answers of OffsetForLeaderEpoch, truncation, persistence."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.checkpoints import CheckpointError
from barnabas.storage.epochs import LeaderEpochCache

END = 100


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    disk = MemoryDisk()
    disk.make_dirs("/log")
    made = LeaderEpochCache(disk, "/log")
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def reopened(old: LeaderEpochCache) -> LeaderEpochCache:
    made = LeaderEpochCache(old._disk, old.directory)
    old.persist()
    made.load()
    return made


def test_an_empty_cache_knows_nothing() -> None:
    empty = reopened(cache())
    assert empty.latest_epoch == -1
    assert empty.end_offset_for(0, END) == (-1, -1)
    assert empty.epoch_for_offset(5) is None
    empty.truncate_from_end(0)
    empty.truncate_from_start(7)
    assert empty.entries == ()


def test_what_is_assigned_is_on_disk_when_that_is_asked_for() -> None:
    made = cache((0, 0), (4, 5), (6, 8))
    assert not made._disk.exists(made.path)
    assert not made.is_saved
    made.persist()
    assert made.is_saved
    assert made._disk.read("/log/leader-epoch-checkpoint") == b"0\n3\n0 0\n4 5\n6 8\n"
    assert reopened(made).entries == made.entries
    assert reopened(made).latest_epoch == 6


def test_the_current_epoch_is_not_moved_up() -> None:
    made = cache((3, 10))
    assert not made.assign(3, 10)
    assert not made.assign(3, 25)
    assert made.assign(3, 4), "but down it is: its first records were not all known"
    assert tuple(made.entries) == ((3, 4),)


def test_an_epoch_in_which_nothing_was_written_is_replaced() -> None:
    made = cache((1, 0), (2, 10))
    made.assign(3, 10)
    assert tuple(made.entries) == ((1, 0), (3, 10))


def test_an_older_epoch_takes_away_what_it_contradicts() -> None:
    made = cache((1, 0), (5, 10), (7, 20))
    made.assign(6, 15)
    assert tuple(made.entries) == ((1, 0), (5, 10), (6, 15))
    made.assign(7, 5)
    assert tuple(made.entries) == ((1, 0), (7, 5))


@pytest.mark.parametrize(
    "requested, answer",
    [
        (-1, (-1, -1)),
        (0, (0, 11)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 30)),
        (6, (4, 30)),
        (7, (7, END)),
        (8, (-1, -1)),
    ],
)
def test_the_end_of_an_epoch(requested: int, answer: tuple[int, int]) -> None:
    assert cache((2, 11), (4, 20), (7, 30)).end_offset_for(requested, END) == answer


@pytest.mark.parametrize("offset, epoch", [(0, None), (10, None), (11, 2), (19, 2), (20, 4), (30, 7), (10_000, 7)])
def test_the_epoch_of_an_offset(offset: int, epoch: int | None) -> None:
    assert cache((2, 11), (4, 20), (7, 30)).epoch_for_offset(offset) == epoch


def test_neighbours() -> None:
    made = cache((2, 11), (4, 20))
    assert (made.previous_epoch(4), made.previous_epoch(3), made.previous_epoch(2)) == (2, 2, None)


def test_truncation_from_both_ends() -> None:
    made = cache((2, 11), (4, 20), (7, 30))
    made.truncate_from_end(31)
    assert len(made.entries) == 3
    made.truncate_from_end(30)
    assert tuple(made.entries) == ((2, 11), (4, 20))
    made.truncate_from_start(15)
    assert tuple(made.entries) == ((2, 15), (4, 20))
    assert reopened(made).entries == made.entries
    made.truncate_from_start(20)
    assert tuple(made.entries) == ((4, 20),)
    made.truncate_from_start(500)
    assert tuple(made.entries) == ((4, 500),)
    made.clear()
    assert tuple(made.entries) == ()
    assert reopened(made).latest_epoch == -1


def test_the_begin_of_an_epoch_whose_first_records_were_deleted() -> None:
    """An older epoch ended there, and not where the log begins now. The file has the entries that Kafka writes."""
    made = cache((2, 11), (4, 20), (7, 30))
    made.truncate_from_start(25)
    made.truncate_from_start(28)
    assert tuple(made.entries) == ((4, 28), (7, 30))
    assert made.end_offset_for(3, 40) == (3, 20)
    assert made.end_offset_for(5, 40) == (4, 30)
    assert reopened(made).end_offset_for(3, 40) == (3, 28)
    made._disk.make_dirs("/other")
    other = LeaderEpochCache(made._disk, "/other")
    other.take_over(made)
    assert other.end_offset_for(3, 40) == (3, 20)
    made.truncate_from_start(30)
    assert made.end_offset_for(3, 40) == (3, 30)
    made.clear()
    made.assign(7, 50)
    assert made.end_offset_for(3, 60) == (3, 50)
    made.truncate_from_start(55)
    made.truncate_from_end(50)
    made.assign(7, 58)
    assert made.end_offset_for(3, 60) == (3, 58)


def test_a_background_write_counts_only_if_nothing_changed_meanwhile() -> None:
    made = cache((1, 0))
    version = made.version
    made._disk.write("/log/beside", made.encode(), sync=True)
    made.assign(2, 10)
    made.take_draft(version, "/log/beside")
    assert not made.is_saved
    assert not made._disk.exists(made.path)
    made._disk.write("/log/beside", made.encode(), sync=True)
    made.take_draft(made.version, "/log/beside")
    assert made.is_saved
    assert reopened(made).entries == ((1, 0), (2, 10))


def test_an_immediate_write_is_not_replaced_by_a_background_write() -> None:
    made = cache((1, 0), (2, 10))
    version = made.version
    made._disk.write("/log/beside", made.encode(), sync=True)
    made.truncate_from_end(10)
    made.persist()
    made.take_draft(version, "/log/beside")
    assert reopened(made).entries == ((1, 0),)


def test_a_malformed_file_takes_nothing_over() -> None:
    made = cache((1, 0))
    made.persist()
    made._disk.write(made.path, b"0\n1\nx y\n")
    with pytest.raises(CheckpointError):
        made.load()
    assert tuple(made.entries) == ((1, 0),)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12), st.integers(0, 9))
def test_epochs_and_offsets_always_rise(assignments: list[tuple[int, int]], cut: int) -> None:
    """Guard G3."""
    made = cache(*assignments)
    for change in (made.truncate_from_end, made.truncate_from_start):
        change(cut)
        entries = made.entries
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
        assert made.latest_epoch == max((e.epoch for e in entries), default=-1)
        assert reopened(made).entries == entries


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(-1, 14))
def test_ends_agree_with_a_log_that_remembers_each_record(steps: list[int], requested: int) -> None:
    """A list with the epoch of every record gives the same ends."""
    made, log, epoch = cache(), list[int](), 0
    for step in steps:
        epoch += step
        made.assign(epoch, len(log))
        log.append(epoch)
    later = [offset for offset, e in enumerate(log) if e > requested]
    if requested < 0 or requested > epoch:
        expected = (-1, -1)
    elif not later:
        expected = (epoch, len(log))
    else:
        expected = (max((e for e in log if e <= requested), default=requested), later[0])
    assert made.end_offset_for(requested, len(log)) == expected
