"""A certificate authority of an embedded cluster, and the certificates that it issues: PEM files in one directory.

    DIR/ca.pem, DIR/ca-key.pem      the authority
    DIR/NAME.pem                    a key with its certificate and chain, for `ssl.keystore.location`

Keys are ECDSA on P-256, because a handshake then costs half of what it costs with RSA. Needs the package
`cryptography`, which is imported by the first call.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.embedded.failures import Failure

_CA_DAYS: Final = 3650
_DAYS: Final = 825
#: Certificates are valid from this time before their creation, because clocks of other machines can be behind.
_EARLY: Final = timedelta(hours=1)


class Authority(NamedTuple):
    """A certificate authority; the certificates that it issues are in its directory."""

    directory: Path

    @property
    def certificate(self) -> Path:
        """Returns the file to trust (`ssl.truststore.location`, with the type PEM)."""
        return self.directory / "ca.pem"

    @property
    def key(self) -> Path:
        return self.directory / "ca-key.pem"


def make_authority(directory: Path) -> Authority:
    """Returns the authority of a directory, which is created if there is none. Raises Failure without `cryptography`,
    and OSError.
    """
    authority = Authority(directory)
    if authority.certificate.exists() and authority.key.exists():
        return authority
    tools = _Tools()
    directory.mkdir(parents=True, exist_ok=True)
    key = tools.new_key()
    subject = tools.name("Barnabas embedded authority")
    builder = tools.builder(subject, subject, key, datetime.now(UTC) - _EARLY, _CA_DAYS)
    x509 = tools.x509
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    write_private(authority.key, tools.key_text(key))
    write_private(authority.certificate, tools.certificate_text(builder.sign(key, tools.digest)))
    return authority


def issue(
    authority: Authority, name: str, sans: Sequence[str], *, days: int = _DAYS, begin: datetime | None = None
) -> Path:
    """Issues a certificate with the name `CN=name` for these hosts and addresses, for servers and clients alike.
    Returns its file, `ssl.keystore.location` with the type PEM; an existing one is replaced. Raises Failure without
    `cryptography`, and OSError.
    """
    tools = _Tools()
    x509 = tools.x509
    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    issuer_key = tools.forms.load_pem_private_key(authority.key.read_bytes(), None)
    key = tools.new_key()
    builder = tools.builder(tools.name(name), issuer.subject, key, begin or datetime.now(UTC) - _EARLY, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    if sans:
        builder = builder.add_extension(x509.SubjectAlternativeName([_san(x509, each) for each in sans]), False)
    certificate = builder.sign(issuer_key, tools.digest)
    file = authority.directory / f"{name}.pem"
    text = tools.key_text(key) + tools.certificate_text(certificate) + authority.certificate.read_text()
    write_private(file, text)
    return file


class _Tools:
    """The parts of `cryptography` that are needed here."""

    def __init__(self) -> None:
        try:
            self.x509: Any = import_module("cryptography.x509")
            self.forms: Any = import_module("cryptography.hazmat.primitives.serialization")
            self._curves: Any = import_module("cryptography.hazmat.primitives.asymmetric.ec")
            self.digest: Any = import_module("cryptography.hazmat.primitives.hashes").SHA256()
        except ImportError as error:
            raise Failure(
                "certificates are made with the package cryptography, which is not installed",
                "install it with: pip install 'barnabas[tls]'",
            ) from error

    def new_key(self) -> Any:
        return self._curves.generate_private_key(self._curves.SECP256R1())

    def name(self, common_name: str) -> Any:
        return self.x509.Name([self.x509.NameAttribute(self.x509.NameOID.COMMON_NAME, common_name)])

    def builder(self, subject: Any, issuer: Any, key: Any, begin: datetime, days: int) -> Any:
        made = self.x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        made = made.serial_number(self.x509.random_serial_number())
        return made.not_valid_before(begin).not_valid_after(begin + timedelta(days=days))

    def key_text(self, key: Any) -> str:
        forms = self.forms
        text: bytes = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
        return text.decode()

    def certificate_text(self, certificate: Any) -> str:
        text: bytes = certificate.public_bytes(self.forms.Encoding.PEM)
        return text.decode()


def _san(x509: Any, text: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def write_private(file: Path, text: str) -> None:
    """Writes a file that only its owner can read; a reader sees the old one or the new one."""
    beginning = file.with_name(f"{file.name}.new")
    beginning.unlink(missing_ok=True)
    descriptor = os.open(beginning, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(beginning, file)
