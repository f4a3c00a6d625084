"""A broker with several log directories in memory, and the requests of tools about them."""

from __future__ import annotations

from tests.support.failing_disk import FailingDisk
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, fetch_request, produce

from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.records.batch import decode_batch, iter_headers
from barnabas.simulation.host import MemoryHost
from barnabas.storage.log import Log

ORDERS = TopicPartition("orders", 0)
DIRS = ("/d1", "/d2", "/d3")


class MoveWorld(WiredBroker):
    """A broker with `orders-0` in /d1, which is the first of the empty directories."""

    def __init__(self, host: MemoryHost | None = None, dirs: str = ",".join(DIRS), **properties: str) -> None:
        self.disk = FailingDisk()
        super().__init__(host or MemoryHost(seed=1, disk=self.disk), log_dirs=dirs, **properties)

    def alter(self, directory: str, topic: str = "orders", index: int = 0) -> int:
        """Returns the error code of AlterReplicaLogDirs."""
        named = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[index])
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=directory, topics=[named])]
        )
        response = self.connect().call(request, 2, AlterReplicaLogDirsResponse)
        (result,) = response.results
        assert result.topic_name == topic
        return result.partitions[0].error_code

    def described(self) -> dict[str, list[tuple[str, int, int, bool]]]:
        """Returns (topic, size, lag, is future) of each replica, by directory."""
        response = self.connect().call(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
        return {
            result.log_dir: [
                (topic.name, row.partition_size, row.offset_lag, row.is_future_key)
                for topic in result.topics
                for row in topic.partitions
            ]
            for result in response.results
        }

    def run(self, duration_ms: int = 1000) -> None:
        self.host.time.run_for(duration_ms)

    def settle(self) -> None:
        """Runs until no move is left."""
        for _ in range(10_000):
            if not tuple(self.broker.replicas.moves) and not len(self.broker.quorum.assignments):
                return
            self.run(10)
        raise AssertionError("a move does not end")

    @property
    def log(self) -> Log:
        log = self.broker.logs.get(ORDERS)
        assert log is not None
        return log

    @property
    def root(self) -> str:
        return self.log.directory.rpartition("/")[0]

    @property
    def image(self) -> PartitionImage:
        partition = self.broker.metadata.image.partition(*ORDERS)
        assert partition is not None
        return partition

    def assigned_root(self) -> str | None:
        """Returns the directory that the controller has for the partition."""
        return self.broker.logs.roots.path_of(self.image.directory_of(1))

    def produce(self, *values: bytes, producer_id: int = -1, sequence: int = -1) -> None:
        data = batch_of(*values, producer_id=producer_id, base_sequence=sequence)
        assert produce(self, self.connect(), data)[0] == 0

    def values(self, from_offset: int = 0) -> list[bytes]:
        """Returns the values that a consumer reads."""
        found: list[bytes] = []
        offset = from_offset
        client = self.connect()
        while True:
            response = client.call(fetch_request(self, offset, 12), 12, FetchResponse)
            row = response.responses[0].partitions[0]
            assert row.error_code == 0, row
            data = bytes(row.records or b"")
            records = [record for position, _ in iter_headers(data) for record in decode_batch(data, position)]
            wanted = [record for record in records if record.offset >= offset]
            if not wanted:
                return found
            found += [record.value or b"" for record in wanted]
            offset = wanted[-1].offset + 1

    def names(self, root: str) -> list[str]:
        """Returns the directories of partitions in one of `log.dirs`."""
        disk = self.host.disk
        return [name for name in disk.list_dir(root) if name.startswith("orders") and disk.is_dir(f"{root}/{name}")]


def world(values: int = 0, *, dirs: str = ",".join(DIRS), **config: str) -> MoveWorld:
    """Returns a world with this many records, ten in a batch."""
    made = MoveWorld(dirs=dirs)
    made.create_topic("orders", 1, **{"internal_segment_bytes": "4096", **config})
    made.settle()
    assert made.root == "/d1"
    for first in range(0, values, 10):
        made.produce(*(b"%d" % place for place in range(first, min(first + 10, values))))
    return made


def expected(count: int) -> list[bytes]:
    return [b"%d" % place for place in range(count)]
