"""A quorum of one over the project's log: its writes, their commits, and the state after a restart."""

from __future__ import annotations

import pytest
from tests.support.metadata_logs import DATA
from tests.support.node_world import LOG_DIR, METADATA_DIR, NodeWorld, content

from barnabas.common.errors import ConfigError, ErrorCode, FatalFault, RequestFailed
from barnabas.metadata.frame import decode_record
from barnabas.metadata.image import EMPTY_IMAGE
from barnabas.protocol.messages.records_metadata import NoOpRecord, TopicRecord
from barnabas.raft.control import decode_control
from barnabas.raft.log_checkpoint import log_checkpoint_path
from barnabas.raft.quorum_state import ElectionState, decode_state, encode_state
from barnabas.raft.snapshots import SnapshotId, decode_snapshot
from barnabas.records.batch import Record, decode_batch, encode_batch, iter_headers
from barnabas.simulation.crashing_disk import CrashingDisk
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.checkpoints import decode_epochs


def log_records(disk: MemoryDisk) -> list[tuple[int, list[str]]]:
    """Returns (epoch, record names) of each batch."""
    data = disk.read(f"{METADATA_DIR}/00000000000000000000.log")
    found = []
    for position, header in iter_headers(data):
        names = []
        for record in decode_batch(data, position):
            if header.is_control:
                names.append(type(decode_control(record.key, record.value)).__name__)
            else:
                names.append(type(decode_record(record.value or b"")[0]).__name__)
        found.append((header.partition_leader_epoch, names))
    return found


def test_the_first_start_writes_what_kafka_writes() -> None:
    """Batch by batch as in the recorded log of Apache Kafka 4.1.0 (`one-node`)."""
    world = NodeWorld().join()
    ours = log_records(world.host.disk)
    kafkas_data = (DATA / "one-node" / "00000000000000000000.log").read_bytes()
    disk = MemoryDisk()
    disk.make_dirs(METADATA_DIR)
    disk.write(f"{METADATA_DIR}/00000000000000000000.log", kafkas_data)
    assert ours == log_records(disk)[: len(ours)]
    assert len(ours) == 5
    assert world.epoch == 11
    assert world.image.offset == 12


def test_the_first_values_are_kafkas() -> None:
    world = NodeWorld().join()
    assert dict(world.image.features) == {
        "metadata.version": 27,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert dict(world.image.config_of(4, "")) == {"min.insync.replicas": "1"}
    (controller,) = world.image.controllers.values()
    assert [tuple(endpoint) for endpoint in controller.endpoints] == [("CONTROLLER", "localhost", 9093, 0)]


def test_a_restart_has_the_same_image_and_a_higher_epoch() -> None:
    first = NodeWorld().join()
    first.create("a", "b", partitions=3)
    before = first.image
    first.raft.stop()
    second = NodeWorld(disk=first.host.disk, seed=1).start()
    assert second.raft.epoch == 2
    assert second.image.topics_by_id == before.topics_by_id
    assert second.image.configs == before.configs
    assert second.image.features == before.features
    assert second.image.brokers == before.brokers
    assert second.image.controllers != before.controllers, "another incarnation of the controller"
    assert second.formatted == first.formatted


def test_what_happened_before_the_start_is_published_as_one_image() -> None:
    first = NodeWorld().join()
    first.create("a")
    first.create("b")
    second = NodeWorld(disk=first.host.disk, seed=1).start()
    delta, image = second.published[0]
    assert delta.image == EMPTY_IMAGE
    assert {topic.name for topic in delta.changed_topics.values()} == {"a", "b"}
    assert all(topic.created for topic in delta.changed_topics.values())
    assert len(image.topics_by_name) == 2
    assert not any(delta.changed_topics for delta, _ in second.published[1:])


def test_leadership_is_on_disk_before_anything_is_written_in_its_epoch() -> None:
    """Guard G16: the last change before the first append of the epoch makes quorum-state durable."""
    disk = CrashingDisk()
    NodeWorld(disk=disk).join()
    assert decode_state(disk.read(f"{METADATA_DIR}/quorum-state"), "q") == ElectionState(1, 1)
    # The second line, with a checksum, is Barnabas's own; Apache Kafka reads the first one only.
    assert disk.read(f"{METADATA_DIR}/quorum-state").split(b"\n")[0] == (
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


def test_a_lost_quorum_state_is_refused() -> None:
    first = NodeWorld().join()
    first.raft.stop()
    first.host.disk.remove(f"{METADATA_DIR}/quorum-state")
    with pytest.raises(FatalFault, match=r"quorum-state is missing, but this node has taken part .* log repair /data"):
        NodeWorld(disk=first.host.disk, seed=1).start()


def test_a_quorum_state_from_before_is_refused() -> None:
    """A copy that was put back: in the epochs since this node may have voted."""
    first = NodeWorld().join()
    first.raft.stop()
    disk = first.host.disk
    old = disk.read(f"{METADATA_DIR}/quorum-state")
    NodeWorld(disk=disk, seed=1).start().raft.stop()
    disk.write(f"{METADATA_DIR}/quorum-state", old)
    with pytest.raises(FatalFault, match=r"quorum-state has epoch 1, but this node has taken part in epoch 2"):
        NodeWorld(disk=disk, seed=2).start()


def test_a_broken_quorum_state_stops_the_node() -> None:
    first = NodeWorld().join()
    first.host.disk.write(f"{METADATA_DIR}/quorum-state", b'{"leaderId":1')
    with pytest.raises(FatalFault, match="quorum-state"):
        NodeWorld(disk=first.host.disk, seed=1).start()


@pytest.mark.parametrize(
    ("file", "kraft_version", "voters"),
    [("quorum-state.static-voters", 0, [1]), ("one-node/quorum-state", 1, [1]), ("three-nodes/quorum-state", 1, [1])],
)
def test_recorded_quorum_states_are_read_and_written_alike(file: str, kraft_version: int, voters: list[int]) -> None:
    data = (DATA / file).read_bytes()
    state = decode_state(data, file)
    assert encode_state(state, kraft_version=kraft_version, voter_ids=voters) == data


def test_static_voters_need_no_voters_in_the_log() -> None:
    world = NodeWorld({"controller.quorum.voters": "1@localhost:9093"}).join()
    assert log_records(world.host.disk)[0] == (1, ["LeaderChangeMessage"])
    assert world.host.disk.read(f"{METADATA_DIR}/quorum-state").split(b"\n")[0] == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],'
        b'"data_version":0}'
    )


def test_another_quorum_is_refused_with_a_clear_text() -> None:
    with pytest.raises(ConfigError, match="node 1 is one of several"):
        NodeWorld({"controller.quorum.voters": "1@a:9093,2@b:9093"})


# Proposals


def test_nothing_is_delivered_before_it_is_flushed() -> None:
    world = NodeWorld().join()
    seen: list[str] = []

    def propose() -> None:
        offset = world.raft.propose([(NoOpRecord(), 0)], wall_ms=5, done=lambda base: seen.append(f"first {base}"))
        world.raft.propose([(NoOpRecord(), 0)], wall_ms=5, done=lambda base: seen.append(f"second {base}"))
        world.raft.when_committed(offset + 2, lambda end: seen.append(f"both {end}"))
        assert seen == []
        assert world.image.offset == offset - 1
        assert world.raft.high_watermark == offset

    world.in_one_event(propose)
    offset = world.raft.log_end_offset - 2
    assert seen == [f"first {offset}", f"second {offset + 1}", f"both {offset + 2}"]
    assert world.raft.high_watermark == offset + 2
    assert world.image.offset == offset + 1


def test_proposals_of_one_event_share_one_sync() -> None:
    disk = CrashingDisk()
    world = NodeWorld(disk=disk).join()

    def propose() -> None:
        disk.synced_paths.clear()
        for _ in range(5):
            world.raft.propose([(NoOpRecord(), 0)], wall_ms=5)
        assert disk.synced_paths == []

    world.in_one_event(propose)
    assert [path for path in disk.synced_paths if path.endswith(".log")] == [f"{METADATA_DIR}/{'0' * 20}.log"]


def test_a_reply_may_propose_again() -> None:
    world = NodeWorld().join()
    seen: list[int] = []

    def again(offset: int) -> None:
        seen.append(offset)
        if len(seen) < 3:
            world.raft.propose([(NoOpRecord(), 0)], wall_ms=5, done=again)

    first = world.raft.propose([(NoOpRecord(), 0)], wall_ms=5, done=again)
    assert seen == [first, first + 1, first + 2]


def test_a_large_proposal_is_several_batches_and_one_done() -> None:
    world = NodeWorld().join()
    records = [(TopicRecord(name=f"{i:05d}" + "x" * 244, topic_id=i.to_bytes(16, "big")), 0) for i in range(40_000)]
    done: list[int] = []
    offset = world.raft.propose(records, wall_ms=5, done=done.append)
    assert done == [offset]
    assert world.image.offset == offset + 39_999
    assert len(world.image.topics_by_name) == 40_000
    sizes = [header.size_bytes for _, header in iter_headers(world.host.disk.read(f"{METADATA_DIR}/{'0' * 20}.log"))]
    assert max(sizes) <= 8 * 1024 * 1024
    assert sum(size > 1024 * 1024 for size in sizes) == 2


def test_after_the_stop_nothing_is_taken() -> None:
    world = NodeWorld().join()
    world.raft.stop()
    assert not world.raft.is_leader
    assert not world.controller.is_active
    with pytest.raises(RequestFailed) as refusal:
        world.raft.propose([(NoOpRecord(), 0)], wall_ms=5)
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER


# Snapshots

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "2000"}


def test_a_snapshot_is_taken_by_size_and_read_at_the_next_start() -> None:
    world = NodeWorld(SMALL).join()
    for i in range(30):
        world.create(f"t{i}")
        world.host.time.run_for(5)
    names = [name for name in world.host.disk.list_dir(METADATA_DIR) if name.endswith(".checkpoint")]
    assert len(names) > 2
    snapshot = decode_snapshot(world.host.disk.read(f"{METADATA_DIR}/{names[-1]}"))
    assert snapshot.kraft_version == 1
    assert snapshot.voters == world.raft.quorum.voters
    # The log before the snapshot may be gone altogether: image and epoch come from the snapshot.
    world.raft.stop()
    again = NodeWorld(SMALL, disk=world.host.disk, seed=1).start()
    assert again.image.topics_by_id == world.image.topics_by_id
    assert again.raft.epoch == 2


def test_a_log_that_was_lost_begins_after_the_snapshot() -> None:
    """Guard G17."""
    world = NodeWorld(SMALL).join()
    for i in range(10):
        world.create(f"t{i}")
    world.host.time.run_for(5)
    world.raft.stop()
    disk = world.host.disk
    names = disk.list_dir(METADATA_DIR)
    (snapshot,) = [name for name in names if name.endswith(".checkpoint") and not name.startswith("0" * 20)][-1:]
    for name in names:
        if name.endswith((".log", ".index", ".timeindex")) or name == "leader-epoch-checkpoint":
            disk.remove(f"{METADATA_DIR}/{name}")
    end_offset = int(snapshot[:20])
    with pytest.raises(
        FatalFault, match=r"00\.log, byte 0, offset 0: the log ends here, but everything before offset \d+"
    ):
        NodeWorld(SMALL, disk=disk, seed=1).start()
    # The log shows no trace of further records.
    disk.remove(log_checkpoint_path(LOG_DIR))
    again = NodeWorld(SMALL, disk=disk, seed=1).start()
    assert again.raft.log.start_offset == end_offset
    assert again.raft.epoch == 2
    assert len(again.image.topics_by_name) > 0
    assert again.register().broker_epoch >= end_offset


def test_snapshots_come_with_time_too_but_not_without_change() -> None:
    world = NodeWorld({"metadata.log.max.snapshot.interval.ms": "60000"}).join()
    disk = world.host.disk

    def count() -> int:
        return sum(name.endswith(".checkpoint") for name in disk.list_dir(METADATA_DIR))

    world.host.time.run_for(120_000)
    assert count() == 1
    world.raft.propose([(NoOpRecord(), 0)], wall_ms=5)
    world.host.time.run_for(5)
    assert count() == 2


def test_old_snapshots_and_segments_go_by_size() -> None:
    world = NodeWorld(
        {**SMALL, "metadata.max.retention.bytes": "6000", "internal.metadata.log.segment.bytes": "1500"}
    ).join()
    for i in range(60):
        world.create(f"t{i}")
        world.host.time.run_for(5)
    names = world.host.disk.list_dir(METADATA_DIR)
    snapshots = [name for name in names if name.endswith(".checkpoint")]
    assert snapshots[0] != SnapshotId(0, 0).file_name
    assert world.raft.log.start_offset == int(snapshots[0][:20])
    before = content(world.image)
    world.raft.stop()
    again = NodeWorld(SMALL, disk=world.host.disk, seed=1).start()
    assert again.image.topics_by_id == before.topics_by_id


def test_an_unreadable_snapshot_is_set_aside_where_the_log_holds_the_same() -> None:
    world = NodeWorld().join()
    world.raft.stop()
    name = SnapshotId(9, 1).file_name
    world.host.disk.write(f"{METADATA_DIR}/{name}", b"no snapshot")
    again = NodeWorld(disk=world.host.disk, seed=1).start()
    assert again.image.brokers == world.image.brokers
    (warning,) = again.host.faults.warned
    assert name in warning
    assert world.host.disk.exists(f"{METADATA_DIR}/{name}.damaged")


def test_an_unreadable_snapshot_before_which_there_is_no_log_stops_the_node() -> None:
    world = NodeWorld({**SMALL, "metadata.max.retention.bytes": "3000", "internal.metadata.log.segment.bytes": "700"})
    world.join()
    for i in range(40):
        world.create(f"t{i}")
        world.host.time.run_for(5)
    world.raft.stop()
    disk = world.host.disk
    names = [name for name in disk.list_dir(METADATA_DIR) if name.endswith(".checkpoint")]
    for name in names:
        disk.write(f"{METADATA_DIR}/{name}", b"no snapshot")
    with pytest.raises(
        FatalFault, match=rf"{names[-1]} cannot be read: .* copy the segments and snapshots of a stopped"
    ):
        NodeWorld(SMALL, disk=disk, seed=1).start()


def test_a_record_of_a_newer_release_stops_the_node_and_names_its_offset() -> None:
    world = NodeWorld().join()
    end_offset = world.raft.log_end_offset
    world.raft.stop()
    unknown_type = Record(end_offset, 5, None, b"\x01\x63\x00")
    batch = encode_batch([unknown_type], base_offset=end_offset, leader_epoch=1)
    world.host.disk.open(f"{METADATA_DIR}/00000000000000000000.log").append(batch)
    with pytest.raises(FatalFault, match=f"offset {end_offset}: metadata record of unknown type 99"):
        NodeWorld(disk=world.host.disk, seed=1).start()


def test_a_torn_tail_is_cut() -> None:
    world = NodeWorld().join()
    world.create("kept")
    end_offset = world.raft.log_end_offset
    batch = encode_batch([Record(end_offset, 5, None, b"\x01\x14\x00")], base_offset=end_offset, leader_epoch=1)
    world.host.disk.open(f"{METADATA_DIR}/00000000000000000000.log").append(batch[:-1])
    again = NodeWorld(disk=world.host.disk, seed=1).start()
    assert "kept" in again.image.topics_by_name
    assert again.raft.quorum.role.epoch_start_offset == end_offset  # type: ignore[union-attr]


def test_a_node_that_kafka_ran_goes_on_here() -> None:
    """The directory of a combined node of Apache Kafka 4.1.0 after a clean stop: same voter, next epoch, and its broker
    takes its leaderships up again cleanly."""
    disk = MemoryDisk()
    disk.make_dirs(METADATA_DIR)
    disk.write(f"{LOG_DIR}/meta.properties", (DATA / "formatted-standalone" / "meta.properties").read_bytes())
    for path in sorted((DATA / "one-node").iterdir()):
        if path.suffix != ".gz":
            disk.write(f"{METADATA_DIR}/{path.name}", path.read_bytes())
    world = NodeWorld(disk=disk).start()
    assert world.formatted.cluster_id == "Z29sZGVuLWNsdXN0ZXItMQ"
    assert world.raft.epoch == 5
    assert world.raft.quorum.role.epoch_start_offset == 346  # type: ignore[union-attr]
    assert log_epochs(disk) == [(1, 0), (2, 149), (3, 183), (4, 280), (5, 346)]
    partitions = [partition for topic in world.image.topics() for partition in topic.partitions]
    assert len(partitions) == 30
    assert {partition.leader for partition in partitions} == {-1}
    (directory,) = world.formatted.directory_ids
    assert world.register(previous_epoch=282, directory=directory).error_code == ErrorCode.NONE
    assert not world.beat().is_fenced
    after = [partition for topic in world.image.topics() for partition in topic.partitions]
    assert {(partition.leader, partition.isr, partition.elr) for partition in after} == {(1, (1,), ())}
    assert [p.leader_recovery_state for p in after] == [p.leader_recovery_state for p in partitions]


def log_epochs(disk: MemoryDisk) -> list[tuple[int, int]]:
    entries = decode_epochs("e", disk.read(f"{METADATA_DIR}/leader-epoch-checkpoint"))
    return [(entry.epoch, entry.start_offset) for entry in entries]
