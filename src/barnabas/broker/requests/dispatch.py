"""The dispatcher: the APIs that a listener offers, and the handlers that serve them.

A handler answers immediately or later; nothing here waits, and no request has a task or a future. A frame that cannot
be decoded, or an API or version that is not offered, closes its connection with one log line. An error in a handler
affects only its request (`InFlight.on_error`). With an authorizer, requests are authorized first (`api_checks.py`);
the node of the controller authorizes those that the controller decides. Handlers are imported at the first request of
their API (`handlers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.broker.requests import inner_requests
from barnabas.broker.requests.client_connection import (
    LONG_FRAME_BYTES,
    PRODUCE_WORK,
    REQUEST_WORK,
    TURN_WORK,
    Connection,
)
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.decided_requests import DecidedRequest
from barnabas.broker.requests.forwarding import forward
from barnabas.broker.requests.handlers import Handler, load
from barnabas.broker.requests.in_flight import Chunks, ConnectionLog, InFlight
from barnabas.broker.requests.log_in import ListenerLogIn
from barnabas.broker.requests.memory_budget import MemoryBudget
from barnabas.broker.requests.request_rights import authorized
from barnabas.broker.requests.steps import Work
from barnabas.broker.throttling.request_throttle import CLUSTER_APIS, RequestThrottle
from barnabas.common import effort
from barnabas.common.continuations import run
from barnabas.common.effort import Work as Effort
from barnabas.common.errors import DecodeError
from barnabas.common.host import Link
from barnabas.common.portions import whole
from barnabas.protocol import codec
from barnabas.protocol.api import API_VERSIONS, PRODUCE, Offer
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.header import decode_request_header
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import request_class
from barnabas.protocol.sasl_gate import Gate

#: The maximum time for which one connection is served before the others get their turn.
_TURN_MS: Final = 10
#: The handler of Fetch on the listeners of controllers, which only nodes may use.
_FETCH_OF_NODES: Final = "fetch_metadata"


class Dispatcher:
    """The dispatcher of one listener: the APIs that it offers, and their handlers."""

    def __init__(
        self,
        services: Services,
        offers: Mapping[int, Offer],
        *,
        area: ReceiveArea,
        frame_bytes_max: int,
        log: ConnectionLog,
        memory: MemoryBudget,
        early: Mapping[int, Offer] | None = None,
        log_in: ListenerLogIn | None = None,
    ) -> None:
        """Creates the dispatcher of one listener. `early` are the APIs that are served until `open` is called; None
        serves all from the beginning. `log_in` is None if clients need none.
        """
        self._log_in = log_in
        self.services = services
        self.offers = offers
        self._served = offers if early is None else early
        self.area = area
        self.frame_bytes_max = frame_bytes_max
        self.log = log
        self.memory = memory
        self.now_ms = services.host.clock.now_ms
        self.steps = services.steps
        self.output = services.turn_output
        self._counts = services.request_counts
        #: Connection, API key, version and client id of the latest request: logged if its turn took long.
        self.latest: tuple[Connection, int, int, str | None] | None = None
        #: The time at which the first request of this turn was served, 0 before that.
        self._turn_ms = 0
        self.call_soon = services.host.timers.call_soon
        self._handlers: dict[int, Handler] = {}

    def open(self) -> None:
        """Serves all offered APIs from now on."""
        self._served = self.offers

    def connect(self, link: Link, client_host: str, listener: str, peer: str | None = None) -> Connection:
        """Creates the connection of a client. `peer` is the host with its port, if that is known."""
        made = Connection(self, link, client_host, listener, client_host if peer is None else peer)
        if self._log_in is not None:
            made.gate = Gate(self._log_in)
            made.frames.limit_frames(self._log_in.receive_bytes_max)
        return made

    def expect_peers(self, listener: str) -> None:
        """Begins to count the peers that the host authenticates or refuses."""
        self.services.log_in_counts.of(listener, self.services.host.clock)

    def count_peer(self, listener: str, *, is_refused: bool) -> None:
        """Counts a peer that the host has authenticated, or refused, before the first byte of a request. If a log-in
        follows, that is what counts as the authentication of a peer that was not refused.
        """
        counts = self.services.log_in_counts.of(listener, self.services.host.clock)
        if is_refused:
            counts.count_failure(is_renewal=False)
        elif self._log_in is None:
            counts.count_success(renews=False)

    def admit_log_in(self, connection: Connection) -> bool:
        return self.services.log_in_turns.admit(connection)

    def begin_turn(self) -> None:
        self._turn_ms = 0

    def handle(self, connection: Connection, frame: memoryview) -> int:
        """Serves one request. Returns the work that it took. DecodeError closes the connection."""
        if (gate := connection.gate) is not None:
            assert self._log_in is not None, "a gate belongs to a log-in"
            if not self._log_in.admit(connection, gate, frame):
                return REQUEST_WORK
        shortcut = connection.shortcut
        if shortcut is not None and shortcut.serve(frame):
            if effort.meter is not None:
                effort.meter.add(Effort.SHORTCUT, 1)
            return 1
        if effort.meter is not None:
            effort.meter.add(Effort.REQUEST, 1)
        repeated = connection.repeated
        # While an earlier request waits, it uses what is kept of it.
        if repeated is not None and not connection.in_flight and repeated.matches(frame):
            api_key, api_version, client_id, position = repeated.header
            correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        else:
            api_key, api_version, correlation_id, client_id, position = decode_request_header(frame)
        offer = self._served.get(api_key)
        if offer is None:
            when = "yet " if api_key in self.offers else ""
            raise DecodeError(f"api key {api_key} is not served {when}on listener {connection.listener}")
        if not offer.version_min <= api_version <= offer.version_max and api_key != API_VERSIONS:
            raise DecodeError(f"version {api_version} of {offer.name} is not served")
        times = self._counts.of(api_key, api_version)
        now_ms = self.now_ms()
        if not self._turn_ms:
            self._turn_ms = now_ms
        if now_ms - self._turn_ms >= _TURN_MS:
            work = TURN_WORK
        else:
            work = PRODUCE_WORK if api_key == PRODUCE else REQUEST_WORK
        make = DecidedRequest if offer.is_decided else InFlight
        request = make(connection, api_key, api_version, correlation_id, client_id, now_ms, times)
        self.latest = (connection, api_key, api_version, client_id)
        call = self._call if self.services.throttles is None else self._call_throttled
        if not connection.in_flight:
            chunks = run(request, call, request, offer, frame, position)
            if chunks is None and request.chunks is None:
                if not connection.is_closed:
                    connection.in_flight.append(request)
                    if isinstance(request, DecidedRequest):
                        request.await_decision(self.services.host.timers)
                return work
            connection.respond_now(chunks if chunks is not None else request.chunks or [])
            times.add(self.now_ms() - now_ms)
            return work
        connection.in_flight.append(request)
        chunks = run(request, call, request, offer, frame, position)
        if chunks is not None:
            connection.complete(request, chunks)
        elif isinstance(request, DecidedRequest) and request.chunks is None and not connection.is_closed:
            request.await_decision(self.services.host.timers)
        return work

    def _call_throttled(self, request: InFlight, offer: Offer, frame: memoryview, position: int) -> Chunks | None:
        """Serves a request while the cluster has quotas."""
        throttles, connection = self.services.throttles, request.connection
        assert throttles is not None, "the cluster has quotas"
        request.throttle = throttle = RequestThrottle(
            throttles,
            connection,
            connection.principal,
            request.client_id,
            self.services.host,
            is_exempt=request.api_key in CLUSTER_APIS or offer.name == _FETCH_OF_NODES,
        )
        try:
            return self._call(request, offer, frame, position)
        finally:
            throttle.leave()

    def _call(self, request: InFlight, offer: Offer, frame: memoryview, position: int) -> Chunks | None:
        handler = self._handlers.get(request.api_key)
        if handler is None:
            handler = self._handlers[request.api_key] = load(offer.name)
        if handler.handle_raw is not None:
            if request.api_key != PRODUCE:
                effort.add(Effort.DECODED_BYTE, len(frame))
            found = handler.handle_raw(request, frame, position, self.services)
            if found is None or isinstance(found, list):
                return found
            return self._chunks_of(request, found, len(frame) if len(frame) > LONG_FRAME_BYTES else 0)
        # Bytes after the end are ignored, as in Kafka: librdkafka leaves three bytes there when it requests the
        # metadata of all topics.
        if len(frame) > LONG_FRAME_BYTES:
            data = bytes(frame)
            self._in_steps(request, self._decode_and_serve(request, offer, handler, data, position), len(data))
            return None
        effort.add(Effort.DECODED_BYTE, len(frame))
        message, _ = codec.decode(request_class(request.api_key), request.api_version, frame, position)
        request.message = message
        if offer.is_forwarded:
            forward(request, message, frame, self.services)
            return None
        if self.services.authorizer is not None:
            outcome = whole(authorized(request, offer.name, message, self.services))
            if outcome.response is not None:
                request.refused()
                return self._answer(request, outcome.response)
            message, request.amend = outcome.request, outcome.amend
        if inner_requests.is_long(handler, message, self.services):
            self._in_steps(request, inner_requests.in_pieces(request, handler, message, self.services, offer))
            return None
        return self._handle(request, handler, message)

    def _handle(self, request: InFlight, handler: Handler, message: Message) -> Chunks | None:
        assert handler.handle is not None, "frames of a raw handler are not dispatched"
        response = handler.handle(request, message, self.services)
        if response is None:
            return None
        if not isinstance(response, Message):
            found = self.steps.first_slice(response)
            if found is None:
                self._in_steps(request, _answered(request, response))
                return None
            (response,) = found
            if response is None:
                return None
        return self._answer(request, request.amended(response))

    def _answer(self, request: InFlight, response: Message) -> Chunks | None:
        if request.is_long(response):
            self._in_steps(request, request.replied_in_steps(response))
            return None
        return request.encode(response)

    def _chunks_of(self, request: InFlight, work: Work, held_bytes: int) -> Chunks | None:
        """Returns the response of a handler that encodes by itself; None if it takes more than one turn."""
        found = self.steps.first_slice(work, request.now_ms)
        if found is not None:
            chunks: Chunks | None = found[0]
            return chunks
        self._in_steps(request, _completed(request, work), held_bytes)
        return None

    def _in_steps(self, request: InFlight, work: Work, held_bytes: int = 0) -> None:
        """Serves a long request in steps. Its connection serves no other request until it ends; if the connection
        closes before, the rest is abandoned."""
        connection = request.connection

        def exclusive() -> Work:
            try:
                yield from work
            finally:
                connection.end_exclusive()

        connection.begin_exclusive()
        self.steps.start(exclusive(), lambda _: None, request, lambda: not connection.is_closed, held_bytes)

    def _decode_and_serve(self, request: InFlight, offer: Offer, handler: Handler, frame: bytes, position: int) -> Work:
        """Decodes a long frame in steps and serves it like `_call`."""
        decoding = codec.decode_in_steps(request_class(request.api_key), request.api_version, frame, position)
        message, _ = yield from decoding
        request.message, request.has_long_frame = message, True
        if offer.is_forwarded:
            forward(request, message, frame, self.services)
            return
        if self.services.authorizer is not None:
            outcome = yield from authorized(request, offer.name, message, self.services)
            if outcome.response is not None:
                request.refused()
                yield from request.replied_in_steps(outcome.response)
                return
            message, request.amend = outcome.request, outcome.amend
        if inner_requests.is_long(handler, message, self.services):
            yield from inner_requests.in_pieces(request, handler, message, self.services, offer)
        else:
            assert handler.handle is not None, "frames of a raw handler are not dispatched"
            response = handler.handle(request, message, self.services)
            if isinstance(response, Message):
                yield from request.replied_in_steps(response)
            elif response is not None:
                yield from _answered(request, response)


def _answered(request: InFlight, work: Work) -> Work:
    """Completes a handler's work and sends its response."""
    response = yield from work
    if response is not None:
        yield from request.replied_in_steps(response)


def _completed(request: InFlight, work: Work) -> Work:
    """Completes the work of a handler that encodes its response by itself."""
    chunks = yield from work
    if chunks is not None:
        request.reply_with(lambda: chunks)
