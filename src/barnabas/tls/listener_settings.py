"""The `ssl.*` settings of one listener, with the prefix `listener.name.X.` or without; the key with the prefix takes
precedence. Refusals have Kafka's texts if Kafka refuses too. No error text contains a password or a key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.config_keys import LISTENER_PREFIX
from barnabas.common.errors import ConfigError
from barnabas.common.settings import Settings

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_PEM: Final = "PEM"
_STORE_TYPES: Final = ("JKS", "PKCS12", _PEM)
#: `ssl.protocol` is the name of a context in Java; the enabled protocols decide.
_PROTOCOLS: Final = ("TLS", *VERSIONS)
SASL_CLIENT_AUTH_WARNING: Final = (
    "Broker configuration 'ssl.client.auth' is applied only to SSL listeners. Listener-prefixed configuration can be "
    "used to enable SSL client authentication for SASL_SSL listeners. In future releases, broker-wide option without "
    "listener prefix may be applied to SASL_SSL listeners as well. All configuration options intended for specific "
    "listeners should be listener-prefixed."
)


@dataclass(frozen=True)
class StoreSettings:
    """The place of a store: a file, or PEM in the configuration itself."""

    type: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    certificates_pem: str | None = field(default=None, repr=False)

    @property
    def is_pem(self) -> bool:
        return self.type == _PEM


class Place(NamedTuple):
    """The connections that settings are for, and the names of their keys, for the texts of errors."""

    name: str
    key_prefix: str = ""
    #: The key with the password of a private key in PEM.
    key_password: str = "ssl.key.password"

    def refused(self, key: str, value: object, why: str) -> ConfigError:
        """Returns the error for a setting; `value` is None if it is secret."""
        shown = "" if value is None else f"={value}"
        return ConfigError(f"{self.name}: {self.key_prefix}{key}{shown}: {why}")


@dataclass(frozen=True)
class ListenerSettings:
    """The TLS settings of a listener, checked as far as possible without reading files."""

    place: Place
    key_store: StoreSettings | None
    trust_store: StoreSettings | None
    client_auth: str
    versions: tuple[str, ...]
    suites: tuple[str, ...]
    #: Whether names of hosts are checked when this node dials (`ssl.endpoint.identification.algorithm`).
    checks_names: bool
    mapping_rules: str
    allows_other_names: bool
    allows_other_alternative_names: bool

    @classmethod
    def of(cls, config: BrokerConfig, listener: str) -> ListenerSettings:
        """Reads the settings. Raises ConfigError for values that contradict each other or are not possible here."""
        reader = _Reader(config, listener)
        if reader.text("ssl.engine.factory.class"):
            raise reader.refused("ssl.engine.factory.class", "Java classes cannot be loaded")
        return cls(
            Place(f"listener {listener}"),
            _key_store(reader),
            _trust_store(reader),
            _client_auth(reader, config.security_protocol_of(listener)),
            _versions(reader),
            reader.items("ssl.cipher.suites"),
            _checks_names(reader),
            reader.text("ssl.principal.mapping.rules") or "DEFAULT",
            bool(reader.value("ssl.allow.dn.changes")),
            bool(reader.value("ssl.allow.san.changes")),
        )


def unused_client_auth(config: BrokerConfig, listener: str) -> bool:
    """Returns whether `ssl.client.auth` without the listener's prefix has no effect on this SASL_SSL listener."""
    reader = _Reader(config, listener)
    return (
        config.security_protocol_of(listener) == "SASL_SSL"
        and not reader.is_prefixed("ssl.client.auth")
        and config.str_of("ssl.client.auth") != "none"
    )


class _Reader:
    """Reads the values of one listener, and builds the errors for invalid ones."""

    def __init__(self, config: Settings, listener: str) -> None:
        self._config = config
        self._listener = listener

    def _prefixed(self, key: str) -> str:
        return f"{LISTENER_PREFIX}{self._listener.lower()}.{key}"

    def is_prefixed(self, key: str) -> bool:
        name = self._prefixed(key)
        return any(name in layer for layer in (self._config.originals, self._config.per_broker))

    def value(self, key: str) -> object:
        return self._config.value_on(self._listener, key)

    def text(self, key: str) -> str | None:
        value = self.value(key)
        assert value is None or isinstance(value, str), f"{key} is not a string"
        return value

    def items(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        assert isinstance(value, tuple), f"{key} is not a list"
        return tuple(each for each in value if isinstance(each, str) and each)

    def refused(self, key: str, why: str) -> ConfigError:
        base = self._config.base_key(key)
        name = self._prefixed(key) if self.is_prefixed(key) else key
        value = self.value(key)
        shown = "[hidden]" if base is not None and base.is_sensitive else value
        if isinstance(shown, tuple):
            shown = ",".join(map(str, shown))
        return ConfigError(f"listener {self._listener}: Invalid value {shown} for configuration {name}: {why}")


def _store_type(reader: _Reader, key: str) -> str:
    kind = (reader.text(key) or "JKS").upper()
    if kind not in _STORE_TYPES:
        raise reader.refused(key, f"{', '.join(_STORE_TYPES)} are allowed")
    return kind


def _key_store(reader: _Reader) -> StoreSettings | None:
    kind = _store_type(reader, "ssl.keystore.type")
    path, password = reader.text("ssl.keystore.location"), reader.text("ssl.keystore.password")
    key, chain = reader.text("ssl.keystore.key"), reader.text("ssl.keystore.certificate.chain")
    why: tuple[str, str] | None = None
    if key is not None:
        if kind != _PEM:
            text = f"SSL private key can be specified only for PEM, but key store type is {kind}."
            why = "ssl.keystore.type", text
        elif chain is None:
            why = "ssl.keystore.key", "SSL private key is specified, but certificate chain is not specified."
        elif path is not None:
            why = "ssl.keystore.location", "Both SSL key store location and separate private key are specified."
        elif password is not None:
            text = "SSL key store password cannot be specified with PEM format, only key password may be specified."
            why = "ssl.keystore.password", text
    elif chain is not None:
        text = "SSL certificate chain is specified, but private key is not specified"
        why = "ssl.keystore.certificate.chain", text
    elif kind == _PEM and path is not None:
        if password is not None:
            text = "SSL key store password cannot be specified with PEM format, only key password may be specified"
            why = "ssl.keystore.password", text
    elif path is None and password is not None:
        text = "SSL key store is not specified, but key store password is specified."
        why = "ssl.keystore.password", text
    elif path is not None and password is None:
        text = "SSL key store is specified, but key store password is not specified."
        why = "ssl.keystore.location", text
    if why is not None:
        raise reader.refused(*why)
    if path is None and key is None:
        return None
    return StoreSettings(kind, path, password, reader.text("ssl.key.password"), key, chain)


def _trust_store(reader: _Reader) -> StoreSettings | None:
    kind = _store_type(reader, "ssl.truststore.type")
    path, password = reader.text("ssl.truststore.location"), reader.text("ssl.truststore.password")
    certificates = reader.text("ssl.truststore.certificates")
    why: tuple[str, str] | None = None
    if certificates is not None:
        if kind != _PEM:
            text = f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}."
            why = "ssl.truststore.type", text
        elif path is not None:
            text = "Both SSL trust store location and separate trust certificates are specified."
            why = "ssl.truststore.location", text
        elif password is not None:
            why = "ssl.truststore.password", "SSL trust store password cannot be specified for PEM format."
    elif kind == _PEM and path is not None:
        if password is not None:
            why = "ssl.truststore.password", "SSL trust store password cannot be specified for PEM format."
    elif path is None and password is not None:
        text = "SSL trust store is not specified, but trust store password is specified."
        why = "ssl.truststore.password", text
    if why is not None:
        raise reader.refused(*why)
    if path is None and certificates is None:
        return None
    return StoreSettings(kind, path, password, certificates_pem=certificates)


def _client_auth(reader: _Reader, protocol: str) -> str:
    if protocol == "SASL_SSL" and not reader.is_prefixed("ssl.client.auth"):
        return "none"
    return reader.text("ssl.client.auth") or "none"


def _checks_names(reader: _Reader) -> bool:
    algorithm = (reader.text("ssl.endpoint.identification.algorithm") or "").lower()
    if algorithm not in ("", "https"):
        raise reader.refused("ssl.endpoint.identification.algorithm", "https and an empty value are allowed")
    return bool(algorithm)


def _versions(reader: _Reader) -> tuple[str, ...]:
    if reader.text("ssl.protocol") not in _PROTOCOLS:
        raise reader.refused("ssl.protocol", f"{', '.join(_PROTOCOLS)} are allowed")
    versions = reader.items("ssl.enabled.protocols")
    if not versions or set(versions) - set(VERSIONS):
        raise reader.refused("ssl.enabled.protocols", f"{', '.join(VERSIONS)} are allowed")
    return versions
