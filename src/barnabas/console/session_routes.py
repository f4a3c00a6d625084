"""The routes of sessions: show the session, log in, log out."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from barnabas.console.first_requests import first_request
from barnabas.console.pages import Pages
from barnabas.console.problems import Problem
from barnabas.console.screens import to_json
from barnabas.console.security.passwords import NOBODY, is_right
from barnabas.console.security.rights import Role
from barnabas.console.security.sessions import Session
from barnabas.console.security.users import PASSWORD_MAX
from barnabas.console.state import LOCAL_USER
from barnabas.console.visit import Handler, Visit, json_response

COOKIE: Final = "barnabas_console"
#: A browser accepts this name only for the host itself, over TLS.
TLS_COOKIE: Final = "__Host-barnabas_console"
_NAME_MAX: Final = 200
#: A navigation with the cookies of this console: an address that was typed, or a link of the page itself.
_OWN_NAVIGATION: Final = frozenset({"none", "same-origin"})


def cookie_name(host: str, *, is_tls: bool) -> str:
    """Returns the name of the cookie for a Host header. A browser sends the cookies of a host to all its ports: two
    consoles on one machine would otherwise end each other's sessions.
    """
    name, port = TLS_COOKIE if is_tls else COOKIE, host.rpartition(":")[2]
    return f"{name}_{port}" if port.isascii() and port.isdigit() else name


def cookie_of(visit: Visit) -> str:
    return cookie_name(visit.request.headers.get("host", ""), is_tls=visit.console.options.is_tls)


async def session(visit: Visit) -> Response:
    """Returns the user of the session. A console without users begins a session for every client that asks."""
    cookie = _begun(visit)
    response = json_response(await _shown(visit, visit.session))
    return response if cookie is None else _with_cookie(visit, response, cookie)


async def page(visit: Visit, pages: Pages) -> Response:
    """Returns the page with the session and the address of its first request for data.

    A link of another site sends no cookie (SameSite=Strict). The session that the browser may have must not be
    replaced then: the page asks for it, with the cookie.
    """
    site = visit.request.headers.get("sec-fetch-site")
    if visit.session is None and (visit.console.users is not None or site not in _OWN_NAVIGATION):
        return pages.page()
    cookie = _begun(visit)
    try:
        session = to_json(await _shown(visit, visit.session))
    except Problem:  # The address names an unknown cluster: the page says so.
        response = pages.page()
    else:
        first = first_request(visit.request.url.path, visit.request.query_params)
        response = pages.page(session, first)
    return response if cookie is None else _with_cookie(visit, response, cookie)


def _begun(visit: Visit) -> str | None:
    """Begins a session where everybody gets one. Returns its cookie; None if nothing began."""
    if visit.session is not None or visit.console.users is not None:
        return None
    cookie, visit.session = visit.console.sessions.begin(LOCAL_USER, Role.ADMIN)
    return cookie


async def login(visit: Visit) -> Response:
    console, body = visit.console, await visit.body()
    name, password = body.get("user"), body.get("password")
    if not isinstance(name, str) or not isinstance(password, str) or len(password) > PASSWORD_MAX:
        raise Problem("bad-request", "user and password are missing")
    if console.users is None:
        raise Problem("bad-request", "this console has no users")
    name = name[:_NAME_MAX]
    wait_s = console.login_limits.wait_s(name, visit.address)
    if wait_s > 0:
        text = f"too many wrong passwords: try again in {wait_s:.0f} s"
        raise Problem("rate", text, retry_s=int(wait_s) + 1)
    # A guess counts before it is checked, so that guesses at the same time count too.
    console.login_limits.failed(name, visit.address)
    user = console.users.read().get(name)
    async with console.hashing:
        is_correct = await asyncio.to_thread(is_right, password, NOBODY if user is None else user.password)
    if user is None or not is_correct:
        # A name that no user has can be a password in the wrong field.
        _note(visit, "" if user is None else name, "login", "refused", "the user or the password is wrong")
        raise Problem("login", "the user or the password is wrong")
    console.login_limits.succeeded(name, visit.address)
    _note(visit, name, "login", "ok", "")
    _end(visit)
    cookie, visit.session = console.sessions.begin(user.name, user.role, user.password.digest)
    return _with_cookie(visit, json_response(await _shown(visit, visit.session)), cookie)


async def logout(visit: Visit) -> Response:
    _end(visit)
    return _with_cookie(visit, json_response({}), "")


async def logout_everywhere(visit: Visit) -> Response:
    visit.console.sessions.end_all_of(visit.user)
    _note(visit, visit.user, "logout-everywhere", "ok", "")
    return _with_cookie(visit, json_response({}), "")


def _note(visit: Visit, user: str, action: str, result: str, text: str) -> None:
    """Writes to the audit log what is about a user and no cluster."""
    known = None if visit.console.users is None else visit.console.users.read().get(user)
    role = visit.role if known is None else known.role
    entry = {"user": user, "role": role.name.lower(), "address": visit.address, "cluster": "", "action": action}
    visit.console.audit.write({**entry, "arguments": {}, "result": result, "text": text})


def _end(visit: Visit) -> None:
    cookie = visit.request.cookies.get(cookie_of(visit))
    if cookie:
        visit.console.sessions.end(cookie)


async def _shown(visit: Visit, found: Session | None) -> dict[str, Any]:
    console = visit.console
    shown: dict[str, Any] = {
        "user": None if found is None else found.user,
        "role": None if found is None else found.role.name.lower(),
        "token": None if found is None else found.token,
        "is_login_needed": found is None,
        "read_only": console.options.read_only,
        "has_users": console.users is not None,
    }
    if found is None:
        return shown
    screens, scope = visit.live, visit.scope
    return shown | {
        "clusters": [
            {
                "name": name,
                "colour": each.watched.target.colour,
                "production": each.watched.target.production,
                "incident_ms": console.end_of_incident(name),
            }
            for name, each in console.screens.items()
            if scope.sees_cluster(name)
        ],
        "is_restricted": scope.is_restricted,
        "cluster": screens.cluster.name,
        "lab": found.role is Role.ADMIN and not scope.is_restricted and console.labs[screens.cluster.name].is_embedded,
        "history": await _span(visit),
        "features": ["whatif", *(["history"] if screens.cluster.name in console.recordings else [])],
        "version": screens.cluster.table.version,
        "boot": screens.cluster.boot,
    }


async def _span(visit: Visit) -> dict[str, Any] | None:
    recording = visit.console.recordings.get(visit.live.cluster.name)
    span = None if recording is None else await recording.past.span()
    return None if span is None else {"first_ms": span[0], "last_ms": span[1]}


def _with_cookie(visit: Visit, response: Response, value: str) -> Response:
    is_tls = visit.console.options.is_tls
    name = cookie_of(visit)
    if value:
        response.set_cookie(name, value, httponly=True, samesite="strict", secure=is_tls, path="/")
    else:
        response.delete_cookie(name, httponly=True, samesite="strict", secure=is_tls, path="/")
    return response


HANDLERS: Final[dict[str, Handler]] = {
    "session": session,
    "login": login,
    "logout": logout,
    "logout_everywhere": logout_everywhere,
}
