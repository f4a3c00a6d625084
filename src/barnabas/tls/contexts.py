"""TLS contexts for our own clients, created from the files and settings that `protocol.client_security` reads.

Only this module creates contexts; it opens no connections.
"""

from __future__ import annotations

import ssl
from typing import Final

from barnabas.protocol.client_security import Tls

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_context(tls: Tls) -> ssl.SSLContext:
    """Creates the TLS context of a client. Raises OSError or ValueError for files that cannot be read, have other
    contents, or need another password.
    """
    context = ssl.create_default_context(cafile=tls.authorities_file, cadata=tls.authorities_text)
    if tls.certificate_file is not None:
        context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password or "")
    context.check_hostname = tls.checks_name and tls.checks_certificate
    if not tls.checks_certificate:
        context.verify_mode = ssl.CERT_NONE
    context.minimum_version = min(_VERSIONS[each] for each in tls.versions)
    context.maximum_version = max(_VERSIONS[each] for each in tls.versions)
    return context
