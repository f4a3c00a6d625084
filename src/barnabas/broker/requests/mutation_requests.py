"""Requests that create and delete partitions, under the quota of their client (KIP-599).

Newer versions of these requests are strict: what the client has to wait for is refused. Older ones are served, and the
client pauses afterwards. The node of the active controller decides, with the principal of the client; the broker that
the client is connected to mutes the connection (`requests/forwarding.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.controller.requests.topics import Permit


class _Answer(Protocol):
    throttle_time_ms: int


A = TypeVar("A", bound=_Answer)


def limited(
    context: RequestContext, services: Services, strict_since: int, reply: Callable[[A], None]
) -> tuple[Permit | None, Callable[[A], None]]:
    """Returns the permission of a request, and its `reply` with the time that the client has to pause."""
    throttles = services.throttles
    strict = context.api_version >= strict_since
    found = None if throttles is None else throttles.mutations(context.principal, context.client_id, strict=strict)
    if found is None:
        return None, reply
    mutations = found

    def answered(answer: A) -> None:
        answer.throttle_time_ms = mutations.time_ms()
        reply(answer)

    return mutations.take, answered
