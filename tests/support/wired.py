"""A whole broker in memory and a client's protocol core wired to it: no socket, no thread, no real time."""

from __future__ import annotations

from typing import TypeVar

from barnabas.broker.assembly import Broker
from barnabas.broker.requests.client_connection import Connection
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.common.config import BrokerConfig
from barnabas.common.host import Buffer
from barnabas.protocol import codec
from barnabas.protocol.frame_reader import FrameReader, ReceiveArea
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.header import RequestHeader, ResponseHeader
from barnabas.protocol.messages.index import response_class
from barnabas.simulation.host import MemoryHost, MemoryLink

M = TypeVar("M", bound=Message)

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/data",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}


class NotedCloses:
    def __init__(self) -> None:
        self.causes: list[str] = []
        #: Exceptions, which are mistakes of the broker: errors of a peer come without one.
        self.errors: list[BaseException] = []
        #: Failed requests whose connection stayed open.
        self.failures: list[str] = []

    def closed_for_cause(self, peer: str, cause: str, error: BaseException | None) -> None:
        if error is not None:
            self.errors.append(error)
        self.causes.append(f"{cause}: {error!r}" if error else cause)

    def request_failed(self, peer: str, what: str, error: BaseException | None) -> None:
        self.failures.append(what)
        if error is not None:
            self.errors.append(error)


class WiredBroker:
    """A started broker. `restart(clean=False)` is a crash that keeps the contents of the disk."""

    def __init__(self, host: MemoryHost | None = None, **properties: str) -> None:
        self.host = host or MemoryHost(seed=1)
        self.properties = {**PROPERTIES, **{key.replace("_", "."): value for key, value in properties.items()}}
        self.closes = NotedCloses()
        self._restarts = 0
        self.broker = self._start()

    def _start(self) -> Broker:
        broker = Broker.create(self.host, BrokerConfig.from_properties(self.properties), self.closes)
        broker.open()
        broker.start()
        self.host.time.run_for(100)
        return broker

    def restart(self, *, clean: bool = True) -> None:
        if clean:
            self.stop()
        self.host.disk.locked.clear()
        # Another seed each time: two processes with one incarnation id would be the same one.
        self._restarts += 1
        self.host = MemoryHost(seed=1 + self._restarts, disk=self.host.disk)
        self.host.time.run_for(1_000_000)
        self.broker = self._start()

    def stop(self) -> None:
        """Stops the broker with a clean shutdown."""
        stopped: list[bool] = []
        self.broker.stop(lambda: stopped.append(True))
        self.host.time.run_for(1000)
        assert stopped, "the broker does not stop"

    def connect(self) -> WiredClient:
        return WiredClient(self)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=1000,
        )
        response = self.connect().call(request, 7, CreateTopicsResponse)
        assert [topic.error_code for topic in response.topics] == [0], response

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=1000)
        response = self.connect().call(request, 6, DeleteTopicsResponse)
        assert [topic.error_code for topic in response.responses] == [0], response


class WiredClient:
    """One connection. Requests are encoded, cut into frames, answered and decoded as on a wire."""

    def __init__(self, wired: WiredBroker, client_id: str = "wired", dispatcher: Dispatcher | None = None) -> None:
        self._wired = wired
        self._client_id = client_id
        self._correlation_id = 0
        self._requested: dict[int, tuple[int, int]] = {}
        self._frames = FrameReader(ReceiveArea(), 1 << 30)
        self.link = MemoryLink()
        dispatcher = wired.broker.dispatcher("PLAINTEXT") if dispatcher is None else dispatcher
        self.core: Connection = dispatcher.connect(self.link, "/127.0.0.1", "PLAINTEXT")

    def send(self, request: Message, version: int) -> int:
        """Sends a request without waiting, and returns the correlation id."""
        self._correlation_id += 1
        api_key = type(request).API_KEY
        assert api_key is not None
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        frame = codec.encode(header, request_header_version(api_key, version))
        codec.encode_into(request, version, frame)
        self._requested[self._correlation_id] = (api_key, version)
        self.send_raw(len(frame).to_bytes(4, "big") + frame)
        return self._correlation_id

    def send_raw(self, data: Buffer) -> None:
        """Passes bytes to the broker, in pieces that fit its buffer."""
        view = memoryview(data)
        while len(view) and not self.core.is_closed:
            room = self.core.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.core.received(count)
            view = view[count:]

    def received(self) -> list[tuple[int, Message]]:
        """Returns (correlation id, response) of all answers that have arrived."""
        return [self._decode(frame) for frame in self.received_frames()]

    def received_frames(self) -> list[bytes]:
        """Returns all answers that have arrived, each from its correlation id on."""
        data = memoryview(self.link.take())
        answers = []
        while len(data):
            room = self._frames.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self._frames.received(count)
            data = data[count:]
            while (frame := self._frames.next_frame()) is not None:
                # A frame is valid only until the next one is read.
                answers.append(bytes(frame))
        return answers

    def _decode(self, frame: bytes) -> tuple[int, Message]:
        correlation_id = int.from_bytes(frame[:4], "big")
        api_key, version = self._requested.pop(correlation_id)
        header_version = response_header_version(api_key, version)
        _, position = codec.decode(ResponseHeader, header_version, frame)
        cls = response_class(api_key)
        response, end = codec.decode(cls, version, frame, position)
        assert end == len(frame), "bytes after the response"
        return correlation_id, response

    def call(self, request: Message, version: int, response_type: type[M], *, within_ms: int = 5_000) -> M:
        """Sends a request, lets virtual time pass until the answer arrives, and decodes it."""
        sent = self.send(request, version)
        correlation_id, response = self._decode(self._first_frame(request, within_ms))
        assert correlation_id == sent
        assert isinstance(response, response_type)
        return response

    def answer(self, request: Message, version: int, *, within_ms: int = 5_000) -> bytes:
        """Sends a request, and returns the bytes of its answer after the correlation id."""
        sent = self.send(request, version)
        frame = self._first_frame(request, within_ms)
        assert int.from_bytes(frame[:4], "big") == sent
        del self._requested[sent]
        return frame[4:]

    def _first_frame(self, request: Message, within_ms: int) -> bytes:
        for _ in range(within_ms // 10 + 1):
            if frames := self.received_frames():
                return frames[0]
            assert not self.core.is_closed, self._wired.closes.causes
            self._wired.host.time.run_for(10)
        raise AssertionError(f"no answer to {type(request).__name__} within {within_ms} ms")
