"""Dumb replays of the metadata log and of the coordinators' logs: planted mistakes, each found by a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.metrics import replicas as replica_metrics
from barnabas.coordinators.groups import shard as group_shard
from barnabas.coordinators.groups.classic.images import restore_group
from barnabas.coordinators.groups.offsets import Offsets
from barnabas.coordinators.loading import LogLoader
from barnabas.metadata import snapshot
from barnabas.metadata.frame import encode_record
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta
from barnabas.metadata.registrations import ClusterDelta
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.protocol.messages.records_raft import KRaftVersionRecord, VotersRecord
from barnabas.raft.snapshots import SnapshotId, encode_control_batch, encode_snapshot
from barnabas.raft.voters import VoterSet, voters_from_record
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from barnabas.simulation.coordinator_replay import Coordinators
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.host import VirtualTime
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


@pytest.mark.sampled(3)
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


def snapshot_of(voters: VoterSet | None, level: int) -> bytes:
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


# -- logs that begin with a snapshot


class KeptFiles:
    """A node's files of the metadata log, whose record N sets a feature to level N + 1, and its image."""

    def __init__(self, name: str, begin: int, end: int, *snapshots: tuple[int, int]) -> None:
        """`snapshots` are the ends and the levels in the files."""
        self.name = name
        self.is_running = True
        self.disk = FaultyDisk(Random(1), VirtualTime(), lambda duration_us: None)
        batches = [
            encode_batch([Record(offset, 1, None, _level(offset + 1))], base_offset=offset, leader_epoch=1)
            for offset in range(begin, end)
        ]
        self.disk.make_dirs("/log")
        self.disk.write(f"/log/{begin:020d}.log", b"".join(map(bytes, batches)))
        for snapshot_end, level in snapshots:
            self.disk.write(f"/log/{SnapshotId(snapshot_end, 1).file_name}", snapshot_of(None, level))
        delta = MetadataDelta(EMPTY_IMAGE)
        delta.replay(FeatureLevelRecord(name="group.version", feature_level=end))
        image = delta.apply(end - 1, 1, 1)
        log = SimpleNamespace(directory="/log")
        self.broker = SimpleNamespace(
            metadata=SimpleNamespace(image=image), quorum=SimpleNamespace(raft=SimpleNamespace(log=log))
        )


def _level(level: int) -> bytes:
    return encode_record(FeatureLevelRecord(name="group.version", feature_level=level), 0)


def look(logs: MetadataLogs, dirty: KeptFiles, *nodes: KeptFiles) -> None:
    cluster: Any = SimpleNamespace(
        world=SimpleNamespace(now_us=0),
        checks_all=True,
        dirty=(dirty,),
        nodes={node.name: node for node in (dirty, *nodes)},
    )
    logs.check(cluster)


def test_records_that_a_node_has_only_in_a_snapshot_are_replayed_from_another_log() -> None:
    logs = MetadataLogs()
    look(logs, KeptFiles("b", 0, 2))
    other = KeptFiles("b", 0, 7)
    look(logs, KeptFiles("a", 5, 6, (3, 3), (5, 5)), other)
    assert logs.snapshots == 2
    with pytest.raises(Violation, match=r"0003-0000000001\.checkpoint on c: \('feature', 'group.version'\) is 4"):
        look(logs, KeptFiles("c", 5, 7, (3, 4), (5, 5)), other)


def test_states_before_a_replay_that_had_to_begin_with_a_snapshot_are_not_compared() -> None:
    logs = MetadataLogs()
    look(logs, KeptFiles("b", 0, 2))
    other = KeptFiles("b", 0, 4)
    other.is_running = False
    look(logs, KeptFiles("a", 5, 6, (3, 3), (5, 5)), other)
    assert (logs.images, logs.snapshots) == (2, 1)
    other.is_running = True
    look(logs, other)
    assert logs.images == 2
    with pytest.raises(Violation, match=r"a snapshot differs from the log: .*0006-0000000001\.checkpoint on c"):
        look(logs, KeptFiles("c", 6, 7, (6, 4)))
