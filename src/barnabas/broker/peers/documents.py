"""A document that is fetched regularly, from the web or from a file: a key set, or a token of this node.

    waiting --due, or asked for--> fetching --a document that its owner can use--> waiting, until it is to be renewed
       ^                               '--an error-----------------------------> waiting, longer each time
       '------------------------------------------------------------------------------------'

The owner gets each document by `take`, which raises ValueError for one that it cannot use, and returns when to fetch
again. The last good document stays in use while fetches fail. A failure is reported when it begins, once an hour while
it lasts, and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.host import Host, Timer, WebRequest
from barnabas.common.oauth_settings import Source

_REPORT_MS = 3_600_000
#: The maximum size of a document in bytes; a larger one is refused.
DOCUMENT_BYTES_MAX = 1 << 18


class Document:
    """A document of a node. It is fetched from `start` on until `close`."""

    def __init__(
        self,
        host: Host,
        source: Source,
        name: str,
        take: Callable[[bytes], int],
        request: WebRequest | None = None,
        preparation: Callable[[], Callable[[], WebRequest]] | None = None,
    ) -> None:
        """`name` is a part of the reports. `take` returns the time until the next fetch in milliseconds.
        `preparation`: returns the work that makes the next request, if it reads files; it raises ValueError or OSError.
        """
        self._host = host
        self._source = source
        self._name = name
        self._take = take
        self._request = WebRequest(source.url) if request is None else request
        self._preparation = preparation
        self._timer: Timer | None = None
        self._is_fetching = False
        self._is_closed = False
        self._failures = 0
        self._reported_ms: int | None = None
        #: The time at which the fetch of the current document began.
        self.fetched_ms: int | None = None
        self._began_ms = 0

    @property
    def is_fetching(self) -> bool:
        return self._is_fetching

    @property
    def has_failed(self) -> bool:
        """Returns whether the last fetch failed."""
        return self._failures > 0

    def start(self) -> None:
        """Fetches for the first time. Files are read now: raises ValueError or OSError if one cannot be used."""
        path = self._source.path
        if path is None:
            if self._preparation is not None:
                self._preparation()()
            self.fetch()
            return
        self._began_ms = self._host.clock.now_ms()
        self._schedule(self._take(self._read(path)))
        self.fetched_ms = self._began_ms

    def fetch(self) -> None:
        """Fetches now, unless a fetch is under way."""
        if self._is_fetching or self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_fetching = True
        self._began_ms = self._host.clock.now_ms()
        path = self._source.path
        if path is not None:
            self._host.blocking.run(lambda: self._read(path), self._on_fetched)
        elif self._preparation is not None:
            self._host.blocking.run(self._preparation(), self._on_prepared)
        else:
            self._host.web.fetch(self._request, self._on_fetched)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _read(self, path: str) -> bytes:
        if self._host.disk.size(path) > DOCUMENT_BYTES_MAX:
            raise ValueError(f"the document has more than {DOCUMENT_BYTES_MAX} bytes")
        return self._host.disk.read(path)

    def _on_prepared(self, request: WebRequest | None, error: BaseException | None) -> None:
        if request is None or self._is_closed:
            self._on_fetched(None, error)
        else:
            self._host.web.fetch(request, self._on_fetched)

    def _on_fetched(self, content: bytes | None, error: BaseException | None) -> None:
        self._is_fetching = False
        if self._is_closed:
            return
        if content is None:
            self._fail(error)
            return
        try:
            next_ms = self._take(content)
        except ValueError as refused:
            self._fail(refused)
            return
        self.fetched_ms = self._began_ms
        if self._failures:
            self._failures, self._reported_ms = 0, None
            self._host.faults.inform(f"{self._name} of {self._source.url} is available again")
        self._schedule(next_ms)

    def _fail(self, error: BaseException | None) -> None:
        source, now_ms = self._source, self._host.clock.now_ms()
        wait_ms = min(source.backoff_ms << min(self._failures, 30), source.backoff_max_ms)
        self._failures += 1
        if self._reported_ms is None or now_ms - self._reported_ms >= _REPORT_MS:
            self._reported_ms = now_ms
            self._host.faults.warn(f"{self._name} of {source.url} cannot be fetched: {error}")
        self._schedule(wait_ms * (80 + self._host.random.below(41)) // 100)

    def _schedule(self, delay_ms: int) -> None:
        self._timer = self._host.timers.call_later(delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.fetch()
