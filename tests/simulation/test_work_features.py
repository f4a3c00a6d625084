"""Features of work: seeds draw them, each keeps its promises, and finds the mistakes that are planted for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from barnabas.coordinators.groups.classic.group import ClassicGroup
from barnabas.coordinators.groups.consumer import heartbeat
from barnabas.coordinators.groups.offsets import Offsets
from barnabas.coordinators.transactions import shard, transitions
from barnabas.coordinators.transactions.state import TxnState
from barnabas.replication.partition import Partition
from barnabas.simulation.bulk_work import name_of, padded
from barnabas.simulation.coordinator_replay import Coordinators
from barnabas.simulation.scenario import Run, Settings, drawn_features, layout_of, run, struck_clients
from barnabas.simulation.second_decisions import SecondDecisions
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work_features import WorkFeature
from barnabas.storage import retention, time_search
from barnabas.storage.compaction import record_filter
from barnabas.storage.log import Log
from barnabas.storage.producer_entries import ProducerEntry

Plant = Callable[[pytest.MonkeyPatch], None]
ALL = tuple(WorkFeature)
OF_REPLICAS = {WorkFeature.REGISTERS, WorkFeature.STATIC, WorkFeature.ABANDONED, WorkFeature.READERS}


def calm(feature: WorkFeature, faults_s: int = 12) -> Settings:
    """Returns the settings of a short run without faults, whose work is above all that of a feature."""
    layout = Layout(brokers=3 if feature in OF_REPLICAS else 1)
    few = Settings(seed=1, layout=layout, kinds=(), operations=(), producers=1, consumers=0, records_per_s=0.5)
    return replace(few, features=(feature,), faults_s=faults_s)


def test_seeds_draw_different_features_and_each_of_them() -> None:
    settings = Settings(seed=0, layout=Layout(brokers=3), features=ALL)
    drawn = [drawn_features(replace(settings, seed=seed)) for seed in range(200)]
    assert len(set(drawn)) > 60
    for feature in WorkFeature:
        assert 30 < sum(feature in each for each in drawn) < 100
    listed = replace(settings, features=(WorkFeature.BULK, WorkFeature.STATIC))
    assert {drawn_features(replace(listed, seed=seed)) for seed in range(9)} == {frozenset(listed.features)}
    assert drawn_features(replace(listed, layout=Layout())) == {WorkFeature.BULK}
    assert drawn_features(replace(listed, layout=Layout(brokers=3, zookeeper=True))) == {WorkFeature.BULK}
    assert drawn_features(replace(settings, features=())) == frozenset()


def test_faults_strike_the_clients_of_features() -> None:
    settings = calm(WorkFeature.BULK)
    assert {"hauler1", "clerk"} <= set(struck_clients(settings))
    assert set(struck_clients(settings)) <= set(Run(settings).cluster.clients)


def test_readers_need_racks() -> None:
    layout = layout_of(calm(WorkFeature.READERS))
    racks = [properties["broker.rack"] for properties in layout.node_properties().values()]
    assert racks == ["rack1", "rack2", "rack3"]
    assert all("broker.rack" not in each for each in Layout(brokers=3).node_properties().values())


def test_a_value_says_whether_it_is_whole() -> None:
    for size in (0, 5, 1000):
        for is_random in (False, True):
            value = padded(b"hauler1.1:4.0", size, is_random=is_random)
            assert name_of(value) == b"hauler1.1:4.0"
            assert name_of(value + b"x") is None
    assert name_of(None) is name_of(b"") is None


# -- promises and planted mistakes


def problems_of(feature: WorkFeature, faults_s: int = 12) -> list[str]:
    return run(calm(feature, faults_s)).problems


@pytest.mark.sampled(4)
@pytest.mark.parametrize("feature", [each for each in WorkFeature if each is not WorkFeature.IDLE])
def test_a_feature_alone_keeps_its_promises_and_its_clients_work(feature: WorkFeature) -> None:
    simulation = Run(calm(feature, 8))
    outcome = simulation.execute()
    assert not outcome.failed, outcome.problems
    assert [worker.client.name for worker in simulation.work.workers if worker.acked < 3] == []


def searches_skip_a_record(patch: pytest.MonkeyPatch) -> None:
    real = time_search._first_in

    def first_in(segment: Any, timestamp: int, from_offset: int) -> Any:
        found = real(segment, timestamp, from_offset)
        later = None if found is None else real(segment, timestamp, found[1] + 1)
        return later or found

    patch.setattr(time_search, "_first_in", first_in)


def repeated_batches_are_appended(patch: pytest.MonkeyPatch) -> None:
    """Every third batch is appended a second time, although the producer has not sent it again."""
    real, count = Partition.append, 0

    def append(self: Partition, *arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if self.topic_partition.topic == "gauges" and count % 3 == 0:
            real(self, *arguments, **named)
        return real(self, *arguments, **named)

    patch.setattr(Partition, "append", append)
    patch.setattr(ProducerEntry, "find_repeated", lambda self, header: None)
    patch.setattr("barnabas.storage.producers.ProducerStateManager._check_sequence", lambda *arguments: None)


def the_last_record_of_a_key_is_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(record_filter, "_select", lambda records, header, rule: [])


def tombstones_are_dropped_first(patch: pytest.MonkeyPatch) -> None:
    """A pass removes tombstones, and keeps what they delete."""

    def select(records: list[Any], header: Any, rule: Any) -> list[Any]:
        return [record for record in records if record[record_filter._HAS_VALUE]]

    patch.setattr(record_filter, "_select", select)


def retention_is_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention, "expired", lambda segments, *_: max(0, len(segments) - 1))


def retention_leaves_too_little(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention, "surplus", lambda segments, *_: max(0, len(segments) - 1))
    patch.setattr(retention, "expired", lambda *_: 0)


def deleted_records_are_served(patch: pytest.MonkeyPatch) -> None:
    def delete(self: Partition, offset: int) -> int:
        return self.high_watermark if offset == -1 else offset

    patch.setattr(Partition, "delete_records_before", delete)
    patch.setattr(Partition, "low_watermark", property(lambda self: self.high_watermark))


def more_is_deleted_than_asked_for(patch: pytest.MonkeyPatch) -> None:
    real = Log.delete_records_before
    patch.setattr(Log, "delete_records_before", lambda self, offset: real(self, min(offset + 1, self.log_end_offset)))


def readers_get_what_is_not_replicated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "readable_end", lambda self, isolation: self.log.log_end_offset)


def deleted_offsets_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Offsets, "drop", lambda self, group_id, partitions: None)


def transactions_that_time_out_are_committed(patch: pytest.MonkeyPatch) -> None:
    def fenced(*arguments: Any) -> Any:
        return real(*arguments)._replace(state=TxnState.PREPARE_COMMIT)

    real = transitions.fenced
    patch.setattr(shard, "fenced", fenced)


def static_members_come_back_as_others(patch: pytest.MonkeyPatch) -> None:
    def replace_static(self: ClassicGroup, *arguments: Any) -> Any:
        new = real(self, *arguments)
        new.assignment = next((each.assignment for each in self.members.values() if each is not new), new.assignment)
        return new

    real = ClassicGroup.replace_static
    patch.setattr(ClassicGroup, "replace_static", replace_static)


def absences_are_for_good(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heartbeat, "STATIC_LEAVE_EPOCH", -99)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("feature", "plant", "said"),
    [
        (WorkFeature.BULK, searches_skip_a_record, "a wrong look-up"),
        (WorkFeature.BULK, repeated_batches_are_appended, "twice"),
        (WorkFeature.COMPACTED, the_last_record_of_a_key_is_dropped, "old value"),
        (WorkFeature.COMPACTED, tombstones_are_dropped_first, "resurrected"),
        (WorkFeature.SHRINKING, retention_is_too_early, "deleted without reason"),
        (WorkFeature.SHRINKING, deleted_records_are_served, "deleted and served"),
        (WorkFeature.SHRINKING, more_is_deleted_than_asked_for, "deleted without reason"),
        (WorkFeature.READERS, readers_get_what_is_not_replicated, "read above the HW"),
        (WorkFeature.REGISTERS, deleted_offsets_stay, "a deleted offset is back"),
        (WorkFeature.STATIC, static_members_come_back_as_others, "a static member was moved"),
        (WorkFeature.STATIC, absences_are_for_good, "owned twice at once"),
        (WorkFeature.ABANDONED, transactions_that_time_out_are_committed, "a late transaction"),
    ],
)
def test_a_planted_mistake_is_found(
    feature: WorkFeature, plant: Plant, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The comparisons with a replay of the log and with second decisions would find some of them before the clients can.
    monkeypatch.setattr(Coordinators, "check", lambda *_: None)
    monkeypatch.setattr(SecondDecisions, "check", lambda *_: None)
    plant(monkeypatch)
    found = problems_of(feature, 30 if feature is WorkFeature.STATIC else 12)
    assert any(problem.startswith(said) for problem in found), found
