"""Replicas that move from one log directory to another (KIP-113), on a whole broker in memory."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from tests.support.clean_world import filthiest
from tests.support.move_world import ORDERS, MoveWorld, expected, world
from tests.support.wired_requests import batch_of, produce

from barnabas.common.errors import ConfigError, ErrorCode
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.replication import move, moves
from barnabas.simulation.host import MemoryHost
from barnabas.storage.checkpoints import read_offsets

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the slices so small that even a small log takes many."""
    monkeypatch.setattr(move, "_SLICE_BYTES_MIN", 256)
    monkeypatch.setattr(move, "_SLICE_BYTES_MAX", 1024)
    for module in (move, moves):
        monkeypatch.setattr(module, "LAST_SLICE_BYTES", 300)
        monkeypatch.setattr(module, "UNSYNCED_BYTES_MAX", 5000)


def test_a_replica_moves_with_all_that_is_known_of_it() -> None:
    made = world(200)
    made.produce(b"200", producer_id=7, sequence=0)
    epochs = made.log.epochs.entries
    assert made.alter("/d2") == 0
    made.settle()
    assert made.root == "/d2"
    assert made.names("/d2") == ["orders-0"]
    assert made.values() == expected(201)
    assert made.assigned_root() == "/d2"
    assert made.log.epochs.entries == epochs
    assert produce(made, made.connect(), batch_of(b"200", producer_id=7, base_sequence=0)) == (0, 200), "known again"
    made.produce(b"201", producer_id=7, sequence=1)
    assert [name.endswith("-delete") for name in made.names("/d1")] == [True]
    made.run(61_000)
    assert made.names("/d1") == [], "the old log is removed after file.delete.delay.ms"


def test_a_move_ends_under_load() -> None:
    made = world(100)
    assert made.alter("/d2") == 0
    count = 100
    while tuple(made.broker.replicas.moves):
        made.produce(b"%d" % count)
        count += 1
        made.run(1)
        assert count < 5000, "copying does not catch up"
    made.produce(b"%d" % count)
    assert made.root == "/d2"
    assert made.values() == expected(count + 1)


def test_what_is_under_way_is_described() -> None:
    made = world(100)
    size = made.log.size_bytes
    assert made.alter("/d2") == 0
    assert made.described()["/d1"] == [("orders", size, 0, False)]
    assert made.described()["/d2"] == [("orders", 0, 100, True)]
    made.settle()
    assert made.described() == {"/d1": [], "/d2": [("orders", size, 0, False)], "/d3": []}


def test_another_request_replaces_the_move() -> None:
    made = world(400)
    assert made.alter("/d2") == 0
    made.run(2)
    assert made.alter("/d3") == 0
    assert all(name.endswith("-delete") for name in made.names("/d2"))
    made.settle()
    assert made.root == "/d3"
    assert made.values() == expected(400)


def test_the_present_directory_cancels_the_move() -> None:
    made = world(400)
    assert made.alter("/d2") == 0
    made.run(2)
    assert made.alter("/d1") == 0
    made.settle()
    assert made.root == "/d1"
    assert all(name.endswith("-delete") for name in made.names("/d2"))
    assert made.assigned_root() == "/d1"
    assert made.values() == expected(400)


def test_a_move_cancelled_after_the_controller_knew_of_it_is_taken_back() -> None:
    made = world(100)
    assert made.alter("/d2") == 0
    for _ in range(1000):
        if made.assigned_root() == "/d2":
            break
        made.broker.host.timers.call_soon(lambda: None)
        made.run(0)
        if made.root == "/d2":
            pytest.fail("the exchange came with the controller's answer")
        made.run(1)
    if made.root == "/d1":
        assert made.alter("/d1") == 0
        made.settle()
        assert made.assigned_root() == "/d1"


def test_an_answer_about_a_move_that_was_cancelled_is_ignored() -> None:
    made = world(100)
    assignments = made.broker.quorum.assignments
    assign, held = assignments.assign, list[tuple[Any, ...]]()
    assignments.assign = lambda *asked_for: held.append(asked_for)  # type: ignore[method-assign]
    assert made.alter("/d2") == 0
    made.run()
    assert len(held) == 1
    assignments.assign = assign  # type: ignore[method-assign]
    assert made.alter("/d1") == 0
    made.run()
    (*_, known) = held[0]
    known()
    made.run()
    assert made.root == made.assigned_root() == "/d1"
    assert made.values() == expected(100)
    assert made.host.faults.reported == []


def test_a_partition_that_does_not_exist_is_created_in_the_requested_directory() -> None:
    made = MoveWorld()
    assert made.alter("/d3") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made.create_topic("orders")
    made.settle()
    assert made.root == "/d3"
    assert made.assigned_root() == "/d3"


def test_refusals() -> None:
    made = world(10)
    assert made.alter("/d9") == ErrorCode.LOG_DIR_NOT_FOUND
    assert made.alter("/d2", index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made.broker.logs.directory_failed("/d2", OSError(errno.EIO, "gone"))
    assert made.alter("/d2") == ErrorCode.KAFKA_STORAGE_ERROR
    assert made.alter("/d3") == ErrorCode.KAFKA_STORAGE_ERROR, "it might have been on its way to the failed one"
    assert made.alter("/d1") == 0


def test_a_topic_whose_name_leaves_no_room_for_the_mark_is_refused() -> None:
    made = MoveWorld()
    name = "t" * 220
    made.create_topic(name)
    assert made.alter("/d2", topic=name) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 8, 13, 30])
def test_a_restart_goes_on_with_the_move(clean: bool, after_ms: int) -> None:
    made = world(300)
    assert made.alter("/d2") == 0
    made.run(after_ms)
    made.restart(clean=clean)
    made.produce(b"300")
    made.settle()
    assert made.root == "/d2"
    assert made.names("/d2") == ["orders-0"]
    assert made.assigned_root() == "/d2"
    assert made.values() == expected(301)
    made.restart()
    assert made.values() == expected(301)


def test_a_log_whose_topic_id_was_not_written_yet_moves_on() -> None:
    """The topic id is written in the background: a kill can come before, though the move has been accepted."""
    made = world(0)
    assert made.alter("/d2") == 0
    made.restart(clean=False)
    made.settle()
    assert (made.root, made.names("/d2")) == ("/d2", ["orders-0"])


def test_to_and_fro() -> None:
    made = world(50)
    count = 50
    for target in ("/d2", "/d1", "/d2", "/d3", "/d1"):
        assert made.alter(target) == 0
        made.settle()
        made.produce(b"%d" % count)
        count += 1
        assert made.root == target
    made.restart(clean=False)
    assert made.values() == expected(count)


def test_a_deleted_topic_takes_its_copy_with_it() -> None:
    made = world(400)
    assert made.alter("/d2") == 0
    made.run(2)
    made.delete_topic("orders")
    made.run(61_000)
    assert made.names("/d1") == made.names("/d2") == []
    assert not tuple(made.broker.replicas.moves)
    made.create_topic("orders")
    made.settle()
    assert made.values() == []


@pytest.mark.parametrize("after_ms", [0, 2, 4, 6])
def test_deleted_records_are_not_in_the_copy(after_ms: int) -> None:
    made = world(300)
    assert made.alter("/d2") == 0
    made.run(after_ms)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name="orders",
                partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=155)],
            )
        ],
        timeout_ms=1000,
    )
    assert made.connect().call(request, 2, DeleteRecordsResponse).topics[0].partitions[0].low_watermark == 155
    made.settle()
    assert made.root == "/d2"
    assert made.log.log_start_offset == 155
    made.restart(clean=False)
    assert made.log.log_start_offset == 155
    assert made.values(155) == expected(300)[155:]


def test_a_log_of_which_all_records_were_deleted_moves() -> None:
    made = world(300)
    made.broker.replicas.moves.throttle.rate_bytes = 1000
    assert made.alter("/d2") == 0
    made.run(5)
    partition = made.broker.replicas.find(*ORDERS)
    assert partition is not None
    assert partition.delete_records_before(-1) == 300
    made.settle()
    assert made.root == "/d2"
    assert (made.log.log_start_offset, made.log.log_end_offset) == (300, 300)
    made.restart(clean=False)
    made.produce(b"300")
    assert made.values(300) == [b"300"]


@pytest.mark.parametrize("to", [0, 5, 120, 295])
@pytest.mark.parametrize("after_ms", [1, 3, 6, 30])
def test_a_truncated_log_and_its_copy_stay_the_same(to: int, after_ms: int) -> None:
    made = world(300)
    made.broker.replicas.moves.throttle.rate_bytes = 1000
    assert made.alter("/d2") == 0
    made.run(after_ms)
    current, future = made.log, made.broker.logs.futures.get(ORDERS)
    assert future is not None
    current.truncate_to(to)
    assert future.log_end_offset <= current.log_end_offset
    kept = current.log_end_offset
    # The replica follows another leader's history from here.
    partition = made.broker.replicas.find(*ORDERS)
    assert partition is not None
    partition.high_watermark = min(partition.high_watermark, kept)
    made.produce(b"new")
    made.broker.replicas.moves.throttle.rate_bytes = 1 << 62
    made.settle()
    assert made.root == "/d2"
    assert made.values() == [*expected(kept), b"new"]


def test_a_failing_target_ends_the_move_and_leaves_the_log() -> None:
    made = world(400)
    assert made.alter("/d2") == 0
    made.run(2)
    made.broker.logs.directory_failed("/d2", OSError(errno.EIO, "gone"))
    made.run(100)
    assert not tuple(made.broker.replicas.moves)
    assert made.root == "/d1"
    assert made.assigned_root() == "/d1"
    made.produce(b"400")
    assert made.values() == expected(401)


def test_a_failing_source_ends_the_move() -> None:
    made = world(400)
    assert made.alter("/d2") == 0
    made.settle()
    assert made.alter("/d3") == 0
    made.run(2)
    made.broker.logs.directory_failed("/d2", OSError(errno.EIO, "gone"))
    made.run(100)
    assert not tuple(made.broker.replicas.moves)
    assert produce(made, made.connect(), batch_of(b"x"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    made.restart(clean=False)
    made.settle()
    assert made.root == "/d3", "with the directory back, the move continues"
    assert made.values() == expected(400)


def test_a_full_target_ends_the_move_and_gets_its_room_back() -> None:
    made = world(1000)
    made.host.disk.free_bytes = made.log.size_bytes // 2
    assert made.alter("/d2") == 0
    made.run(1000)
    assert not tuple(made.broker.replicas.moves)
    assert made.names("/d2") == []
    assert made.broker.logs.offline_directories == set()
    assert made.root == "/d1"
    made.produce(b"1000")
    assert made.values() == expected(1001)


def test_a_full_target_refuses_a_move_and_stays_online() -> None:
    """The copy is removed completely, because a broker does not start with two copies of a log."""
    made = world(10)
    free_bytes = made.host.disk.free_bytes
    made.host.disk.free_bytes = 0
    for _ in range(2):
        assert made.alter("/d2") == ErrorCode.KAFKA_STORAGE_ERROR
    assert made.broker.logs.offline_directories == set()
    assert made.names("/d2") == []
    made.host.disk.free_bytes = free_bytes
    assert made.alter("/d2") == 0
    made.settle()
    assert (made.root, made.values()) == ("/d2", expected(10))


def test_copying_keeps_the_configured_rate() -> None:
    made = world(2000, internal_segment_bytes="65536")
    made.broker.replicas.moves.throttle.rate_bytes = made.log.size_bytes // 10
    assert made.alter("/d2") == 0
    made.run(5_000)
    future = made.broker.logs.futures.get(ORDERS)
    assert future is not None
    assert 0.3 <= future.size_bytes / made.log.size_bytes <= 0.8
    made.run(10_000)
    assert made.root == "/d2"


def test_two_logs_of_one_partition_are_refused_at_the_start() -> None:
    made = world(10)
    made.broker.stop(lambda: None)
    disk = made.host.disk
    disk.make_dirs("/d2/orders-0")
    for name in disk.list_dir("/d1/orders-0"):
        disk.write(f"/d2/orders-0/{name}", disk.read(f"/d1/orders-0/{name}"))
    with pytest.raises(ConfigError, match="/d2/orders-0 and /d1/orders-0"):
        made.restart(clean=False)


@pytest.mark.parametrize("log_is_there", [True, False])
def test_a_copy_of_an_earlier_topic_of_that_name_is_nobodys(log_is_there: bool) -> None:
    made = world(100)
    made.broker.stop(lambda: None)
    made.run()
    disk = made.host.disk
    copy = "/d2/orders-0.0123456789abcdef0123456789abcdef-future"
    disk.make_dirs(copy)
    for name in disk.list_dir("/d1/orders-0"):
        disk.write(f"{copy}/{name}", disk.read(f"/d1/orders-0/{name}"))
    disk.write(f"{copy}/partition.metadata", b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    if not log_is_there:
        disk.remove_tree("/d1/orders-0")
    made.restart(clean=False)
    made.settle()
    assert made.root == "/d1"
    # Records that were lost with their directory are reported as lost, and their offsets are not assigned again.
    assert made.values(0 if log_is_there else 100) == (expected(100) if log_is_there else [])
    assert all(name.endswith("-delete") for name in made.names("/d2"))


def test_a_copy_whose_log_is_gone_takes_its_place() -> None:
    made = world(100)
    made.broker.stop(lambda: None)
    disk = made.host.disk
    disk.rename("/d1/orders-0", "/d2/orders-0.0123456789abcdef0123456789abcdef-future")
    made.restart(clean=False)
    made.settle()
    assert made.root == "/d2"
    assert made.assigned_root() == "/d2"
    assert made.values() == expected(100)


def test_a_checkpoint_of_an_earlier_stay_is_not_believed() -> None:
    made = world(100)
    made.log.flush()
    made.run(61_000)
    assert read_offsets(made.host.disk, f"/d1/{RECOVERY_POINTS}")[ORDERS] == 100
    for target in ("/d2", "/d1"):
        made.alter(target)
        assert read_offsets(made.host.disk, f"{target}/{RECOVERY_POINTS}")[ORDERS] == 0, "before a byte is copied"
        made.settle()
        assert read_offsets(made.host.disk, f"{target}/{RECOVERY_POINTS}")[ORDERS] <= made.log.recovery_point


def test_with_one_directory_the_controller_knows_where_a_replica_will_be() -> None:
    made = MoveWorld(dirs="/d1")
    requested: list[object] = []
    made.broker.quorum.assignments.assign = lambda *asked_for: requested.append(asked_for)  # type: ignore[method-assign]
    made.create_topic("orders")
    made.run()
    assert made.assigned_root() == "/d1"
    assert requested == []


def test_settings_changed_during_a_move_hold_after_it() -> None:
    made = world(100)
    made.broker.replicas.moves.throttle.rate_bytes = 2000
    assert made.alter("/d2") == 0
    made.run(2)
    config = made.log.config
    list(made.broker.replicas._reconfigured(["orders"]))
    made.broker.replicas.moves.throttle.rate_bytes = 1 << 62
    made.settle()
    assert made.log.config == config


def test_a_compacted_log_keeps_what_was_clean() -> None:
    made = world(100, cleanup_policy="compact")
    made.broker.logs.cleaner.state.put("/d1", ORDERS, 60)
    assert made.alter("/d2") == 0
    assert filthiest(made.broker.logs.cleaner) is None, "not while it is copied"
    made.settle()
    assert made.broker.logs.cleaner.state.get("/d1", ORDERS) is None
    assert made.broker.logs.cleaner.state.get("/d2", ORDERS) == 60


def test_moves_take_turns() -> None:
    made = MoveWorld(host=MemoryHost(seed=3), num_replica_alter_log_dirs_threads="1")
    made.create_topic("orders", partitions=6)
    made.settle()
    for index in range(6):
        assert made.alter("/d3", index=index) == 0
    assert len(made.broker.replicas.moves._running) <= 1
    made.settle()
    assert len(made.names("/d3")) == 6
