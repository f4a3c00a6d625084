"""A broker in memory, its clients' requests, and a plain model of what it must answer.

The broker is real, from bytes to files; a seed takes some tens of milliseconds. Clients produce with and without
sequences, fetch with and without sessions, wait for records, look up offsets, delete records, and describe the cluster
in all versions. The model keeps each partition as a list of batches.
"""

from __future__ import annotations

from typing import Any

from tests.support.broker_model import NOT_THERE, TOPICS, Log, Place
from tests.support.broker_parts import explore_fenced, explore_memory, explore_muting, explore_sessions
from tests.support.broker_reads import BrokerReads

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.simulation.host import EPOCH_WALL_MS
from barnabas.simulation.second_decision_table import second_decisions

_STEPS = 60
_NODE = 1
_LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
#: Read, write, create, delete, alter, describe, describe-configs and alter-configs, as bits of their codes.
_TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))


class BrokerExplorer(BrokerReads):
    """The run of one seed. `run` raises Violation or AssertionError."""

    def run(self) -> None:
        with second_decisions().judging():
            self._run()
            for explore in (explore_memory, explore_muting, explore_fenced, explore_sessions):
                explore(self._random)

    def _run(self) -> None:
        for name, count in TOPICS.items():
            configs = {"cleanup_policy": "compact"} if name == "c" else {}
            self._world.create_topic(name, count, **configs)
            for index in range(count):
                self._logs[name, index] = Log()
        steps = [self._produce] * 4 + [self._fetch] * 2 + [self._read_on] * 4 + [self._wait] * 2
        steps += [self._stream, self._stream, self._follow, self._follow]
        steps += [self._look_up, self._delete, self._metadata, self._pages, self._page, self._producers, self._epochs]
        steps += [self._cluster, self._directories, self._more_partitions, self._pass_time]
        for _ in range(_STEPS):
            self._random.choice(steps)()
        if self._random.random() < 0.6:
            self._unregister()
            for _ in range(_STEPS // 4):
                self._random.choice([self._produce, self._fetch, self._look_up, self._metadata, self._cluster])()
        if self._random.random() < 0.5:
            is_clean = self._random.random() < 0.5
            self._world.host.time.run_for(130_000)  # The log start offsets are in their checkpoint.
            self._world.restart(clean=is_clean)
            self._client, self._other, self._reader = (self._world.connect() for _ in range(3))
            self._session, self._session_id = {}, 0
            for _ in range(_STEPS // 4):
                self._random.choice(
                    [self._fetch, self._look_up, self._metadata, *([self._producers] if is_clean else [])]
                )()
        self._world.stop()
        self._check("closed connections", [text for text in self._world.closes.causes if "shut" not in text], [])

    def _unregister(self) -> None:
        """An operator removes the registration of the broker while it runs: it gets no producer ids until its next
        heartbeat is refused, and it registers again.
        """
        request = UnregisterBrokerRequest(broker_id=_NODE)
        response = self._client.call(request, 0, UnregisterBrokerResponse)
        self._check("the answer to UnregisterBroker", response.error_code, ErrorCode.NONE)
        self._check("a producer id without a registration", self._init_producer_id(), _LOADING)
        for _ in range(100):
            broker = self._world.broker
            leaderships = [broker.replicas.find(*place).leadership for place in self._logs]  # type: ignore[union-attr]
            if _NODE in broker.metadata.image.brokers and None not in leaderships:
                break
            self._world.host.time.run_for(100)
        self._epochs_since = {self._epoch_of(place) for place in self._logs}
        self._check("a producer id after another registration", self._init_producer_id(), ErrorCode.NONE)

    def _init_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        return self._client.call(request, 4, InitProducerIdResponse).error_code

    # -- offsets

    def _look_up(self) -> None:
        version = self._random.choice((1, 2, 4, 5, 7, 8, 9, 10))
        rows = list(dict.fromkeys(self._row() for _ in range(3)))
        asked: list[tuple[Place, int]] = []
        for row in rows:
            log = self._logs.get(row, Log())
            times = [at for batch in log.batches for at in batch.times]
            some = self._random.choice(times) + self._random.choice((-1, 0, 1)) if times else EPOCH_WALL_MS
            asked.append((row, self._random.choice((-1, -2, -3, -4, -5, some, some, some))))
        if self._random.random() < 0.1:
            asked.append(asked[0])
        topics = [
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)],
            )
            for (name, index), timestamp in asked
        ]
        isolation = self._random.randrange(2) if version >= 2 else 0
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        response = self._client.call(request, version, ListOffsetsResponse)
        found = []
        for topic in response.topics:
            for each in topic.partitions:
                found.append((topic.name, each.partition_index, each.error_code, each.timestamp, each.offset))
                epochs = (0, *self._epochs_since, self._epoch_of((topic.name, each.partition_index)), -1)
                self._check("whether the epoch of an offset can be", each.leader_epoch in epochs, True)
        expected: list[tuple[Any, ...]] = []
        for row, timestamp in asked:
            result = self._found(row, timestamp, version)
            if asked.count((row, timestamp)) > 1:
                result = (ErrorCode.INVALID_REQUEST, -1, -1)
            expected.append((*row, *result))
        self._check(f"the answer to ListOffsets {version} of {asked}", found, expected)

    def _found(self, row: Place, timestamp: int, version: int) -> tuple[int, int, int]:
        since = {-3: 7, -4: 8, -5: 9, -6: 11}
        if timestamp < 0 and version < since.get(timestamp, 1):
            return ErrorCode.UNSUPPORTED_VERSION, -1, -1
        log = self._logs.get(row)
        if log is None:
            return NOT_THERE, -1, -1
        if timestamp == -1:
            return 0, -1, log.end
        if timestamp in (-2, -4):
            return 0, -1, log.start
        if timestamp == -5:
            return 0, -1, -1
        records = [(at, batch.base + place) for batch in log.batches for place, at in enumerate(batch.times)]
        records = [(at, offset) for at, offset in records if offset >= log.start]
        if timestamp == -3:
            if not records:
                return 0, -1, -1
            latest = max(at for at, _ in records)
            return 0, latest, next(offset for at, offset in records if at == latest)
        return next(((0, at, offset) for at, offset in records if at >= timestamp), (0, -1, -1))

    def _epochs(self) -> None:
        row, version = self._row(), self._random.choice((2, 3, 4))
        known, current = self._random.choice((0, 0, 1, -1)), self._random.choice((-1, 0, 1))
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
            topic=row[0],
            partitions=[
                OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                    partition=row[1], current_leader_epoch=current, leader_epoch=known
                )
            ],
        )
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
        response = self._client.call(request, version, OffsetForLeaderEpochResponse)
        answer = response.topics[0].partitions[0]
        log = self._logs.get(row)
        expected: tuple[int, int, int] = (NOT_THERE, -1, -1)
        if log is not None and current == 1:
            expected = (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        elif log is not None:
            expected = (0, 0, log.end) if known == 0 else (0, -1, -1)
        found = (answer.error_code, answer.leader_epoch, answer.end_offset)
        self._check(f"OffsetForLeaderEpoch {known} in {current} of {row}", found, expected)

    # -- descriptions

    def _producers(self) -> None:
        name = self._random.choice([*TOPICS, "none"])
        indexes = [0, 1, 0]
        topic = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
        response = self._client.call(DescribeProducersRequest(topics=[topic]), 0, DescribeProducersResponse)
        found = {}
        for row in response.topics[0].partitions:
            states = {
                state.producer_id: (state.producer_epoch, state.last_sequence, state.last_timestamp)
                for state in row.active_producers
                if state.current_txn_start_offset == -1 and state.coordinator_epoch == -1
            }
            found[row.partition_index] = (row.error_code, states)
        expected = {}
        for index in (0, 1):
            log = self._logs.get((name, index))
            states = (
                {}
                if log is None
                else {
                    producer_id: (each.epoch, each.recent[-1][1], each.last_time)
                    for producer_id, each in log.producers.items()
                }
            )
            expected[index] = (NOT_THERE if log is None else 0, states)
            if log is not None and log.start:
                expected[index] = found[index]  # A restart does not find producers of deleted records.
        self._check(f"the producers of {name}", found, expected)
        self._check("the number of rows", len(response.topics[0].partitions), 2)

    def _metadata(self) -> None:
        version = self._random.randrange(14)
        counts = self._counts()
        names = self._random.sample([*counts, "none", "no/name"], self._random.randint(0, 4))
        by_id = version >= 12 and self._random.random() < 0.4
        if version in (10, 11) and self._random.random() < 0.3:
            self._metadata_by_id_too_early(version, names)
            return
        everything = self._random.random() < 0.3
        topics: list[MetadataRequest.MetadataRequestTopic] | None = None
        if everything:
            topics = [] if version == 0 else None
        elif by_id:
            names = [name for name in names if name != "no/name"]
            ids = [bytes(15) + b"\1" if name == "none" else self._topic_id(name) for name in names]
            topics = [MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
        else:
            topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
            everything = version == 0 and not names
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)
        request.include_topic_authorized_operations = version >= 8
        response = self._client.call(request, version, MetadataResponse)
        brokers = [(each.node_id, each.host, each.port, each.rack) for each in response.brokers]
        self._check("the brokers", brokers, [(_NODE, "localhost", 9092, None)])
        if version >= 1:
            self._check("the controller", response.controller_id, _NODE)
        if version >= 2:
            self._check("the cluster", response.cluster_id, self._cluster_id or response.cluster_id)
            self._cluster_id = response.cluster_id
        expected: dict[str | None, tuple[int, int]] = {name: (0, count) for name, count in counts.items()}
        if not everything:
            expected = {name: (0, counts[name]) for name in names if name in counts}
            for name in names:
                if name not in counts:
                    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION if name == "no/name" else NOT_THERE
                    expected[None if by_id else name] = (ErrorCode.UNKNOWN_TOPIC_ID if by_id else invalid, 0)
        found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in response.topics}
        self._check(f"the topics of Metadata {version}", found, expected)
        for topic in response.topics:
            if not topic.error_code:
                self._topic(version, topic)

    def _metadata_by_id_too_early(self, version: int, names: list[str]) -> None:
        """Versions 10 and 11 have fields for ids, and refuse them."""
        topics = []
        for name in names:
            topic = MetadataRequest.MetadataRequestTopic(name=name)
            if self._random.random() < 0.5:
                topic.topic_id, topic.name = self._random.randbytes(16), self._random.choice((name, None))
            topics.append(topic)
        if not any(topic.topic_id != bytes(16) for topic in topics):
            topics.append(MetadataRequest.MetadataRequestTopic(name=None))
        response = self._client.call(MetadataRequest(topics=topics), version, MetadataResponse)
        found = [(topic.error_code, topic.name, topic.topic_id) for topic in response.topics]
        expected = [(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in topics]
        self._check(f"the topics of Metadata {version} with ids", found, expected)
        self._check("a part of a refused response", (list(response.brokers), response.controller_id), ([], -1))

    def _topic(self, version: int, topic: MetadataResponse.MetadataResponseTopic) -> None:
        name = topic.name or ""
        if version >= 10:
            self._check("the id of a topic", topic.topic_id, self._topic_id(name))
        if version >= 1:
            self._check("whether a topic is internal", topic.is_internal, name.startswith("__"))
        if version >= 8:
            self._check("the operations", topic.topic_authorized_operations, _TOPIC_OPERATIONS)
        for index, row in enumerate(topic.partitions):
            found = (row.error_code, row.partition_index, row.leader_id, list(row.replica_nodes), list(row.isr_nodes))
            self._check("a partition", found, (0, index, _NODE, [_NODE], [_NODE]))
            if version >= 7:
                self._check("the leader epoch", row.leader_epoch, self._epoch_of((name, index)))
            self._check("offline replicas", list(row.offline_replicas), [])

    def _pages(self) -> None:
        """Describes topics page by page: all rows come once, in order."""
        counts = self._counts()
        names = self._random.sample([*counts, "none"], self._random.randint(0, 4))
        wanted = sorted(names) if names else sorted(counts)
        limit = self._random.choice((1, 2, 3, 100))
        cursor = None
        rows: list[tuple[str, int]] = []
        for _ in range(20):
            request = DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor,
            )
            response = self._client.call(request, 0, DescribeTopicPartitionsResponse)
            page = [(topic.name or "", row.partition_index) for topic in response.topics for row in topic.partitions]
            for topic in response.topics:
                code = 0 if topic.name in counts else NOT_THERE
                self._check("the error of a topic", topic.error_code, code)
                for row in topic.partitions:
                    shown = (row.error_code, row.leader_id, row.leader_epoch, list(row.replica_nodes))
                    self._check("a row", (*shown, list(row.isr_nodes)), (0, _NODE, 0, [_NODE], [_NODE]))
                    others = (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas)
                    self._check("other replicas", [list(each or ()) for each in others], [[], [], []])
            rows += page
            following = response.next_cursor
            if following is None:
                break
            self._check("the size of a page", len(page), limit)
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=following.topic_name, partition_index=following.partition_index
            )
        expected = [(name, index) for name in wanted for index in range(counts.get(name, 0))]
        self._check(f"the pages of {names} by {limit}", rows, expected)

    def _page(self) -> None:
        """Describes topics from any cursor on, one that no client has got from a response, too."""
        random, counts = self._random, self._counts()
        names = random.sample([*counts, "none", "no/name"], random.randint(0, 5))
        limit = random.choice((-1, 0, 1, 2, 3, 100))
        begin = (random.choice([*counts, *names, "b0", "zzz"]), random.choice((-1, 0, 0, 1, 2, 3, 9)))
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=DescribeTopicPartitionsRequest.Cursor(topic_name=begin[0], partition_index=begin[1]),
        )
        response = self._client.call(request, 0, DescribeTopicPartitionsResponse)
        found = [
            (topic.error_code, topic.name, [row.partition_index for row in topic.partitions])
            for topic in response.topics
        ]
        following = response.next_cursor
        shown = None if following is None else (following.topic_name, following.partition_index)
        expected = self._expected_page(names, max(limit, 1), begin)
        self._check(f"the page of {names} from {begin} by {limit}", (found, shown), expected)

    def _expected_page(
        self, names: list[str], limit: int, begin: Place
    ) -> tuple[list[tuple[int, str, list[int]]], Place | None]:
        """Returns the topics of a page with their partitions, and the next cursor."""
        counts = self._counts()
        if begin[1] < 0 or (names and begin[0] not in names):
            return [(ErrorCode.INVALID_REQUEST, name, []) for name in names], None
        page: list[tuple[int, str, list[int]]] = []
        left = limit
        for name in sorted(names or counts):
            if name < begin[0]:
                continue
            if left == 0:
                return page, (name, 0)
            if name not in counts:
                page.append((ErrorCode.INVALID_TOPIC_EXCEPTION if name == "no/name" else NOT_THERE, name, []))
                continue
            indexes = [index for index in range(counts[name]) if name != begin[0] or index >= begin[1]]
            page.append((0, name, indexes[:left]))
            if len(indexes) > left:
                return page, (name, indexes[left])
            left -= len(indexes)
        return page, None

    def _cluster(self) -> None:
        version = self._random.randrange(3)
        request = DescribeClusterRequest(include_cluster_authorized_operations=self._random.random() < 0.5)
        if version >= 1:
            request.endpoint_type = self._random.choice((1, 1, 3))
        response = self._client.call(request, version, DescribeClusterResponse)
        if version >= 1 and request.endpoint_type == 3:
            self._check("an unknown kind of endpoints", response.error_code, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
            return
        brokers = [(each.broker_id, each.host, each.port, each.rack) for each in response.brokers]
        found = (response.error_code, response.controller_id, brokers)
        self._check("the cluster", found, (0, _NODE, [(_NODE, "localhost", 9092, None)]))

    def _directories(self) -> None:
        version = self._random.choice((1, 2, 3, 4))
        response = self._client.call(DescribeLogDirsRequest(topics=None), version, DescribeLogDirsResponse)
        (result,) = response.results
        self._check("a directory", (result.error_code, result.log_dir), (0, "/data"))
        found = {
            (topic.name, row.partition_index): (row.offset_lag, row.is_future_key)
            for topic in result.topics
            for row in topic.partitions
        }
        self._check("the logs in a directory", found, dict.fromkeys(self._logs, (0, False)))

    def _more_partitions(self) -> None:
        name = self._random.choice(["b", "none"])
        count = self._counts().get(name, 0)
        wanted = self._random.choice((count, count + 1, 0))
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=wanted, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=self._random.random() < 0.3)
        response = self._client.call(request, self._random.choice((0, 1, 2, 3)), CreatePartitionsResponse)
        code = NOT_THERE if not count else 0 if wanted > count else ErrorCode.INVALID_PARTITIONS
        self._check("CreatePartitions", response.results[0].error_code, code)
        if not code and not request.validate_only:
            self._logs[name, count] = Log()
            self._world.host.time.run_for(50)
