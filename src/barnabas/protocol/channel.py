"""The client half of a connection: pipelined requests to one peer, and their responses in order. It connects when the
first request is sent.

    idle --send--> dialling --connected--> negotiating --ApiVersions answered--> ready
      |                                        '--> log-in, if there is one --------^
      '<------------------- refused, closed, malformed, timed out -----------------'

Invariants
- Every request gets exactly one reply: the peer's response, or None if the link failed or the request timed out.
- A link that leaves a request without a response for the whole timeout is closed. A request that had to wait for the
  link times out earlier: its late response is dropped, and the link stays. Otherwise no request would ever be answered
  at a peer with which connecting alone takes most of the timeout.
- Requests use the highest version that both sides support; the peer reports its versions first (ApiVersions, KIP-511).
- A session with an end is renewed before the next request once most of its lifetime is over; requests wait meanwhile.
- After a failed dial the next one is delayed, each time longer; requests sent meanwhile wait for it.
- A dial that does not connect is soon abandoned and repeated, because the system's own attempts become ever rarer and
  the peer may be reachable again. A peer that connects and does not answer (paused, or busy) gets twice the time each
  time.

A response's records are views into the receive buffer: valid until `reply` returns.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from barnabas import __version__
from barnabas.common.continuations import later
from barnabas.common.errors import DecodeError, EncodeError, ErrorCode
from barnabas.common.host import (
    Blocking,
    Clock,
    FaultHandler,
    Links,
    PeerLink,
    Random,
    Timer,
    Timers,
)
from barnabas.common.kerberos import Kerberos
from barnabas.protocol import codec
from barnabas.protocol.frame_reader import FrameReader, ReceiveArea
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.peer_kerberos import request_ticket
from barnabas.protocol.peer_security import PLAINTEXT, ChannelSecurity, LoginUnavailable
from barnabas.protocol.reach import ReachNotes
from barnabas.protocol.sasl.log_in_requests import LogIn, LogInFailed, log_in
from barnabas.protocol.sasl.logins import Login
from barnabas.protocol.wire import skip_tagged_fields

Reply = Callable[[Message | None], None]

_FRAME_BYTES_MAX: Final = (1 << 31) - 1
_API_VERSIONS: Final = 18
_AUTHENTICATE: Final = 36
#: A session is renewed after 85 to 95 % of its lifetime, as by Kafka's clients.
_RENEWAL_PERCENT_MIN: Final = 85
_RENEWAL_PERCENT_SPAN: Final = 11
#: Every broker since Kafka 2.4 supports this version; an older one answers in version 0 and lists its versions.
_FIRST_REQUESTED_VERSION: Final = 3
_HEADER: Final = struct.Struct(">ihhi")


class ChannelHost(Protocol):
    """The ports that a channel needs."""

    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def random(self) -> Random: ...
    @property
    def links(self) -> Links: ...
    @property
    def faults(self) -> FaultHandler: ...
    @property
    def tickets(self) -> Blocking: ...
    @property
    def kerberos(self) -> Kerberos: ...


class ChannelTimes(NamedTuple):
    """The timeouts and delays of a channel, in ms."""

    request_timeout_ms: int = 30_000
    #: The longest wait for the versions of the peer.
    setup_timeout_ms: int = 10_000
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    #: The time from the dial to the connection, and for the first response about versions.
    connect_timeout_ms: int = 2_000


class _PendingRequest:
    __slots__ = (
        "deadline_ms",
        "is_timed_out",
        "link_deadline_ms",
        "renews_timeout",
        "reply",
        "request",
        "timeout_ms",
        "version",
        "version_max",
    )

    def __init__(
        self,
        request: Message,
        reply: Reply,
        deadline_ms: int,
        version_max: int | None,
        timeout_ms: int = 0,
        *,
        renews_timeout: bool = False,
    ) -> None:
        self.request = request
        self.reply = later(reply)
        #: The time at which the request is answered with None.
        self.deadline_ms = deadline_ms
        #: The time at which the link is closed if there is no response by then.
        self.link_deadline_ms = deadline_ms
        self.timeout_ms = timeout_ms
        self.is_timed_out = False
        #: Whether the timeout starts again with each received piece of a response.
        self.renews_timeout = renews_timeout
        self.version_max = version_max
        self.version = -1

    def time_out(self) -> None:
        """Answers the request with None; its response will be dropped."""
        self.is_timed_out = True
        self.reply(None)


class Channel:
    """Requests to one address. Only `close` ends it; it recovers from every failure of a link."""

    def __init__(
        self,
        host: ChannelHost,
        area: ReceiveArea,
        address: tuple[str, int],
        client_id: str,
        times: ChannelTimes = ChannelTimes(),  # noqa: B008 - immutable
        security: ChannelSecurity = PLAINTEXT,
        when_lost: Callable[[], None] | None = None,
    ) -> None:
        """`when_lost` is called whenever an open link ends that `close` did not end."""
        self._host = host
        self._security = security
        self._area = area
        self.address = address
        self._client_id = client_id.encode()
        self._times = times
        self._link: PeerLink | None = None
        self._end: _End | None = None
        self._correlation_id = 0
        #: Requests that are not yet written.
        self._queue: deque[_PendingRequest] = deque()
        self._in_flight: deque[tuple[int, _PendingRequest]] = deque()
        #: The peer's versions; None until they are known.
        self._versions: dict[int, tuple[int, int]] | None = None
        #: Whether requests can be written: the versions are known, and no log-in is under way.
        self._is_open = False
        self._log_in: LogIn | None = None
        #: The time at which the session is renewed; None if it has no end.
        self._renewal_ms: int | None = None
        self._is_refused = False
        self._failures = 0
        #: The number of consecutive peers that connected and did not report their versions in time.
        self._unresponsive = 0
        self._dial_timer: Timer | None = None
        self._timer: Timer | None = None
        self._armed_ms = 0
        self._closed = False
        #: The cause of the last link's end; None while a link works, or if the peer closed it without an error.
        self.last_error: OSError | None = None
        self._when_lost = when_lost
        self.reach = ReachNotes()

    @property
    def is_ready(self) -> bool:
        return self._is_open

    def send(
        self,
        request: Message,
        reply: Reply,
        *,
        timeout_ms: int | None = None,
        version_max: int | None = None,
        renews_timeout: bool = False,
    ) -> None:
        """Sends a request. `reply` is called later, never from within this call.

        `renews_timeout`: the timeout starts again whenever the link receives data, so that a large response can take
        its time on a slow network.
        """
        timeout_ms = self._times.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._host.clock.now_ms() + timeout_ms
        pending = _PendingRequest(request, reply, deadline_ms, version_max, timeout_ms, renews_timeout=renews_timeout)
        if self._closed:
            self._host.timers.call_soon(lambda: reply(None))
            return
        self._watch(pending.deadline_ms)
        if self._is_open and self._renewal_ms is not None and self._host.clock.now_ms() >= self._renewal_ms:
            self._begin_log_in()
        if self._is_open:
            self._write(pending)
        else:
            self._queue.append(pending)
            if self._link is None and self._dial_timer is None:
                self._dial()

    def close(self) -> None:
        """Closes the link permanently. Waiting requests get None."""
        self._closed = True
        self._fail(None)
        for timer in (self._timer, self._dial_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._dial_timer = None

    # -- the link

    def _dial(self) -> None:
        self._dial_timer = None
        end = self._end = _End(self)
        self._link = self._host.links.dial(*self.address, end, self._security.tls)
        self._await_setup(end, min(self._times.connect_timeout_ms, self._times.setup_timeout_ms))

    def _await_setup(self, end: _End, timeout_ms: int) -> None:
        end.setup_deadline_ms = self._host.clock.now_ms() + timeout_ms
        self._watch(end.setup_deadline_ms)

    def on_connected(self) -> None:
        assert self._end is not None
        self._end.is_connected = True
        self.reach.connected()
        times = self._times
        self._await_setup(
            self._end, min(times.connect_timeout_ms << min(self._unresponsive, 16), times.setup_timeout_ms)
        )
        self._request_versions(_FIRST_REQUESTED_VERSION)

    def _request_versions(self, version: int) -> None:
        request = ApiVersionsRequest()
        if version >= _FIRST_REQUESTED_VERSION:
            request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        assert self._end is not None
        pending = _PendingRequest(request, lambda response: None, self._end.setup_deadline_ms, None)
        self._put(pending, _API_VERSIONS, version)

    def _on_versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._request_versions(0)
            return
        if response.error_code != ErrorCode.NONE:
            raise DecodeError(f"the peer answers ApiVersions with error {response.error_code}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if self._security.has_log_in:
            self._begin_log_in()
        else:
            self._open()

    # -- the log-in

    def _begin_log_in(self) -> None:
        """Begins the log-in, or the renewal of a session."""
        assert self._end is not None, "the link is up"
        self._is_open = False
        self._await_setup(self._end, self._times.setup_timeout_ms)
        security, end = self._security, self._end
        if security.keys is not None:
            request_ticket(
                self._host,
                security.keys(),
                self.address[0],
                lambda: self._end is end,
                lambda found: self._on_ticket(end, found),
            )
            return
        assert security.login is not None, "the listener has a log-in"
        try:
            login = security.login()
        except LoginUnavailable as error:
            cause = PermissionError(f"cannot log in: {error}")
            self._host.timers.call_soon(lambda: self._fail(cause) if self._end is end else None)
            return
        self._start_log_in(login)

    def _on_ticket(self, end: _End, found: Login | str) -> None:
        if self._end is not end:
            return  # The link has failed.
        if isinstance(found, str):
            self._on_refused(found)
        else:
            self._start_log_in(found)

    def _start_log_in(self, login: Login) -> None:
        assert self._versions is not None, "the versions come first"
        nonce = (self._host.random.uuid() + self._host.random.uuid()).hex()
        version = min(self._versions.get(_AUTHENTICATE, (0, 0))[1], SaslAuthenticateRequest.VERSIONS[1])
        self._log_in = log_in(login, nonce, lambda: version)
        self._request_log_in(*next(self._log_in))

    def _request_log_in(self, request: Message, version: int) -> None:
        assert self._end is not None, "the link is up"
        assert request.API_KEY is not None, "only requests are sent"
        pending = _PendingRequest(request, self._on_log_in_answer, self._end.setup_deadline_ms, None)
        self._put(pending, request.API_KEY, version)

    def _on_log_in_answer(self, response: Message | None) -> None:
        if response is None or self._log_in is None:
            return  # The link has failed.
        try:
            request, version = self._log_in.send(response)
        except StopIteration as end:
            self._on_logged_in(end.value)
        except LogInFailed as error:
            self._on_refused(str(error))
        else:
            self._request_log_in(request, version)

    def _on_refused(self, cause: str) -> None:
        if not self._is_refused:
            self._is_refused = True
            host, port = self.address
            self._host.faults.warn(f"cannot log in at {host}:{port}: {cause}")
        self._fail(PermissionError(f"the login failed: {cause}"))

    def _on_logged_in(self, lifetime_ms: int) -> None:
        self._log_in = None
        self._is_refused = False
        self._renewal_ms = None
        if lifetime_ms > 0:
            percent = _RENEWAL_PERCENT_MIN + self._host.random.below(_RENEWAL_PERCENT_SPAN)
            self._renewal_ms = self._host.clock.now_ms() + lifetime_ms * percent // 100
        self._open()

    def _open(self) -> None:
        """Writes the waiting requests; later ones follow without delay."""
        self._is_open = True
        self._failures = self._unresponsive = 0
        self.last_error = None
        self.reach.opened(self._link)
        queue, self._queue = self._queue, deque()
        now_ms = self._host.clock.now_ms()
        for pending in queue:
            pending.link_deadline_ms = now_ms + pending.timeout_ms
            self._write(pending)

    def on_closed(self, error: OSError | None) -> None:
        self.reach.closed(error, is_connected=self._end is not None and self._end.is_connected)
        self._fail(error)

    def _fail(self, error: OSError | None) -> None:
        """Ends the link: all waiting requests get None, and the next dial follows after a delay."""
        link, self._link, self._end = self._link, None, None
        self.reach.failed()
        was_closed, was_open = self._closed, self._is_open
        self._versions = self._log_in = self._renewal_ms = None
        self._is_open = False
        self.last_error = error
        waiting = [pending for _, pending in self._in_flight if not pending.is_timed_out] + list(self._queue)
        self._in_flight.clear()
        self._queue.clear()
        if link is not None:
            self._failures += 1
            if was_closed:
                link.close()
            else:
                # The callers can repeat their requests on the next link: requests that this link has not sent must not
                # be sent later.
                link.abort()
                self._dial_timer = self._host.timers.call_later(self._backoff_ms(), self._dial_again)
        for pending in waiting:
            pending.reply(None)
        if was_open and not was_closed and self._when_lost is not None:
            self._when_lost()

    def _backoff_ms(self) -> int:
        """Returns the delay before the next dial: doubled each time, with 20 % jitter so that peers do not all
        reconnect together.
        """
        times = self._times
        base_ms = min(times.backoff_ms << min(self._failures - 1, 16), times.backoff_ms_max)
        return base_ms * (80 + self._host.random.below(41)) // 100

    def _dial_again(self) -> None:
        """Dials again if requests were sent meanwhile."""
        self._dial_timer = None
        if self._queue and not self._closed:
            self._dial()

    # -- requests and responses

    def _write(self, pending: _PendingRequest) -> None:
        api_key = pending.request.API_KEY
        assert api_key is not None
        assert self._versions is not None, "the peer's versions come first"
        low, high = self._versions.get(api_key, (0, -1))
        own_low, own_high = pending.request.VERSIONS
        high = min(high, own_high, own_high if pending.version_max is None else pending.version_max)
        if high < max(low, own_low):
            self._host.timers.call_soon(lambda: pending.reply(None))
            return
        try:
            self._put(pending, api_key, high)
        except EncodeError:
            # The peer's version is too old for the fields that the request needs.
            self._host.timers.call_soon(lambda: pending.reply(None))

    def _put(self, pending: _PendingRequest, api_key: int, version: int) -> None:
        correlation_id = self._correlation_id
        frame = bytearray(_HEADER.pack(0, api_key, version, correlation_id))
        frame += len(self._client_id).to_bytes(2, "big") + self._client_id
        if request_header_version(api_key, version) == 2:
            frame.append(0)
        codec.encode_into(pending.request, version, frame)
        frame[0:4] = (len(frame) - 4).to_bytes(4, "big")
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        pending.version = version
        self._in_flight.append((correlation_id, pending))
        assert self._link is not None
        self._link.write([frame])

    def on_frame(self, frame: memoryview) -> None:
        """Processes a response. Raises DecodeError if it has no request or is malformed."""
        if not self._in_flight or len(frame) < 4:
            raise DecodeError("a response without a request")
        correlation_id, pending = self._in_flight[0]
        if int.from_bytes(frame[:4], "big") != correlation_id:
            raise DecodeError(f"a response to request {int.from_bytes(frame[:4], 'big')}, expected {correlation_id}")
        api_key = pending.request.API_KEY
        assert api_key is not None
        position = 4
        if response_header_version(api_key, pending.version) == 1:
            position = skip_tagged_fields(frame, position)
        if self._versions is None:
            # This is the response to the channel's own ApiVersions. An error always has version 0.
            failed = int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
            versions, _ = codec.decode(ApiVersionsResponse, 0 if failed else pending.version, frame, position)
            self._in_flight.popleft()
            self._on_versions(versions)
            return
        response, _ = codec.decode(response_class(api_key), pending.version, frame, position)
        self._in_flight.popleft()
        if not pending.is_timed_out:
            pending.reply(response)

    # -- deadlines

    def _watch(self, deadline_ms: int) -> None:
        """Sets the one timer for all deadlines."""
        if self._timer is not None:
            if self._armed_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._armed_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._host.clock.now_ms())
        self._timer = self._host.timers.call_later(delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._host.clock.now_ms()
        end = self._end
        is_in_setup = end is not None and not self._is_open
        setup_is_late = end is not None and is_in_setup and end.setup_deadline_ms <= now_ms
        if end is not None:
            for _, pending in self._in_flight:
                if pending.renews_timeout:
                    pending.deadline_ms = max(pending.deadline_ms, end.received_ms + pending.timeout_ms)
                    pending.link_deadline_ms = max(pending.link_deadline_ms, pending.deadline_ms)
        if setup_is_late or any(pending.link_deadline_ms <= now_ms for _, pending in self._in_flight):
            if setup_is_late and end is not None and end.is_connected:
                self._unresponsive += 1
            self.reach.overdue(is_connected=end is not None and end.is_connected)
            self._fail(TimeoutError("no answer in time"))
        waiting = [*self._queue, *(pending for _, pending in self._in_flight)]
        late = [pending for pending in waiting if pending.deadline_ms <= now_ms and not pending.is_timed_out]
        if late:
            self._queue = deque(pending for pending in self._queue if pending.deadline_ms > now_ms)
        deadlines = [pending.link_deadline_ms for _, pending in self._in_flight]
        deadlines += [pending.deadline_ms for pending in waiting if pending.deadline_ms > now_ms]
        if self._end is not None and is_in_setup and self._end is end:
            deadlines.append(self._end.setup_deadline_ms)
        if deadlines and not self._closed:
            self._watch(min(deadlines))
        for pending in late:
            pending.time_out()


class _End:
    """A link of a channel; the channel ignores a link that it has replaced."""

    __slots__ = ("_channel", "_frames", "is_connected", "received_ms", "setup_deadline_ms")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._frames = FrameReader(channel._area, _FRAME_BYTES_MAX)
        self.setup_deadline_ms = 0
        self.is_connected = False
        #: The time of the last received data.
        self.received_ms = 0

    @property
    def _is_current(self) -> bool:
        return self._channel._end is self

    def connected(self) -> None:
        if self._is_current:
            self._channel.on_connected()

    def get_buffer(self) -> memoryview:
        return self._frames.get_buffer()

    def received(self, count: int) -> None:
        frames = self._frames
        self.received_ms = self._channel._host.clock.now_ms()
        frames.received(count)
        try:
            while self._is_current and (frame := frames.next_frame()) is not None:
                self._channel.on_frame(frame)
        except DecodeError as error:
            if self._is_current:
                self._channel._fail(ConnectionError(f"malformed answer: {error}"))
        if not self._is_current:
            frames.close()

    def closed(self, error: OSError | None) -> None:
        self._frames.close()
        if self._is_current:
            self._channel.on_closed(error)
