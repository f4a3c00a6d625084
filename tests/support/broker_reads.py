"""Fetches of one broker, with and without sessions, repeated requests and deletions, compared with the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from tests.support.broker_model import NOT_THERE, TOPICS, BrokerModel, Log, Place, SessionItem

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.batch import iter_headers

_ANY = 1 << 25


class BrokerReads(BrokerModel):
    """The fetches. Steps raise Violation."""

    # -- fetches

    def _readable(self, log: Log, offset: int, limit: int, *, one: bool) -> tuple[int, list[tuple[int, int]]]:
        """Returns the size of what is read from the batch with this offset on, and (base offset, size) of its whole
        batches. The last batch is cut at the limit, but never the first one: with `one` it is read in
        any case, otherwise nothing is read.
        """
        left = [batch for batch in log.batches if batch.end > offset]
        if one and left:
            limit = max(limit, left[0].size)
        elif left and left[0].size > limit:
            return 0, []
        taken, size = [], 0
        for batch in left:
            size += batch.size
            if size <= limit:
                taken.append((batch.base, batch.size))
        return min(size, limit), taken

    def _requested(self, version: int, offsets: dict[Place, int], **limits: int) -> list[FetchRequest.FetchTopic]:
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for (name, index), offset in offsets.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchRequest.FetchTopic(partitions=[])
                if version >= 13:
                    topic.topic_id = self._topic_id(name)
                else:
                    topic.topic = name
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=limits.get("partition_bytes", _ANY),
                    current_leader_epoch=limits.get("epoch", -1),
                )
            )
        return list(topics.values())

    def _rows_of(self, version: int, response: FetchResponse) -> dict[Place, FetchResponse.PartitionData]:
        names = {self._topic_id(name): name for name in (*TOPICS, "none")}
        rows = {}
        for topic in response.responses:
            name = topic.topic if version < 13 else names[topic.topic_id]
            for row in topic.partitions:
                rows[name, row.partition_index] = row
        return rows

    def _fetch(self) -> None:
        """Reads some partitions without a session, with limits of sizes."""
        version = self._random.choice((4, 5, 7, 9, 11, 12, 13, 16))
        rows = list(dict.fromkeys(self._row() for _ in range(self._random.choice((1, 2, 3)))))
        rows.sort(key=lambda row: row[0])
        offsets = {row: self._offset(row) for row in rows}
        partition_bytes = self._random.choice((0, 1, 200, 600, _ANY))
        max_bytes = self._random.choice((1, 300, 1_000, _ANY, _ANY))
        known = {self._epoch_of(row) for row in rows}
        epoch = self._random.choice((-1, -1, *known, max(known) + 1)) if version >= 9 else -1
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=self._random.choice((0, 1)),
            max_bytes=max_bytes,
            isolation_level=self._random.randrange(2),
            session_epoch=-1,
            topics=self._requested(version, offsets, partition_bytes=partition_bytes, epoch=epoch),
        )
        # A partition that waits for the disk takes its whole share of the limit, so that others can get less.
        may_wait = len(rows) == 1 or max_bytes == _ANY
        with self._cold_disk() if may_wait and self._random.random() < 0.3 else nullcontext():
            response = self._client.call(request, version, FetchResponse)
        self._check("the error of a fetch", (response.error_code, response.session_id), (0, 0))
        found = self._rows_of(version, response)
        self._check("the fetched partitions", list(found), rows)
        left, one = max_bytes, True
        for row in rows:
            data = self._expect_row(version, row, offsets[row], found[row], min(partition_bytes, left), one, epoch)
            left, one = max(0, left - data), one and not data

    @contextmanager
    def _cold_disk(self) -> Iterator[None]:
        """Has only some of the data in memory meanwhile."""
        disk, share = self._world.host.disk, self._random.choice((0.3, 1.0))
        disk.is_cold = lambda offset, size: self._random.random() < share
        try:
            yield
        finally:
            disk.is_cold = None

    def _offset(self, row: Place) -> int:
        log = self._logs.get(row, Log())
        around = [log.start, log.start - 1, log.end, log.end + 1, self._random.randint(log.start, log.end)]
        return max(0, self._random.choice(around))

    def _expect_row(
        self,
        version: int,
        row: Place,
        offset: int,
        found: FetchResponse.PartitionData,
        limit: int,
        one: bool,
        epoch: int,
    ) -> int:
        """Compares a row of a fetch; returns the size of its records."""
        log = self._logs.get(row)
        code = 0
        if log is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 and row[0] == "none" else NOT_THERE
        elif epoch > self._epoch_of(row):
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif -1 < epoch < self._epoch_of(row):
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif not log.start <= offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        self._check(f"the error of {row} at {offset}", found.error_code, code)
        data = bytes(found.records or b"")
        if code or log is None:
            self._check("the HW with an error", (found.high_watermark, data), (-1, b""))
            return 0
        self._check("HW and LSO", (found.high_watermark, found.last_stable_offset), (log.end, log.end))
        if version >= 5:
            self._check("the log start offset", found.log_start_offset, log.start)
        self._check("aborted transactions", list(found.aborted_transactions or ()), [])
        headers = [(header.base_offset, header.size_bytes) for _, header in iter_headers(data)]
        size, expected = self._readable(log, offset, limit, one=one)
        self._check(f"the batches of {row} from {offset}", headers, expected)
        self._check("the size", len(data), size)
        return len(data)

    def _read_on(self) -> None:
        """The next fetch of a session: it reads on, adds partitions and drops others."""
        version = self._random.choice((7, 11, 12)) if not self._session_id else self._session_version
        reader = self._reader
        changes: dict[Place, int] = {}
        forgotten: list[Place] = []
        if not self._session_id:
            changes = {row: self._offset(row) for row in {self._row() for _ in range(3)}}
            self._session, self._session_version, self._session_epoch = {}, version, 0
        else:
            for row, item in list(self._session.items()):
                kind = self._random.random()
                if kind < 0.3:
                    changes[row] = min(self._logs[row].end, item.offset + 3) if row in self._logs else 0
                elif kind < 0.35 and len(self._session) > 1 and len(forgotten) < len(self._session) - 1:
                    forgotten.append(row)
            if self._random.random() < 0.2:
                row = self._row()
                changes[row] = self._offset(row)
                forgotten = [each for each in forgotten if each != row]
        epoch = self._session_epoch
        is_wrong = self._session_id and self._random.random() < 0.06
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=_ANY,
            session_id=self._session_id,
            session_epoch=epoch + 1 if is_wrong else epoch,
            topics=self._requested(version, dict(sorted(changes.items()))),
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic=name, partitions=[index]) for name, index in forgotten
            ],
        )
        response = reader.call(request, version, FetchResponse)
        if is_wrong:
            self._check("a wrong epoch", response.error_code, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            return
        if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and self._has_others:
            self._session_id = 0  # A session of the other consumers has replaced it.
            return
        self._check("the error of a session", response.error_code, 0)
        is_new = not self._session_id
        for row, offset in changes.items():
            item = self._session.setdefault(row, SessionItem(offset))
            if offset < item.offset:
                item.answered = (-1, -1)
            item.offset = offset
        for row in forgotten:
            del self._session[row]
        self._compare_session(version, response, is_new)
        self._session_epoch += 1
        if is_new:
            self._session_id = response.session_id
        else:
            self._check("the session's id", response.session_id, self._session_id)

    def _compare_session(self, version: int, response: FetchResponse, is_new: bool) -> None:
        found = self._rows_of(version, response)
        expected = set()
        for row, item in self._session.items():
            log = self._logs.get(row)
            is_wrong = log is None or not log.start <= item.offset <= log.end
            has_data = log is not None and not is_wrong and item.offset < log.end
            now = (-1, -1) if log is None or is_wrong else (log.end, log.start)
            if is_new or is_wrong or has_data or now != item.answered or item.failed:
                expected.add(row)
            item.answered, item.failed = now, is_wrong
        self._check("the partitions in a session's answer", set(found), expected)
        for row in expected:
            self._expect_row(version, row, self._session[row].offset, found[row], _ANY, True, -1)

    def _wait(self) -> None:
        """A fetch waits until enough bytes are there, or until its deadline."""
        row = self._random.choice(list(self._logs))
        log = self._logs[row]
        offset = max(log.start, log.end - self._random.choice((0, 0, 1)))
        there, _ = self._readable(log, offset, _ANY, one=True)
        missing = self._random.choice((1, 100, 400))
        version = self._random.choice((4, 11, 12, 13))
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=there + missing,
            max_bytes=_ANY,
            session_epoch=-1,
            topics=self._requested(version, {row: offset}),
        )
        other = self._other
        other.send(request, version)
        time, waited_ms = self._world.host.time, 0
        while missing > 0 and waited_ms < 500:
            pause_ms = self._random.choice((1, 100, 499, 500))
            pause_ms = min(pause_ms, 499 - waited_ms) if waited_ms < 499 else 1
            time.run_for(pause_ms)
            waited_ms += pause_ms
            if waited_ms >= 500:
                break
            self._check("answers before the deadline", other.link.take(), b"")
            if self._random.random() < 0.6:
                data, times = self._batch(row, 1)
                missing -= len(data)
                self._append_silently(row, data, times)
        time.run_for(0)
        answers = other.received()
        self._check("answers of a fetch that waited", len(answers), 1)
        response = answers[0][1]
        assert isinstance(response, FetchResponse)
        self._expect_row(version, row, offset, self._rows_of(version, response)[row], _ANY, True, -1)

    def _append_silently(self, row: Place, data: bytes, times: list[int]) -> None:
        """Produces within no virtual time."""
        topic = ProduceRequest.TopicProduceData(
            name=row[0], partition_data=[ProduceRequest.PartitionProduceData(index=row[1], records=data)]
        )
        client = self._client
        client.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
        self._world.host.time.run_for(0)
        ((_, response),) = client.received()
        assert isinstance(response, ProduceResponse)
        answered = response.responses[0].partition_responses[0]
        base = self._appended(self._logs[row], data, times)
        self._check("an append", (answered.error_code, answered.base_offset), (0, base))

    # -- repeated requests of one connection, which the broker serves in a shorter way

    def _stream(self) -> None:
        """The same connection produces several batches in a row, which differ in size; some are wrong."""
        version, acks = self._random.randrange(3, 14), self._random.choice((-1, 1))
        row = self._random.choice(list(self._logs))
        client = self._world.connect()
        for _ in range(self._random.randint(2, 5)):
            kind = self._random.random()
            if kind < 0.1:
                row = self._random.choice(list(self._logs))
            elif kind < 0.2:
                acks = -acks
            elif kind < 0.3:
                self._delete()
            data, outcome = self._data(row)
            topic = ProduceRequest.TopicProduceData(
                partition_data=[ProduceRequest.PartitionProduceData(index=row[1], records=data)]
            )
            if version >= 13:
                topic.topic_id = self._topic_id(row[0])
            else:
                topic.name = row[0]
            response = client.call(
                ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), version, ProduceResponse
            )
            ((answer,),) = (each.partition_responses for each in response.responses)
            start = answer.log_start_offset if version >= 5 else outcome[2]
            found = (answer.error_code, answer.base_offset, start, answer.log_append_time_ms)
            self._check(f"a produced batch in a row, version {version}", found, outcome)
            self._check("its throttle time", response.throttle_time_ms, 0)
            if not answer.error_code:
                has_shortcut = client.core.shortcut is not None
                self._check(f"whether the next one, version {version}, is served shortly", has_shortcut, True)

    def _follow(self) -> None:
        """A consumer follows one partition in a session, fetch by fetch, and waits for more in the last one."""
        version = self._random.choice((12, 13, 16))
        row = self._random.choice(list(self._logs))
        log = self._logs[row]
        offset, client = max(log.start, log.end - 2), self._world.connect()
        session_id = epoch = 0
        for _ in range(self._random.randint(3, 6)):
            grows = self._random.random() < 0.5
            if grows:
                data, times = self._batch(row, 1)
                self._append_silently(row, data, times)
            waits = self._random.random() < 0.3
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=100 if waits else 0,
                min_bytes=1,
                max_bytes=_ANY,
                session_id=session_id,
                session_epoch=epoch,
                topics=self._requested(version, {row: offset}),
            )
            client.send(request, version)
            self._world.host.time.run_for(0)
            if waits and epoch and offset == log.end:
                self._check("answers of a session that waits", client.link.take(), b"")
                if self._random.random() < 0.5:
                    data, times = self._batch(row, 1)
                    self._append_silently(row, data, times)
                    grows = True
                else:
                    self._world.host.time.run_for(99)
                    self._check("answers before the deadline of a session", client.link.take(), b"")
                    self._world.host.time.run_for(1)
            else:
                self._world.host.time.run_for(100)
            answers = client.received()
            self._check("answers in a session", len(answers), 1)
            response = answers[0][1]
            assert isinstance(response, FetchResponse)
            self._check("the error in a session", response.error_code, 0)
            if not epoch and not response.session_id:
                return  # There is no room for a session.
            if epoch:
                self._check("the id of a session", response.session_id, session_id)
            self._has_others = True
            session_id, epoch = response.session_id, epoch + 1
            found = self._rows_of(version, response)
            if offset < log.end or epoch == 1:
                self._expect_row(version, row, offset, found[row], _ANY, True, -1)
            else:
                self._check("rows without anything new", list(found), [])
            if offset < log.end and self._random.random() < 0.8:
                offset = log.end

    def _delete(self) -> None:
        row = self._row()
        log = self._logs.get(row)
        offset = self._random.choice((-1, -2, self._offset(row), self._offset(row)))
        topic = DeleteRecordsRequest.DeleteRecordsTopic(
            name=row[0],
            partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=row[1], offset=offset)],
        )
        version = self._random.randrange(3)
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        response = self._client.call(request, version, DeleteRecordsResponse)
        answer = response.topics[0].partitions[0]
        expected: tuple[int, int] = (NOT_THERE, -1)
        if log is not None:
            target = log.end if offset == -1 else offset
            if row[0] == "c":
                expected = (ErrorCode.POLICY_VIOLATION, -1)
            elif not 0 <= target <= log.end:
                expected = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            else:
                log.start = max(log.start, target)
                log.batches = [batch for batch in log.batches if batch.end > log.start]
                expected = (0, log.start)
        self._check(f"DeleteRecords of {row} to {offset}", (answer.error_code, answer.low_watermark), expected)
