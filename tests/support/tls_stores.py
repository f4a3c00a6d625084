"""Certificates and stores for tests of TLS: an authority, and stores in the formats of Java, made by keytool.

stores = Stores(folder)
stores.pem("broker", "localhost")          a PEM file with key and chain
stores.pkcs12("broker"), stores.jks(...)   the same key in Java's formats
"""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path

from barnabas.embedded.authority import Authority, issue, make_authority

PASSWORD = "swordfish"
HOSTS = ("localhost", "127.0.0.1")


class Stores:
    """An authority, and stores with the certificates that it issues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority: Authority = make_authority(folder / "authority")

    @property
    def trusted(self) -> Path:
        return self.authority.certificate

    def pem(self, name: str, *hosts: str, days: int = 30, begin: datetime | None = None) -> Path:
        """Issues a certificate for these hosts, or for this machine."""
        return issue(self.authority, name, hosts or HOSTS, days=days, begin=begin)

    def pkcs12(self, name: str) -> Path:
        """Returns a PKCS12 store of an issued certificate, made by openssl."""
        source, target = self.authority.directory / f"{name}.pem", self.folder / f"{name}.p12"
        run(
            "openssl", "pkcs12", "-export", "-in", source, "-name", name, "-out", target, "-passout", f"pass:{PASSWORD}"
        )
        return target

    def jks(self, name: str) -> Path:
        """Returns a JKS store of an issued certificate, made by keytool."""
        source, target = self.pkcs12(name), self.folder / f"{name}.jks"
        target.unlink(missing_ok=True)
        options = ("-srcstorepass", PASSWORD, "-deststoretype", "JKS", "-deststorepass", PASSWORD, "-noprompt")
        run("keytool", "-importkeystore", "-srckeystore", source, *options, "-destkeystore", target)
        return target

    def trust(self, kind: str) -> Path:
        """Returns a trust store in Java's format JKS or PKCS12, made by keytool."""
        target = self.folder / f"trusted.{kind.lower()}"
        if not target.exists():
            options = ("-storetype", kind, "-storepass", PASSWORD, "-noprompt", "-alias", "authority")
            run("keytool", "-importcert", "-file", self.trusted, *options, "-keystore", target)
        return target

    def settings(self, kind: str, name: str, prefix: str = "") -> dict[str, str]:
        """Returns the settings of a node or a Java client with the certificate `name` in stores of one kind."""
        if kind == "PEM":
            found = {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.authority.directory / f"{name}.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.trusted),
            }
        else:
            found = {
                "ssl.keystore.type": kind,
                "ssl.keystore.location": str(self.jks(name) if kind == "JKS" else self.pkcs12(name)),
                "ssl.keystore.password": PASSWORD,
                "ssl.key.password": PASSWORD,
                "ssl.truststore.type": kind,
                "ssl.truststore.location": str(self.trust(kind)),
                "ssl.truststore.password": PASSWORD,
            }
        return {f"{prefix}{key}": value for key, value in found.items()}

    def librdkafka(self, name: str | None = None) -> dict[str, str]:
        """Returns the settings of a client on librdkafka, with a certificate or without."""
        found = {"security.protocol": "ssl", "ssl.ca.location": str(self.trusted)}
        if name is not None:
            file = str(self.authority.directory / f"{name}.pem")
            found |= {"ssl.certificate.location": file, "ssl.key.location": file}
        return found


def run(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
