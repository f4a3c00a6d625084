"""The handlers, by name, with their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.handler_modules import handler_module
from barnabas.broker.requests.in_flight import Chunks, InFlight
from barnabas.broker.requests.pieces import Pieces
from barnabas.broker.requests.steps import Work
from barnabas.protocol.message import Message

RawHandle = Callable[[InFlight, memoryview, int, Services], Chunks | Work | None]
Handle = Callable[[RequestContext, Message, Services], Message | Work | None]


class Handler(NamedTuple):
    """The attributes of a handler module; exactly one of `handle` and `handle_raw` exists."""

    handle: Handle | None
    handle_raw: RawHandle | None
    #: How a request of many rows is divided; None if it is served as a whole.
    pieces: Pieces | None


def load(name: str) -> Handler:
    """Imports a handler module."""
    module = handler_module(name)
    return Handler(
        getattr(module, "handle", None),
        getattr(module, "handle_raw", None),
        getattr(module, "PIECES", None),
    )
