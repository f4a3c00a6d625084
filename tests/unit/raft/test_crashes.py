"""Power failure before each single change of the disk, from the first start on: no acknowledged decision is lost.

One run: formatting, first start, registration, topics, snapshots and the removal of what they cover, stop, second
start, another topic.
"""

from __future__ import annotations

import pytest
from tests.support.node_world import NodeWorld

from barnabas.raft.snapshots import SnapshotId
from barnabas.simulation.crashing_disk import CrashingDisk, Fate, PowerFailure

PROPERTIES = {
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "metadata.max.retention.bytes": "2000",
    "internal.metadata.log.segment.bytes": "600",
}


class Diary:
    """The acknowledgements until now."""

    def __init__(self) -> None:
        self.topics: dict[str, bytes] = {}
        self.epoch = 0
        self.broker_epoch = -1

    def note_creation(self, world: NodeWorld, name: str) -> None:
        result = world.create(name).topics[0]
        assert result.error_code == 0
        self.topics[name] = result.topic_id

    def note_start(self, world: NodeWorld) -> None:
        world.start()
        assert world.raft.epoch > self.epoch
        self.epoch = world.raft.epoch
        answer = world.register()
        assert answer.error_code == 0
        assert answer.broker_epoch > self.broker_epoch
        self.broker_epoch = answer.broker_epoch
        assert not world.beat().is_fenced


def live(disk: CrashingDisk, diary: Diary) -> None:
    world = NodeWorld(PROPERTIES, disk=disk)
    diary.note_start(world)
    for name in ("a", "b", "c"):
        diary.note_creation(world, name)
        world.host.time.run_for(5)
    world.raft.stop()
    world = NodeWorld(PROPERTIES, disk=disk, seed=1)
    diary.note_start(world)
    diary.note_creation(world, "d")


def changes_of_a_life() -> int:
    disk = CrashingDisk()
    live(disk, Diary())
    return disk.changes


CHANGES = changes_of_a_life()


def test_a_life_has_many_moments_to_die_in() -> None:
    assert CHANGES > 60
    disk = CrashingDisk()
    live(disk, Diary())
    names = disk.list_dir("/data/__cluster_metadata-0")
    assert any(name.endswith(".checkpoint") for name in names), names
    assert SnapshotId(0, 0).file_name not in names
    assert "00000000000000000000.log" not in names


@pytest.mark.parametrize("fate", Fate)
def test_what_was_acknowledged_is_there_whenever_the_power_fails(fate: Fate) -> None:
    for moment in range(CHANGES):
        disk, diary = CrashingDisk(moment), Diary()
        with pytest.raises(PowerFailure):
            live(disk, diary)
        found = disk.after_crash(fate)
        again = NodeWorld(PROPERTIES, disk=found, seed=2)
        where = f"power failure at change {moment}, unsynced data {fate.value}"
        again.raft.start()
        assert again.raft.epoch > diary.epoch, where
        topics = {name: topic.topic_id for name, topic in again.image.topics_by_name.items()}
        assert diary.topics.items() <= topics.items(), where
        assert set(topics) <= {"a", "b", "c", "d"}, where
        assert len(again.image.features) == 4, where
        answer = again.register()
        assert (answer.error_code, answer.broker_epoch > diary.broker_epoch) == (0, True), where
