"""Second decisions of logs, small files and the quorum: each is compared in a small world, and some find mistakes at
limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.simulation.test_power_failures import work
from tests.support.log_world import LogWorld
from tests.support.power_world import PowerWorld

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.raft import evidence
from barnabas.raft.delivery import Delivery
from barnabas.raft.elections import Elections
from barnabas.raft.log_checkpoint import LogCheckpointWriter
from barnabas.raft.progress import Progress
from barnabas.raft.quorum import QuorumState, Votes
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import Voter, VoterKey, VoterSet
from barnabas.simulation import second_decisions as judging
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.log_decisions import LOG_DECISIONS
from barnabas.simulation.progress_decisions import PROGRESS_DECISIONS
from barnabas.simulation.quorum_answer_decisions import QUORUM_ANSWER_DECISIONS
from barnabas.simulation.raft_decisions import RAFT_DECISIONS
from barnabas.simulation.second_decisions import SecondDecision, SecondDecisions
from barnabas.simulation.small_file_decisions import SMALL_FILE_DECISIONS
from barnabas.simulation.worlds.one_log import OneLog
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World as QuorumWorld
from barnabas.storage import checkpoints, stray_removal
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.index import OffsetIndex
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.recovery import lost_offsets
from barnabas.storage.segment import Segment

pytestmark = pytest.mark.long_turns("whole worlds run within a test")

ROWS = (*LOG_DECISIONS, *SMALL_FILE_DECISIONS, *RAFT_DECISIONS, *PROGRESS_DECISIONS, *QUORUM_ANSWER_DECISIONS)
#: Functions that small worlds do not reach; whole clusters do.
_RARE = {
    "storage.epochs:LeaderEpochCache.previous_epoch",
    "storage.producers:ProducerStateManager.expire",
    "storage.stray_removal:_is_due",
    "storage.recovery.lost_offsets:hole_at",
    "storage.compaction.cleanable:group_segments",
    "raft.elections:Elections._back_off",
    "raft.elections:Elections._succession_ms",
    "raft.progress:Progress.writable_successor",
    "raft.progress:Progress.observers",
    "raft.progress:Progress.is_caught_up",
    "raft.voters:VoterSet.with_voter",
    "raft.voters:VoterSet.without",
    "raft.voter_changes:VoterChanges.upgrade_refusal",
}


class Found(BaseException):
    """The end of a run at the first violation."""


def _worlds(target: str) -> Iterator[Callable[[], Any]]:
    if target.startswith("storage."):
        for seed in (1, 2, 3):
            yield OneLog(seed).run
        yield lambda: work(PowerWorld())
    for seed in (0, 1, 2, 3, 4, 5, 7):
        yield QuorumWorld(Plan.of(seed)).run


def _find(rows: list[SecondDecision], target: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Returns whether the worlds find a mistake that these rows see; a run ends with the first one."""
    real = SecondDecisions._judge

    def judge(self: SecondDecisions, *details: Any) -> None:
        real(self, *details)
        if self._problems:
            raise Found

    monkeypatch.setattr(judging.SecondDecisions, "_judge", judge)
    for run in _worlds(target):
        try:
            with SecondDecisions(rows).judging():
                run()
        except Found:
            return True
    return False


@pytest.mark.sampled(30)
@pytest.mark.parametrize("row", [row for row in ROWS if row.target not in _RARE], ids=lambda row: row.target)
def test_each_decision_is_compared(row: SecondDecision, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second decision refuses what the product does, after two calls."""
    real = row.expected
    calls = 0

    def mistaken(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 2 and real(*arguments, **named) is not judging.UNJUDGED:
            raise RequestFailed(ErrorCode.UNKNOWN_SERVER_ERROR)
        return real(*arguments, **named)

    changed = SecondDecision(row.target, mistaken, row.probes, row.shown)
    assert _find([changed], row.target, monkeypatch)


# -- mistakes at limits


def _lookups_miss_the_entry(plant: pytest.MonkeyPatch) -> None:
    real = OffsetIndex._count_below
    plant.setattr(OffsetIndex, "_count_below", lambda self, offset: real(self, offset - 1))


def _entries_come_one_byte_early(plant: pytest.MonkeyPatch) -> None:
    real = Segment.note

    def mistaken(self: Segment, size: int, last: int, timestamp: int, limits: Any) -> None:
        self._unindexed_bytes += self._unindexed_bytes == limits.index_interval_bytes or size > 0
        real(self, size, last, timestamp, limits)

    plant.setattr(Segment, "note", mistaken)


def _an_epoch_at_the_end_stays(plant: pytest.MonkeyPatch) -> None:
    real = LeaderEpochCache.truncate_from_end
    plant.setattr(LeaderEpochCache, "truncate_from_end", lambda self, end: real(self, end + 1))


def _markers_of_old_coordinators_are_accepted(plant: pytest.MonkeyPatch) -> None:
    real = ProducerStateManager.check_marker

    def mistaken(self: ProducerStateManager, header: Any, marker: Any) -> None:
        real(self, header, marker._replace(coordinator_epoch=marker.coordinator_epoch + 1))

    plant.setattr(ProducerStateManager, "check_marker", mistaken)


def _only_four_batches_are_kept(plant: pytest.MonkeyPatch) -> None:
    plant.setattr("barnabas.storage.producer_entries.BATCHES_KEPT", 2)


def _neighbours_stay_apart(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(lost_offsets, "merge", lambda holes: tuple(sorted(set(holes))))


def _rows_are_not_counted(plant: pytest.MonkeyPatch) -> None:
    real = checkpoints.decode_lines

    def mistaken(path: str, data: bytes, fields: int) -> list[list[str]]:
        head, _, rest = data.partition(b"\n")
        _, _, rows = rest.partition(b"\n")
        return real(path, b"%s\n%d\n%s" % (head, len([row for row in rows.split(b"\n") if row.strip()]), rows), fields)

    plant.setattr(checkpoints, "decode_lines", mistaken)


def _second_votes_are_given(plant: pytest.MonkeyPatch) -> None:
    real = QuorumState.would_grant

    def mistaken(self: QuorumState, candidate: Any, *, up_to_date: bool, pre_vote: bool) -> bool:
        return real(self, candidate._replace(directory_id=bytes(16)), up_to_date=up_to_date, pre_vote=pre_vote)

    plant.setattr(QuorumState, "would_grant", mistaken)


def _the_last_refusal_is_waited_for(plant: pytest.MonkeyPatch) -> None:
    real = Votes.is_lost
    plant.setattr(Votes, "is_lost", lambda self, voters, gone=(): real(self, voters))


def _a_fetch_behind_counts_as_caught_up(plant: pytest.MonkeyPatch) -> None:
    real = Progress.on_fetch
    plant.setattr(
        Progress, "on_fetch", lambda self, key, offset, end, now: real(self, key, offset, max(end - 1, 0), now)
    )


def _voters_of_the_cut_record_stay(plant: pytest.MonkeyPatch) -> None:
    real = VoterHistory.truncate
    plant.setattr(VoterHistory, "truncate", lambda self, end: real(self, end + 1))


def _turns_count_the_gone_leader(plant: pytest.MonkeyPatch) -> None:
    real = Elections._turn_ms
    plant.setattr(Elections, "_turn_ms", lambda self, gone: real(self, -1))


def _deliveries_include_the_high_watermark(plant: pytest.MonkeyPatch) -> None:
    real = Delivery.commit
    plant.setattr(Delivery, "commit", lambda self, end, *, is_all: real(self, end + 1, is_all=is_all))


def _gaps_follow(plant: pytest.MonkeyPatch) -> None:
    real = evidence.Chain._reason

    def mistaken(self: Any, header: Any, batch: Any) -> str:
        return real(self, header._replace(base_offset=min(header.base_offset, self._next_offset)), batch)

    plant.setattr(evidence.Chain, "_reason", mistaken)


def _more_is_committed_than_is_on_disk(plant: pytest.MonkeyPatch) -> None:
    real = LogCheckpointWriter.flushed

    def mistaken(self: LogCheckpointWriter, end: int, epoch: int) -> None:
        real(self, end, epoch)
        self._file.checkpoint = self.checkpoint._replace(committed=end)

    plant.setattr(LogCheckpointWriter, "flushed", mistaken)


# -- what small worlds do not reach


def _know_an_earlier_epoch() -> None:
    cache = LeaderEpochCache(MemoryDisk(), "/logs")
    cache.assign(3, 5)
    cache.previous_epoch(4)


def _expire_producers() -> None:
    world = LogWorld()
    world.append(world.wall_ms, producer_id=7, producer_epoch=3, base_sequence=0)
    world.log.producers.expire(world.wall_ms)


def _keep_a_stray_directory() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/logs/a-0.stray")
    stray_removal._is_due(disk, "/logs/a-0.stray", 2_000_000_000_000)


def _progress() -> Progress:
    voters = VoterSet(tuple(Voter(VoterKey(node_id), ()) for node_id in (1, 2, 3)))
    progress = Progress(VoterKey(1), voters, 5)
    for node_id in (2, 3, 7):
        progress.on_fetch(VoterKey(node_id), 9, 9, 100)
    return progress


def _look_for_a_successor() -> None:
    _progress().writable_successor(50)


def _list_observers() -> None:
    _progress().observers(200)


def _accept_a_voter() -> None:
    progress = _progress()
    progress.is_caught_up(VoterKey(7), 200)


def _change_voters() -> None:
    voters = VoterSet((Voter(VoterKey(1), ()), Voter(VoterKey(2), ())))
    voters.with_voter(Voter(VoterKey(3), ()))
    voters.without(VoterKey(2))


def _read_near_a_hole() -> None:
    lost_offsets.hole_at((lost_offsets.Hole(3, 5),), 4)


def _one_epoch_too_new(plant: pytest.MonkeyPatch) -> None:
    real = LeaderEpochCache.previous_epoch
    plant.setattr(LeaderEpochCache, "previous_epoch", lambda self, epoch: real(self, epoch + 1))


def _producers_live_one_ms_longer(plant: pytest.MonkeyPatch) -> None:
    real = ProducerStateManager.expire
    plant.setattr(ProducerStateManager, "expire", lambda self, wall_ms: real(self, wall_ms - 1))


def _strays_stay_one_ms_longer(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(stray_removal, "KEPT_MS", stray_removal.KEPT_MS + 1)


def _successors_need_not_write(plant: pytest.MonkeyPatch) -> None:
    def mistaken(self: Progress, since_ms: int) -> Any:
        first = next(iter(self.successors()), None)
        return None if first is None else self._voters[first.node_id]

    plant.setattr(Progress, "writable_successor", mistaken)


def _observers_live_one_ms_longer(plant: pytest.MonkeyPatch) -> None:
    real = Progress.observers
    plant.setattr(Progress, "observers", lambda self, now_ms: real(self, now_ms - 1))


def _an_hour_is_one_ms_longer(plant: pytest.MonkeyPatch) -> None:
    real = Progress.is_caught_up
    plant.setattr(Progress, "is_caught_up", lambda self, key, now_ms: real(self, key, now_ms - 1))


def _both_voters_of_an_id_stay(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(VoterSet, "with_voter", lambda self, voter: VoterSet(tuple(sorted([*self.voters, voter]))))


def _nobody_leaves(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(VoterSet, "without", lambda self, key: self)


def _holes_include_their_ends(plant: pytest.MonkeyPatch) -> None:
    def mistaken(holes: Any, offset: int) -> Any:
        return next((hole for hole in holes if hole.start <= offset <= hole.end), None)

    plant.setattr(lost_offsets, "hole_at", mistaken)


@pytest.mark.parametrize(
    ("mistake", "case"),
    [
        (_one_epoch_too_new, _know_an_earlier_epoch),
        (_producers_live_one_ms_longer, _expire_producers),
        (_strays_stay_one_ms_longer, _keep_a_stray_directory),
        (_successors_need_not_write, _look_for_a_successor),
        (_observers_live_one_ms_longer, _list_observers),
        (_an_hour_is_one_ms_longer, _accept_a_voter),
        (_both_voters_of_an_id_stay, _change_voters),
        (_nobody_leaves, _change_voters),
        (_holes_include_their_ends, _read_near_a_hole),
    ],
)
def test_a_rare_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], case: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecondDecisions(ROWS).judging():
        case()
    mistake(monkeypatch)
    with pytest.raises(Violation, match="decided otherwise"), SecondDecisions(ROWS).judging():
        case()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("mistake", "target"),
    [
        (_lookups_miss_the_entry, "storage.index:OffsetIndex.lookup"),
        (_entries_come_one_byte_early, "storage.segment:Segment.note"),
        (_an_epoch_at_the_end_stays, "storage.epochs:LeaderEpochCache.truncate_from_end"),
        (_markers_of_old_coordinators_are_accepted, "storage.producers:ProducerStateManager.check_marker"),
        (_only_four_batches_are_kept, "storage.producers:ProducerStateManager.update"),
        (_neighbours_stay_apart, "storage.recovery.lost_offsets:subtract"),
        (_rows_are_not_counted, "storage.checkpoints:decode_lines"),
        (_second_votes_are_given, "raft.quorum:QuorumState.would_grant"),
        (_the_last_refusal_is_waited_for, "raft.quorum:Votes.is_lost"),
        (_a_fetch_behind_counts_as_caught_up, "raft.progress:Progress.on_fetch"),
        (_voters_of_the_cut_record_stay, "raft.voter_history:VoterHistory.truncate"),
        (_turns_count_the_gone_leader, "raft.elections:Elections._turn_ms"),
        (_deliveries_include_the_high_watermark, "raft.delivery:Delivery.commit"),
        (_gaps_follow, "raft.evidence:Chain._reason"),
        (_more_is_committed_than_is_on_disk, "raft.log_checkpoint:LogCheckpointWriter.flushed"),
    ],
)
def test_a_mistake_at_a_limit_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert _find([row for row in ROWS if row.target == target], target, monkeypatch)
