"""A phantom cluster: simulated brokers that answer requests on real sockets, from a synthetic table of any size.

    with PhantomCluster(topics=10_000, partitions=4, replication=3, brokers=3) as phantom:
        ... clients of phantom.bootstrap ...
        phantom.change(lambda state: state.kill(2))

It answers what viewers of a cluster ask (ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster,
DescribeQuorum, DescribeConfigs, ListOffsets, DescribeLogDirs, Fetch of the journal), and holds no records. It runs in a
thread; `python -m barnabas.testing.phantom_process` runs it in a process of its own, for measurements.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Final, TypeVar

from barnabas.common.errors import ErrorCode
from barnabas.common.types import EVENTS_TOPIC
from barnabas.protocol import codec
from barnabas.protocol.header import decode_request_header, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.index import request_class
from barnabas.records.draft import BatchDraft
from barnabas.testing.phantom_answers import PhantomAnswers
from barnabas.testing.phantom_state import Event, PhantomState

T = TypeVar("T")

_API_VERSIONS_MAX: Final = 4
_FETCH_MAX: Final = 12
_EVENTS_PER_BATCH: Final = 250
_FETCH_BYTES_MAX: Final = 1 << 20
#: The number of encoded answers kept, each for the next equal request.
_ANSWERS_KEPT: Final = 2_000


class PhantomCluster:
    """A phantom cluster, as a context manager. To imitate older brokers, `without` lists API keys that they do not
    offer, and `versions_max` the highest versions of others.
    """

    def __init__(
        self,
        *,
        topics: int = 10,
        partitions: int = 4,
        replication: int = 3,
        brokers: int = 3,
        min_isr: int = 2,
        journal: bool = False,
        without: Collection[int] = (),
        versions_max: Mapping[int, int] | None = None,
    ) -> None:
        self.state = PhantomState(
            topics=topics,
            partitions=partitions,
            replication=replication,
            brokers=brokers,
            min_isr=min_isr,
            now_ms=lambda: time.time_ns() // 1_000_000,
            on_events=self._write_events if journal else None,
        )
        self.without = frozenset(without)
        self.versions_max = dict(versions_max or {})
        self.addresses: dict[int, tuple[str, int]] = {}
        #: Requests by name since the start.
        self.requests: dict[str, int] = {}
        self.journal = Journal() if journal else None
        self._brokers: dict[int, _Broker] = {}
        self._writes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> PhantomCluster:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    def change(self, what: Callable[[PhantomState], T]) -> T:
        """Changes the state between two answers. Brokers that the change takes down or brings up close or open their
        ports.
        """

        async def main() -> T:
            found = what(self.state)
            for broker_id, is_up in self.state.is_up.items():
                await self._brokers[broker_id].serve(is_up)
            return found

        found: T = self._call(main())
        return found

    def silence(self, broker: int, *, is_silent: bool = True) -> None:
        """Keeps a broker from answering, with its connections open, like a process that was stopped (SIGSTOP)."""

        async def main() -> None:
            self._brokers[broker].silence(is_silent)

        self._call(main())

    def _call(self, steps: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result(60)

    async def _start(self) -> None:
        for broker_id in self.state.is_up:
            self._brokers[broker_id] = _Broker(self, broker_id)
            await self._brokers[broker_id].serve(True)

    def _write_events(self, events: Iterator[Event]) -> None:
        assert self.journal is not None, "there is a journal"
        task = self._loop.create_task(self.journal.write(events))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _stop(self) -> None:
        for broker in self._brokers.values():
            await broker.serve(False)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Journal:
    """The events of the cluster, as batches of the journal's one partition."""

    def __init__(self) -> None:
        self.end = 0
        self._batches: list[tuple[int, int, bytes]] = []
        self._more = asyncio.Event()

    async def write(self, events: Iterator[Event]) -> None:
        while some := list(islice(events, _EVENTS_PER_BATCH)):
            draft = BatchDraft()
            for event in some:
                draft.add(event["id"].encode(), json.dumps(event, separators=(",", ":")).encode())
            batch = draft.encode(some[0]["time_ms"], base_sequence=-1)
            batch[0:8] = self.end.to_bytes(8, "big")
            self._batches.append((self.end, self.end + len(some), bytes(batch)))
            self.end += len(some)
            self._more.set()
            self._more = asyncio.Event()
            await asyncio.sleep(0)

    async def read(self, offset: int, max_wait_s: float) -> bytes:
        """Returns batches from the one with `offset` on; waits for the next one if there is none."""
        if offset >= self.end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._more.wait(), max_wait_s)
        found = b""
        for _, end, batch in self._batches:
            if end > offset and len(found) < _FETCH_BYTES_MAX:
                found += batch
        return found


class _Broker:
    """One broker: a port that is open while it is up, and its connections."""

    def __init__(self, cluster: PhantomCluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._answers = PhantomAnswers(
            cluster.state, broker_id, cluster.addresses, lambda: -1 if cluster.journal is None else cluster.journal.end
        )
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._kept: dict[bytes, tuple[tuple[int, int], bytes]] = {}

    async def serve(self, is_up: bool) -> None:
        if is_up and self._server is None:
            host, port = self._cluster.addresses.get(self._broker_id, ("127.0.0.1", 0))
            self._server = await asyncio.start_server(self._connected, host, port)
            self._cluster.addresses[self._broker_id] = self._server.sockets[0].getsockname()[:2]
        elif not is_up and self._server is not None:
            self._server.close()
            self._server = None
            for writer in tuple(self._writers):
                writer.transport.abort()

    def silence(self, is_silent: bool) -> None:
        if is_silent:
            self._speaks.clear()
        else:
            self._speaks.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                await self._speaks.wait()
                writer.write(await self._reply(frame))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _reply(self, frame: bytes) -> bytes:
        view = memoryview(len(frame).to_bytes(4, "big") + frame)[4:]
        key, version, correlation_id, _, position = decode_request_header(view)
        kind = request_class(key)
        self._cluster.requests[kind.NAME] = self._cluster.requests.get(kind.NAME, 0) + 1
        if kind is ApiVersionsRequest:
            body = self._versions(version)
        elif kind is FetchRequest:
            fetch, _ = codec.decode(FetchRequest, version, view, position)
            body = _encoded(await self._fetched(fetch), version)
        else:
            state = (self._cluster.state.version, self._cluster.state.volume_version)
            asked = frame[:4] + bytes(view[position:])
            kept = self._kept.get(asked)
            if kept is None or kept[0] != state:
                request, _ = codec.decode(kind, version, view, position)
                kept = (state, _encoded(self._answers.answer(request), version))
                if len(self._kept) >= _ANSWERS_KEPT:
                    self._kept.clear()
                self._kept[asked] = kept
            body = kept[1]
        head = correlation_id.to_bytes(4, "big") + (b"\0" if response_header_version(key, version) == 1 else b"")
        return (len(head) + len(body)).to_bytes(4, "big") + head + body

    def _versions(self, version: int) -> bytes:
        row = ApiVersionsResponse.ApiVersion
        rows = [row(api_key=18, min_version=0, max_version=_API_VERSIONS_MAX)]
        for key in range(100):
            kind = _request_class(key)
            if kind is None or key in self._cluster.without:
                continue
            if kind is FetchRequest and self._cluster.journal is not None:
                rows.append(row(api_key=key, min_version=4, max_version=_FETCH_MAX))
            elif self._answers.supports(kind):
                high = min(kind.VERSIONS[1], self._cluster.versions_max.get(key, kind.VERSIONS[1]))
                rows.append(row(api_key=key, min_version=kind.VERSIONS[0], max_version=high))
        return _encoded(ApiVersionsResponse(api_keys=rows), min(version, _API_VERSIONS_MAX))

    async def _fetched(self, request: FetchRequest) -> FetchResponse:
        topic = request.topics[0]
        row = FetchResponse.PartitionData(partition_index=0, high_watermark=0)
        journal = self._cluster.journal
        if topic.topic != EVENTS_TOPIC or journal is None:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif topic.partitions[0].fetch_offset > journal.end:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            row.records = await journal.read(topic.partitions[0].fetch_offset, request.max_wait_ms / 1000)
            row.high_watermark = journal.end
        shown = FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=[row])
        return FetchResponse(responses=[shown])


def _request_class(key: int) -> type[Message] | None:
    try:
        return request_class(key)
    except KeyError:
        return None


def _encoded(message: Message, version: int) -> bytes:
    body = bytearray()
    codec.encode_into(message, version, body)
    return bytes(body)
