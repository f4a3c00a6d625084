"""TLS of a connection: the context that `kafka.ssl.*` describes (`protocol.client_security` says which keys)."""

from __future__ import annotations

import socket
import ssl

from barnabas.common.errors import ConfigError
from barnabas.protocol.client_security import Tls
from barnabas.spark.faults import RequestRefused

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(tls: Tls) -> ssl.SSLContext:
    """ConfigError for files that are not there or hold something else."""
    try:
        context = ssl.create_default_context(cafile=tls.authorities_file, cadata=tls.authorities_text)
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password or "")
    except (OSError, ValueError) as error:
        files = [each for each in (tls.authorities_file, tls.certificate_file, tls.key_file) if each is not None]
        raise ConfigError(
            f"kafka.ssl.*: {', '.join(files) or 'the certificates'} cannot be read as PEM, or not with this "
            f"kafka.ssl.key.password: {error}"
        ) from error
    context.check_hostname = tls.checks_name and tls.checks_certificate
    if not tls.checks_certificate:
        context.verify_mode = ssl.CERT_NONE
    context.minimum_version = min(_VERSIONS[each] for each in tls.versions)
    context.maximum_version = max(_VERSIONS[each] for each in tls.versions)
    return context


def secured(plain: socket.socket, address: tuple[str, int], tls: Tls | None) -> socket.socket:
    """The socket to speak through. RequestRefused where no retry helps, else OSError."""
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
        raise ConnectionError(f"{shown} does not speak TLS with us: {error}") from error
