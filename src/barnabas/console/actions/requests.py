"""Requests of actions: to the controller, which can change meanwhile, and to the leaders of partitions.

An action whose response was lost may have been done: the console reports that, and repeats nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from barnabas.common.errors import ErrorCode
from barnabas.console.problems import Problem
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.look_requests import metadata_request
from barnabas.protocol.message import Message
from barnabas.protocol.messages.metadata import MetadataResponse

M = TypeVar("M", bound=Message)

TIMEOUT_S: Final = 15.0
TIMEOUT_MS: Final = 10_000
_PAUSE_S: Final = 0.25
#: The time for a new topic to be in the table, and between two looks for it.
_KNOWN_S: Final = 10.0
_LOOK_S: Final = 0.02
_UNKNOWN: Final = "no response arrived, so the outcome is unknown"


class Coded(Protocol):
    """A part of a response, or the response itself, that has an error code."""

    error_code: int


async def ask_controller(
    cluster: WatchedCluster,
    request: Message,
    response: type[M],
    rows_of: Callable[[M], Sequence[Coded]],
    *,
    version_max: int | None = None,
) -> M:
    """Sends a request to the controller that the brokers name, and again while another one takes over. In a KRaft
    cluster they name any broker, which forwards the request. `rows_of` returns the parts of the response with error
    codes: if it comes from another node than the controller, the first one says so. Raises Problem.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + TIMEOUT_S
    while True:
        try:
            named = await cluster.questions.of_any(metadata_request([]), MetadataResponse)
        except NoAnswer as error:
            raise Problem("unreachable", f"no broker answers: {error}") from error
        answer = await ask_broker(cluster, named.controller_id, request, response, version_max=version_max)
        rows = rows_of(answer)
        if not rows or rows[0].error_code != ErrorCode.NOT_CONTROLLER or loop.time() >= deadline_s:
            return answer
        await asyncio.sleep(_PAUSE_S)


async def await_topic(cluster: WatchedCluster, name: str) -> None:
    """Waits, for a limited time, until the console itself knows a new topic, so that the page can show it."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _KNOWN_S
    while name not in cluster.table.topics.by_name and loop.time() < deadline_s:
        await asyncio.sleep(_LOOK_S)


async def ask_broker(
    cluster: WatchedCluster, broker_id: int, request: Message, response: type[M], *, version_max: int | None = None
) -> M:
    """Sends a request once. Raises Problem."""
    try:
        connection = cluster.questions.new_connection(broker_id, timeout_s=TIMEOUT_S)
    except NoAnswer as error:
        raise Problem("unreachable", f"broker {broker_id} does not answer: {error}") from error
    try:
        return await connection.call(request, response, version_max=version_max)
    except NoAnswer as error:
        raise Problem("unreachable", f"broker {broker_id}: {error}; {_UNKNOWN}") from error
    finally:
        connection.close()
