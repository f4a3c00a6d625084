"""The settings of OAUTHBEARER: the tokens that a listener accepts, and those with which this node logs in to others.

    sasl.oauthbearer.jwks.endpoint.url       the keys that sign tokens: http, https or file; further keys set its times
    sasl.oauthbearer.expected.audience, .expected.issuer, .clock.skew.seconds, .scope.claim.name, .sub.claim.name
    sasl.oauthbearer.token.endpoint.url      where this node gets its own tokens: http, https or file
    sasl.oauthbearer.client.credentials.*    how it asks the endpoint: by a secret, or
    sasl.oauthbearer.assertion.*             by an assertion (RFC 7523), from a file or signed by a private key
    barnabas.sasl.oauthbearer.allowed.urls, .allowed.files   the only URLs and files that the keys above can have

Each key can have the prefix `listener.name.<listener>.` or `listener.name.<listener>.oauthbearer.`; the longest counts.
Without a key set a listener serves only if its JAAS entry has an option for unsecured tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from barnabas.common.config_keys import LISTENER_PREFIX, Value, invalid
from barnabas.common.errors import ConfigError
from barnabas.common.jaas import JaasEntry

MECHANISM: Final = "OAUTHBEARER"
_KEY_SET: Final = "sasl.oauthbearer.jwks.endpoint.url"
_TOKENS: Final = "sasl.oauthbearer.token.endpoint.url"
_ASSERTION_FILE: Final = "sasl.oauthbearer.assertion.file"
_PRIVATE_KEY: Final = "sasl.oauthbearer.assertion.private.key.file"
TEMPLATE_FILE: Final = "sasl.oauthbearer.assertion.template.file"
_ASSERTION_CLAIMS: Final = {
    "aud": "sasl.oauthbearer.assertion.claim.aud",
    "iss": "sasl.oauthbearer.assertion.claim.iss",
    "sub": "sasl.oauthbearer.assertion.claim.sub",
}
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
ALLOWED_URLS: Final = "barnabas.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES: Final = "barnabas.sasl.oauthbearer.allowed.files"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
#: Key that names a Java class -> the names that are accepted, because Barnabas itself does what these classes do.
CLASSES: Final[Mapping[str, Sequence[str]]] = {
    "sasl.server.callback.handler.class": (
        _PACKAGE + "OAuthBearerValidatorCallbackHandler",
        _PACKAGE + "secured.OAuthBearerValidatorCallbackHandler",
    ),
    "sasl.login.callback.handler.class": (
        _PACKAGE + "OAuthBearerLoginCallbackHandler",
        _PACKAGE + "secured.OAuthBearerLoginCallbackHandler",
    ),
    "sasl.oauthbearer.jwt.validator.class": (_PACKAGE + "DefaultJwtValidator", _PACKAGE + "BrokerJwtValidator"),
    _RETRIEVER: (
        _PACKAGE + "DefaultJwtRetriever",
        _PACKAGE + "ClientCredentialsJwtRetriever",
        _PACKAGE + "FileJwtRetriever",
        _PACKAGE + "JwtBearerJwtRetriever",
    ),
}
_UNSECURED: Final = "unsecured"
_VALIDATOR: Final = "unsecuredValidator"
_LOGIN: Final = "unsecuredLogin"
_DIGITS_MAX: Final = 9
#: The user and the password in a URL.
_USER_INFO: Final = re.compile(r"//.*@", re.S)


class MechanismSettings(Protocol):
    """The part of a node's configuration that OAUTHBEARER uses (`common.config.BrokerConfig`)."""

    @property
    def originals(self) -> Mapping[str, str]: ...
    def value_on(self, listener: str, key: str) -> Value: ...
    def value_or_none(self, key: str) -> Value: ...
    def list_of(self, key: str) -> tuple[str, ...]: ...


class Source(NamedTuple):
    """A document that is fetched regularly."""

    #: The configuration key that contains the URL.
    key: str
    url: str
    backoff_ms: int
    backoff_max_ms: int

    @property
    def path(self) -> str | None:
        """Returns the path of a file; None for another URL."""
        return file_path(self.url)


class Expectations(NamedTuple):
    """The requirements for the claims of a token."""

    audiences: tuple[str, ...]
    issuer: str | None
    skew_s: int
    scope_claim: str
    subject_claim: str


class UnsecuredRules(NamedTuple):
    """The requirements for the claims of an unsecured token."""

    principal_claim: str
    scope_claim: str
    required_scope: tuple[str, ...]
    skew_ms: int


class ListenerTokens(NamedTuple):
    """The tokens that a listener accepts: those signed by a key of the set, or else unsecured ones."""

    key_set: Source | None
    refresh_ms: int
    expected: Expectations
    unsecured: UnsecuredRules


class UnsecuredLogin(NamedTuple):
    """The unsecured token with which this node logs in."""

    claims: Mapping[str, str | float | list[str]]
    principal_claim: str
    lifetime_s: int


class ClientCredentials(NamedTuple):
    """The credentials of this node at the token endpoint. They are never shown."""

    client_id: str
    secret: str
    scope: str | None

    def __repr__(self) -> str:
        return "ClientCredentials([hidden])"


class AssertionFile(NamedTuple):
    """An assertion that another program writes."""

    #: The configuration key that contains the path.
    key: str
    path: str


class AssertionKey(NamedTuple):
    """The private key and the claims of the assertions that this node signs. The passphrase is never shown."""

    #: The configuration key that contains the path of the private key.
    key: str
    path: str
    passphrase: str | None
    algorithm: str
    #: The path of a file with further fields of the header and further claims.
    template: str | None
    claims: Mapping[str, str]
    lifetime_s: int
    #: How long before its creation an assertion is valid already.
    before_s: int
    has_id: bool

    def __repr__(self) -> str:
        return f"AssertionKey({self.path})"


class JwtBearer(NamedTuple):
    """The assertions by which this node asks the token endpoint (RFC 7523)."""

    assertion: AssertionFile | AssertionKey
    scope: str | None


class Refresh(NamedTuple):
    """When a token is replaced (Kafka's `sasl.login.refresh.*`)."""

    window_factor: float
    window_jitter: float
    min_period_ms: int
    buffer_ms: int


class EndpointLogin(NamedTuple):
    """The tokens from an endpoint or a file with which this node logs in."""

    source: Source
    #: The credentials for the endpoint; None for a file.
    credentials: ClientCredentials | JwtBearer | None
    refresh: Refresh


def value(config: MechanismSettings, listener: str, key: str) -> Value:
    """Returns the value of a key for OAUTHBEARER on a listener."""
    found = config.value_or_none(f"{LISTENER_PREFIX}{listener.lower()}.{MECHANISM.lower()}.{key}")
    return config.value_on(listener, key) if found is None else found


def listener_tokens(config: MechanismSettings, listener: str, entry: JaasEntry | None) -> ListenerTokens:
    """Returns the tokens that a listener accepts. Raises ConfigError."""
    reader = _Reader(config, listener)
    options = {} if entry is None else entry.options
    _check_options(listener, options)
    key_set = reader.source(
        _KEY_SET,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    )
    unsecured = [name for name in options if name.startswith(_UNSECURED)]
    if key_set is not None and unsecured:
        raise ConfigError(
            f"{_KEY_SET} of listener {listener} is set, and its JAAS entry has the option {unsecured[0]}: choose "
            "either tokens signed by the key set or unsecured tokens"
        )
    if key_set is None and not unsecured:
        raise ConfigError(
            f"{_KEY_SET} must be set for OAUTHBEARER on listener {listener}. Unsecured tokens, for tests, are accepted "
            "only if its JAAS entry has an option for them, such as unsecuredLoginStringClaim_sub"
        )
    expected = Expectations(
        reader.texts("sasl.oauthbearer.expected.audience"),
        reader.text("sasl.oauthbearer.expected.issuer") or None,
        reader.number("sasl.oauthbearer.clock.skew.seconds", 0),
        reader.text("sasl.oauthbearer.scope.claim.name") or "scope",
        reader.text("sasl.oauthbearer.sub.claim.name") or "sub",
    )
    refresh_ms = reader.number("sasl.oauthbearer.jwks.endpoint.refresh.ms", 1)
    return ListenerTokens(key_set, refresh_ms, expected, _unsecured_rules(options))


def login_tokens(config: MechanismSettings, listener: str, entry: JaasEntry) -> UnsecuredLogin | EndpointLogin:
    """Returns the source of the tokens with which this node logs in to a listener of other nodes. Raises
    ConfigError."""
    reader = _Reader(config, listener)
    _check_options(listener, entry.options)
    source = reader.source(_TOKENS, "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms")
    credentials: ClientCredentials | JwtBearer | None = None
    if reader.text(_RETRIEVER) == CLASSES[_RETRIEVER][-1]:
        if source is None or source.path is not None:
            raise ConfigError(f"{_RETRIEVER} of listener {listener} needs an http or https URL in {_TOKENS}")
        credentials = JwtBearer(_assertion(reader), reader.text("sasl.oauthbearer.scope") or None)
    elif source is None:
        return _unsecured_login(listener, entry.options)
    elif source.path is None:
        credentials = _client_credentials(reader, listener, entry)
    refresh = Refresh(
        reader.fraction("sasl.login.refresh.window.factor"),
        reader.fraction("sasl.login.refresh.window.jitter"),
        reader.number("sasl.login.refresh.min.period.seconds", 0) * 1_000,
        reader.number("sasl.login.refresh.buffer.seconds", 0) * 1_000,
    )
    return EndpointLogin(source, credentials, refresh)


def _client_credentials(reader: _Reader, listener: str, entry: JaasEntry) -> ClientCredentials:
    client_id = reader.text("sasl.oauthbearer.client.credentials.client.id") or entry.options.get("clientId")
    secret = reader.text("sasl.oauthbearer.client.credentials.client.secret") or entry.options.get("clientSecret")
    if not client_id or not secret:
        raise ConfigError(
            f"{_TOKENS} of listener {listener} needs sasl.oauthbearer.client.credentials.client.id and .secret, or "
            "clientId and clientSecret in the JAAS entry"
        )
    return ClientCredentials(client_id, secret, reader.text("sasl.oauthbearer.scope") or entry.options.get("scope"))


def _assertion(reader: _Reader) -> AssertionFile | AssertionKey:
    """Returns the source of assertions. As in Kafka, a file with an assertion counts before a private key."""
    path = reader.file(_ASSERTION_FILE)
    if path is not None:
        return AssertionFile(_ASSERTION_FILE, path)
    path = reader.file(_PRIVATE_KEY)
    if path is None:
        raise ConfigError(f"{_RETRIEVER} ({CLASSES[_RETRIEVER][-1]}) needs {_ASSERTION_FILE} or {_PRIVATE_KEY}")
    named = {claim: reader.text(key) for claim, key in _ASSERTION_CLAIMS.items()}
    return AssertionKey(
        _PRIVATE_KEY,
        path,
        reader.text("sasl.oauthbearer.assertion.private.key.passphrase") or None,
        reader.text("sasl.oauthbearer.assertion.algorithm").upper(),
        reader.file(TEMPLATE_FILE),
        {claim: text for claim, text in named.items() if text},
        reader.number("sasl.oauthbearer.assertion.claim.exp.seconds", 0),
        reader.number("sasl.oauthbearer.assertion.claim.nbf.seconds", 0),
        reader.flag("sasl.oauthbearer.assertion.claim.jti.include"),
    )


class _Reader:
    def __init__(self, config: MechanismSettings, listener: str) -> None:
        self._config = config
        self._listener = listener

    def text(self, key: str) -> str:
        found = value(self._config, self._listener, key)
        return found.strip() if isinstance(found, str) else ""

    def texts(self, key: str) -> tuple[str, ...]:
        found = value(self._config, self._listener, key)
        return tuple(each for each in found if each) if isinstance(found, tuple) else ()

    def number(self, key: str, low: int) -> int:
        found = value(self._config, self._listener, key)
        if not isinstance(found, int) or found < low:
            raise invalid(key, found, f"Value must be at least {low}")
        return found

    def fraction(self, key: str) -> float:
        found = value(self._config, self._listener, key)
        assert isinstance(found, float), f"{key} is a double"
        return found

    def flag(self, key: str) -> bool:
        return value(self._config, self._listener, key) is True

    def file(self, key: str) -> str | None:
        """Returns the path that a key names; None if it is not set. Raises ConfigError."""
        path = self.text(key)
        if not path:
            return None
        if path not in self._config.list_of(ALLOWED_FILES):
            raise ConfigError(f"{key}: {path} is not allowed. Add it to {ALLOWED_FILES} to allow it")
        return path

    def source(self, key: str, backoff: str, backoff_max: str) -> Source | None:
        """Returns the source that a key names; None if it is not set. Raises ConfigError.

        An empty value with a prefix does not replace the general one, so a change at run time cannot remove the key
        set.
        """
        prefix = f"{LISTENER_PREFIX}{self._listener.lower()}."
        names = (f"{prefix}{MECHANISM.lower()}.{key}", f"{prefix}{key}", key)
        values = [found.strip() for name in names if isinstance(found := self._config.value_or_none(name), str)]
        url = next(filter(None, values), "")
        if not url:
            return None
        check_url(key, url)
        if url not in self._config.list_of(ALLOWED_URLS):
            raise ConfigError(f"{key}: {url} is not allowed. Add it to {ALLOWED_URLS} to allow it")
        return Source(key, url, self.number(backoff, 1), self.number(backoff_max, 1))


def _check_options(listener: str, options: Mapping[str, str]) -> None:
    """Raises ConfigError for TLS settings: a JAAS entry can be changed over the network, and must name no files."""
    named = next((name for name in options if name.startswith("ssl.")), None)
    if named is not None:
        raise ConfigError(
            f"the JAAS option {named} of OAUTHBEARER on listener {listener} is not supported: servers are verified "
            "with the certificates of the system, or with those in the file that SSL_CERT_FILE names"
        )


def check_url(key: str, url: str) -> None:
    """Raises ConfigError for a URL that is malformed, or has another protocol than http, https and file."""
    shown = _USER_INFO.sub("//[hidden]@", url)
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.path if parts.scheme == "file" else parts.hostname) and parts.port != 0
    except ValueError as error:
        why = f": {error}" if shown == url else ""
        raise ConfigError(
            f"The OAuth configuration option {key} contains a URL ({shown}) that is malformed{why}"
        ) from None
    if parts.scheme not in ("http", "https", "file"):
        raise ConfigError(
            f"The OAuth configuration option {key} contains a URL ({shown}) that contains an invalid protocol "
            f'({parts.scheme}); only "http", "https", and "file" protocol are supported'
        )
    is_here = parts.scheme != "file" or parts.netloc in ("", "localhost")
    if not is_complete or not is_here or parts.username is not None or not url.isprintable() or " " in url:
        raise ConfigError(f"The OAuth configuration option {key} contains a URL ({shown}) that is malformed")


def file_path(url: str) -> str | None:
    """Returns the path of a URL of a file; None for another URL."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def _unsecured_rules(options: Mapping[str, str]) -> UnsecuredRules:
    return UnsecuredRules(
        options.get(_VALIDATOR + "PrincipalClaimName", "").strip() or "sub",
        options.get(_VALIDATOR + "ScopeClaimName", "").strip() or "scope",
        tuple(options.get(_VALIDATOR + "RequiredScope", "").split()),
        _option_number(options, _VALIDATOR + "AllowableClockSkewMs", 0),
    )


def _unsecured_login(listener: str, options: Mapping[str, str]) -> UnsecuredLogin:
    claims: dict[str, str | float | list[str]] = {}
    for option, text in options.items():
        kind, underscore, claim = option.removeprefix(_LOGIN).partition("_")
        if not option.startswith(_LOGIN) or not underscore or not claim or not kind.endswith("Claim"):
            continue
        if claim in ("iat", "exp"):
            raise ConfigError(f"the JAAS option {option}: Cannot explicitly set the '{claim}' claim")
        if kind == "StringClaim":
            claims[claim] = text
        elif kind == "NumberClaim":
            claims[claim] = _number_claim(option, text)
        elif kind == "ListClaim":
            claims[claim] = text[1:].split(text[0]) if len(text) > 1 else []
    principal_claim = options.get(_LOGIN + "PrincipalClaimName", "").strip() or "sub"
    if not claims.get(principal_claim):
        raise ConfigError(
            f"this node logs in to other nodes on {listener} with OAUTHBEARER: it needs {_TOKENS}, or the option "
            f"{_LOGIN}StringClaim_{principal_claim} in its JAAS entry for an unsecured token, for tests"
        )
    return UnsecuredLogin(claims, principal_claim, _option_number(options, _LOGIN + "LifetimeSeconds", 3_600))


def _number_claim(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"the JAAS option {option} is not a number") from None


def _option_number(options: Mapping[str, str], option: str, default: int) -> int:
    text = options.get(option, "").strip()
    if not text:
        return default
    if len(text) > _DIGITS_MAX or not text.isascii() or not text.isdigit():
        raise ConfigError(f"the JAAS option {option} is not a number of up to {_DIGITS_MAX} digits")
    return int(text)
