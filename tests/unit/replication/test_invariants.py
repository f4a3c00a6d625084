"""Invariants of a replica and of the controller's decision about it, asserted on both sides."""

from __future__ import annotations

import pytest
from tests.support.follower_world import QuietEnvironment
from tests.support.log_world import TOPIC_ID, LogWorld, encode_records

from barnabas.common.types import TopicPartition
from barnabas.decisions.partition_change import PartitionChange, Rules
from barnabas.metadata.topics import PartitionImage
from barnabas.replication.leadership import Leadership
from barnabas.replication.partition import Partition
from barnabas.simulation.host import MemoryHost
from barnabas.storage.log import Origin

OWN, OTHER = 1, 2
IMAGE = PartitionImage((OWN, OTHER), (OWN, OTHER), OWN, 5, 7)


def new_partition() -> Partition:
    host = MemoryHost()
    log = LogWorld(disk=host.disk).log
    return Partition(TopicPartition("orders", 0), TOPIC_ID, log, OWN, QuietEnvironment(host))


def test_a_replica_takes_only_the_role_that_the_image_gives_it() -> None:
    partition = new_partition()
    with pytest.raises(AssertionError, match="2 leads"):
        partition.become_leader(IMAGE._replace(leader=OTHER))
    with pytest.raises(AssertionError, match="follows no broker"):
        partition.become_follower(IMAGE)


def test_the_leader_epoch_never_decreases() -> None:
    partition = new_partition()
    partition.become_leader(IMAGE)
    with pytest.raises(AssertionError, match="leader epoch"):
        partition.become_follower(IMAGE._replace(leader=OTHER, leader_epoch=4))
    with pytest.raises(AssertionError, match="leader epoch"):
        partition.become_leader(IMAGE._replace(leader_epoch=4))


def test_the_high_watermark_covers_only_what_the_log_has(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = new_partition()
    partition.become_leader(IMAGE)
    monkeypatch.setattr(Leadership, "high_watermark", lambda self, leo, *rest: leo + 1)
    with pytest.raises(AssertionError, match="the HW covers"):
        partition.append(encode_records(1), 1, Origin.CLIENT)


def test_the_leader_stays_in_its_isr() -> None:
    leadership = Leadership(OWN, IMAGE, 0, 0)
    with pytest.raises(AssertionError, match="in its ISR"):
        leadership.propose((OTHER,))
    with pytest.raises(AssertionError, match="in its ISR"):
        leadership.commit_answer((OTHER,), IMAGE.partition_epoch + 1)
    assert leadership.commit_answer((OWN,), IMAGE.partition_epoch + 1)


def test_an_isr_has_the_leader_and_replicas_only() -> None:
    with pytest.raises(AssertionError, match="in its ISR"):
        Leadership(OWN, IMAGE._replace(isr=(OTHER,)), 0, 0)
    leadership = Leadership(OWN, IMAGE, 0, 0)
    with pytest.raises(AssertionError, match="only replicas"):
        leadership.propose((OWN, 3))
    leadership.propose((OWN, OTHER))


def test_a_leader_takes_and_removes_nothing_for_another_broker() -> None:
    partition = new_partition()
    partition.become_leader(IMAGE)
    records = encode_records(1)
    with pytest.raises(AssertionError, match="takes no records"):
        partition.append_as_follower(records, 0, 0)
    with pytest.raises(AssertionError, match="truncates nothing"):
        partition.truncate_to(0)
    with pytest.raises(AssertionError, match="deletes none"):
        partition.start_anew_at(5)
    partition.become_follower(IMAGE._replace(leader=OTHER, leader_epoch=6))
    partition.start_anew_at(5)
    assert partition.log.log_end_offset == 5


def test_a_leader_begins_with_a_high_watermark_within_its_log() -> None:
    partition = new_partition()
    partition.high_watermark = 1
    with pytest.raises(AssertionError, match="the HW covers"):
        partition.become_leader(IMAGE)


def test_the_controller_decides_on_no_leader_outside_the_isr() -> None:
    change = PartitionChange(IMAGE, Rules(may_lead=lambda broker_id: True))
    change.target_isr = (OWN, 3)
    with pytest.raises(AssertionError, match="replicas"):
        change.build(TOPIC_ID, 0)
    change = PartitionChange(IMAGE, Rules(may_lead=lambda broker_id: False))
    change.target_isr = (OTHER,)
    record = change.build(TOPIC_ID, 0)
    assert record is not None
    assert (record.leader, record.isr) == (-1, [OTHER])
