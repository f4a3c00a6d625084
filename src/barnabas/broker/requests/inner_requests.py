"""Inner requests: requests from another part of this process, or from an envelope, without a connection of their own.

They own their continuations, like requests of a connection: if one fails, the response is UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

from barnabas.broker.requests import pieces
from barnabas.broker.requests.context import Services
from barnabas.broker.requests.error_responses import UNEXPECTED, error_response
from barnabas.broker.requests.handlers import Handler, load
from barnabas.broker.requests.request_rights import authorized
from barnabas.common import continuations
from barnabas.common.continuations import run
from barnabas.common.errors import ErrorCode
from barnabas.common.host import FaultHandler
from barnabas.common.portions import whole
from barnabas.protocol.api import Offer
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import response_class


class RequestOrigin(Protocol):
    """The properties that an inner request inherits from its origin."""

    @property
    def listener(self) -> str: ...
    @property
    def now_ms(self) -> int: ...


class InnerRequest:
    """An implementation of `RequestContext` for a message; `answered` receives the response, immediately or later."""

    __slots__ = (
        "_answered",
        "_caller",
        "_faults",
        "_is_authorized",
        "_message",
        "amend",
        "api_key",
        "api_version",
        "client_host",
        "client_id",
        "correlation_id",
        "is_forwarded",
        "listener",
        "now_ms",
        "principal",
        "token_authenticated",
    )

    def __init__(
        self,
        outer: RequestOrigin,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        client_host: str,
        principal: str,
        answered: Callable[[Message], None],
    ) -> None:
        self.listener = outer.listener
        self.now_ms = outer.now_ms
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.client_host = client_host
        self.principal = principal
        #: Whether the client has logged in by a delegation token, and whether a broker forwarded its request.
        self.token_authenticated = self.is_forwarded = False
        #: The callback for the response; None once it was called.
        self._answered: Callable[[Message], None] | None = answered
        #: The owner of the caller: `answered` runs on its behalf.
        self._caller = continuations.owner()
        self._message: Message | None = None
        self._faults: FaultHandler | None = None
        self._is_authorized = False
        #: A function that completes the handler's response with the rows that the authorizer refused.
        self.amend: Callable[[Any], Any] | None = None

    def reply(self, response: Message) -> None:
        answered, self._answered = self._answered, None
        caller, self._caller = self._caller, None
        if answered is not None:
            self._message = None
            amend, self.amend = self.amend, None
            if amend is not None:
                response = amend(response)
            run(caller, answered, response)

    def on_error(self, error: Exception) -> None:
        """Handles the failure of a continuation of this request (`continuations.Owner`)."""
        message, faults = self._message, self._faults
        assert faults is not None, "a request is served before it fails"
        faults.report(f"{self} failed; the response is UNKNOWN_SERVER_ERROR", error)
        if message is not None:
            answer = error_response(message, self.api_version, ErrorCode.UNKNOWN_SERVER_ERROR, UNEXPECTED)
            self.reply(answer or response_class(self.api_key)())

    def turn_name(self) -> tuple[str, str]:
        return str(self), ""

    def __str__(self) -> str:
        name = type(self._message).NAME if self._message is not None else "an answered request"
        return f"{name} ({self.api_key}) version {self.api_version} of {self.client_id!r} at {self.client_host}"

    def when_disconnected(self, callback: Callable[[], None]) -> None:
        """Ignores `callback`: an inner request has no connection that could close."""

    def authorize(self, offer: Offer, message: Message, services: Services) -> Generator[int, None, Message | None]:
        """Authorizes the request as work in steps, and answers it if all of it is refused. Returns the request to
        serve.
        """
        self._message, self._faults, self._is_authorized = message, services.host.faults, True
        outcome = yield from authorized(self, offer.name, message, services)
        if outcome.response is not None:
            self.reply(outcome.response)
            return None
        self.amend = outcome.amend
        return outcome.request

    def serve(self, offer: Offer, message: Message, services: Services) -> None:
        handler = load(offer.name)
        if is_long(handler, message, services):
            self._message, self._faults = message, services.host.faults
            work = in_pieces(self, handler, message, services, offer if self._is_authorized else None)
            services.steps.start(work, lambda _: None, self)
        else:
            self.serve_with(handler, message, services)

    def serve_with(self, handler: Handler, message: Message, services: Services) -> None:
        self._message, self._faults = message, services.host.faults
        run(self, self._serve, handler, message, services)

    def _serve(self, handler: Handler, message: Message, services: Services) -> None:
        assert handler.handle is not None, "raw handlers serve connections only"
        response = handler.handle(self, message, services)
        if response is None or isinstance(response, Message):
            self._maybe_reply(response)
        else:
            services.steps.begin(response, self._maybe_reply, self)

    def _maybe_reply(self, response: Message | None) -> None:
        if response is not None:
            self.reply(response)


class _Outer(RequestOrigin, continuations.Owner, Protocol):
    """The whole request whose pieces are served one after the other."""

    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def client_host(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def token_authenticated(self) -> bool: ...
    @property
    def is_forwarded(self) -> bool: ...

    def reply(self, response: Message) -> None: ...


def is_long(handler: Handler, message: Message, services: Services) -> bool:
    """Returns whether a request has more rows than its handler can serve in one turn."""
    shape = handler.pieces
    return shape is not None and pieces.is_long(message, shape, services.config.int_of("num.partitions"))


def in_pieces(
    outer: _Outer, handler: Handler, message: Message, services: Services, authorized_by: Offer | None
) -> Generator[int, None, None]:
    """Returns the work for `Steps` that serves a request of many rows a few at a time (`pieces.py`). It ends when all
    pieces have been passed to the handler; `outer` is answered when all of them are. If the request was authorized, in
    this turn, as one of `authorized_by`, the pieces that are left when a rule changes are authorized again.
    """
    version = services.rules_version

    def handle(piece: Message, answered: Callable[[Message], None]) -> None:
        inner = InnerRequest(
            outer,
            outer.api_key,
            outer.api_version,
            outer.correlation_id,
            outer.client_id,
            outer.client_host,
            outer.principal,
            answered,
        )
        inner.token_authenticated, inner.is_forwarded = outer.token_authenticated, outer.is_forwarded
        allowed: Message | None = piece
        if authorized_by is not None and services.rules_version != version:
            allowed = whole(inner.authorize(authorized_by, piece, services))
        if allowed is not None:
            inner.serve_with(handler, allowed, services)

    return _passed_on(outer, handler, message, services, handle)


def _passed_on(
    outer: _Outer,
    handler: Handler,
    message: Message,
    services: Services,
    handle: Callable[[Message, Callable[[Message], None]], None],
) -> Generator[int, None, None]:
    assert handler.pieces is not None, "only long requests are split"
    answers = yield from pieces.serve(message, handler.pieces, services.config.int_of("num.partitions"), handle)
    answers.when_complete(lambda: services.steps.start(answers.joined(), outer.reply, outer))


class OwnNode:
    """A listener of this process that serves messages from within the process like those of other nodes."""

    def __init__(self, services: Services, listener: str, offers: Mapping[int, Offer]) -> None:
        self._services = services
        self._listener = listener
        self._offers = offers

    @property
    def listener(self) -> str:
        return self._listener

    @property
    def is_active(self) -> bool:
        """Returns whether the active controller is in this process."""
        return self._services.controller.is_active

    @property
    def now_ms(self) -> int:
        return self._services.host.clock.now_ms()

    def handle(self, request: Message, reply: Callable[[Message], None]) -> None:
        """Serves a request in the highest version that the listener offers."""
        assert request.API_KEY is not None
        offer = self._offers[request.API_KEY]
        inner = InnerRequest(self, request.API_KEY, offer.version_max, 0, None, "/127.0.0.1", "User:ANONYMOUS", reply)
        inner.serve(offer, request, self._services)
