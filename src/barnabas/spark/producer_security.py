"""`kafka.security.*`, `kafka.sasl.*` and `kafka.ssl.*` of the sink, under the names of librdkafka, its producer.

Keys that the source accepts, under the names of Java's clients or of librdkafka, mean the same here. Features that only
librdkafka has (OAUTHBEARER, GSSAPI, cipher suites) are passed to it unchanged.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ConfigError
from barnabas.protocol.client_security import NAMES, PREFIXES, TLS_VERSIONS, Tls, client_security
from barnabas.protocol.sasl.logins import MECHANISMS
from barnabas.spark.security import tls_context

_JAVA_NAMES: Final = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
}


def producer_security(given: dict[str, str]) -> dict[str, str]:
    """Returns the security settings among a producer's properties, whose keys have no `kafka.` prefix. Raises
    ConfigError.
    """
    ours = {key: value for key, value in given.items() if key in NAMES}
    rest = {key: value for key, value in given.items() if key.startswith(PREFIXES) and key not in NAMES}
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    if mechanism is not None and mechanism.strip().upper() not in MECHANISMS:
        return rest | {_JAVA_NAMES.get(key, key): value for key, value in ours.items()}
    security = client_security(ours, "kafka.")
    found = rest
    if security.tls is not None or security.login is not None:
        found["security.protocol"] = ours["security.protocol"].strip().lower()
    if security.login is not None:
        login = security.login
        found |= {"sasl.mechanisms": login.mechanism, "sasl.username": login.username, "sasl.password": login.password}
    if security.tls is not None:
        found |= _tls(security.tls)
    return found


def _tls(tls: Tls) -> dict[str, str]:
    if tls.versions != TLS_VERSIONS:
        raise ConfigError(f"kafka.ssl.enabled.protocols={','.join(tls.versions)}: the sink cannot choose among them")
    tls_context(tls)
    found = {
        "ssl.ca.location": tls.authorities_file,
        "ssl.ca.pem": tls.authorities_text,
        "ssl.certificate.location": tls.certificate_file,
        "ssl.key.location": tls.key_file or tls.certificate_file,
        "ssl.key.password": tls.key_password,
        "ssl.endpoint.identification.algorithm": "https" if tls.checks_name else "none",
        "enable.ssl.certificate.verification": "true" if tls.checks_certificate else "false",
    }
    return {key: value for key, value in found.items() if value is not None}
