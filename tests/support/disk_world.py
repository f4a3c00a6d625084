"""A broker in memory on disks that fail while it works, and a check that all acknowledged records exist afterwards."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.failing_disk import FailingDisk
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import batch_of

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import decode_batch, has_valid_crc, iter_headers
from barnabas.simulation.host import MemoryHost
from barnabas.storage.checkpoints import parse_dir_name
from barnabas.storage.offline.verify import PartitionReport, check_directory, partition_dirs, verify_partition

Place = tuple[str, int]
#: Error codes that a client can get while a disk fails; all of them are retriable.
REFUSALS = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})
OFFSET_REFUSALS = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
#: Settings with which the indexes, and so a segment, are full after a few batches.
SMALL = {"segment_index_bytes": "36", "index_interval_bytes": "100"}


class FatalStop(BaseException):
    """The end of the process after a fatal fault."""


class DiskWorld:
    """A broker and its client. `acked` has the values that the broker acknowledged, by partition and offset."""

    def __init__(self, dirs: str = "/data,/d2", **properties: str) -> None:
        self.disk = FailingDisk()
        self.wired = WiredBroker(
            MemoryHost(seed=1, disk=self.disk),
            log_dirs=dirs,
            metadata_log_dir="/meta",
            log_cleaner_backoff_ms="2000",
            log_retention_check_interval_ms="3000",
            file_delete_delay_ms="1000",
            **properties,
        )
        self.client = self.wired.connect()
        self.acked: dict[Place, dict[int, bytes]] = {}
        self.starts: dict[Place, int] = {}
        self.topics: set[str] = set()
        self.committed: int | None = None
        self.codes: set[ErrorCode] = set()

    # -- requests

    def call(self, send: Callable[[WiredClient], None]) -> None:
        send(self.client)

    def create(self, name: str, partitions: int = 1, **configs: str) -> ErrorCode:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in {**SMALL, **configs}.items()
            ],
        )
        response = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=500), 7, CreateTopicsResponse)
        code = ErrorCode(response.topics[0].error_code)
        if code is ErrorCode.NONE:
            self.topics.add(name)
        return code

    def delete(self, name: str) -> ErrorCode:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=500)
        response = self.client.call(request, 6, DeleteTopicsResponse)
        code = ErrorCode(response.responses[0].error_code)
        if code is ErrorCode.NONE:
            self.topics.discard(name)
            for place in [place for place in self.acked if place[0] == name]:
                del self.acked[place]
        return code

    def produce(self, topic: str, index: int, value: bytes, *, acks: int = -1) -> ErrorCode:
        records = batch_of(value + b"." * 60, value + b"-2")
        request = ProduceRequest(
            acks=acks,
            timeout_ms=500,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)]
                )
            ],
        )
        row = self.client.call(request, 11, ProduceResponse).responses[0].partition_responses[0]
        code = ErrorCode(row.error_code)
        if code is ErrorCode.NONE:
            values = self.acked.setdefault((topic, index), {})
            values[row.base_offset] = value + b"." * 60
            values[row.base_offset + 1] = value + b"-2"
        return code

    def delete_records(self, topic: str, index: int, offset: int) -> ErrorCode:
        request = DeleteRecordsRequest(
            timeout_ms=500,
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=topic,
                    partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)],
                )
            ],
        )
        row = self.client.call(request, 2, DeleteRecordsResponse).topics[0].partitions[0]
        if row.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            # After any other answer, the records can be deleted.
            self.starts[topic, index] = max(offset, self.starts.get((topic, index), 0))
        return ErrorCode(row.error_code)

    def commit(self, offset: int) -> ErrorCode:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name="a",
            partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
        )
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
        row = self.client.call(request, 8, OffsetCommitResponse).topics[0].partitions[0]
        if row.error_code == 0:
            self.committed = offset
        return ErrorCode(row.error_code)

    def committed_offset(self) -> int:
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="a", partition_indexes=[0])
        for _ in range(20):
            response = self.client.call(OffsetFetchRequest(group_id="g", topics=[topic]), 5, OffsetFetchResponse)
            if response.error_code == 0:
                return response.topics[0].partitions[0].committed_offset
            self.run(100)
        raise AssertionError(ErrorCode(response.error_code).name)

    def read(self, topic: str, index: int, offset: int) -> tuple[ErrorCode, dict[int, bytes]]:
        """Reads all records from `offset` on, batch by batch; every batch must be whole and intact."""
        found: dict[int, bytes] = {}
        while True:
            requested = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=700)
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 20,
                topics=[FetchRequest.FetchTopic(topic=topic, partitions=[requested])],
            )
            row = self.client.call(request, 11, FetchResponse).responses[0].partitions[0]
            if row.error_code:
                return ErrorCode(row.error_code), found
            data = memoryview(bytes(row.records or b""))
            before = offset
            for position, header in iter_headers(data):
                assert has_valid_crc(data, position, header), "a torn batch was served"
                for record in decode_batch(data, position):
                    found[record.offset] = bytes(record.value or b"")
                offset = header.next_offset
            if offset == before:
                return ErrorCode.NONE, found

    # -- time and restarts

    def run(self, duration_ms: int) -> None:
        self.wired.host.time.run_for(duration_ms)

    def restart(self, *, clean: bool) -> None:
        self.wired.restart(clean=clean)
        self.client = self.wired.connect()
        self.run(300)

    # -- conditions

    def check_answers(self) -> None:
        """Checks that only answers report errors: no handler failed and no connection ended."""
        assert self.wired.closes.errors == [], self.wired.closes.causes
        assert not self.client.core.is_closed

    def check_all_there(self, *, may_refuse: bool = False) -> None:
        """Checks that everything acknowledged is read, in the partitions that answer."""
        for (topic, index), acked in self.acked.items():
            start = self.starts.get((topic, index), 0)
            code, found = self.read(topic, index, start if topic != "compacted" else 0)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                # The deletion was refused, or deleted more than was requested.
                continue
            if code is not ErrorCode.NONE:
                assert may_refuse, f"{topic}-{index}: {code.name}"
                assert code in REFUSALS, code.name
                continue
            for offset, value in acked.items():
                if offset >= start and topic != "compacted":
                    assert found.get(offset) == value, f"{topic}-{index} at {offset} of {sorted(found)}"
            if topic == "compacted" and acked:
                assert max(found) >= max(acked)

    def check_files(self, *roots: str) -> None:
        """Checks that `barnabas log verify` would find no fault in these directories."""
        for root in roots:
            directories, faults = partition_dirs(self.disk, root)
            reports: dict[TopicPartition, PartitionReport] = {}
            for directory in directories:
                found = parse_dir_name(directory.rpartition("/")[2])
                assert found is not None
                reports[found.topic_partition] = verify_partition(self.disk, directory)
            faults += [fault for report in reports.values() for fault in report.faults]
            faults += check_directory(self.disk, root, reports)
            named = [fault.text for fault in faults if not fault.is_note]
            assert not named, named


def work(world: DiskWorld, codes: set[ErrorCode]) -> None:
    """Does a little of everything: appends, rolls, checkpoints, retention, deletion, compaction, creation, group
    offsets.
    """
    for number in range(4):
        for index in range(2):
            codes.add(world.produce("a", index, b"first-%d" % number))
        codes.add(world.produce("compacted", 0, b"same-%d" % number))
    codes.add(world.create("b", 2))
    codes.add(world.commit(3))
    world.run(2500)
    codes.add(world.delete_records("a", 0, 4))
    for number in range(6):
        for topic, index in (("a", 0), ("a", 1), ("b", 0), ("compacted", 0)):
            codes.add(world.produce(topic, index, b"second-%d" % number))
    codes.add(world.delete("doomed"))
    world.run(6000)
    codes.add(world.commit(5))
    codes.add(world.produce("a", 0, b"last"))
    world.run(6000)


def prepared(dirs: str = "/data,/d2") -> DiskWorld:
    """Returns a world with data in it, before the disk fails."""
    world = DiskWorld(dirs)
    assert world.create("a", 2) is ErrorCode.NONE
    assert world.create("doomed", 2) is ErrorCode.NONE
    assert world.create("compacted", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01") is ErrorCode.NONE
    for index in range(2):
        assert world.produce("a", index, b"old") is ErrorCode.NONE
        assert world.produce("doomed", index, b"old") is ErrorCode.NONE
    for number in range(8):
        assert world.produce("compacted", 0, b"old-%d" % number) is ErrorCode.NONE
    world.client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse)
    for _ in range(50):
        if world.commit(1) is ErrorCode.NONE:
            break
        world.run(100)
    assert world.committed == 1
    return world
