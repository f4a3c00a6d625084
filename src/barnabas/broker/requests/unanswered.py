"""The response when no controller has decided a request in time: REQUEST_TIMED_OUT for each of its rows, as Kafka's
brokers respond (KIP-590).
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.error_responses import error_response
from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.index import response_class

_TEXT: Final = "The active controller could not be reached in time."


def timed_out(request: Message, version: int) -> Message:
    """Returns the response with REQUEST_TIMED_OUT for everything in `request`."""
    assert request.API_KEY is not None, f"{request.NAME} is not a request"
    answer = error_response(request, version, ErrorCode.REQUEST_TIMED_OUT, _TEXT)
    return response_class(request.API_KEY)() if answer is None else answer
