"""Records of internal topics that cannot be decoded: each is skipped, and the coordinator still loads."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.group_world import GroupWorld, MemoryPartitions
from tests.support.txn_world import A, TransactionWorld

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.common.types import TopicPartition
from barnabas.coordinators.groups.group_records import CommittedOffset, group_record, offset_record
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.loading import Loads
from barnabas.coordinators.runtime import ShardState
from barnabas.coordinators.transactions.state import TxnState
from barnabas.protocol.messages.records_group import GroupMetadataValue
from barnabas.records.batch import Record, encode_batch, encode_end_txn_marker
from barnabas.records.header import corrupt


class Reports:
    """The reported faults, which are not raised."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def report(self, message: str, error: BaseException | None = None) -> None:
        self.lines.append(message)

    def inform(self, message: str) -> None:
        self.lines.append(message)


def batch(*records: tuple[bytes, bytes | None], **more: object) -> bytearray:
    return encode_batch([Record(0, 1, key, value, []) for key, value in records], **more)  # type: ignore[arg-type]


def append(world: GroupWorld | TransactionWorld, data: bytearray, partition: TopicPartition) -> int:
    offset = world.log.log_end_offset(partition)
    world.log.append(partition, data, lambda *_: None)
    return offset


def twice(member: str) -> bytes:
    one = GroupMetadataValue.MemberMetadata(
        member_id=member, client_id="", client_host="", session_timeout=1, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol="p", leader=member, members=[one, one])
    return group_record("g", value).value or b""


def offset_value(version: int) -> bytes:
    value = offset_record("g", "orders", 0, CommittedOffset(1, -1, "", 5)).value
    assert value is not None
    return struct.pack(">h", version) + value[2:]


GROUP_KEY = b"\x00\x02\x00\x01g"
#: Unreadable records: of a known type with arbitrary bytes, and of an unknown type.
BAD_RECORDS: list[tuple[bytes, bytes]] = [
    (b"", b""),
    (b"\x00", b"x"),
    (b"\x00\x01\x00\x02gg", b"x"),  # the reproduction: an offset's key that ends early
    (b"\x00\x01\x7f\xffg", b"\x00\x04"),
    (b"\x00\x01\x00\x01\xff\x00\x01t\x00\x00\x00\x00", offset_value(4)),  # no UTF-8
    (b"\x00\x01\x00\x01g\x00\x06orders\x00\x00\x00\x01", offset_value(9)),
    (b"\x00\x01\x00\x01g\x00\x06orders\x00\x00\x00\x01", b"\x00"),
    (GROUP_KEY, b""),
    (GROUP_KEY, b"\x00\x63"),
    (GROUP_KEY, twice("m")),
    (b"\x00\x03\x00\x01g", b"\x00\x00\x01"),
    (b"\x00\x05\x00\x01g", b"\x00\x00"),
    (b"\x00\x08\x00\x01g\x00\x01m", b"\x00\x00\x00"),
    (b"\x00\x10\x00\x01g", b"\x00\x00"),
]


def reloaded(world: GroupWorld) -> tuple[Reports, Loads]:
    """Loads the partition again, in a broker that has just become its leader."""
    reports = Reports()
    world.host.faults = reports  # type: ignore[assignment]
    world.coordinator.on_partition_resigned(0)
    world.coordinator.on_partition_leader(0, 1)
    world.pass_ms(0)
    return reports, world.coordinator._loads


def serving(world: GroupWorld) -> GroupShard:
    shard = world.coordinator.shard(0)
    assert shard is not None
    assert shard.state is ShardState.ACTIVE
    return shard


@pytest.mark.parametrize(("key", "value"), BAD_RECORDS)
def test_a_record_that_cannot_be_read_costs_itself(key: bytes, value: bytes) -> None:
    world = GroupWorld()
    world.commit("before", {("orders", 0): 41})
    offset = append(world, batch((key, value)), world.partition())
    world.commit("after", {("orders", 0): 42})
    reports, loads = reloaded(world)
    serving(world)
    assert loads.skipped == 1
    assert len(reports.lines) == 1
    for shown in ("__consumer_offsets-0", f"offset {offset}", repr(key[:24])):
        assert shown in reports.lines[0]
    assert (world.offsets("before")["orders", 0].offset, world.offsets("after")["orders", 0].offset) == (41, 42)
    assert world.commit("after", {("orders", 0): 43}).response.topics[0].partitions[0].error_code == 0


def test_many_are_counted_and_few_are_reported() -> None:
    world = GroupWorld()
    append(world, batch(*[(b"\x00\x01" + bytes([n]), b"x") for n in range(50)]), world.partition())
    reports, loads = reloaded(world)
    assert loads.skipped == 50
    assert len(reports.lines) == 11
    assert "50 records" in reports.lines[-1]


def test_unknown_types_are_left_alone() -> None:
    world = GroupWorld()
    append(world, batch((b"\x00\x63\x00\x01g", b"whatever")), world.partition())
    reports, loads = reloaded(world)
    assert (reports.lines, loads.skipped) == ([], 0)


def broken_crc() -> bytearray:
    data = batch((b"\x00\x01\x00\x01g\x00\x06orders\x00\x00\x00\x00", offset_value(4)), (b"k", b"v"))
    data[-1] ^= 1
    return data


def lying_count() -> bytearray:
    data = batch((b"\x00\x01\x00\x01g\x00\x06orders\x00\x00\x00\x00", offset_value(4)))
    struct.pack_into(">i", data, 57, 7)
    struct.pack_into(">i", data, 23, 6)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


@pytest.mark.parametrize(("make", "count"), [(broken_crc, 2), (lying_count, 7)])
def test_a_batch_that_cannot_be_read_costs_itself(make: object, count: int) -> None:
    world = GroupWorld()
    world.commit("before", {("orders", 0): 41})
    offset = append(world, make(), world.partition())  # type: ignore[operator]
    world.commit("after", {("orders", 0): 42})
    reports, loads = reloaded(world)
    assert loads.skipped == count
    assert len(reports.lines) == 1
    assert f"batch of {count} records at offsets {offset} to {offset + count - 1}" in reports.lines[0]
    assert (world.offsets("before")["orders", 0].offset, world.offsets("after")["orders", 0].offset) == (41, 42)
    assert ("orders", 0) not in world.offsets("g")


class Torn(MemoryPartitions):
    """The first segment, up to offset 2, holds no batch from offset 1 on."""

    def read(
        self, partition: TopicPartition, offset: int, max_bytes: int, done: Callable[[Buffer | Exception], None]
    ) -> None:
        if offset == 1:
            done(self.torn)
        elif offset == 0:
            super().read(partition, offset, 1, done)
        else:
            super().read(partition, offset, max_bytes, done)

    def next_segment(self, partition: TopicPartition, offset: int) -> int | None:
        return 2 if offset < 2 else None

    torn: Buffer | Exception = b""


@pytest.mark.parametrize("torn", [corrupt("a batch of magic 77"), b"half a batch", bytes(70)])
def test_bytes_that_are_no_batch_cost_the_rest_of_their_segment(torn: Buffer | Exception) -> None:
    log = Torn()
    log.torn = torn
    world = GroupWorld(log=log, lead=False)
    for number, partition in enumerate((0, 1, 2)):
        key, value = offset_record("g", "orders", partition, CommittedOffset(number, -1, "", 5))
        append(world, batch((key, value)), world.partition())
    reports, loads = reloaded(world)
    assert sorted(world.offsets("g")) == [("orders", 0), ("orders", 2)]
    assert loads.skipped == 1
    assert "between offsets 1 and 2" in reports.lines[0]


def test_a_marker_that_cannot_be_read_leaves_its_transaction_open() -> None:
    world = GroupWorld()
    record = offset_record("g", "orders", 0, CommittedOffset(7, -1, "", 5))
    append(
        world,
        batch((record.key, record.value), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
        world.partition(),
    )
    marker = encode_end_txn_marker(producer_id=9, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=1)
    marker[-1] ^= 1
    append(world, marker, world.partition())
    reports, loads = reloaded(world)
    shard = serving(world)
    assert (loads.skipped, len(reports.lines)) == (1, 1)
    assert ("orders", 0) in shard.offsets.unstable_of("g")


def test_an_open_transaction_with_such_a_record_is_loaded() -> None:
    world = GroupWorld()
    good = offset_record("g", "orders", 0, CommittedOffset(7, -1, "", 5))
    data = batch(
        (b"\x00\x01\x00\x02gg", b"x"),
        (good.key, good.value),
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    append(world, data, world.partition())
    _, loads = reloaded(world)
    shard = serving(world)
    assert loads.skipped == 1
    assert ("orders", 0) in shard.offsets.unstable_of("g")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00\x00\x00\x09t", b"\x00\x01"),
        (b"\x00\x00\x00\x01u", b"\x00\x07"),
        (b"\x00\x00\x00\x01u", b"\x00\x01"),
        (b"\x00\x00\x00\x01u", b"\x00\x00" + struct.pack(">qhib", 1, 0, 1, 55) + struct.pack(">iqq", -1, 0, 0)),
    ],
)
def test_transactions_are_loaded_without_what_cannot_be_read(key: bytes, value: bytes) -> None:
    world = TransactionWorld()
    producer = world.begin()
    world.add(producer, A)
    reports = Reports()
    world.host.faults = reports  # type: ignore[assignment]
    partition = TopicPartition("__transaction_state", 0)
    offset = append(world, batch((key, value)), partition)
    world.fail_over(lose=False)
    assert world.image().state is TxnState.ONGOING
    assert len(reports.lines) == 1
    assert f"{partition}: the record at offset {offset}" in reports.lines[0]
    assert world.coordinator._loads.skipped == 1
    assert world.end(producer).code is ErrorCode.NONE


@given(st.lists(st.tuples(st.integers(0, 19), st.binary(max_size=40), st.binary(max_size=60)), max_size=12))
@settings(max_examples=100, deadline=None)
def test_whatever_is_in_the_log_it_is_loaded(records: list[tuple[int, bytes, bytes]]) -> None:
    """Arbitrary bytes follow every known type of key; then the coordinator serves."""
    world = GroupWorld()
    world.commit("g", {("orders", 0): 41})
    for number, key, value in records:
        append(world, batch((struct.pack(">h", number) + key, value)), world.partition())
    reloaded(world)
    serving(world)
    assert world.commit("other", {("orders", 0): 1}).response.topics[0].partitions[0].error_code == 0
    world.pass_ms(700_000)
