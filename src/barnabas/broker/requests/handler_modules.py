"""The handlers, by name: the one place that imports the modules of `broker/handlers/`.

A handler is imported at the first request of its API, so that a broker starts quickly, and because handlers import the
package that dispatches to them. `broker/requests/context.py` describes the attributes of a handler module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.broker.requests.context import RequestContext, Services
    from barnabas.broker.requests.error_responses import ErrorRows
    from barnabas.broker.requests.in_flight import Chunks, InFlight
    from barnabas.broker.requests.pieces import Pieces
    from barnabas.broker.requests.steps import Work
    from barnabas.protocol.message import Message

    RawHandle = Callable[[InFlight, memoryview, int, Services], Chunks | Work | None]
    Handle = Callable[[RequestContext, Message, Services], Message | Work | None]


class Handler(NamedTuple):
    """The attributes of a handler module; either `handle` or `handle_raw` is there."""

    handle: Handle | None
    handle_raw: RawHandle | None
    #: How a request of many rows is divided; None if it is served as a whole.
    pieces: Pieces | None
    #: The rows of an error response.
    error_rows: tuple[ErrorRows, ...]


def load(name: str) -> Handler:
    """Imports a handler module."""
    module = importlib.import_module(f"barnabas.broker.handlers.{name}")
    return Handler(
        getattr(module, "handle", None),
        getattr(module, "handle_raw", None),
        getattr(module, "PIECES", None),
        getattr(module, "ERROR_ROWS", ()),
    )
