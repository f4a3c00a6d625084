"""The live tail of a topic as a stream (Server-Sent Events).

records    what was written, and how many records were dropped because they are too many to show
problem    why the tail ended
bye        the session ended, or the console stops
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from barnabas.console.live import may_stay
from barnabas.console.messages.search import SearchQuestion
from barnabas.console.messages.tail import Tail
from barnabas.console.messages_routes import require_records, search_question
from barnabas.console.problems import Problem
from barnabas.console.reading import require_filled
from barnabas.console.screens import to_json
from barnabas.console.security.scope import Scope
from barnabas.console.visit import Handler, Visit

#: The time without records after which an open stream says that it is alive.
_ALIVE_S: Final = 5.0


async def tail(visit: Visit) -> Response:
    screens = visit.live
    require_filled(screens)
    question = search_question(visit.parameters)
    if not visit.scope.sees_topic(question.topic) or question.topic not in screens.cluster.table.topics.by_name:
        raise Problem("not-found", f"there is no topic {question.topic}")
    require_records(visit, question.topic)
    visit.console.streams.check_room(visit.browser)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_stream(visit, question, visit.scope), media_type="text/event-stream", headers=headers)


async def _stream(visit: Visit, question: SearchQuestion, scope: Scope) -> AsyncIterator[bytes]:
    console, cluster = visit.console, visit.live.watched
    question = replace(question, hidden=console.hidden_fields(cluster.name, question.topic))
    connection = console.streams.connect_always(visit.browser)
    try:
        async with console.tails.worker(visit.browser) as worker:
            tailing = Tail(cluster, worker, question, console.registries.get(cluster.name))
            loop, said_s, before = asyncio.get_running_loop(), 0.0, None
            async with aclosing(tailing.rounds()) as rounds:
                async for found in rounds:
                    if console.closing.is_set() or not may_stay(visit, scope):
                        yield _event("bye", {})
                        return
                    state = (found["dropped"], found["problems"])
                    if found["records"] or state != before or loop.time() - said_s >= _ALIVE_S:
                        said_s, before = loop.time(), state
                        yield _event("records", found)
    except Problem as problem:
        yield _event("problem", problem.to_json()["error"])
    finally:
        console.streams.close(connection)


def _event(name: str, data: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), to_json(data))


HANDLERS: Final[dict[str, Handler]] = {"tail": tail}
