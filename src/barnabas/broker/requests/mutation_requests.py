"""Requests that create and delete partitions, under the quota of their client (KIP-599).

Newer versions of these requests are strict: they are refused if the client has to wait. Older ones are served, and the
client pauses afterwards. The node of the active controller decides, with the principal of the client; the broker that
the client is connected to mutes the connection (`requests/forwarding.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.controller.requests.topics import Permit
from barnabas.protocol.messages.create_partitions import CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsResponse

A = TypeVar("A", CreateTopicsResponse, DeleteTopicsResponse, CreatePartitionsResponse)


def limited(
    context: RequestContext, services: Services, strict_since: int, kind: type[A]
) -> tuple[Permit | None, Callable[[A], None]]:
    """Returns the quota check of a request, and the function that sends its response with the throttle time."""
    throttles = services.throttles
    strict = context.api_version >= strict_since
    found = None if throttles is None else throttles.mutations(context.principal, context.client_id, strict=strict)
    if found is None:
        return None, context.reply
    mutations = found

    def answered(answer: A) -> None:
        answer.throttle_time_ms = mutations.time_ms()
        context.reply(answer)

    return mutations.take, answered
