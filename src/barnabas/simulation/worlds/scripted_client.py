"""A client that does what its script says, even what no client library does: it sends several requests in one piece,
ignores throttle times, lets its session end, or answers a log-in wrongly.

A script is a generator. It yields a `Dial`, a `Send`, or a time to wait in milliseconds. A `Dial` returns whether the
node accepted, a `Send` returns the responses, or None if the connection ended before the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from barnabas.protocol import codec
from barnabas.protocol.frame_reader import FrameReader, ReceiveArea
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.sasl.log_in_requests import LogInFailed, log_in
from barnabas.protocol.sasl.logins import Login
from barnabas.simulation.machine import Machine, MachineHost
from barnabas.simulation.network import Socket
from barnabas.simulation.simulated_cluster import Cluster

_FRAME_BYTES_MAX: Final = 1 << 24
_AUTHENTICATE_VERSION: Final = 2


class Dial(NamedTuple):
    """Connects to a node, and closes the connection before."""

    node: str
    port: int = 9092


class Send(NamedTuple):
    """Sends requests in one piece. `has_answers` is False for requests without a response (acks=0)."""

    requests: Sequence[tuple[Message, int]]
    has_answers: bool = True


Command = Dial | Send | int
Answers = list[Message] | None | bool
Script = Generator[Command, Answers, None]


class Answered(NamedTuple):
    """A response with the connection that it arrived on, and its place on it."""

    socket: Socket
    place: int
    response: Message


class ScriptedClient:
    """A machine that runs one script. `on_answer` is called with each response that arrives."""

    def __init__(self, cluster: Cluster, name: str, on_answer: Callable[[Answered], None]) -> None:
        self.name = name
        self.machine = Machine(cluster.world, cluster.network, name)
        self.process = self.machine.spawn()
        self._world = cluster.world
        self._host = MachineHost(self.machine, self.process)
        self._on_answer = on_answer
        self._script: Script | None = None
        self._line: _Line | None = None
        self.is_done = False

    @property
    def address(self) -> str:
        return self.machine.address

    @property
    def socket(self) -> Socket | None:
        return None if self._line is None else self._line.socket

    def run(self, script: Script) -> None:
        self._script = script
        self.process.enter(lambda: self._step(None))

    def _step(self, answer: Answers) -> None:
        assert self._script is not None, "a script runs"
        try:
            command = self._script.send(answer)
        except StopIteration:
            self.is_done = True
            self._hang_up()
            return
        if isinstance(command, int):
            self._host.timers.call_later(command, lambda: self._step(None))
        elif isinstance(command, Dial):
            self._hang_up()
            self._line = _Line(self._host, command, self._step, self._on_answer)
        elif self._line is None or self._line.is_closed:
            self._host.timers.call_later(1, lambda: self._step(None))
        else:
            self._line.send(command)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class _Line:
    """One connection (a `common.host.LinkEnd`)."""

    def __init__(
        self, host: MachineHost, target: Dial, step: Callable[[Answers], None], on_answer: Callable[[Answered], None]
    ) -> None:
        self._step = step
        self._on_answer = on_answer
        self._frames = FrameReader(ReceiveArea(), _FRAME_BYTES_MAX)
        self.get_buffer = self._frames.get_buffer
        self._sent: list[tuple[int, int]] = []
        self._answers: list[Message] = []
        self._is_waiting = True
        self._is_connected = False
        self._place = 0
        self._correlation_id = 0
        self.is_closed = False
        link = host.links.dial(target.node, target.port, self)
        assert isinstance(link, Socket), "the machines of a simulation are connected by sockets"
        self.socket = link

    def connected(self) -> None:
        self._is_connected = True
        self._is_waiting = False
        self._step(True)

    def send(self, command: Send) -> None:
        data = bytearray()
        for request, version in command.requests:
            self._correlation_id += 1
            key = type(request).API_KEY
            assert key is not None, "a request has a key"
            header = RequestHeader(
                request_api_key=key,
                request_api_version=version,
                correlation_id=self._correlation_id,
                client_id="scripted",
            )
            frame = codec.encode(header, request_header_version(key, version))
            codec.encode_into(request, version, frame)
            data += len(frame).to_bytes(4, "big") + frame
            if command.has_answers:
                self._sent.append((key, version))
        self._answers = []
        self._is_waiting = command.has_answers
        self.socket.write([data])
        if not command.has_answers:
            self._step([])

    def received(self, count: int) -> None:
        self._frames.received(count)
        while not self.is_closed and (frame := self._frames.next_frame()) is not None:
            key, version = self._sent.pop(0)
            position = 4 + (1 if response_header_version(key, version) else 0)
            response, _ = codec.decode(response_class(key), version, bytes(frame), position)
            self._on_answer(Answered(self.socket, self._place, response))
            self._place += 1
            self._answers.append(response)
            if not self._sent:
                self._is_waiting = False
                self._step(self._answers)

    def closed(self, error: OSError | None) -> None:
        self.is_closed = True
        if self._is_waiting:
            self._is_waiting = False
            self._step(None if self._is_connected else False)

    def close(self) -> None:
        self.is_closed = True
        self._is_waiting = False
        self.socket.close()


class Session(NamedTuple):
    """The result of a log-in: whether it succeeded, and the lifetime that the node named, 0 for no end."""

    succeeded: bool
    lifetime_ms: int = 0


def logged_in(login: Login, nonce: str) -> Generator[Command, Answers, Session | None]:
    """Logs in on the connection that is open. Returns None if it ended."""
    steps = log_in(login, nonce, lambda: _AUTHENTICATE_VERSION)
    try:
        request = next(steps)
        while True:
            answers = yield Send([request])
            if not isinstance(answers, list):
                return None
            request = steps.send(answers[0])
    except StopIteration as done:
        return Session(True, done.value)
    except LogInFailed:
        return Session(False)
