"""Encryption of a connection. SASL is refused by name until it is there: an unheeded password would be a bad surprise.

kafka.security.protocol              PLAINTEXT | SSL
kafka.ssl.ca.location                certificates to trust, PEM (also kafka.ssl.truststore.location of type PEM)
kafka.ssl.certificate.location       the client's own certificate, PEM (also kafka.ssl.keystore.location)
kafka.ssl.key.location, ...password  its key
kafka.ssl.endpoint.identification.algorithm   https (default), or empty: the host's name is not checked
"""

from __future__ import annotations

import socket
import ssl

from barnabas.common.errors import ConfigError
from barnabas.spark.client_settings import ClientSettings

_PROTOCOLS = ("PLAINTEXT", "SSL")
_KEYS = frozenset(
    {
        "security.protocol",
        "ssl.ca.location",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.certificate.location",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)


def check_security(security: dict[str, str]) -> None:
    """ConfigError for what this side cannot do; the connection is not opened."""
    protocol = security.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"kafka.security.protocol={protocol}: this source speaks {' and '.join(_PROTOCOLS)}; SASL is not there yet"
        )
    for key, value in security.items():
        if key not in _KEYS:
            raise ConfigError(f"kafka.{key}={value!r}: not known here; allowed are {', '.join(sorted(_KEYS))}")
        if key.endswith("store.type") and value.upper() != "PEM":
            raise ConfigError(f"kafka.{key}={value!r}: only PEM can be read here (convert with keytool or openssl)")


def secured(plain: socket.socket, host: str, settings: ClientSettings) -> socket.socket:
    """The socket to speak through."""
    security = dict(settings.security)
    if security.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT":
        return plain
    authorities = security.get("ssl.ca.location", security.get("ssl.truststore.location"))
    context = ssl.create_default_context(cafile=authorities)
    if security.get("ssl.endpoint.identification.algorithm", "https") == "":
        context.check_hostname = False
    certificate = security.get("ssl.certificate.location", security.get("ssl.keystore.location"))
    if certificate is not None:
        context.load_cert_chain(certificate, security.get("ssl.key.location"), security.get("ssl.key.password"))
    return context.wrap_socket(plain, server_hostname=host)
