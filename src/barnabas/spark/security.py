"""TLS of a connection: the context that `kafka.ssl.*` describes (`protocol.client_security` lists the keys)."""

from __future__ import annotations

import socket
import ssl

from barnabas.common.errors import ConfigError
from barnabas.protocol.client_security import Tls
from barnabas.spark.errors import RequestRefused
from barnabas.tls.contexts import client_context


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Returns the TLS context. Raises ConfigError for files that are missing or have other contents."""
    try:
        return client_context(tls)
    except (OSError, ValueError) as error:
        files = [each for each in (tls.authorities_file, tls.certificate_file, tls.key_file) if each is not None]
        raise ConfigError(
            f"kafka.ssl.*: {', '.join(files) or 'the certificates'} cannot be read as PEM, or not with this "
            f"kafka.ssl.key.password: {error}"
        ) from error


def secured(plain: socket.socket, address: tuple[str, int], tls: Tls | None) -> socket.socket:
    """Returns the socket to use: wrapped in TLS if configured. Raises RequestRefused if no retry can help, else
    OSError.
    """
    if tls is None:
        return plain
    shown = f"{address[0]}:{address[1]}"
    try:
        return tls_context(tls).wrap_socket(plain, server_hostname=address[0])
    except ssl.SSLCertVerificationError as error:
        raise RequestRefused(
            f"the certificate of the broker at {shown} is not trusted: {error.verify_message}; "
            "kafka.ssl.truststore.location names a PEM file with what to trust"
        ) from error
    except (ssl.SSLError, ConnectionResetError) as error:
        raise ConnectionError(f"{shown} did not complete the TLS handshake: {error}") from error
