"""The asking half of a connection: requests to one peer, pipelined, their answers in order. Dials when there is
something to ask.

    idle --send--> dialling --connected--> negotiating --ApiVersions answered--> ready
      '<------------------- refused, closed, malformed, timed out -----------------'

Invariants
- Every request is answered exactly once: with the peer's response, or with None when the link failed or the time was
  up. After that nothing of it is known; a request that timed out takes its link with it (KIP-219's peers do the same),
  for the answers behind it would be misread.
- Requests are written in the version that both sides know best, which the peer tells first (ApiVersions, KIP-511).
- After a dial that failed the next one waits, longer from time to time; what is asked meanwhile waits with it.
- A dial that does not connect is given up and begun anew soon, for the system's own attempts come ever more rarely: the
  peer may be reachable again. A peer that connects and does not answer (paused, or busy) gets twice the time each time.

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
from barnabas.common.host import Clock, Link, Links, Random, Timer, Timers
from barnabas.protocol import codec
from barnabas.protocol.connection import FrameReader, ReceiveArea
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.index import response_class
from barnabas.protocol.wire import skip_tagged_fields

Reply = Callable[[Message | None], None]

_FRAME_BYTES_MAX: Final = (1 << 31) - 1
_API_VERSIONS: Final = 18
#: Every broker since Kafka 2.4 answers this one; an older one answers version 0 and names what it has.
_FIRST_ASKED_VERSION: Final = 3
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


class ChannelTimes(NamedTuple):
    """How long a channel waits, in ms."""

    request_timeout_ms: int = 30_000
    #: For the answer about versions, at most.
    setup_timeout_ms: int = 10_000
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    #: From the dial to the connection, and for the first answer about versions.
    connect_timeout_ms: int = 2_000


class _Asked:
    __slots__ = ("deadline_ms", "patience_ms", "reply", "request", "version", "version_max")

    def __init__(
        self, request: Message, reply: Reply, deadline_ms: int, version_max: int | None, patience_ms: int = 0
    ) -> None:
        self.request = request
        self.reply = later(reply)
        self.deadline_ms = deadline_ms
        #: Its time begins anew with every piece of an answer, and is this long; 0 where it does not.
        self.patience_ms = patience_ms
        self.version_max = version_max
        self.version = -1


class Channel:
    """Requests to one address. `close` ends it for good; everything else mends itself."""

    def __init__(
        self,
        host: ChannelHost,
        area: ReceiveArea,
        address: tuple[str, int],
        client_id: str,
        times: ChannelTimes = ChannelTimes(),  # noqa: B008 - immutable
    ) -> None:
        self._host = host
        self._area = area
        self.address = address
        self._client_id = client_id.encode()
        self._times = times
        self._link: Link | None = None
        self._end: _End | None = None
        self._correlation_id = 0
        #: Not written yet.
        self._queue: deque[_Asked] = deque()
        self._in_flight: deque[tuple[int, _Asked]] = deque()
        self._versions: dict[int, tuple[int, int]] | None = None
        self._failures = 0
        #: Peers in a row that connected and did not tell their versions in time.
        self._mute = 0
        self._dial_timer: Timer | None = None
        self._timer: Timer | None = None
        self._armed_ms = 0
        self._closed = False
        #: Why the link ended last; None while it is well or when the peer just hung up.
        self.last_error: OSError | None = None
        #: Called whenever a link that was ready, or a dial, has failed; after the requests were answered with None.
        self.on_lost: Callable[[OSError | None], None] = _ignore

    @property
    def is_ready(self) -> bool:
        return self._versions is not None

    def send(
        self,
        request: Message,
        reply: Reply,
        *,
        timeout_ms: int | None = None,
        version_max: int | None = None,
        is_patient: bool = False,
    ) -> None:
        """Ask. `reply` is called later, never from within this call. `is_patient`: the time begins anew with whatever
        comes by the link, so that a large answer may take its time on a slow way."""
        timeout_ms = self._times.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._host.clock.now_ms() + timeout_ms
        asked = _Asked(request, reply, deadline_ms, version_max, timeout_ms if is_patient else 0)
        if self._closed:
            self._host.timers.call_soon(lambda: reply(None))
            return
        self._watch(asked.deadline_ms)
        if self._versions is None:
            self._queue.append(asked)
            if self._link is None and self._dial_timer is None:
                self._dial()
        else:
            self._write(asked)

    def close(self) -> None:
        """Hang up. Whoever still waits is answered with None."""
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
        self._link = self._host.links.dial(*self.address, end)
        self._await_setup(end, min(self._times.connect_timeout_ms, self._times.setup_timeout_ms))

    def _await_setup(self, end: _End, timeout_ms: int) -> None:
        end.setup_deadline_ms = self._host.clock.now_ms() + timeout_ms
        self._watch(end.setup_deadline_ms)

    def on_connected(self) -> None:
        assert self._end is not None
        self._end.is_connected = True
        times = self._times
        self._await_setup(self._end, min(times.connect_timeout_ms << min(self._mute, 16), times.setup_timeout_ms))
        self._ask_versions(_FIRST_ASKED_VERSION)

    def _ask_versions(self, version: int) -> None:
        request = ApiVersionsRequest()
        if version >= _FIRST_ASKED_VERSION:
            request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        assert self._end is not None
        asked = _Asked(request, lambda response: None, self._end.setup_deadline_ms, None)
        self._put(asked, _API_VERSIONS, version)

    def _on_versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._ask_versions(0)
            return
        if response.error_code != ErrorCode.NONE:
            raise DecodeError(f"the peer answers ApiVersions with {response.error_code}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        self._failures = self._mute = 0
        self.last_error = None
        queue, self._queue = self._queue, deque()
        for asked in queue:
            self._write(asked)

    def on_closed(self, error: OSError | None) -> None:
        self._fail(error)

    def _fail(self, error: OSError | None) -> None:
        """The link is no more: everybody who waits is told, and the next dial comes after a while."""
        link, self._link, self._end = self._link, None, None
        was_closed = self._closed
        self._versions = None
        self.last_error = error
        waiting = [asked for _, asked in self._in_flight] + list(self._queue)
        self._in_flight.clear()
        self._queue.clear()
        if link is not None:
            link.close()
            self._failures += 1
            if not was_closed:
                self._dial_timer = self._host.timers.call_later(self._backoff_ms(), self._dial_again)
        for asked in waiting:
            asked.reply(None)
        if not was_closed:
            self.on_lost(error)

    def _backoff_ms(self) -> int:
        """Twice as long each time, give or take a fifth, so that peers do not come back all at once."""
        times = self._times
        base_ms = min(times.backoff_ms << min(self._failures - 1, 16), times.backoff_ms_max)
        return base_ms * (80 + self._host.random.below(41)) // 100

    def _dial_again(self) -> None:
        """If somebody has asked since."""
        self._dial_timer = None
        if self._queue and not self._closed:
            self._dial()

    # -- requests and responses

    def _write(self, asked: _Asked) -> None:
        api_key = asked.request.API_KEY
        assert api_key is not None
        assert self._versions is not None, "the peer's versions come first"
        low, high = self._versions.get(api_key, (0, -1))
        own_low, own_high = asked.request.VERSIONS
        high = min(high, own_high, own_high if asked.version_max is None else asked.version_max)
        if high < max(low, own_low):
            self._host.timers.call_soon(lambda: asked.reply(None))
            return
        try:
            self._put(asked, api_key, high)
        except EncodeError:
            # The peer is too old for what is asked.
            self._host.timers.call_soon(lambda: asked.reply(None))

    def _put(self, asked: _Asked, api_key: int, version: int) -> None:
        correlation_id = self._correlation_id
        frame = bytearray(_HEADER.pack(0, api_key, version, correlation_id))
        frame += len(self._client_id).to_bytes(2, "big") + self._client_id
        if request_header_version(api_key, version) == 2:
            frame.append(0)
        codec.encode_into(asked.request, version, frame)
        frame[0:4] = (len(frame) - 4).to_bytes(4, "big")
        self._correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        asked.version = version
        self._in_flight.append((correlation_id, asked))
        assert self._link is not None
        self._link.write([frame])

    def on_frame(self, frame: memoryview) -> None:
        """Raises DecodeError for an answer that nobody asked for, or that cannot be read."""
        if not self._in_flight or len(frame) < 4:
            raise DecodeError("an answer without a request")
        correlation_id, asked = self._in_flight[0]
        if int.from_bytes(frame[:4], "big") != correlation_id:
            raise DecodeError(f"answer {int.from_bytes(frame[:4], 'big')} where {correlation_id} was due")
        api_key = asked.request.API_KEY
        assert api_key is not None
        position = 4
        if response_header_version(api_key, asked.version) == 1:
            position = skip_tagged_fields(frame, position)
        if self._versions is None:
            # The channel's own question. An error comes in version 0, whichever was asked for.
            failed = int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION
            versions, _ = codec.decode(ApiVersionsResponse, 0 if failed else asked.version, frame, position)
            self._in_flight.popleft()
            self._on_versions(versions)
            return
        response, _ = codec.decode(response_class(api_key), asked.version, frame, position)
        self._in_flight.popleft()
        asked.reply(response)

    # -- deadlines

    def _watch(self, deadline_ms: int) -> None:
        """One timer for all deadlines."""
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
        setup_is_late = end is not None and self._versions is None and end.setup_deadline_ms <= now_ms
        if end is not None:
            for _, asked in self._in_flight:
                if asked.patience_ms:
                    asked.deadline_ms = max(asked.deadline_ms, end.heard_ms + asked.patience_ms)
        if setup_is_late or any(asked.deadline_ms <= now_ms for _, asked in self._in_flight):
            if setup_is_late and end is not None and end.is_connected:
                self._mute += 1
            self._fail(TimeoutError("no answer in time"))
        late = [asked for asked in self._queue if asked.deadline_ms <= now_ms]
        if late:
            self._queue = deque(asked for asked in self._queue if asked.deadline_ms > now_ms)
        deadlines = [asked.deadline_ms for asked in (*self._queue, *(entry for _, entry in self._in_flight))]
        if self._end is not None and self._versions is None:
            deadlines.append(self._end.setup_deadline_ms)
        if deadlines and not self._closed:
            self._watch(min(deadlines))
        for asked in late:
            asked.reply(None)


class _End:
    """One link of a channel; after the channel has given it up, nothing of it is heard any more."""

    __slots__ = ("_channel", "_frames", "heard_ms", "is_connected", "setup_deadline_ms")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._frames = FrameReader(channel._area, _FRAME_BYTES_MAX)
        self.setup_deadline_ms = 0
        self.is_connected = False
        #: When something came last.
        self.heard_ms = 0

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
        self.heard_ms = self._channel._host.clock.now_ms()
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


def _ignore(_: OSError | None) -> None:
    return None
