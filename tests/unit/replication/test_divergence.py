"""Diverging logs: the cases of KIP-279 and random ones, truncated to their common prefix (G1, G2)."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.follower_world import FollowerWorld, batch
from tests.support.log_world import LogWorld

from barnabas.common.log_config import LogConfig
from barnabas.replication.divergence import common_end
from barnabas.replication.partition import Partition
from barnabas.storage.log import Log

_ROUNDS_MAX = 50


def log_of(epochs: str, root: str = "/leader") -> Log:
    """Returns a log with a record per digit, written in that epoch; "(4)" is an epoch without records."""
    log = LogWorld(LogConfig(), root=root).log
    write(log, epochs)
    return log


def write(log: Log, epochs: str) -> None:
    position = 0
    while position < len(epochs):
        if epochs[position] == "(":
            log.assign_epoch(int(epochs[position + 1]), log.log_end_offset)
            position += 3
        else:
            log.append_as_follower(batch(log.log_end_offset, epoch=int(epochs[position])))
            position += 1


def epochs_of(log: Log) -> str:
    return "".join(str(header.partition_leader_epoch) for header, _ in log.batches(log.log_start_offset, 1 << 20))


def follow(partition: Partition, leader: Log) -> int:
    """Sends requests as a follower does until nothing diverges, and returns the number of rounds."""
    log = partition.log
    for rounds in range(_ROUNDS_MAX):
        last_epoch = log.epochs.latest_epoch
        if last_epoch < 0:
            return rounds
        epoch, end_offset = leader.end_offset_for_epoch(last_epoch)
        assert end_offset >= 0, "a leader has an epoch at least as new as its followers'"
        if epoch == last_epoch and end_offset >= log.log_end_offset:
            return rounds
        partition.truncate_to(common_end(log, epoch, end_offset))
    raise AssertionError("it never ends")


CASES = {
    "A: the leader has less of the same epoch": ("111", "11(2)", "11"),
    "B: an epoch that the leader does not know": ("1122", "113", "11"),
    "C: the leader has more": ("11", "11122", "11"),
    "D: both continued in epochs of their own": ("11224", "11335", "11"),
    "E: less of an epoch before, and an epoch of its own": ("12244", "12335", "12"),
    "F: no epoch in common": ("11", "22", ""),
    "G: unclean twice, turn about": ("1133", "112244", "11"),
    "an epoch of the follower's without records": ("11(2)", "11(3)", "11"),
    "an epoch of the leader's without records": ("1122", "11(2)3", "11"),
    "many epochs of its own": ("1123456", "117", "11"),
    "many turns": ("1133557", "1122446688", "11"),
    "both led in turn and the follower's last term is lost": ("112233", "1122(4)", "1122"),
    "nothing was written since": ("1122", "1122(3)", "1122"),
    "an empty follower": ("", "1122", ""),
}


@pytest.mark.parametrize("name", CASES)
def test_a_follower_keeps_exactly_what_it_has_in_common(name: str) -> None:
    """Guard G2."""
    has, leader_has, kept = CASES[name]
    partition = FollowerWorld().follower(0, epoch=9)
    write(partition.log, has)
    leader = log_of(leader_has)
    follow(partition, leader)
    assert epochs_of(partition.log) == kept
    assert all(entry in leader.epochs.entries for entry in partition.log.epochs.entries)


@pytest.mark.parametrize("has, kept", [("11", ""), ("1112", ""), ("1", ""), ("22", "22"), ("2223", "222"), ("2", "2")])
def test_records_below_the_leaders_log_start(has: str, kept: str) -> None:
    """Guard G2: what the leader has deleted is only kept where it was the same, although nothing follows it here. Else
    it would be visible again after a crash, which loses the log start offset.
    """
    partition = FollowerWorld().follower(0, epoch=9)
    write(partition.log, has)
    leader = log_of("2224")
    leader.delete_records_before(2)
    follow(partition, leader)
    assert epochs_of(partition.log) == kept


def test_common_history_is_never_cut_off_nor_anything_else_kept() -> None:
    """Guard G2: random elections of any replica, unclean ones too, each with writes that reach some of the others."""
    for seed in range(300):
        _one_random_history(Random(seed))


def _one_random_history(random: Random) -> None:
    world = FollowerWorld()
    replicas = [world.follower(index, epoch=9) for index in range(3)]
    for epoch in range(1, random.randint(2, 9)):
        leader = random.choice(replicas)
        leader.log.assign_epoch(epoch, leader.log.log_end_offset)
        for _ in range(random.randrange(4)):
            leader.log.append_as_follower(batch(leader.log.log_end_offset, epoch=epoch))
        for follower in replicas:
            if follower is not leader and random.random() < 0.4:
                _catch_up(follower, leader.log, random)
    leader = random.choice(replicas)
    leader.log.assign_epoch(9, leader.log.log_end_offset)
    for follower in replicas:
        if follower is not leader:
            expected = _common(epochs_of(follower.log), epochs_of(leader.log))
            follow(follower, leader.log)
            assert epochs_of(follower.log) == expected


def _catch_up(follower: Partition, leader: Log, random: Random) -> None:
    follow(follower, leader)
    missing = epochs_of(leader)[follower.log.log_end_offset :]
    write(follower.log, missing[: random.randint(0, len(missing))])


def _common(one: str, other: str) -> str:
    """Returns the common prefix: with one record per offset and one leader per epoch, logs are equal as long as their
    epochs are.
    """
    end = 0
    while end < min(len(one), len(other)) and one[end] == other[end]:
        end += 1
    return one[:end]


def test_followers_are_not_cut_back_to_their_hw() -> None:
    """G1: the HW that a follower knows is older than what is committed."""
    partition = FollowerWorld().follower(0, epoch=9)
    write(partition.log, "1122")
    assert partition.high_watermark == 0
    follow(partition, log_of("1122(3)"))
    assert partition.log.log_end_offset == 4


def test_the_leader_deleted_all_that_the_follower_has() -> None:
    partition = FollowerWorld().follower(0, epoch=9)
    write(partition.log, "11")
    leader = log_of("11223")
    leader.delete_records_before(4)
    follow(partition, leader)
    assert partition.log.log_end_offset == 2, "nothing diverges; its next fetch is out of range"
