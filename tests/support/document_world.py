"""Documents and tokens that a node fetches, in virtual time, checked by a plain model of when it may fetch and must.

Servers take random times, refuse, and answer with what cannot be used. Every fetch begins when it is due or asked for,
one at a time, and none after the end; a token is replaced when Kafka's rules say so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.support.log_in import SECURED
from tests.support.tokens import assembled
from tests.support.wired import PROPERTIES

from barnabas.broker.peers.documents import Document
from barnabas.broker.peers.node_tokens import NodeTokens
from barnabas.common.config import BrokerConfig
from barnabas.common.host import WebRequest
from barnabas.common.oauth_settings import Source
from barnabas.protocol.peer_security import LoginUnavailable
from barnabas.simulation.history import Violation
from barnabas.simulation.host import MemoryHost

_URL: Final = "https://issuer.test/document"
_FILE: Final = "/document"
_STEPS: Final = 40
_HOUR_MS: Final = 3_600_000
_BACKOFF_MS, _BACKOFF_MS_MAX = 100, 10_000


def check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Violation(f"documents: {what} is {found!r}, it should be {expected!r}")


def next_event_ms(host: Any) -> int:
    """Returns the time of the next timer that is not cancelled; a late time if there is none."""
    return min((at_ms for at_ms, _, timer in host.time._heap if timer.callback is not None), default=1 << 60)


class Web:
    """A server that answers when the world says so, or in time."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[bytes | None, OSError | None], None]] = []
        self.requests: list[WebRequest] = []

    def fetch(self, request: WebRequest, done: Callable[[bytes | None, OSError | None], None]) -> None:
        self.requests.append(request)
        self.waiting.append(done)


class DocumentWorld:
    """A document with a server that answers late, or not, and its model."""

    def __init__(self, random: Random) -> None:
        self._random = random
        host: Any = MemoryHost(seed=random.randrange(1 << 30))
        self._host, self._web = host, Web()
        host.web = self._web
        source = Source("some.key", _URL, _BACKOFF_MS, _BACKOFF_MS_MAX)
        prepares = random.random() < 0.4
        self._prepares = prepares
        self._fails_to_prepare = False
        self._document = Document(
            self._host, source, "the document", self._take, preparation=self._prepare if prepares else None
        )
        self._next_ms = 1
        self._taken: list[bytes] = []
        #: The model: whether a fetch is under way, when it began, and the earliest and latest beginning of the next.
        self._is_fetching = False
        self._began_ms = 0
        self._due = (0, 0)
        self._failures = 0
        self._fetched_ms: int | None = None
        self._good: list[bytes] = []
        self._warned_ms: int | None = None
        self._warned = self._informed = 0
        self._is_closed = False

    def _prepare(self) -> Callable[[], WebRequest]:
        fails = self._fails_to_prepare

        def work() -> WebRequest:
            if fails:
                raise OSError("no such file")
            return WebRequest(_URL, b"prepared")

        return work

    def _take(self, content: bytes) -> int:
        if content.startswith(b"bad"):
            raise ValueError("it cannot be used")
        self._taken.append(content)
        return self._next_ms

    def run(self) -> None:
        self._document.start()
        self._begin()
        self._compare()
        for _ in range(_STEPS):
            self._step()
            self._compare()
        self._document.close()
        self._is_closed = True
        self._document.fetch()
        for done in self._web.waiting:
            done(b"late", None)
        count = len(self._web.requests)
        self._host.time.run_for(10 * _HOUR_MS)
        check("the number of fetches after the end", len(self._web.requests), count)
        self._compare()

    def _begin(self) -> None:
        self._is_fetching, self._began_ms = True, self._host.clock.now_ms()
        if self._prepares:
            self._host.time.run_for(1)
            if not self._web.waiting:  # The preparation has failed.
                self._failed()

    def _step(self) -> None:
        random, kind = self._random, self._random.random()
        self._fails_to_prepare = random.random() < 0.2
        if kind < 0.2:
            self._document.fetch()
            if not self._is_fetching:
                self._begin()
        elif kind < 0.6 and self._is_fetching:
            self._answer()
        else:
            self._pass(random.choice((0, 1, 10, 1_000, 30_000, _HOUR_MS)))
        self._next_ms = random.choice((1, 500, 60_000))

    def _answer(self) -> None:
        random = self._random
        content = random.choice((b"good", b"good", b"bad", None)) or None
        (done,) = self._web.waiting
        self._web.waiting.clear()
        if content is None:
            done(None, ConnectionResetError("reset"))
        else:
            content += b" %d" % random.randrange(100)
            done(content, None)
        if content is None or content.startswith(b"bad"):
            self._failed()
            return
        self._is_fetching = False
        self._good.append(content)
        if self._failures:
            self._informed += 1
        self._failures, self._warned_ms, self._fetched_ms = 0, None, self._began_ms
        due_ms = self._host.clock.now_ms() + self._next_ms
        self._due = (due_ms, due_ms)

    def _failed(self) -> None:
        now_ms = self._host.clock.now_ms()
        self._is_fetching = False
        wait_ms = min(_BACKOFF_MS * 2**self._failures, _BACKOFF_MS_MAX)
        self._due = (now_ms + wait_ms * 80 // 100, now_ms + wait_ms * 120 // 100)
        self._failures += 1
        if self._warned_ms is None or now_ms - self._warned_ms >= _HOUR_MS:
            self._warned_ms, self._warned = now_ms, self._warned + 1

    def _pass(self, duration_ms: int) -> None:
        """Lets time pass; the next fetch begins when it is due, and not before."""
        until_ms = self._host.clock.now_ms() + duration_ms
        while self._host.clock.now_ms() < until_ms:
            if self._is_fetching:
                self._host.time.run_until(until_ms)
                return
            earliest, latest = self._due
            self._host.time.run_until(min(until_ms, earliest - 1))
            check("whether a fetch has begun", self._document.is_fetching, False)
            while not self._document.is_fetching and self._host.clock.now_ms() < min(until_ms, latest):
                self._host.time.run_until(min(until_ms, latest, next_event_ms(self._host)))
            if self._document.is_fetching:
                self._begin()
            elif self._host.clock.now_ms() >= latest:
                raise Violation(f"documents: no fetch has begun until {latest}")

    def _compare(self) -> None:
        document, faults = self._document, self._host.faults
        if not self._is_closed:
            check("whether a fetch is under way", document.is_fetching, self._is_fetching)
            check("the number of fetches under way", len(self._web.waiting), int(self._is_fetching))
        check("the documents", self._taken, self._good)
        check("whether the last fetch failed", document.has_failed, self._failures > 0)
        check("when the document was fetched", document.fetched_ms, self._fetched_ms)
        check("the reports", (len(faults.warned), len(faults.informed)), (self._warned, self._informed))


# -- tokens


class TokenWorld:
    """The token of a node: it is replaced by Kafka's rules, and used until its end."""

    def __init__(self, random: Random) -> None:
        self._random = random
        host: Any = MemoryHost(seed=random.randrange(1 << 30))
        self._host, self._web = host, Web()
        host.web = self._web
        self._factor = random.choice((0.5, 0.8, 1.0))
        self._jitter = random.choice((0.0, 0.05, 0.25))
        self._min_s, self._buffer_s = random.choice((0, 1, 60, 900)), random.choice((0, 10, 300, 3_600))
        properties = {
            **PROPERTIES,
            **SECURED,
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.test/keys",
            "sasl.oauthbearer.token.endpoint.url": _URL,
            "listener.name.plaintext.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'clientId="node" clientSecret="hidden";'
            ),
            "barnabas.sasl.oauthbearer.allowed.urls": f"https://issuer.test/keys,{_URL}",
            "sasl.login.refresh.window.factor": str(self._factor),
            "sasl.login.refresh.window.jitter": str(self._jitter),
            "sasl.login.refresh.min.period.seconds": str(self._min_s),
            "sasl.login.refresh.buffer.seconds": str(self._buffer_s),
        }
        self._tokens = NodeTokens(self._host, BrokerConfig.from_properties(properties))
        #: The token that must be used, with its end.
        self._token: tuple[str, int] | None = None
        self._count = 0

    def run(self) -> None:
        self._tokens.start()
        for _ in range(12):
            if not self._web.waiting:  # A fetch after a failure, or for a login with an expired token.
                self._host.time.run_for(15_000)
            self._answer()
        self._tokens.close()
        count = len(self._web.requests)
        self._host.time.run_for(10 * _HOUR_MS)
        check("the number of requests after the end", len(self._web.requests), count)

    def _answer(self) -> None:
        random = self._random
        (done,) = self._web.waiting
        self._web.waiting.clear()
        now_ms = self._host.clock.wall_ms()
        lifetime_s = random.choice((1, 30, 61, 100, 360, 400, 1_000, 3_600, 7_200, 20_000, 0, -5))
        ends_s = now_ms // 1_000 + lifetime_s
        self._count += 1
        token = assembled({"alg": "none"}, {"sub": f"node{self._count}", "exp": ends_s})
        kind = random.random()
        if kind < 0.2:
            done(None, ConnectionResetError("reset"))
        elif kind < 0.35:
            odd = random.choice(({"token": token}, {"access_token": 7}, {"access_token": "a.b.c"}, ["x"]))
            done(random.choice((json.dumps(odd).encode(), b"{", b"\xff")), None)
        else:
            done(json.dumps({"access_token": token}).encode(), None)
            lifetime_ms = ends_s * 1_000 - now_ms
            if lifetime_ms > 0:
                self._token = (token, ends_s * 1_000)
                self._wait(lifetime_ms)
                return
        self._login()

    def _wait(self, lifetime_ms: int) -> None:
        """Waits for the next request, which must come at the time that Kafka's rules name."""
        began_ms = self._host.clock.now_ms()
        earliest, latest = (self._renewal_ms(lifetime_ms, share) for share in (0.0, self._jitter))
        for wait_ms in sorted(self._random.randrange(max(earliest, 1)) for _ in range(2)):
            self._host.time.run_until(began_ms + wait_ms)
            self._login()
        self._host.time.run_until(began_ms + earliest - 1)
        check("whether a token is asked for too early", len(self._web.waiting), 0)
        self._host.time.run_until(began_ms + latest)
        check("whether the next token is asked for", len(self._web.waiting), 1)
        if self._random.random() < 0.5:
            self._host.time.run_until(began_ms + lifetime_ms + self._random.choice((-1, 0, 1_000)))
        self._login()

    def _renewal_ms(self, lifetime_ms: int, jitter: float) -> int:
        """Kafka's ExpiringCredentialRefreshingLogin.refreshMs, in times from now on."""
        wanted_ms = int(lifetime_ms * (self._factor + jitter))
        min_ms, buffer_ms = self._min_s * 1_000, self._buffer_s * 1_000
        if min_ms + buffer_ms <= lifetime_ms:
            if wanted_ms > lifetime_ms - buffer_ms:
                wanted_ms = lifetime_ms - buffer_ms
            if wanted_ms < min_ms:
                wanted_ms = min_ms
        return wanted_ms or 1

    def _login(self) -> None:
        try:
            login = self._tokens.login("PLAINTEXT")
        except LoginUnavailable:
            found = None
        else:
            found = login.password
        expected = None
        if self._token is not None and self._host.clock.wall_ms() < self._token[1]:
            expected = self._token[0]
        check("the token of a login", found, expected)
