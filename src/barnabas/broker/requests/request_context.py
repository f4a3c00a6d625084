"""The context of one request, as a handler gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.protocol.message import Message


class RequestContext(Protocol):
    """A request in flight, as handlers see it."""

    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def client_host(self) -> str:
        """The address of the client, without port, as Kafka shows it: "/127.0.0.1"."""

    @property
    def listener(self) -> str:
        """The name of the listener that the request arrived on."""

    @property
    def principal(self) -> str:
        """The principal of the client; "User:ANONYMOUS" without authentication."""

    @property
    def token_authenticated(self) -> bool:
        """Whether the client has logged in by a delegation token."""

    @property
    def is_forwarded(self) -> bool:
        """Whether a broker forwarded the request in an envelope, and vouches for its principal."""

    @property
    def now_ms(self) -> int:
        """The monotonic time at which the request was read."""

    def reply(self, response: Message) -> None:
        """Sends the response, exactly once, if `handle` returns None: later, or during the call of `handle`."""

    def when_disconnected(self, callback: Callable[[], None]) -> None:
        """Sets the function to call when the client's connection closes, in place of an earlier one. It is never called
        for a request from within this process."""
