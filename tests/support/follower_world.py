"""Followers of one leader without a network: real partitions and logs, and a channel whose answers the test gives."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.log_world import TOPIC_ID, LogWorld, encode_records

from barnabas.common.errors import ErrorCode, StorageFault
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.replication.fetcher import Fetcher
from barnabas.replication.partition import Partition
from barnabas.replication.quotas import FOLLOWER, ReplicationQuota
from barnabas.replication.throttle import Throttle
from barnabas.simulation.host import MemoryHost

LEADER, SELF, BROKER_EPOCH = 1, 2, 33
Row = FetchResponse.PartitionData


class QuietEnvironment:
    """An implementation of `replication.partition.Environment` for a broker without other events."""

    lag_ms_max = 1000
    followed_ms = 1000
    pushes_high_watermark = False

    def __init__(self, host: MemoryHost) -> None:
        self._host = host
        self.proposals: list[Partition] = []
        self.reported_events: list[tuple[str, dict[str, int]]] = []
        self.dead: set[int] = set()

    def now_ms(self) -> int:
        return self._host.clock.now_ms()

    def may_join(self, broker_id: int, broker_epoch: int, directory: bytes) -> bool:
        return broker_id not in self.dead

    def is_alive(self, broker_id: int) -> bool:
        return broker_id not in self.dead

    def expect_followers(self, partition: Partition) -> None: ...

    def propose(self, partition: Partition) -> None:
        self.proposals.append(partition)

    def report_event(self, partition: Partition, what: str, **facts: int) -> None:
        self.reported_events.append((what, facts))

    def wake_followers_soon(self, partition: Partition, size_bytes: int) -> None:
        partition.wake_followers(size_bytes)


class Limits:
    wait_ms_max = 500
    bytes_min = 1
    response_bytes_max = 10 << 20
    partition_bytes_max = 1 << 20
    backoff_ms = 1000
    timeout_ms_max = 30_000


class GivenAnswers:
    """An implementation of the part of `protocol.channel.Channel` that a fetcher uses."""

    def __init__(self) -> None:
        self.requested: list[tuple[Message, Callable[[Message | None], None]]] = []
        self.is_closed = False
        self.is_ready = True
        self.last_error: OSError | None = None
        #: The time limit of the last request.
        self.timeout_ms = 0

    def send(
        self,
        request: Message,
        reply: Callable[[Message | None], None],
        *,
        timeout_ms: int = 0,
        renews_timeout: bool = False,
    ) -> None:
        self.requested.append((request, reply))
        self.timeout_ms = timeout_ms

    def close(self) -> None:
        self.is_closed = True


class FollowerWorld:
    def __init__(self) -> None:
        self.host = MemoryHost(seed=1)
        self.environment = QuietEnvironment(self.host)
        self.channel = GivenAnswers()
        self.faults: list[StorageFault] = []
        replica = (SELF, lambda: BROKER_EPOCH)
        self.quota = ReplicationQuota(FOLLOWER, SELF, Throttle(11, 1000))
        self.fetcher = Fetcher(
            self.host,
            self.channel,  # type: ignore[arg-type]
            Limits(),
            replica,
            self.faults.append,
            lambda log_directory: True,
            self.quota,
        )
        self.logs: dict[int, LogWorld] = {}
        self.partitions: dict[int, Partition] = {}
        self.session_id = 900

    # -- partitions

    def follower(self, index: int = 0, *, epoch: int = 5) -> Partition:
        """Creates a partition that follows immediately."""
        self.logs[index] = LogWorld(LogConfig(), disk=self.host.disk, root=f"/logs{index}")
        partition = Partition(TopicPartition("orders", index), TOPIC_ID, self.logs[index].log, SELF, self.environment)
        self.partitions[index] = partition
        self.follow(index, epoch)
        return partition

    def follow(self, index: int, epoch: int) -> None:
        partition = self.partitions[index]
        partition.become_follower(PartitionImage((LEADER, SELF), (LEADER, SELF), LEADER, epoch, epoch))
        self.fetcher.add(partition)

    # -- requests and answers

    def run(self, duration_ms: int = 0) -> None:
        self.host.time.run_for(duration_ms)

    def request(self) -> FetchRequest:
        """Returns the request that waits for its answer."""
        self.run()
        assert len(self.channel.requested) == 1, f"{len(self.channel.requested)} requests wait"
        request = self.channel.requested[0][0]
        assert isinstance(request, FetchRequest)
        return request

    def requested(self) -> dict[int, tuple[int, int, int]]:
        """Returns (epoch, offset, last fetched epoch) of each requested partition, by index."""
        return {
            row.partition: (row.current_leader_epoch, row.fetch_offset, row.last_fetched_epoch)
            for topic in self.request().topics
            for row in topic.partitions
        }

    def answer(self, *rows: Row, error: ErrorCode = ErrorCode.NONE, session: bool = True) -> None:
        self.reply(
            FetchResponse(
                error_code=error,
                session_id=self.session_id if session and not error else 0,
                responses=[FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(rows))],
            )
        )

    def reply(self, response: Message | None, *, link_stands: bool = False) -> None:
        """Answers the request. None: the connection has ended or, if `link_stands`, the leader does not answer."""
        self.run()
        _, reply = self.channel.requested.pop(0)
        was_ready = self.channel.is_ready
        self.channel.is_ready = was_ready and (response is not None or link_stands)
        reply(response)
        self.channel.is_ready = was_ready
        self.run()

    def answer_offsets(self, offset: int, code: ErrorCode = ErrorCode.NONE) -> ListOffsetsRequest:
        request = self.channel.requested[0][0]
        assert isinstance(request, ListOffsetsRequest)
        index = request.topics[0].partitions[0].partition_index
        row = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=index, error_code=code, offset=offset)
        self.reply(
            ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="orders", partitions=[row])])
        )
        return request


def row(index: int = 0, code: ErrorCode = ErrorCode.NONE, *, records: bytes = b"", hw: int = 0, start: int = 0) -> Row:
    return Row(partition_index=index, error_code=code, high_watermark=hw, log_start_offset=start, records=records)


def diverging(epoch: int, end_offset: int, index: int = 0) -> Row:
    answer = row(index)
    answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return answer


def batch(base_offset: int, count: int = 1, *, epoch: int = 5) -> bytes:
    return bytes(encode_records(*range(1000, 1000 + count), base_offset=base_offset, leader_epoch=epoch))
