"""The table: what each input changes, what is too old, and what stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.watched import T0, columns_of, details, look, partition, table_of

from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.delta import Delta, NameRange, Source, TopicName, VolumesSeen
from barnabas.monitor.partition_state import Key, PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable, values_of
from barnabas.monitor.table_update import SETTLE_MS

A, B = partition("a-0"), partition("b-0")


def contents(table: ClusterTable) -> dict[str, tuple[int, tuple[int, ...]]]:
    return {str(state.key): (state.leader, state.isr) for state in table.values()}


def applied(table: ClusterTable, delta: Delta) -> ChangeSet:
    found = table.apply(delta)
    assert found is not None
    return found


def from_log(*states: PartitionState, epoch: int, at_ms: int = T0) -> Delta:
    epochs = {state.key: epoch for state in states}
    columns = columns_of(states, is_complete=False, epochs=epochs)
    return Delta(at_ms, Source.METADATA_LOG, partitions=columns)


def test_a_look_is_the_table_and_the_same_look_changes_nothing() -> None:
    table = table_of(A, B)
    assert contents(table) == {"a-0": (1, (1, 2, 3)), "b-0": (1, (1, 2, 3))}
    assert list(table.values()) == [replace(each, topic_id=each.topic_id.ljust(16, b"\0")) for each in (A, B)]
    assert table.version == 1
    assert table.apply(look(A, B)) is None
    assert table.version == 1


def test_a_change_set_has_the_rows_before_and_after() -> None:
    table = table_of(A, B)
    change = applied(table, look(A, partition("b-0", leader=2, epoch=1, isr=(2, 3)), at_ms=T0 + 5))
    assert (change.version, change.time_ms, change.rows.tolist()) == (2, T0 + 5, [table.row_of("b", 0)])
    (was,), (now,) = values_of(change.before, change.topics), values_of(change.after, change.topics)
    assert (was.key, was.leader, was.isr) == (Key("b", 0), 1, (1, 2, 3))
    assert (now.leader, now.leader_epoch, now.isr) == (2, 1, (2, 3))
    assert len(change.created_rows) == len(change.removed_rows) == 0


def test_the_order_of_an_isr_is_no_change_and_that_of_replicas_is() -> None:
    table = table_of(A)
    assert table.apply(look(replace(A, isr=(3, 1, 2)))) is None
    assert contents(table) == {"a-0": (1, (3, 1, 2))}, "the order is kept as it was reported last"
    assert table.apply(look(replace(A, replicas=(2, 1, 3)))) is not None


def test_a_whole_look_deletes_what_it_lacks_and_a_page_only_within_its_names() -> None:
    table = table_of(A, B, partition("c-0"))
    change = applied(table, look(A, covers=NameRange("a", "c")))
    assert [(each.topic.name, each.is_created) for each in change.topic_changes] == [("b", False)]
    assert contents(table).keys() == {"a-0", "c-0"}
    applied(table, look(A))
    assert contents(table).keys() == {"a-0"}


def test_a_topic_of_which_a_page_has_the_first_half_keeps_the_second() -> None:
    table = table_of(A, partition("a-1"))
    half = Delta(T0, partitions=columns_of([replace(A, isr=(1, 2))], is_complete=False), covers=NameRange("", "a"))
    applied(table, half)
    assert contents(table) == {"a-0": (1, (1, 2)), "a-1": (1, (1, 2, 3))}
    gone = applied(table, look(replace(A, isr=(1, 2))))
    assert len(gone.removed_rows) == 1
    assert not gone.topic_changes
    assert contents(table).keys() == {"a-0"}


def test_a_topic_made_again_under_its_name_is_another_one_and_the_old_one_does_not_return() -> None:
    table = table_of(A)
    table.apply_volumes(VolumesSeen(T0, 1, sizes={("a", 0): 500}))
    again = partition("a-0", topic_id=b"again", isr=(1,))
    change = applied(table, look(again))
    assert [(each.topic.topic_id[:5], each.is_created) for each in change.topic_changes] == [
        (b"a".ljust(5, b"\0"), False),
        (b"again", True),
    ]
    assert (len(change.removed_rows), len(change.created_rows)) == (1, 1)
    assert set(change.removed_rows) != set(change.created_rows), "readers can tell them apart by their rows"
    assert table.state(int(change.created_rows[0])).size_bytes is None
    assert table.apply(look(A)) is None, "a broker that is behind"
    assert contents(table) == {"a-0": (1, (1,))}


def test_rows_of_removed_partitions_are_used_again_and_clean() -> None:
    table = table_of(A, B)
    table.apply_volumes(VolumesSeen(T0, 1, sizes={("b", 0): 500}))
    row = table.row_of("b", 0)
    applied(table, look(A))
    applied(table, look(A, partition("c-0")))
    assert table.row_of("c", 0) == row
    assert row is not None
    assert (table.state(row).size_bytes, len(table)) == (None, 2)


def test_a_lower_leader_epoch_is_older() -> None:
    table = table_of(partition("a-0", leader=2, epoch=3))
    assert table.apply(look(partition("a-0", leader=1, epoch=2))) is None
    assert contents(table)["a-0"][0] == 2


def test_elections_between_two_looks_are_counted() -> None:
    table = table_of(A)
    change = applied(table, look(partition("a-0", leader=2, epoch=4)))
    assert change.missed_elections.tolist() == [3]
    assert table.missed_elections[table.rows].tolist() == [3]
    assert applied(table, look(partition("a-0", leader=3, epoch=5))).missed_elections.tolist() == [0]


def test_elections_after_which_the_leader_is_the_same_are_all_missed() -> None:
    table = table_of(A)
    assert applied(table, look(replace(A, leader_epoch=1))).missed_elections.tolist() == [0], "it lost a replica"
    assert applied(table, look(replace(A, leader_epoch=3))).missed_elections.tolist() == [2]
    assert applied(table, look(replace(A, leader=2, leader_epoch=5))).missed_elections.tolist() == [1]
    assert table.missed_elections[table.rows].tolist() == [3]


def test_a_look_does_not_revert_what_an_exact_feed_delivered_and_heals_later() -> None:
    table = table_of(A)
    shrunk = replace(A, isr=(1, 2))
    applied(table, from_log(shrunk, epoch=7, at_ms=T0 + 10))
    assert table.apply(look(A, at_ms=T0 + 20)) is None, "the broker had not applied it"
    assert contents(table)["a-0"] == (1, (1, 2))
    assert table.apply(from_log(A, epoch=7)) is None, "delivered twice"
    assert table.apply(from_log(A, epoch=6)) is None, "delivered late"
    healed = look(A, at_ms=T0 + 10 + SETTLE_MS)
    assert len(applied(table, healed).rows) == 1
    assert contents(table)["a-0"] == (1, (1, 2, 3))


def test_what_an_exact_feed_created_or_deleted_is_not_undone_by_an_older_look() -> None:
    table = table_of(A)
    applied(table, from_log(B, epoch=0, at_ms=T0 + 10))
    assert table.apply(look(A, at_ms=T0 + 20)) is None
    deleted = TopicName("b", b"b".ljust(16, b"\0"))
    applied(table, Delta(T0 + 30, Source.METADATA_LOG, deleted=[deleted]))
    assert table.apply(look(A, B, at_ms=T0 + 90_000)) is None
    assert contents(table).keys() == {"a-0"}


def test_min_isr_belongs_to_the_topic_and_its_change_to_each_partition() -> None:
    table = table_of(A, partition("a-1"), B)
    change = applied(table, Delta(T0, min_isrs={"a": 3}))
    assert sorted(change.rows.tolist()) == sorted(table.topics.by_name["a"].rows.tolist())
    assert (set(change.before.min_isr.tolist()), set(change.after.min_isr.tolist())) == ({2}, {3})
    applied(table, Delta(T0, partitions=columns_of([partition("a-2")], is_complete=False)))
    assert [state.min_isr for state in table.values()] == [3, 3, 3, 2]


def test_brokers_that_come_go_move_and_fall_silent() -> None:
    table = table_of(A)
    change = applied(table, look(A, brokers=(1, 2), problems={2: "connection refused"}))
    assert [(each.broker_id, each.after is None) for each in change.brokers] == [(2, False), (3, True)]
    assert (sorted(change.silent_before), sorted(change.silent_after)) == ([], [2])
    assert table.apply(look(A, brokers=(1, 2), problems={2: "no response in time"})) is None, (
        "silent for another reason"
    )
    assert table.brokers[2].problem == "no response in time"
    assert applied(table, look(A, brokers=(1, 2), problems={2: None}, at_ms=T0 + 7)).silent_after == frozenset()
    assert table.brokers[2].answered_ms == T0 + 7
    assert applied(table, look(A, brokers=(1, 2), controller=2)).controller == (1, 2)


def test_sizes_and_offsets_follow_their_replica() -> None:
    table = table_of(partition("a-0", details=details(b1=10, b2=7, b3=10)))
    row = table.row_of("a", 0)
    assert row is not None
    assert [table.state(row).lag_of(broker) for broker in (1, 2, 3)] == [0, 3, 0]
    rows = table.rows
    lags = table.volumes.lags(rows, table.states.leader[rows], table.states.replicas[rows])
    assert lags.tolist() == [[0, 3, 0]]
    applied(table, look(partition("a-0", leader=3, epoch=1, replicas=(3, 4, 2), isr=(3, 2))))
    assert [table.state(row).details.get(broker) for broker in (3, 4, 2)] == [
        details(b3=10)[3],
        None,
        details(b2=7)[2],
    ]
    assert table.apply_volumes(VolumesSeen(T0, 1, sizes={("a", 0): 1}, end_offsets={("z", 9): 4})) is None


def test_longer_lists_of_replicas_make_the_columns_wider() -> None:
    table = table_of(A)
    applied(table, look(A, partition("wide-0", replicas=(1, 2, 3, 4, 5), isr=(5, 4))))
    assert [state.replicas for state in table.values()] == [(1, 2, 3), (1, 2, 3, 4, 5)]
    assert table.states.width == 5


def test_readers_that_lag_behind_get_the_change_sets_since_their_version() -> None:
    table = table_of(A)
    heard: list[int] = []
    end = table.subscribe(lambda change: heard.append(change.version))
    for leader in (2, 3):
        applied(table, look(partition("a-0", leader=leader, epoch=leader)))
    end()
    applied(table, look(partition("a-0", leader=1, epoch=9)))
    assert heard == [2, 3]
    found = table.since(2)
    assert found is not None
    assert [change.version for change in found] == [3, 4]
    assert table.since(4) == []
    assert table.since(9) is None


SILENCES = [frozenset[int](), frozenset({1}), frozenset({2, 3})]


@pytest.mark.parametrize("silent", SILENCES, ids=str)
def test_severities_of_columns_are_those_of_the_values(silent: frozenset[int]) -> None:
    found: list[PartitionState] = []
    for leader in (-1, 1):
        for isr in ((), (1,), (1, 2), (1, 2, 3)):
            for min_isr in (None, 1, 2, 3, 5):
                found.append(partition(f"t{len(found)}-0", leader=leader, isr=isr, min_isr=min_isr))
    found += [partition("one-0", replicas=(1,), isr=(1,)), partition("two-0", replicas=(1, 2), isr=(2,))]
    table = table_of(*found, problems=dict.fromkeys(silent, "no response in time"))
    severities = dict(zip(table.rows.tolist(), table.severities().tolist(), strict=True))
    for row, state in zip(table.in_order().tolist(), table.values(), strict=True):
        assert severities[row] == state.severity, state
    assert table.counts() == {
        severity: sum(state.severity is severity for state in table.values()) for severity in Severity
    }


def test_the_worst_come_first_and_of_those_as_bad_the_internal_ones_last() -> None:
    table = table_of(partition("__a-0"), B, partition("__a-1", isr=(1,)), partition("b-1", isr=(1,)))
    assert [str(table.state(row).key) for row in table.by_severity().tolist()] == ["b-1", "__a-1", "b-0", "__a-0"]
    assert table.severity is Severity.ERROR


def test_an_empty_cluster_is_well() -> None:
    table = table_of()
    assert (table.severity, len(table), table.by_severity().tolist()) == (Severity.OK, 0, [])
    assert table.in_order(np.zeros(0, np.int32)).tolist() == []
