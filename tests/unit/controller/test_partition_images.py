"""The image of a partition after a change record."""

from __future__ import annotations

import pytest

from barnabas.decisions.partition import MIGRATING_DIRECTORY, NO_LEADER_CHANGE, PartitionImage
from barnabas.protocol.messages.records_metadata import PartitionChangeRecord

BEFORE = PartitionImage((1, 2, 3), (1, 2), 1, 4, 9, (b"a" * 16, b"b" * 16, b"c" * 16), (3,), (2,), 0, (3,), (1,))
NOTHING = PartitionChangeRecord(leader=NO_LEADER_CHANGE, leader_recovery_state=-1)


def changed(record: PartitionChangeRecord) -> dict[str, object]:
    """Returns the fields that differ after the record."""
    before = BEFORE._asdict()
    return {name: value for name, value in BEFORE.merge(record)._asdict().items() if value != before[name]}


def test_a_record_without_fields_changes_the_partition_epoch() -> None:
    assert changed(NOTHING) == {"partition_epoch": 10}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("isr", [1]),
        ("removing_replicas", []),
        ("adding_replicas", []),
        ("eligible_leader_replicas", []),
        ("last_known_elr", []),
        ("leader_recovery_state", 1),
    ],
)
def test_a_field_of_the_record_replaces_that_of_the_image(field: str, value: list[int] | int) -> None:
    record = PartitionChangeRecord(**{"leader": NO_LEADER_CHANGE, "leader_recovery_state": -1, field: value})  # type: ignore[arg-type]
    name = "elr" if field == "eligible_leader_replicas" else field
    assert changed(record) == {"partition_epoch": 10, name: tuple(value) if isinstance(value, list) else value}


@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_in_the_record_raises_the_leader_epoch_even_if_it_is_the_same(leader: int) -> None:
    record = PartitionChangeRecord(leader=leader, leader_recovery_state=-1)
    expected: dict[str, object] = {"partition_epoch": 10, "leader_epoch": 5}
    assert changed(record) == (expected if leader == BEFORE.leader else expected | {"leader": leader})


def test_replicas_without_directories_are_in_unknown_ones() -> None:
    record = PartitionChangeRecord(leader=NO_LEADER_CHANGE, leader_recovery_state=-1, replicas=[1, 2])
    assert BEFORE.merge(record).directories == (MIGRATING_DIRECTORY,) * 2
    record.directories = [b"d" * 16]
    with pytest.raises(AssertionError, match="a directory for each replica"):
        BEFORE.merge(record)
