"""A client connection: its requests in flight, and their responses in the order of the requests.

A client that does not read its responses is not served further: requests stay unread while too many are unanswered, or
while too many bytes of responses wait, either here behind an earlier request or in the host (`pause_writing`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from barnabas.broker.requests.in_flight import Chunks, ConnectionLog, InFlight, RepeatedRequest, Shortcut
from barnabas.broker.requests.memory_budget import MemoryBudget
from barnabas.broker.requests.steps import Steps
from barnabas.broker.requests.turn_output import TurnOutput
from barnabas.broker.throttling.muting import BY_HOST, Muting
from barnabas.common.continuations import run
from barnabas.common.errors import DecodeError
from barnabas.common.host import Link
from barnabas.protocol.api import Offer
from barnabas.protocol.frame_reader import FrameReader, ReceiveArea
from barnabas.protocol.sasl_gate import Gate

#: The number of unanswered requests at which no further request of a connection is served.
_IN_FLIGHT_MAX = 512
#: The bytes of responses not yet passed to the host above which no further request of a connection is served; one
#: response can exceed it.
_UNSENT_BYTES_MAX = 1024 * 1024
#: The work of one turn of a connection, before others are served. A request that the produce shortcut serves counts 1,
#: other Produce requests `PRODUCE_WORK`, because followers need fewer fetches if more is appended in a turn, and others
#: `REQUEST_WORK`.
TURN_WORK: Final = 256
PRODUCE_WORK: Final = 2
REQUEST_WORK: Final = 8
#: Written bytes of responses are reported to the memory budget in amounts of at least this size.
_REPORTED_BYTES_MIN = 64 * 1024

#: A longer frame is decoded in steps.
LONG_FRAME_BYTES: Final = 16 * 1024


class RequestDispatcher(Protocol):
    """The dispatcher of a listener as its connections use it (`broker.requests.dispatch.Dispatcher`)."""

    @property
    def offers(self) -> Mapping[int, Offer]: ...
    @property
    def area(self) -> ReceiveArea: ...
    @property
    def frame_bytes_max(self) -> int: ...
    @property
    def log(self) -> ConnectionLog: ...
    @property
    def memory(self) -> MemoryBudget: ...

    @property
    def steps(self) -> Steps: ...
    @property
    def output(self) -> TurnOutput: ...

    def now_ms(self) -> int: ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...

    def admit_log_in(self, connection: Connection) -> bool:
        """Returns whether a client that has not logged in can be served in this turn; otherwise its `resume` is called
        in a later one.
        """

    def begin_turn(self) -> None:
        """Begins a turn, in which requests of one connection are served one after the other."""

    def handle(self, connection: Connection, frame: memoryview) -> int:
        """Serves one request. Returns the work that it took, or `TURN_WORK` if this turn has used up its time."""


class Connection:
    """The broker's end of one connection. The host calls `get_buffer`, `received` and `closed`, and `pause_writing` and
    `resume_writing` when its output buffer fills and drains."""

    __slots__ = (
        "_corked",
        "_dispatcher",
        "_exclusive",
        "_held_back",
        "_held_bytes",
        "_link",
        "_on_closed",
        "_out",
        "_out_bytes",
        "_paused",
        "_reading_paused",
        "_resuming",
        "_unreported_bytes",
        "_waits_for_memory",
        "client_host",
        "client_software",
        "frames",
        "gate",
        "get_buffer",
        "in_flight",
        "is_closed",
        "listener",
        "muting",
        "peer",
        "principal",
        "repeated",
        "shortcut",
        "token_authenticated",
    )

    def __init__(self, dispatcher: RequestDispatcher, link: Link, client_host: str, listener: str, peer: str) -> None:
        self._dispatcher = dispatcher
        self._link = link
        self.frames = FrameReader(dispatcher.area, dispatcher.frame_bytes_max)
        self.get_buffer = self.frames.get_buffer
        #: The requests without an answer, oldest first. A list: an empty deque takes 0.8 kB, and most are empty.
        self.in_flight: list[InFlight] = []
        #: Bytes of responses that wait behind an unanswered request.
        self._held_bytes = 0
        self._out: Chunks = []
        self._out_bytes = 0
        self._corked = False
        self._paused = False
        #: Whether the host has stopped reading, too.
        self._reading_paused = False
        self._resuming = False
        #: The reasons to serve no request of this connection, whatever is in flight (`broker/throttling/muting.py`).
        self._held_back = 0
        self.muting: Muting | None = None
        #: The number of requests that hold back later ones.
        self._exclusive = 0
        self._waits_for_memory = False
        #: Bytes of responses not yet reported to the memory budget.
        self._unreported_bytes = 0
        self.is_closed = False
        self.client_host = client_host
        #: The host with its port, for log lines.
        self.peer = peer
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        #: Whether the client has logged in by a delegation token.
        self.token_authenticated = False
        #: The log-in that a client must complete first; None if there is none.
        self.gate: Gate | None = None
        self.shortcut: Shortcut | None = None
        self.repeated: RepeatedRequest | None = None
        #: The callbacks for the end of the connection.
        self._on_closed: Callable[[], None] | None = None
        self.client_software: tuple[str, str] = ("unknown", "unknown")

    # -- called by the host

    def received(self, count: int) -> None:
        """Serves the whole frames within the `count` bytes that were written to the last buffer."""
        frames = self.frames
        frames.received(count)
        if self._paused:
            frames.keep_unserved()
            if self.gate is not None and not self.gate.is_open:
                self._pause()  # Nothing more is read from a client that sends ahead.
        elif self.gate is None or self.gate.is_open or self._dispatcher.admit_log_in(self):
            self._serve()
        else:
            frames.keep_unserved()
            self._paused = self._resuming = True
        if frames.held_bytes:
            self._dispatcher.memory.received(self)

    def pause_writing(self, reason: int = BY_HOST) -> None:
        """Stops serving until `resume_writing`: the host's output buffer is full, or the client is above a quota."""
        self._held_back |= reason
        self._pause()

    def resume_writing(self, reason: int = BY_HOST) -> None:
        """Continues serving, unless there is another reason to wait."""
        self._held_back &= ~reason
        self._maybe_resume()

    def begin_exclusive(self) -> None:
        """Holds back later requests until `end_exclusive`, because this request waits for the disk or another node:
        they could not be answered and might need memory. Kafka also serves one request of a connection at a time."""
        self._exclusive += 1
        if not self._corked:
            self._pause()

    def end_exclusive(self) -> None:
        self._exclusive -= 1
        self._maybe_resume()

    # -- the memory budget (`memory_budget.Holder`)

    @property
    def held_bytes(self) -> int:
        return self.frames.held_bytes

    @property
    def unsent_bytes(self) -> int:
        return self._held_bytes + self._out_bytes + self._link.unsent_bytes

    @property
    def missing_bytes(self) -> int:
        return self.frames.missing_bytes

    def wait_for_memory(self) -> None:
        self._waits_for_memory = True
        if not self._corked:
            self._pause()

    def on_memory_available(self) -> None:
        self._waits_for_memory = False
        self._maybe_resume()

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Sets the function to call when the connection closes."""
        self._on_closed = callback

    # -- closing

    def close(self) -> None:
        """Closes the connection from this side."""
        if not self.is_closed:
            self.closed()
            self._link.close()

    def closed(self) -> None:
        """Releases everything after the host has closed the connection."""
        self.is_closed = True
        abandoned, self.in_flight = self.in_flight, []
        for request in abandoned:
            if request.on_abandoned is not None and request.chunks is None:
                run(request, request.on_abandoned)
            request.free_message()
        self._out = []
        if self.muting is not None:
            self.muting.close()
        self.shortcut = None  # The function refers to this connection: without it, no reference cycle remains.
        self.frames.close()
        self._dispatcher.memory.forget(self)
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is not None:
            run(self, on_closed)

    # -- serving

    def _serve(self) -> None:
        output = self._dispatcher.output
        is_nested, output.is_open = output.is_open, True
        self._corked = True
        try:
            left = run(self, self._serve_frames)
            self._corked = False
            if self._out:
                self._flush()
        finally:
            if not is_nested:
                output.end()
        if self._is_full:
            self._pause()
        elif left is not None and left <= 0:
            # Other connections are served before the rest of this peer's requests. The host continues to read: it reads
            # at most once before the next turn, which costs less than to stop and start it.
            self._paused = True
            self._resume_soon()

    def _serve_frames(self) -> int:
        """Serves the received frames, up to the work of one turn. Returns the unused work of the turn."""
        frames = self.frames
        handle = self._dispatcher.handle
        left = TURN_WORK
        self._dispatcher.begin_turn()
        while not self.is_closed and (frame := frames.next_frame()) is not None:
            left -= handle(self, frame)
            if (
                self.in_flight or self._held_back or self._waits_for_memory or self._out_bytes > _UNSENT_BYTES_MAX
            ) and self._is_full:
                self._flush()
                if self._is_full:
                    frames.keep_unserved()
                    break
            if left <= 0:
                frames.keep_unserved()
                break
        return left

    @property
    def _is_full(self) -> bool:
        """Returns whether no request can be served until something is answered or sent."""
        return (
            self._held_bytes + self._out_bytes > _UNSENT_BYTES_MAX
            or len(self.in_flight) >= _IN_FLIGHT_MAX
            or self._held_back != 0
            or self._waits_for_memory
            or self._exclusive > 0
        )

    def _pause(self) -> None:
        self._paused = True
        if not self._reading_paused and not self.is_closed:
            self._reading_paused = True
            self._link.pause_reading()

    def _maybe_resume(self) -> None:
        if self._paused and not self._resuming and not self._is_full and len(self.in_flight) <= _IN_FLIGHT_MAX // 2:
            self._resume_soon()

    def _resume_soon(self) -> None:
        if not self._resuming:
            self._resuming = True
            self._dispatcher.call_soon(self.resume)

    def resume(self) -> None:
        """Serves the frames that were kept, and resumes reading if there is capacity. Runs in a separate event, because
        a response can be completed within another connection's request."""
        self._resuming = False
        if self.is_closed:
            return
        if self._is_full:
            self._pause()
            return
        self._paused = False
        self._serve()
        if self._reading_paused and not self._paused and not self.is_closed:
            self._reading_paused = False
            self._link.resume_reading()

    def _flush(self) -> None:
        """Passes the finished responses to the host."""
        out, self._out = self._out, []
        self._unreported_bytes += self._out_bytes
        self._out_bytes = 0
        if out and not self.is_closed:
            self._link.write(out)
            if self._unreported_bytes >= _REPORTED_BYTES_MIN:
                count, self._unreported_bytes = self._unreported_bytes, 0
                self._dispatcher.memory.sent(self, count)

    # -- responses

    def respond_now(self, chunks: Chunks) -> None:
        """Adds the response to the current request to the output. No earlier request may be unanswered."""
        self._out += chunks
        for chunk in chunks:
            self._out_bytes += len(chunk)

    def respond_shortly(self, chunk: bytearray) -> None:
        """Adds a response like `respond_now`, without counting its bytes. It must be smaller than its request."""
        self._out.append(chunk)

    @property
    def log(self) -> ConnectionLog:
        return self._dispatcher.log

    @property
    def steps(self) -> Steps:
        return self._dispatcher.steps

    @property
    def is_exclusive(self) -> bool:
        """Returns whether a request holds back later ones."""
        return self._exclusive > 0

    @property
    def offers(self) -> Mapping[int, Offer]:
        """Returns the APIs that the connection's listener offers."""
        return self._dispatcher.offers

    def complete(self, request: InFlight, chunks: Chunks) -> None:
        """Sets the response to a request that was not answered immediately. It is sent after all earlier responses."""
        if self.is_closed:
            return
        assert request.chunks is None, "a request is answered once"
        request.chunks = chunks
        queue = self.in_flight
        if not queue:
            return  # The request was answered before its handler returned; the dispatcher sends the response.
        self._held_bytes += sum(map(len, chunks))
        while queue and (ready := queue[0].chunks) is not None:
            answered = queue.pop(0)
            answered.release()
            answered.times.add(self._dispatcher.now_ms() - answered.now_ms)
            size_bytes = sum(map(len, ready))
            self._held_bytes -= size_bytes
            self._out_bytes += size_bytes
            self._out += ready
        if self._corked:
            return
        output = self._dispatcher.output
        if output.is_open:
            output.add(self)
        else:
            self.send_responses()

    def send_responses(self) -> None:
        """Passes all complete responses to the host (`turn_output.Sender`)."""
        self._flush()
        self._maybe_resume()

    def on_error(self, error: Exception) -> None:
        """Handles the failure of a continuation of this connection (`continuations.Owner`)."""
        if isinstance(error, DecodeError):
            self.fail(str(error), None)
        elif self.is_closed:
            self.log.request_failed(self.peer, "the cleanup after a closed connection failed", error)
        else:
            is_malformed = isinstance(error, struct.error | IndexError)
            self.fail("malformed request" if is_malformed else "a handler failed", error)

    def fail(self, cause: str, error: BaseException | None) -> None:
        """Closes the connection for this cause. Earlier responses are still sent."""
        if not self.is_closed:
            self._flush()
            self.log.closed_for_cause(self.peer, cause, error)
            self.close()

    def abort(self, cause: str) -> None:
        """Aborts the connection for this cause and drops unsent responses: a clean close would keep them in memory."""
        if not self.is_closed:
            self.log.closed_for_cause(self.peer, cause, None)
            self.closed()
            self._link.abort()
