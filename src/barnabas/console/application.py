"""The application: every route of the table, behind the checks of its role, its session and its token."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from barnabas.console import (
    changing,
    incident_routes,
    live,
    messages_routes,
    reading,
    records_routes,
    security_routes,
    session_routes,
    tail_route,
)
from barnabas.console.incidents import NOT_WATCHED
from barnabas.console.pages import PAGE, Pages
from barnabas.console.problems import Problem
from barnabas.console.security.gate import App, Gate
from barnabas.console.security.rights import PAST, ROUTES, WITH_EVENTS, Role, Route
from barnabas.console.security.scope_rules import check as check_scope
from barnabas.console.security.sessions import Session
from barnabas.console.session_routes import cookie_name
from barnabas.console.state import Console
from barnabas.console.visit import Handler, Visit, json_response

TOKEN_HEADER: Final = "x-barnabas-token"
#: The host names of the local machine, which every console accepts.
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
#: The status that a log shows for a browser that left; nobody receives it.
_CLIENT_LEFT: Final = 499
#: Routes of sessions that begin one, and so have no token yet.
_WITHOUT_TOKEN: Final = frozenset({"login"})

HANDLERS: Final[Mapping[str, Handler]] = {
    **session_routes.HANDLERS,
    **reading.HANDLERS,
    **live.HANDLERS,
    **messages_routes.HANDLERS,
    **incident_routes.HANDLERS,
    **changing.HANDLERS,
    **tail_route.HANDLERS,
    **records_routes.HANDLERS,
    **security_routes.HANDLERS,
}


def application(console: Console, pages: Pages | None = None) -> App:
    """Returns the ASGI application."""
    served = Pages() if pages is None else pages

    async def page(request: Request) -> Response:
        if served.file_of(request.url.path) != PAGE:
            return served.answer(request)
        session = _session_of(console, request)
        return await session_routes.page(Visit(console, request, session, console.role_of(session)), served)

    async def no_route(_request: Request) -> Response:
        problem = Problem("not-found", "there is no such route")
        return json_response(problem.to_json(), problem.status)

    routes = [
        StarletteRoute(route.path, _endpoint(console, route, HANDLERS[route.name]), methods=[route.method])
        for route in ROUTES
    ]
    routes.append(StarletteRoute("/api/{path:path}", no_route, methods=["GET", "POST"]))
    routes.append(StarletteRoute("/{path:path}", page, methods=["GET"]))
    options = console.options
    hosts = None if options.hosts is None else LOCAL_NAMES | options.hosts
    handlers = {Problem: _show_problem, ClientDisconnect: _show_departed, Exception: _show_fault}
    return Gate(Starlette(routes=routes, exception_handlers=handlers), hosts, is_tls=options.is_tls)


def _endpoint(console: Console, route: Route, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        session = _session_of(console, request)
        role = console.role_of(session)
        _check(console, route, request, session, role)
        visit = Visit(console, request, session, role)
        if route.is_change and console.saved_of(visit.live.cluster.name) is not None:
            raise Problem("past", NOT_WATCHED)
        if visit.scope.is_restricted:
            check_scope(visit.scope, route.name, await visit.body() if route.is_change else None)
        await _go_back(visit, route)
        return await handler(visit)

    return endpoint


def _session_of(console: Console, request: Request) -> Session | None:
    name = cookie_name(request.headers.get("host", ""), is_tls=console.options.is_tls)
    return console.session_of(request.cookies.get(name))


async def _show_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem), "it is registered for problems only"
    return json_response(error.to_json(), error.status)


async def _show_fault(_request: Request, _error: Exception) -> Response:
    """Answers for a fault of the console. Starlette raises it again afterwards, so that the server logs it."""
    problem = Problem("internal", "a fault of the console; its log has the details")
    return json_response(problem.to_json(), problem.status)


async def _show_departed(_request: Request, _error: Exception) -> Response:
    return Response(status_code=_CLIENT_LEFT)


async def _go_back(visit: Visit, route: Route) -> None:
    """Loads the moment that the request names; if it names none, the end of an incident. Raises Problem for a moment
    that is not recorded, and for a route that is only about the present.
    """
    with_events = route.name in WITH_EVENTS
    if not visit.parameters.has("at"):
        saved = visit.console.saved_of(visit.live.cluster.name)
        if saved is not None and route.name in PAST:
            visit.past = await saved.past.at(saved.span[1], with_events=with_events)
        return
    if route.name not in PAST:
        raise Problem("past", f"{route.path} is not recorded: it exists only for the present")
    time_ms = visit.parameters.number("at")
    recording = visit.console.recordings.get(visit.live.cluster.name)
    if recording is None:
        raise Problem("not-found", "nothing is recorded", "start the console with --history FILE")
    visit.past = await recording.past.at(time_ms, with_events=with_events)


def _check(console: Console, route: Route, request: Request, session: Session | None, role: Role) -> None:
    """Raises Problem unless this visitor can use this route."""
    if role < route.role:
        if session is None:
            raise Problem("login", "log in first")
        raise Problem("role", f"this needs the role {route.role.name.lower()}")
    if route.method != "POST" or route.name in _WITHOUT_TOKEN:
        return
    if session is None:
        # Without a session there is nothing to end, and a change needs the session's token.
        raise Problem(
            "login" if console.users is not None else "csrf", "there is no session: GET /api/session begins one"
        )
    if not hmac.compare_digest(request.headers.get(TOKEN_HEADER, "").encode(), session.token.encode()):
        raise Problem("csrf", "the token of the session is missing or wrong")
    if route.is_change and console.options.read_only:
        raise Problem("read-only", "this console is read-only")
    if route.is_change and "at" in request.query_params:
        raise Problem("past", "nothing can be changed in the past")
