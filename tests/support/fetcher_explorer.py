"""A follower's fetcher under random answers: a small world of which a seed takes milliseconds.

A simple leader keeps its logs as lists of batches, and a plain model knows what the fetcher must do: which partitions
each request names and forgets, with which positions and time limit, and what each answer changes. Leaders truncate,
delete records and begin new epochs; answers are refused, late or missing; directories are full and a quota is exceeded.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.support.fetched_portions import check_portions
from tests.support.followed_logs import SHORTEST_PAUSE_MS, Follower, LeaderLog, Position
from tests.support.follower_world import BROKER_EPOCH, SELF, FollowerWorld, Limits, batch
from tests.support.log_world import TOPIC_ID
from tests.support.replica_queues import Watch

from barnabas.common.errors import ErrorCode
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.replication.partition import Isolation, Partition
from barnabas.simulation.history import Violation
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.storage.log import Log

_STEPS = 90
_PARTITIONS = 4
_FULL_RETRY_MS, _OVERDUE_MS = 250, 2_000
_WINDOWS, _WINDOW_MS = 11, 1_000
_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class FetcherExplorer:
    """The run of one seed. `run` raises Violation or AssertionError."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"fetcher {seed}")
        self._world = FollowerWorld()
        self._world.fetcher._takes_writes = self._takes_writes
        self._logs = [LeaderLog() for _ in range(_PARTITIONS)]
        self._followers: dict[int, Follower] = {}
        self._full: set[int] = set()
        self._held: dict[int, int] = {}
        self._session = (0, 0)
        self._overdue = 0
        self._samples: list[tuple[int, int]] = []
        self._listed: set[int] = set()
        self._rate = 1 << 62
        self._waiting_since: int | None = None
        self._took_over: set[int] = set()
        self._gone: set[int] = set()
        #: Consumers that wait at the followers.
        self._readers: dict[int, Watch] = {}
        #: Answers whose records are damaged.
        self._rejected = 0
        #: The last fetch that was compared.
        self._compared: FetchRequest | None = None
        #: The partitions for which something may have changed since the last fetch.
        self._touched: set[int] = set()
        #: The batches in the followers' logs.
        self._own: list[list[tuple[int, int, int]]] = [[] for _ in range(_PARTITIONS)]

    def run(self) -> None:
        with second_decisions().judging():
            self._run()

    def _run(self) -> None:
        check_portions()
        for index in range(self._random.randint(1, _PARTITIONS)):
            self._follow(index)
        self._expect_request()
        steps = [self._append, self._append, self._answer, self._answer, self._answer, self._answer, self._change]
        steps += [self._refuse, self._pass_time, self._limit]
        for _ in range(_STEPS):
            self._random.choice(steps)()
        self._settle()

    def _check(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            raise Violation(f"fetcher: {what} is {found!r}, it should be {expected!r}")

    @property
    def _now_ms(self) -> int:
        return self._world.host.clock.now_ms()

    def _takes_writes(self, directory: str) -> bool:
        return not any(directory.startswith(f"/logs{index}/") for index in self._full)

    # -- what the next request must be

    def _throttled_ms(self) -> int:
        """Returns how long the quota makes the fetcher wait: as in Kafka, over the windows that are not too old."""
        now_ms = self._now_ms
        self._samples = [each for each in self._samples if now_ms - each[0] <= _WINDOWS * _WINDOW_MS]
        if not self._samples or self._rate >= 1 << 62:
            return 0
        elapsed_ms = max(now_ms - self._samples[0][0], _WINDOW_MS)
        late_ms = sum(size for _, size in self._samples) * 1000 // self._rate - elapsed_ms
        return max(0, min(late_ms, _WINDOW_MS))

    def _hold(self, index: int, follower: Follower) -> int:
        """Returns the time until which a partition is not fetched; 0 if it is fetched now."""
        if follower.resume_ms > self._now_ms:
            return follower.resume_ms
        if index in self._full:
            return self._now_ms + _FULL_RETRY_MS
        wait_ms = self._throttled_ms() if index in self._listed and not follower.is_in_sync else 0
        return self._now_ms + wait_ms if wait_ms else 0

    def _position(self, index: int, follower: Follower) -> Position:
        log = self._world.partitions[index].log
        epochs = log.epochs.latest_epoch
        return log.log_end_offset, epochs, log.log_start_offset, follower.epoch

    def _expect_request(self) -> None:
        """Lets the fetcher act, and compares its request, if it has to send one, with the model's."""
        channel = self._world.channel
        if any(request is self._compared for request, _ in channel.requested):
            self._world.run()
            return
        self._world.run()
        is_full = self._session[0] == 0
        named: dict[int, Position] = {}
        forgotten = {index for index in self._gone if not is_full}
        self._held = {}
        touched, self._touched = self._touched, set()
        for index, follower in self._followers.items():
            if not is_full and follower.told is not None and index not in touched:
                continue  # Nothing has changed for it since it was named.
            hold_ms = self._hold(index, follower)
            if hold_ms and not follower.is_fenced:
                self._held[index] = hold_ms
            if hold_ms or follower.is_fenced:
                if follower.told is not None and not is_full:
                    forgotten.add(index)
                follower.told = None
                continue
            position = self._position(index, follower)
            if is_full or follower.told != position:
                named[index] = position
            follower.told = position
            forgotten.discard(index)
        fetches = [request for request, _ in channel.requested if isinstance(request, FetchRequest)]
        if all(follower.told is None for follower in self._followers.values()):
            self._check("the number of requests without partitions", len(fetches), 0)
            self._session = (0, 0)
            return
        self._check("the number of requests", len(fetches), 1)
        self._gone = set()
        if self._waiting_since is None:
            self._waiting_since = self._now_ms
        self._check("the time without an answer", self._world.fetcher.unanswered_ms, self._waiting_since)
        self._compare(fetches[0], named, forgotten)

    def _compare(self, request: FetchRequest, named: dict[int, Position], forgotten: set[int]) -> None:
        self._compared = request
        limits = Limits()
        rows = [(topic.topic_id, row) for topic in request.topics for row in topic.partitions]
        found = {
            row.partition: (row.fetch_offset, row.last_fetched_epoch, row.log_start_offset, row.current_leader_epoch)
            for _, row in rows
        }
        self._check("what a fetch names", found, named)
        self._check("the topics", {topic_id for topic_id, _ in rows} <= {TOPIC_ID}, True)
        self._check("the number of rows", len(rows), len(named))
        self._check("the limits", {row.partition_max_bytes for _, row in rows} <= {limits.partition_bytes_max}, True)
        gone = [index for topic in request.forgotten_topics_data for index in topic.partitions]
        self._check("what a fetch forgets", sorted(gone), sorted(forgotten))
        self._check("the session", (request.session_id, request.session_epoch), self._session)
        state = request.replica_state
        self._check("who asks", (state and state.replica_id, state and state.replica_epoch), (SELF, BROKER_EPOCH))
        sizes = (request.max_wait_ms, request.min_bytes, request.max_bytes)
        self._check("the sizes", sizes, (limits.wait_ms_max, limits.bytes_min, limits.response_bytes_max))
        late_ms = _OVERDUE_MS * 2**self._overdue
        if self._overdue:
            late_ms = max(min(late_ms, limits.timeout_ms_max - limits.wait_ms_max), _OVERDUE_MS)
        self._check("the time limit", self._world.channel.timeout_ms, limits.wait_ms_max + late_ms)

    # -- what the follower is told

    def _follow(self, index: int) -> None:
        """Follows a partition, or the same one in another epoch."""
        known = self._followers.get(index)
        if index in self._world.partitions:
            epoch = self._world.partitions[index].leader_epoch + 1
            told = None if known is None else known.told
            self._world.follow(index, epoch)
        else:
            epoch, told = self._random.randint(1, 5), None
            self._world.follower(index, epoch=epoch)
        self._gone.discard(index)
        self._touched.add(index)
        self._followers[index] = Follower(epoch, told=told)
        if index not in self._readers:
            reader = self._readers[index] = Watch()
            self._world.partitions[index].watch(reader, Isolation.READ_UNCOMMITTED)

    def _change(self) -> None:
        index = self._random.randrange(_PARTITIONS)
        if index in self._followers and self._random.random() < 0.4:
            self._world.fetcher.remove(TOPIC_ID, index)
            follower = self._followers.pop(index)
            if follower.told is not None:
                self._gone.add(index)
            self._world.fetcher.remove(TOPIC_ID, 99)
        else:
            log = self._logs[index]
            if self._random.random() < 0.5:
                log.cut(self._random.randint(log.start, log.end))
            self._follow(index)
            self._expect_request()
        topics = sorted(each.partition for each in self._world.fetcher.partitions())
        self._check("the followed partitions", topics, sorted(self._followers))
        self._check("whether it is idle", self._world.fetcher.is_idle, not self._followers)

    def _append(self) -> None:
        log = self._random.choice(self._logs)
        index = self._logs.index(log)
        epoch = self._followers[index].epoch if index in self._followers else 0
        latest = log.batches[-1][0] if log.batches else 0
        log.append(max(epoch, latest), self._random.randint(1, 3))
        if self._random.random() < 0.6:
            log.committed = self._random.randint(max(log.committed, log.start), log.end)
        if self._random.random() < 0.15:
            log.delete_before(self._random.randint(log.start, max(log.start, log.committed)))

    def _limit(self) -> None:
        """Fills or empties a directory, and changes the throttled replicas and the rate."""
        self._full ^= {self._random.randrange(_PARTITIONS)} if self._random.random() < 0.4 else set()
        self._listed = {index for index in range(_PARTITIONS) if self._random.random() < 0.3}
        quota = self._world.quota
        names = ",".join(f"{index}:{SELF}" for index in sorted(self._listed))
        quota.follow_topic("orders", {"follower.replication.throttled.replicas": names})
        self._rate = self._random.choice((1 << 62, 50, 200))
        quota.throttle.rate_bytes = self._rate if self._rate < 1 << 62 else (1 << 63) - 1

    def _pass_time(self) -> None:
        """Lets time pass, up to the millisecond before the first pause ends, and on."""
        if self._is_asking() or not self._held:
            self._world.run(self._random.choice((1, 19, 20, 300)))
            return
        self._world.run(min(self._held.values()) - self._now_ms - 1)
        self._check("the requests in a pause", len(self._fetches()), 0)
        self._world.run(1)
        self._expect_request()

    def _fetches(self) -> list[Message]:
        return [request for request, _ in self._world.channel.requested if isinstance(request, FetchRequest)]

    def _is_asking(self) -> bool:
        return bool(self._fetches())

    # -- answers

    def _refuse(self) -> None:
        """The fetch fails as a whole."""
        if not self._is_asking():
            return
        world = self._world
        kind = self._random.choice(("lost", "error", "timeout", "dead", "silent"))
        if kind == "lost":
            self._reply(FetchResponse(error_code=self._random.choice(_LOST), session_id=0))
            self._waiting_since, self._overdue = None, 0
        elif kind == "error":
            self._reply(FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, session_id=77))
            self._waiting_since, self._overdue = None, 0
        else:
            timed_out = kind == "timeout"
            world.channel.last_error = TimeoutError() if timed_out else ConnectionResetError()
            was_ready = world.channel.is_ready
            world.channel.is_ready = kind == "silent"
            self._reply(None)
            world.channel.is_ready = was_ready
            self._overdue += timed_out
        self._session = (0, 0)
        self._gone = set()
        for follower in self._followers.values():
            follower.told = None
            if kind in ("error", "silent"):
                self._pause(follower)
        self._expect_request()

    def _reply(self, response: FetchResponse | None) -> None:
        requested = self._world.channel.requested
        place = next(place for place, (request, _) in enumerate(requested) if isinstance(request, FetchRequest))
        _, reply = requested.pop(place)
        reply(response)

    def _pause(self, follower: Follower) -> None:
        follower.resume_ms = self._now_ms + follower.backoff_ms
        follower.backoff_ms = min(follower.backoff_ms * 2, Limits.backoff_ms)

    def _answer(self) -> None:
        """The leader answers for the partitions of the session."""
        if not self._is_asking():
            return
        rows, expected = [], []
        followed = {index: each for index, each in self._followers.items() if each.told is not None}
        for index in sorted(followed, key=lambda _: self._random.random()):
            if self._random.random() < 0.7:
                row, outcome = self._row_of(index, followed[index])
                rows.append(row)
                expected.append((index, outcome))
        if self._random.random() < 0.1:
            rows.append(FetchResponse.PartitionData(partition_index=77, error_code=0, records=b""))
        keeps = self._random.random() < 0.85
        self._waiting_since, self._overdue = None, 0
        response = FetchResponse(
            session_id=900 if keeps else 0,
            responses=[FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)],
        )
        before = {index: self._world.partitions[index].high_watermark for index, _ in expected}
        for reader in self._readers.values():
            reader.sizes.clear()
        faults, asked = len(self._world.faults), len(self._world.channel.requested) - 1
        self._reply(response)
        lookups = 0
        for index, (state, paused, fenced, asks) in expected:
            follower, partition = self._followers[index], self._world.partitions[index]
            self._touched.add(index)
            log = partition.log
            found = (log.log_end_offset, log.log_start_offset, partition.high_watermark)
            self._check(f"the log of {index} after an answer", found, state)
            told = self._readers[index].sizes
            is_more = partition.high_watermark > before[index]
            self._check("whether readers learn of more", bool(told) or not is_more, True)
            self._check("what readers learn", [each for each in told if each < 0], [])
            if paused:
                self._pause(follower)
            follower.is_fenced |= fenced
            lookups += asks
        self._check("lookups of offsets", len(self._world.channel.requested) - asked, lookups)
        self._check("faults", len(self._world.faults), faults)
        self._check("damaged records", len(self._world.host.faults.reported), self._rejected)
        epoch = self._session[1]
        self._session = (900, epoch + 1) if keeps else (0, 0)
        if not keeps:
            self._gone = set()
            for follower in self._followers.values():
                follower.told = None
        self._expect_request()
        self._answer_lookups()

    def _row_of(self, index: int, follower: Follower) -> tuple[FetchResponse.PartitionData, tuple[Any, ...]]:
        """Returns a leader's answer, and what it must lead to: the log's offsets, a pause, a fence, a lookup."""
        log, own = self._logs[index], self._world.partitions[index]
        end, start, committed = own.log.log_end_offset, own.log.log_start_offset, own.high_watermark
        row = FetchResponse.PartitionData(
            partition_index=index, high_watermark=log.committed, log_start_offset=log.start, records=b""
        )
        assert follower.told is not None
        is_old = own.leader_epoch != follower.told[3] or follower.told[0] != end or follower.epoch != follower.told[3]
        unchanged = (end, start, committed)
        kind = self._random.random()
        if kind < 0.1:
            codes = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR)
            row.error_code = self._random.choice(codes)
            return row, (unchanged, not is_old, False, 0)
        if kind < 0.14:
            row.error_code = ErrorCode.FENCED_LEADER_EPOCH
            return row, (unchanged, False, not is_old, 0)
        last_epoch = own.log.epochs.latest_epoch
        epoch, epoch_end = log.epoch_end(last_epoch)
        if last_epoch >= 0 and epoch >= 0 and end >= log.start and (epoch < last_epoch or epoch_end < end):
            return self._diverging(row, own, epoch, epoch_end, is_old)
        if not log.start <= end <= log.end or (last_epoch >= 0 and epoch < 0 and log.batches):
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return row, (unchanged, not is_old, False, 0 if is_old else 1)
        wanted = [each for each in log.batches if each[1] + each[2] > end][: self._random.randint(0, 3)]
        if wanted and wanted[0][1] < end and start < end and not is_old:
            row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return row, (unchanged, True, False, 0)
        row.records = b"".join(batch(base, count, epoch=epoch) for epoch, base, count in wanted)
        if self._random.random() < 0.5:
            row.records = memoryview(row.records)
        if is_old:
            return row, (unchanged, False, False, 0)
        if wanted and self._random.random() < 0.05:
            row.records = bytes(row.records[:-1]) + bytes([row.records[-1] ^ 1])
            if len(wanted) == 1 and wanted[0][1] >= end:
                self._rejected += 1
                return row, (unchanged, True, False, 0)
            row.records = b"".join(batch(base, count, epoch=epoch) for epoch, base, count in wanted)
        if wanted:
            if wanted[0][1] < end:
                start = committed = wanted[0][1]  # A client has deleted a part of the leader's first batch.
            end = wanted[-1][1] + wanted[-1][2]
            self._own[index] += wanted
        committed = max(committed, min(log.committed, end))
        start = max(start, min(log.start, committed))
        follower.is_in_sync = end >= log.committed
        follower.backoff_ms = SHORTEST_PAUSE_MS
        if index in self._listed:
            self._record(len(row.records))
        return row, ((end, start, committed), False, False, 0)

    def _record(self, size: int) -> None:
        if self._samples and self._now_ms - self._samples[-1][0] < _WINDOW_MS:
            self._samples[-1] = (self._samples[-1][0], self._samples[-1][1] + size)
        else:
            self._samples.append((self._now_ms, size))

    def _diverging(
        self, row: FetchResponse.PartitionData, own: Partition, epoch: int, epoch_end: int, is_old: bool
    ) -> tuple[FetchResponse.PartitionData, tuple[Any, ...]]:
        """Both logs are equal up to the smaller end of the leader's epoch, or of the follower's epoch before it."""
        log, committed = own.log, own.high_watermark
        row.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=epoch_end)
        row.records = None
        if is_old:
            return row, ((log.log_end_offset, log.log_start_offset, committed), False, False, 0)
        index = row.partition_index
        self._followers[index].backoff_ms = SHORTEST_PAUSE_MS
        ends = _entries(log)
        target = min(epoch_end, log.log_end_offset)
        if epoch >= 0:
            before = [place for place, (found, _) in enumerate(ends) if found <= epoch]
            if before:
                last = before[-1]
                own_end = ends[last + 1][1] if last + 1 < len(ends) else log.log_end_offset
                target = min(own_end, epoch_end) if ends[last][0] == epoch else own_end
            elif ends:
                target = min(ends[0][1], epoch_end)  # Everything here is of later epochs.
        target = max(target, 0)
        end = self._whole(index, min(target, log.log_end_offset))
        start = min(log.log_start_offset, end)
        return row, ((end, start, min(committed, end)), False, False, 0)

    def _answer_lookups(self) -> None:
        """Answers the lookups of followers whose position the leader does not have."""
        world = self._world
        for _ in range(10):
            asked = [each for each in world.channel.requested if isinstance(each[0], ListOffsetsRequest)]
            if not asked:
                return
            request, reply = asked[0]
            world.channel.requested.remove(asked[0])
            assert isinstance(request, ListOffsetsRequest)
            (topic,) = request.topics
            (row,) = topic.partitions
            index, log = row.partition_index, self._logs[row.partition_index]
            partition, follower = world.partitions[index], self._followers[index]
            self._check("who looks up", (request.replica_id, topic.name), (SELF, "orders"))
            self._check("the epoch of a lookup", row.current_leader_epoch, follower.epoch)
            self._lookup(index, row.timestamp, log, partition, reply)

    def _lookup(
        self, index: int, timestamp: int, log: LeaderLog, partition: Partition, reply: Callable[[Message | None], None]
    ) -> None:
        own = partition.log
        end, start = own.log_end_offset, own.log_start_offset
        committed, follower_epoch = partition.high_watermark, partition.leader_epoch
        if self._random.random() < 0.15:
            # The answer belongs to an earlier epoch, or comes while this broker leads.
            if self._random.random() < 0.5:
                self._follow(index)
            else:
                image = PartitionImage((SELF, 9), (SELF,), SELF, follower_epoch + 1, follower_epoch + 1)
                partition.become_leader(image)
                self._world.fetcher.remove(TOPIC_ID, index)
                follower = self._followers.pop(index)
                if follower.told is not None:
                    self._gone.add(index)
            before = len(self._lookups())
            committed = partition.high_watermark
            row = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=index, error_code=0, offset=0)
            topics = [ListOffsetsResponse.ListOffsetsTopicResponse(name="orders", partitions=[row])]
            reply(ListOffsetsResponse(topics=topics))
            self._check("lookups after an old answer", len(self._lookups()), before)
            found = (own.log_end_offset, own.log_start_offset, partition.high_watermark)
            self._check("a log after an old answer", found, (end, start, committed))
            self._took_over.discard(index)
            self._expect_request()
            return
        self._check("what is looked up", timestamp, -1 if index not in self._took_over else -4)
        fails = self._random.random() < 0.2
        code = self._random.choice((0, ErrorCode.NOT_LEADER_OR_FOLLOWER)) if fails else 0
        offset = -1 if fails and not code else log.end if timestamp == -1 else log.start
        answer = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=index, error_code=code, offset=offset)
        topics = [ListOffsetsResponse.ListOffsetsTopicResponse(name="orders", partitions=[answer])]
        before = len(self._lookups())
        reply(None if fails and self._random.random() < 0.3 else ListOffsetsResponse(topics=topics))
        self._took_over.discard(index)
        follower = self._followers[index]
        asks = len(self._lookups()) - before
        expected, moves = (end, start, committed), False
        if not fails and timestamp == -1 and log.end < end:
            cut = self._whole(index, log.end)
            expected, moves = (cut, min(start, cut), min(committed, cut)), True
        elif not fails and timestamp == -1:
            self._check("the second lookup", asks, 1)
            self._took_over.add(index)
            asks = 0
        elif not fails:
            moves = True
            expected = (log.start, log.start, log.start) if log.start > end else (end, max(start, log.start), committed)
        self._check("further lookups", asks, 0)
        found = (own.log_end_offset, own.log_start_offset, partition.high_watermark)
        self._check("a repositioned log", found, expected)
        if moves:
            follower.resume_ms = 0
            self._touched.add(index)
            self._expect_request()

    def _lookups(self) -> list[Message]:
        return [request for request, _ in self._world.channel.requested if isinstance(request, ListOffsetsRequest)]

    def _whole(self, index: int, offset: int) -> int:
        """Returns the end of the batches of a follower that end at this offset or before: others are cut off whole."""
        cut = [base for _, base, count in self._own[index] if base < offset < base + count]
        end = min([offset, *cut])
        self._own[index] = [each for each in self._own[index] if each[1] < end]
        return end

    # -- the end

    def _settle(self) -> None:
        """Closes the fetcher: it sends and appends nothing any more."""
        self._world.fetcher.close()
        channel = self._world.channel
        self._check("the channel is closed", channel.is_closed, True)
        self._check("followed partitions at the end", self._world.fetcher.partitions(), [])
        ends = [partition.log.log_end_offset for partition in self._world.partitions.values()]
        if self._is_asking():
            rows = [FetchResponse.PartitionData(partition_index=0, records=batch(0, 1))]
            topics = [FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)]
            self._reply(FetchResponse(session_id=900, responses=topics))
        self._world.fetcher._fetch_soon()
        self._world.run(5_000)
        self._check("fetches after the end", len(self._fetches()), 0)
        after = [partition.log.log_end_offset for partition in self._world.partitions.values()]
        self._check("logs after the end", after, ends)


def _entries(log: Log) -> list[tuple[int, int]]:
    """Returns (epoch, first offset) of the epochs in a log."""
    return [(entry.epoch, entry.start_offset) for entry in log.epochs.entries]
