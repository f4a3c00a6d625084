"""Documents that a node fetches regularly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.peers.documents import Document
from barnabas.common.host import WebRequest
from barnabas.common.oauth_settings import Source
from barnabas.simulation.host import MemoryHost


class Web:
    """A server that answers each request after a millisecond."""

    def __init__(self, host: MemoryHost) -> None:
        self.host = host
        self.fetched_ms: list[int] = []

    def fetch(self, request: WebRequest, done: Callable[[bytes | None, OSError | None], None]) -> None:
        self.fetched_ms.append(self.host.clock.now_ms())
        self.host.timers.call_later(1, lambda: done(b"keys", None))


def test_a_fetch_in_between_begins_the_interval_anew() -> None:
    host: Any = MemoryHost()
    host.web = web = Web(host)
    source = Source("sasl.oauthbearer.jwks.endpoint.url", "https://keys.example/jwks", 100, 1_000)
    document = Document(host, source, "the key set", lambda content: 10_000)
    begin_ms = host.clock.now_ms()
    document.start()
    host.time.run_for(6_000)
    document.fetch()
    host.time.run_for(15_000)
    assert [fetched_ms - begin_ms for fetched_ms in web.fetched_ms] == [0, 6_000, 16_001]
    document.close()
    host.time.run_for(60_000)
    assert len(web.fetched_ms) == 3
