"""The security of a client's connections, from its properties under the names of Java's clients or of librdkafka.

    security.protocol                      PLAINTEXT (default) | SSL | SASL_PLAINTEXT | SASL_SSL
    sasl.mechanism, sasl.mechanisms        PLAIN | SCRAM-SHA-256 | SCRAM-SHA-512; not Kafka's default, GSSAPI
    sasl.jaas.config                       ...ScramLoginModule required username="u" password="p"; (or Plain...)
                                           tokenauth="true": the id of a delegation token, and its HMAC in base64
    sasl.username, sasl.password           the same under librdkafka's names
    ssl.truststore.location, ssl.ca.location       certificates to trust, a PEM file; without it the system's
    ssl.truststore.certificates, ssl.ca.pem        the same as text
    ssl.keystore.location, ssl.certificate.location, ssl.key.location, ssl.key.password
                                           the client's own certificate and its key, PEM; in one file or two
    ssl.endpoint.identification.algorithm  https (default), or empty (`none`): the host's name is not checked
    enable.ssl.certificate.verification    false: nothing is checked
    ssl.enabled.protocols                  TLSv1.2,TLSv1.3 or one of them

All other keys under security., sasl. and ssl. are refused: an ignored one would leave a connection less secure than
configured. No error text contains the value of a key that may be secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.common import jaas
from barnabas.common.endpoints import SECURITY_PROTOCOLS, TLS_PROTOCOLS
from barnabas.common.errors import ConfigError
from barnabas.protocol.sasl.logins import MECHANISMS, TOKEN_EXTENSION, Login

PREFIXES: Final = ("security.", "sasl.", "ssl.", "enable.ssl.")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
#: The supported keys.
NAMES: Final = frozenset(
    {
        "security.protocol",
        *("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password"),
        *("ssl.truststore.location", "ssl.ca.location", "ssl.truststore.certificates", "ssl.ca.pem"),
        *("ssl.keystore.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
        *("ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password", "ssl.keystore.password"),
        *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
        *("ssl.enabled.protocols", "ssl.protocol"),
    }
)
_STORE_KEYS: Final = {
    "ssl.truststore.type": "ssl.truststore.location",
    "ssl.keystore.type": "ssl.keystore.location",
}
_JAAS_FORM: Final = 'a line such as org...ScramLoginModule required username="u" password="p"; is allowed'


@dataclass(frozen=True)
class Tls:
    """The description of a TLS context. The files are in PEM format. If both authorities are None, the system's trusted
    authorities are used.
    """

    authorities_file: str | None = None
    authorities_text: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_name: bool = True
    checks_certificate: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS


@dataclass(frozen=True)
class ClientSecurity:
    """The security of a connection. If both fields are None, it is plain text without a login."""

    tls: Tls | None = None
    login: Login | None = None


def client_security(properties: Mapping[str, str], prefix: str = "") -> ClientSecurity:
    """Returns the security of a client; it ignores keys of other kinds. `prefix` precedes the keys in error texts.

    Raises:
        ConfigError: a key is not supported, or its value is wrong.
    """
    reader = _Reader({key: value for key, value in properties.items() if key.startswith(PREFIXES)}, prefix)
    protocol = reader.choice("security.protocol", "PLAINTEXT", SECURITY_PROTOCOLS)
    login, tls = _login(reader), _tls(reader)
    reader.check_rest()
    if not protocol.startswith("SASL"):
        login = None
    elif login is None:
        raise reader.refused("sasl.mechanism", f"it must be set, to one of {', '.join(MECHANISMS)}")
    return ClientSecurity(tls if protocol in TLS_PROTOCOLS else None, login)


class _Reader:
    def __init__(self, properties: dict[str, str], prefix: str) -> None:
        self._left = properties
        self._prefix = prefix

    def text(self, *keys: str) -> str | None:
        """Returns the value of the first of these keys that is present."""
        found = [value for value in (self._left.pop(key, None) for key in keys) if value is not None]
        return found[0] if found else None

    def choice(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.text(key)
        chosen = default if value is None else value.strip().upper()
        if chosen not in allowed:
            raise self.refused(f"{key}={value}", f"it is not one of {', '.join(allowed)}")
        return chosen

    def refused(self, key: str, why: str) -> ConfigError:
        return ConfigError(f"{self._prefix}{key}: {why}")

    def check_rest(self) -> None:
        left = sorted(self._left)
        if left:
            raise self.refused(
                left[0], "it is not supported here, and ignoring it would make the connection less secure"
            )


def _login(reader: _Reader) -> Login | None:
    entry = reader.text("sasl.jaas.config")
    named = reader.text("sasl.mechanism", "sasl.mechanisms")
    username, password = reader.text("sasl.username"), reader.text("sasl.password")
    by_token = False
    if named is None:
        return None
    mechanism = named.strip().upper()
    if mechanism not in MECHANISMS:
        raise reader.refused(f"sasl.mechanism={named}", f"it is not one of {', '.join(MECHANISMS)}")
    if entry is not None:
        username, password, by_token = _of_jaas(reader, entry, mechanism)
    if username is None or password is None:
        raise reader.refused(
            "sasl.jaas.config", "it must contain username and password, or sasl.username and sasl.password must be set"
        )
    return Login(mechanism, username, password, by_token)


def _of_jaas(reader: _Reader, text: str, mechanism: str) -> tuple[str | None, str | None, bool]:
    """Returns username and password from `sasl.jaas.config`, the form that Java's clients use, and whether they are id
    and HMAC of a delegation token. No error text contains the value itself.
    """
    try:
        entry = jaas.parse(text)
    except jaas.JaasError as error:
        raise reader.refused("sasl.jaas.config", f"{error}; {_JAAS_FORM}") from None
    wanted = jaas.MODULE_OF[mechanism]
    if entry.module != wanted:
        raise reader.refused(
            "sasl.jaas.config", f"for sasl.mechanism={mechanism} it must name {wanted}, not {entry.module}"
        )
    by_token = mechanism != "PLAIN" and entry.options.get(TOKEN_EXTENSION, "").lower() == "true"
    return entry.options.get("username"), entry.options.get("password"), by_token


def _tls(reader: _Reader) -> Tls:
    for key, store in _STORE_KEYS.items():
        kind = reader.text(key)
        if kind is not None and kind.strip().upper() != "PEM":
            raise reader.refused(f"{key}={kind}", f"only PEM is read here; {_conversion(store)}")
    for key in ("ssl.truststore.password", "ssl.keystore.password"):
        if reader.text(key) is not None:
            raise reader.refused(key, f"a PEM file has none; {_conversion(key.replace('password', 'location'))}")
    reader.text("ssl.protocol")  # only Java needs this key; here the versions suffice
    versions = reader.text("ssl.enabled.protocols")
    chosen = TLS_VERSIONS if versions is None else tuple(each.strip() for each in versions.split(","))
    if not chosen or set(chosen) - set(TLS_VERSIONS):
        raise reader.refused(f"ssl.enabled.protocols={versions}", f"expected {', '.join(TLS_VERSIONS)} or both")
    algorithm = reader.text("ssl.endpoint.identification.algorithm")
    return Tls(
        authorities_file=reader.text("ssl.truststore.location", "ssl.ca.location"),
        authorities_text=reader.text("ssl.truststore.certificates", "ssl.ca.pem"),
        certificate_file=reader.text("ssl.keystore.location", "ssl.certificate.location"),
        key_file=reader.text("ssl.key.location"),
        key_password=reader.text("ssl.key.password"),
        checks_name=algorithm is None or algorithm.strip().lower() not in ("", "none"),
        checks_certificate=reader.choice("enable.ssl.certificate.verification", "TRUE", ("TRUE", "FALSE")) == "TRUE",
        versions=chosen,
    )


def _conversion(store: str) -> str:
    if "trust" in store:
        return f"keytool -list -rfc -keystore STORE > trusted.pem makes a file for {store}"
    return f"keytool -importkeystore to PKCS12, then openssl pkcs12 -in STORE -nodes makes a file for {store}"
