"""A console in a thread of the test: served on a free port of this machine, and a client that keeps its session.

with RunningConsole([target]) as console:
    console.url                       the page
    console.get("overview")           the data of a reading route
    console.post("lab/kill", {...})   a change, with the token of the session
"""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from barnabas.cli.console import embedded_target
from barnabas.console.pages import Pages
from barnabas.console.serving import Place, serve
from barnabas.console.session_routes import cookie_name
from barnabas.console.state import Console, ConsoleOptions
from barnabas.console.target import Target
from barnabas.testing.phantom import PhantomCluster

__all__ = ["Answer", "RunningConsole", "embedded_target", "target_of"]


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Returns the code of an error; empty for an answer without one."""
        if self.headers.get("content-type") != "application/json":
            return ""
        found = self.json
        return str(found["error"]["code"]) if isinstance(found, dict) and "error" in found else ""


def target_of(phantom: PhantomCluster, name: str = "phantom") -> Target:
    return Target(name, tuple(phantom.addresses.values()))


class RunningConsole:
    def __init__(
        self,
        targets: Sequence[Target],
        options: ConsoleOptions | None = None,
        *,
        place: Place | None = None,
        pages: Pages | None = None,
    ) -> None:
        self._targets = targets
        self._options = ConsoleOptions() if options is None else options
        self._place = Place(port=0) if place is None else place
        self._pages = pages
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url = ""
        self.console: Console | None = None
        self.cookie = ""
        self.token = ""

    def __enter__(self) -> RunningConsole:
        self._thread.start()
        assert self._ready.wait(30), "the console did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(20)

    def _run(self) -> None:
        async def main() -> None:
            self.console = Console(self._targets, self._options)

            def on_ready(url: str) -> None:
                self.url = url
                self._ready.set()

            self._task = asyncio.current_task()
            await serve(self.console, self._place, on_ready=on_ready, pages=self._pages)

        try:
            self._loop.run_until_complete(main())
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    # -- as a browser

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 20.0,
    ) -> Answer:
        """Sends one request with the cookie of the session, and keeps the cookie of the answer."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
        sent = {"Sec-Fetch-Site": "same-origin"}
        if self.cookie:
            sent["Cookie"] = self.cookie
        data = None
        if method == "POST":
            sent |= {"Origin": self.url.rstrip("/"), "Content-Type": "application/json"}
            sent |= {"X-Barnabas-Token": self.token} if self.token else {}
            data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        sent |= headers or {}
        try:
            connection.request(method, path, body=data, headers={name: value for name, value in sent.items() if value})
            found = connection.getresponse()
            answer = Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()
        cookie = answer.headers.get("set-cookie")
        if cookie is not None:
            self.cookie = cookie.partition(";")[0]
        return answer

    def take_cookie(self, value: str) -> None:
        """Keeps the cookie of a session that began without a request."""
        self.cookie = f"{cookie_name(urlsplit(self.url).netloc, is_tls=False)}={value}"

    def session(self) -> Any:
        """Begins a session, and keeps its token. Returns the response that the page would get."""
        found = self.request("GET", "/api/session").json
        self.token = found["token"] or ""
        return found

    def ask(self, route: str, **parameters: object) -> Answer:
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        return self.request("GET", f"/api/{route}?{query}")

    def get(self, route: str, **parameters: object) -> Any:
        """Returns the data of a reading route."""
        answer = self.ask(route, **parameters)
        assert answer.status == 200, answer.body
        return answer.json["data"]

    def post(self, route: str, body: object = None) -> Answer:
        if not self.token:
            self.session()
        return self.request("POST", f"/api/{route}", body=body)

    def until(self, condition: Callable[[], bool], what: str, within_s: float = 20.0) -> float:
        """Waits for a condition. Returns the seconds that it took."""
        begin_s = time.monotonic()
        while not condition():
            assert time.monotonic() - begin_s < within_s, what
            time.sleep(0.02)
        return time.monotonic() - begin_s

    def filled(self) -> None:
        """Waits until the first poll is complete."""
        self.until(lambda: bool(self.ask("overview").json["is_filled"]), "the first poll is not complete")

    @contextmanager
    def live(self, screen: str, *, after: str = "", **parameters: object) -> Iterator[Iterator[tuple[str, str, Any]]]:
        """Opens a live stream. Yields its messages as (id, event, data)."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
        query = urlencode({"screen": screen, "after": after, **parameters})
        connection.request("GET", f"/api/live?{query}", headers={"Cookie": self.cookie} if self.cookie else {})
        found = connection.getresponse()
        assert found.status == 200, found.read()
        try:
            yield _messages(found)
        finally:
            connection.close()


def _messages(stream: http.client.HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    for raw in stream:
        line = raw.decode().rstrip("\n")
        name, _, value = line.partition(": ")
        if name:
            fields[name] = value
        elif not line and "event" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}
