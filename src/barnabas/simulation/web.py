"""The web of a simulated host: documents by URL, which a test can change. Requests take a millisecond."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.continuations import later
from barnabas.common.host import Timers, WebRequest


class MemoryWeb:
    """A `common.host.Web`."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        #: URL -> its document, or the error of a request.
        self.documents: dict[str, bytes | OSError] = {}
        self.requests: list[WebRequest] = []
        #: URL -> how long its server takes, if not a millisecond.
        self.delays_ms: dict[str, int] = {}

    def fetch(self, request: WebRequest, done: Callable[[bytes | None, OSError | None], None]) -> None:
        self.requests.append(request)
        done = later(done)
        delay_ms = self.delays_ms.get(request.url, 1)
        if delay_ms > request.timeout_ms:
            self._timers.call_later(request.timeout_ms, lambda: done(None, TimeoutError("no answer in time")))
        else:
            self._timers.call_later(delay_ms, lambda: self._answer(request, done))

    def _answer(self, request: WebRequest, done: Callable[[bytes | None, OSError | None], None]) -> None:
        found = self.documents.get(request.url, ConnectionRefusedError("nobody listens there"))
        if isinstance(found, OSError):
            done(None, found)
        else:
            done(found, None)
