"""The gate of all requests: the name of the host, the site that a request comes from, its size, and the headers of
every answer.

    Host                 only the names of this console: a page of another name that resolves to it is refused
    Origin, Sec-Fetch-*  no request to /api from another site; a change needs one of the two headers
    Content-Length       bodies are small, and arrive in time
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from ipaddress import ip_address
from typing import Any, Final

import orjson

from barnabas.console.problems import Problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_MAX: Final = 1 << 20
_HEADERS_MAX: Final = 32 * 1024
_BODY_S: Final = 10.0
_SAME_SITE: Final = frozenset({"same-origin", "none"})
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_STRICT_TRANSPORT: Final = (b"strict-transport-security", b"max-age=31536000")


class Gate:
    """Checks each request before it reaches the application. `hosts` are the names, without ports, by which this
    console is known; None for any. An address is no name: nobody can let it lead elsewhere.
    """

    def __init__(self, app: App, hosts: Collection[str] | None, *, is_tls: bool) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(name.lower() for name in hosts)
        self._is_tls = is_tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def send_checked(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = self._with_headers(message.get("headers", ()), scope["path"])
            await send(message)

        try:
            self._check(scope, headers)
            received = await _body(receive, headers) if scope["method"] == "POST" else receive
        except Problem as problem:
            await _refuse(send_checked, problem)
            return
        await self._app(scope, received, send_checked)

    def _check(self, scope: Scope, headers: dict[str, str]) -> None:
        """Raises Problem for a request that must not reach the application."""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _HEADERS_MAX:
            raise Problem("too-large", f"the headers of a request can have at most {_HEADERS_MAX} bytes")
        host = headers.get("host", "")
        if self._hosts is not None and name_of(host) not in self._hosts and not _is_address(name_of(host)):
            raise Problem("host", "this console does not have that name", "start it with --allowed-host NAME")
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD", "POST"):
            raise Problem("bad-request", f"the method {method} is not supported")
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_own = origin is None or origin == f"{'https' if self._is_tls else 'http'}://{host}"
        if path.startswith("/api/") and (site not in (None, *_SAME_SITE) or not is_own):
            raise Problem("csrf", "the request comes from another site")
        if method == "POST" and site is None and origin is None:
            raise Problem("csrf", "the request does not say where it comes from: Origin is missing")

    def _with_headers(self, given: Any, path: str) -> list[tuple[bytes, bytes]]:
        found = [(name, value) for name, value in given if name.lower() != b"server"]
        has = {name.lower() for name, _ in found}
        found += [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        if path.startswith("/api/") and b"cache-control" not in has:
            found.append((b"cache-control", b"no-store"))
        if self._is_tls:
            found.append(_STRICT_TRANSPORT)
        return found


def name_of(host: str) -> str:
    """Returns the name in a Host header, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[").lower()
    return host.partition(":")[0].lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def _body(receive: Receive, headers: dict[str, str]) -> Receive:
    """Reads the body. Returns the function that passes it to the application. Raises Problem for a body that is too
    large or slow.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem("bad-request", "the body must be JSON (Content-Type: application/json)")
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > BODY_MAX:
        raise Problem("too-large", f"a body can have at most {BODY_MAX} bytes")
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(_BODY_S):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
                body += message.get("body", b"")
                more = bool(message.get("more_body"))
                if len(body) > BODY_MAX:
                    raise Problem("too-large", f"a body can have at most {BODY_MAX} bytes")
    except TimeoutError as error:
        raise Problem("timeout", "the body did not arrive in time") from error
    waiting = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def receive_kept() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else await receive()

    return receive_kept


async def _refuse(send: Send, problem: Problem) -> None:
    body = orjson.dumps(problem.to_json())
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if problem.code in ("too-large", "timeout"):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
