"""The OAUTHBEARER tokens with which this node logs in to others: from an endpoint, from a file, or unsecured ones.

The endpoint is asked by client credentials (RFC 6749, 4.4) or by an assertion (RFC 7523, 2.1), a new one each time.

A token is replaced before it expires (Kafka's `sasl.login.refresh.*`), so that sessions can be renewed in time. While
the endpoint does not answer, the last token stays in use until it expires; without a token no connection logs in, and
the channels try again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from barnabas.broker.peers import assertions
from barnabas.broker.peers.documents import Document
from barnabas.common import log_in_settings
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host, WebRequest
from barnabas.common.log_in_settings import OAUTHBEARER
from barnabas.common.oauth_settings import (
    AssertionFile,
    ClientCredentials,
    EndpointLogin,
    JwtBearer,
    Refresh,
    UnsecuredLogin,
    value,
)
from barnabas.protocol.peer_security import LoginUnavailable, peer_listeners
from barnabas.protocol.sasl.logins import Login
from barnabas.protocol.sasl.tokens import TOKEN_BYTES_MAX, TokenRefused, json_object, parse, time_claim
from barnabas.protocol.sasl.unsecured_tokens import make_unsecured

_FORM: Final = "application/x-www-form-urlencoded"
_TIMEOUT_MS: Final = 10_000
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class NodeTokens:
    """The tokens of a node, one for each listener of other nodes where it logs in."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self._host = host
        self._config = config
        self._sources: dict[str, _Source] = {}
        config.use_logins(self.login)
        config.subscribe(self._on_config)

    def start(self) -> None:
        """Fetches the tokens for the listeners that the node logs in to. Raises ConfigError for a file that cannot be
        used.
        """
        for listener in peer_listeners(self._config):
            if log_in_settings.mechanism_to_log_in(self._config, listener) == OAUTHBEARER:
                self._source(listener)

    def login(self, listener: str) -> Login:
        """Returns the credentials for a log-in that begins now. Raises LoginUnavailable."""
        try:
            return self._source(listener).login()
        except ConfigError as error:
            raise LoginUnavailable(str(error)) from None

    def close(self) -> None:
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    def _source(self, listener: str) -> _Source:
        found = self._sources.get(listener)
        if found is None:
            found = self._sources[listener] = self._make(listener)
        return found

    def _make(self, listener: str) -> _Source:
        settings = log_in_settings.login_tokens_of(self._config, listener)
        if isinstance(settings, UnsecuredLogin):
            return _Source(self._host, settings)
        return _Fetched(self._host, settings, listener, _timeout_ms(self._config, listener))

    def _on_config(self, keys: frozenset[str]) -> None:
        """Replaces the sources whose settings have changed. The last token is used until the next one arrives."""
        if not log_in_settings.affects_log_in(keys):
            return
        for listener, source in list(self._sources.items()):
            try:
                if log_in_settings.login_tokens_of(self._config, listener) == source.settings:
                    continue
                made = self._make(listener)
            except ConfigError as error:
                self._host.faults.report(
                    f"this node keeps its login on listener {listener}, because the new settings are invalid: {error}"
                )
                continue
            if isinstance(made, _Fetched) and isinstance(source, _Fetched):
                made.begin_with(source)
            source.close()
            self._sources[listener] = made


def _timeout_ms(config: BrokerConfig, listener: str) -> int:
    parts = [value(config, listener, key) for key in ("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")]
    return sum(each if isinstance(each, int) and each > 0 else _TIMEOUT_MS for each in parts)


class _Source:
    """Unsecured tokens: each log-in has a new one."""

    def __init__(self, host: Host, settings: UnsecuredLogin | EndpointLogin) -> None:
        self._host = host
        self.settings = settings

    def login(self) -> Login:
        settings = self.settings
        assert isinstance(settings, UnsecuredLogin), "other sources override this method"
        token = make_unsecured(settings, self._host.clock.wall_ms())
        return Login(OAUTHBEARER, str(settings.claims[settings.principal_claim]), token)

    def close(self) -> None:
        """Ends the work of the source. Unsecured tokens need no work."""


class _Fetched(_Source):
    """Tokens from an endpoint or a file."""

    def __init__(self, host: Host, settings: EndpointLogin, listener: str, timeout_ms: int) -> None:
        """Creates a source of tokens. Raises ConfigError if the file cannot be used."""
        super().__init__(host, settings)
        self._refresh = settings.refresh
        self._is_file = settings.source.path is not None
        self._login: Login | None = None
        self._expires_ms = 0
        source, credentials = settings.source, settings.credentials
        request, preparation = None, None
        if isinstance(credentials, ClientCredentials):
            request = _token_request(source.url, credentials, timeout_ms)
        elif credentials is not None:
            preparation = _assertion_requests(host, source.url, credentials, timeout_ms)
        self._document = Document(
            host, source, f"the token for listener {listener}", self._take, request, preparation=preparation
        )
        try:
            self._document.start()
        except (OSError, ValueError) as error:
            # An error of an assertion names its own key.
            place = "" if preparation is not None else f"{source.key}: {source.url} cannot be used: "
            raise ConfigError(f"{place}{error}") from None

    def login(self) -> Login:
        if self._login is None:
            raise LoginUnavailable("this node has no token yet")
        if self._host.clock.wall_ms() >= self._expires_ms:
            if not self._document.has_failed:
                # The wall clock jumped, or the machine slept: the next fetch is due by the monotonic clock, which did
                # not. After a failure the next fetch is due soon.
                self._document.fetch()
            raise LoginUnavailable("the token of this node has expired")
        return self._login

    def begin_with(self, other: _Fetched) -> None:
        """Uses another source's token until this source has one."""
        if self._login is None:
            self._login, self._expires_ms = other._login, other._expires_ms

    def close(self) -> None:
        self._document.close()

    def _take(self, content: bytes) -> int:
        """Takes a token. Returns when to fetch the next one. Raises ValueError."""
        token = _text_of(content) if self._is_file else _token_of(content)
        if len(token) > TOKEN_BYTES_MAX or not assertions.TOKEN.fullmatch(token):
            raise ValueError("the content is not a token")
        try:
            claims = json_object(parse(token).claims, "payload")
            expires_s = time_claim(claims, "exp")
        except TokenRefused as error:
            raise ValueError(f"the token is malformed: {error}") from None
        if expires_s is None:
            raise ValueError("the token has no expiration time (exp)")
        lifetime_ms = int(expires_s * 1_000) - self._host.clock.wall_ms()
        if lifetime_ms <= 0:
            raise ValueError("the token has expired")
        self._login, self._expires_ms = Login(OAUTHBEARER, str(claims.get("sub", "")), token), int(expires_s * 1_000)
        return _renewal_ms(self._refresh, lifetime_ms, self._host.random.below(1_001) / 1_000)


def _renewal_ms(refresh: Refresh, lifetime_ms: int, share: float) -> int:
    """Returns when to replace a token, by Kafka's rules. `share` is random, from 0 to 1."""
    due_ms = int(lifetime_ms * (refresh.window_factor + refresh.window_jitter * share))
    if refresh.min_period_ms + refresh.buffer_ms <= lifetime_ms:
        due_ms = max(min(due_ms, lifetime_ms - refresh.buffer_ms), refresh.min_period_ms)
    return max(due_ms, 1)


def _token_request(url: str, credentials: ClientCredentials, timeout_ms: int) -> WebRequest:
    form = {"grant_type": "client_credentials"}
    if credentials.scope:
        form["scope"] = credentials.scope
    name = base64.b64encode(f"{credentials.client_id}:{credentials.secret}".encode()).decode()
    headers = (("Authorization", f"Basic {name}"), ("Content-Type", _FORM))
    return WebRequest(url, urlencode(form).encode(), headers, timeout_ms)


def _assertion_requests(
    host: Host, url: str, credentials: JwtBearer, timeout_ms: int
) -> Callable[[], Callable[[], WebRequest]]:
    """Returns a function that begins the next request: it takes time and chance, and returns the work with files."""
    settings, scope = credentials.assertion, credentials.scope

    def begin() -> Callable[[], WebRequest]:
        if isinstance(settings, AssertionFile):
            return lambda: _assertion_request(url, assertions.from_file(host.disk, settings), scope, timeout_ms)
        issued = assertions.Issued(host.clock.wall_ms() // 1_000, host.random.uuid() if settings.has_id else None)
        return lambda: _assertion_request(url, assertions.make(host.disk, settings, issued), scope, timeout_ms)

    return begin


def _assertion_request(url: str, assertion: str, scope: str | None, timeout_ms: int) -> WebRequest:
    form = {"grant_type": _JWT_BEARER, "assertion": assertion, **({"scope": scope} if scope else {})}
    return WebRequest(url, urlencode(form).encode(), (("Content-Type", _FORM),), timeout_ms)


def _text_of(content: bytes) -> str:
    return str(content, "ascii", "replace").strip()


def _token_of(content: bytes) -> str:
    """Returns the token in the response of an endpoint. Raises ValueError."""
    try:
        found = json.loads(str(content, "utf-8"))
    except (ValueError, RecursionError):
        raise ValueError("the response is not JSON") from None
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise ValueError("the response has no access_token")
    return token.strip()
