"""Dumb replays of the metadata log and of the coordinators' logs: planted mistakes, each found by a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from barnabas.broker.metrics import replicas as replica_metrics
from barnabas.coordinators.groups import shard as group_shard
from barnabas.coordinators.groups.classic.images import restore_group
from barnabas.coordinators.groups.offsets import Offsets
from barnabas.coordinators.loading import LogLoader
from barnabas.metadata import snapshot
from barnabas.metadata.frame import encode_record
from barnabas.metadata.registrations import ClusterDelta
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.protocol.messages.records_raft import KRaftVersionRecord, VotersRecord
from barnabas.raft.snapshots import encode_control_batch, encode_snapshot
from barnabas.raft.voters import VoterSet, voters_from_record
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from barnabas.simulation.coordinator_replay import Coordinators
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.metadata_dict import MetadataDict
from barnabas.simulation.metadata_replay import MetadataLogs, wrong_snapshot
from barnabas.simulation.metric_checkers import Metrics
from barnabas.simulation.replication_checkers import UncleanElections
from barnabas.simulation.scenario import Run, Settings
from barnabas.simulation.simulated_cluster import Layout

Mutation = Callable[[pytest.MonkeyPatch], None]
#: The coordinators move, one after the other.
_KILLS = tuple(Fault(8_000 + 2_000 * number, FaultKind.KILL, f"broker{number}", "", 1_000) for number in (1, 2, 3))


def problem_of(*faults: Fault, faults_s: int = 14) -> str:
    """Returns the first problem of a run with the replays alone."""
    properties = {"metadata.log.max.snapshot.interval.ms": "6000"}
    run = Run(Settings(1, Layout(3, properties=properties), faults_s, schedule=faults, operations=()), [])
    logs, coordinators = MetadataLogs(), Coordinators(UncleanElections())
    run.watch.use((logs, coordinators, Metrics(coordinators, logs)))
    problems = run.execute().problems
    return problems[0] if problems else ""


# -- metadata


def features_are_not_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot, "_feature_records", lambda image: iter(()))


def changes_of_registrations_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterDelta, "replay_change", lambda self, record: None)


# -- coordinators


def a_load_misses_the_last_record_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    real = LogLoader._take_entries

    def take(loader: LogLoader, producer_id: int | None, entries: Sequence[Any]) -> None:
        real(loader, producer_id, entries[:-1])

    patch.setattr(LogLoader, "_take_entries", take)


def a_load_keeps_the_first_offset(patch: pytest.MonkeyPatch) -> None:
    real = Offsets.replay_offset
    patch.setattr(Offsets, "replay_offset", lambda self, key, found: real(self, key, found._replace(offset=0)))


def generations_begin_anew(patch: pytest.MonkeyPatch) -> None:
    def restore(group_id: str, value: Any, deadlines: Any) -> Any:
        group = restore_group(group_id, value, deadlines)
        group.generation = 0
        return group

    patch.setattr(group_shard, "restore_group", restore)


# -- metrics


def a_missing_replica_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica_metrics, "is_under_replicated", lambda partition: False)


def groups_are_counted_instead_of_offsets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offsets, "count", property(lambda self: len(list(self.groups()))))


_LONG_KILL = Fault(4_000, FaultKind.KILL, "broker2", "", 25_000)


@pytest.mark.parametrize(
    ("mistake", "faults", "found"),
    [
        (features_are_not_in_snapshots, (), "a snapshot differs from the log: "),
        (changes_of_registrations_are_ignored, (), "an image differs from the log: "),
        (a_load_misses_the_last_record_of_a_batch, _KILLS, "a coordinator differs from its log: "),
        (a_load_keeps_the_first_offset, _KILLS, "a coordinator differs from its log: "),
        (generations_begin_anew, _KILLS, "a coordinator differs from its log: "),
        (a_missing_replica_is_not_counted, (_LONG_KILL,), "a metric is wrong: "),
        (groups_are_counted_instead_of_offsets, (), "a metric is wrong: "),
    ],
)
def test_a_mistake_is_found(
    mistake: Mutation, faults: tuple[Fault, ...], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    assert problem_of(*faults, faults_s=28 if _LONG_KILL in faults else 14).startswith(found)


# -- voters


def voters_of(*ids: int) -> VoterSet:
    voter = VotersRecord.Voter
    ranges = VotersRecord.KRaftVersionFeature(min_supported_version=0, max_supported_version=1)
    endpoints = [VotersRecord.Endpoint(name="CONTROLLER", host="node", port=9093)]
    rows = [
        voter(voter_id=each, voter_directory_id=bytes([each] * 16), endpoints=endpoints, kraft_version_feature=ranges)
        for each in ids
    ]
    return voters_from_record(VotersRecord(version=0, voters=rows))


def snapshot_of(voters: VoterSet, level: int) -> bytes:
    records = [(FeatureLevelRecord(name="group.version", feature_level=level), 0)]
    options: dict[str, Any] = {"epoch": 1, "wall_ms": 1, "last_contained_log_timestamp_ms": 1, "kraft_version": 1}
    return bytes(encode_snapshot(records, voters=voters, **options))


def test_voters_and_features_of_a_snapshot_are_those_of_the_log() -> None:
    log = MetadataDict()
    for offset, voters in enumerate((voters_of(1, 2), voters_of(1, 2, 3))):
        messages = [KRaftVersionRecord(version=0, kraft_version=1), voters.to_record()]
        log.add(bytes(encode_control_batch(messages, base_offset=2 * offset, epoch=1, wall_ms=1)))
    feature = encode_record(FeatureLevelRecord(name="group.version", feature_level=1), 0)
    log.add(bytes(encode_batch([Record(4, 1, None, feature)], base_offset=4, leader_epoch=1)))
    assert wrong_snapshot(snapshot_of(voters_of(1, 2, 3), 1), log, 5) == ""
    assert wrong_snapshot(snapshot_of(voters_of(1, 2), 1), log, 5).startswith("('voters',) is ")
    assert wrong_snapshot(snapshot_of(voters_of(1, 2, 3), 2), log, 5) == (
        "('feature', 'group.version') is 2, the log says 1"
    )
    assert wrong_snapshot(snapshot_of(voters_of(1, 2), 1), log, 2).startswith("('feature', 'group.version')")
