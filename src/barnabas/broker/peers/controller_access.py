"""Requests to the active controller: a call if it is in this process, otherwise a request over the network.

Every request is a message of the protocol (BrokerHeartbeat, AllocateProducerIds, ...), so that callers need not know
where the controller is.

Invariants
- Every request gets one reply within its timeout: the active controller's response, or None if there was none. This
  includes the controller of this process, which can be unable to commit without knowing it yet.
- After NOT_CONTROLLER, a lost link or while no leader is known, a request is retried until its timeout. A request can
  therefore arrive twice; all of them are fenced by epochs, or harmless when repeated.
- A request that a former leader has not answered is sent to its successor as soon as that is known: the former leader
  can be paused, and keep its connections.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final, Protocol

from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host, LinkCondition, Timer
from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.peer_security import PLAINTEXT, ChannelSecurity
from barnabas.protocol.reach import Reach

Address = tuple[str, int]
Reply = Callable[[Message | None], None]

_RETRY_MS: Final = 20
_RETRY_MS_MAX: Final = 200


class LocalController(Protocol):
    """The controller of this process."""

    @property
    def is_active(self) -> bool: ...

    def handle(self, request: Message, reply: Callable[[Message], None]) -> None: ...


class ControllerAccess:
    """Access to the active controller. `leader_id` and `leader_address` return the quorum leader and its address.
    `make_own` is called once, by the first request, and returns this process's controller."""

    def __init__(
        self,
        host: Host,
        area: ReceiveArea,
        client_id: str,
        leader_id: Callable[[], int],
        leader_address: Callable[[], Address | None],
        request_timeout_ms: int,
        make_own: Callable[[], LocalController],
        security: ChannelSecurity = PLAINTEXT,
    ) -> None:
        self._security = security
        self._host = host
        self._area = area
        self._client_id = client_id
        self.leader_id = leader_id
        self._leader_address = leader_address
        self._timeout_ms = request_timeout_ms
        self._make_own = make_own
        self._channel: Channel | None = None
        self._when_lost: Callable[[], None] | None = None
        self._closed = False

    @cached_property
    def own(self) -> LocalController:
        """Returns the controller of this process."""
        return self._make_own()

    @property
    def reach(self) -> Reach:
        """Returns what is known about a controller on another node that does not answer."""
        return Reach() if self._channel is None else self._channel.reach.known

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Calls back whenever an open connection to the active controller ends; set before the first request."""
        self._when_lost = callback

    def condition(self) -> LinkCondition | None:
        """Returns the condition of the network to the controller, if it is on another node."""
        return None if self._channel is None else self._channel.reach.condition()

    def send(self, request: Message, reply: Reply, *, timeout_ms: int | None = None) -> None:
        """Sends a request. `reply` can be called within this call if the controller is in this process."""
        self.begin(request, reply, timeout_ms=timeout_ms)

    def begin(self, request: Message, reply: Reply, *, timeout_ms: int | None = None) -> PendingRequest:
        """Sends a request like `send`, and returns it so that the caller can abandon it."""
        deadline_ms = self._host.clock.now_ms() + (self._timeout_ms if timeout_ms is None else timeout_ms)
        pending = PendingRequest(self, request, reply, deadline_ms)
        pending.send()
        return pending

    def on_leader(self) -> None:
        """Closes the channel if the leader has changed or is unknown now."""
        channel = self._channel
        if channel is not None and self._leader_address() not in (None, channel.address):
            self._channel = None
            self._host.timers.call_soon(channel.close)

    def close(self) -> None:
        """Stops sending requests; pending ones are answered with None."""
        self._closed = True
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def channel(self) -> Channel | None:
        """Returns the channel to the active controller on another node; None while no leader is known."""
        address = self._leader_address()
        if address is None:
            return None
        channel = self._channel
        if channel is None or channel.address != address:
            if channel is not None:
                self._host.timers.call_soon(channel.close)
            times = ChannelTimes(self._timeout_ms, backoff_ms=_RETRY_MS, backoff_ms_max=_RETRY_MS_MAX)
            channel = Channel(self._host, self._area, address, self._client_id, times, self._security, self._when_lost)
            self._channel = channel
        return channel


class PendingRequest:
    """A request, until it is answered."""

    __slots__ = ("_access", "_deadline_ms", "_pause_ms", "_reply", "_request", "_timer")

    def __init__(self, access: ControllerAccess, request: Message, reply: Reply, deadline_ms: int) -> None:
        self._access = access
        self._request = request
        #: The callback for the reply; None once it was called.
        self._reply: Reply | None = later(reply)
        self._deadline_ms = deadline_ms
        self._pause_ms = _RETRY_MS
        #: The timer of the next attempt, or of the timeout while this process's controller decides.
        self._timer: Timer | None = None

    def abandon(self) -> None:
        """Abandons the request: it is not sent again, and `reply` is not called."""
        self._reply = None
        self._cancel_timer()

    def send(self) -> None:
        self._timer = None
        access = self._access
        if self._reply is None:
            return
        left_ms = self._left_ms
        if access.own.is_active:
            try:
                access.own.handle(self._request, self._on_answer)
            finally:
                # The controller may have answered, refused (then there is a timer), deferred its response, or raised an
                # error.
                if self._reply is not None and self._timer is None:
                    self._timer = access._host.timers.call_later(max(left_ms, 0), lambda: self._answer(None))
            return
        if left_ms <= 0 or access._closed:
            self._answer(None)
            return
        channel = access.channel()
        if channel is None:
            self._retry_later()
        else:
            channel.send(self._request, self._on_answer, timeout_ms=left_ms)

    @property
    def _left_ms(self) -> int:
        return self._deadline_ms - self._access._host.clock.now_ms()

    def _on_answer(self, response: Message | None) -> None:
        if response is None or getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            self._retry_later()
        else:
            self._answer(response)

    def _retry_later(self) -> None:
        access = self._access
        if self._reply is None:
            return
        self._cancel_timer()
        left_ms = self._left_ms
        if left_ms <= 0 or access._closed:
            access._host.timers.call_soon(lambda: self._answer(None))
            return
        self._timer = access._host.timers.call_later(min(self._pause_ms, left_ms), self.send)
        self._pause_ms = min(2 * self._pause_ms, _RETRY_MS_MAX)

    def _answer(self, response: Message | None) -> None:
        reply, self._reply = self._reply, None
        self._cancel_timer()
        if reply is not None:
            reply(response)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
