"""Java's own format of key stores, JKS. Its keys are XORed with a chain of SHA-1 digests, the first of which is
computed from the password.

magic, version, count, entries, SHA-1(password as UTF-16 + "Mighty Aphrodite" + all before)
a key:          1, alias, time, encrypted key, count of its chain, certificates
a certificate:  2, alias, time, certificate
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from barnabas.tls.der import only

MAGIC: Final = b"\xfe\xed\xfe\xed"
_KEY_TAG, _CERTIFICATE_TAG = 1, 2
_DIGEST_BYTES: Final = 20
_SALT_BYTES: Final = 20
_WHITENER: Final = b"Mighty Aphrodite"


class JksKey(NamedTuple):
    alias: str
    #: The encrypted key.
    protected: bytes
    chain: tuple[bytes, ...]


class JksContent(NamedTuple):
    keys: tuple[JksKey, ...]
    certificates: tuple[bytes, ...]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def bytes_of(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError("the file ends too early")
        taken, self._position = self._data[self._position : end], end
        return taken

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.bytes_of(struct.calcsize(form)))[0]
        return value

    def text(self) -> str:
        return self.bytes_of(self.number(">H")).decode("utf-8", "replace")

    def block(self) -> bytes:
        return self.bytes_of(self.number(">I"))


def read(data: bytes, password: str | None) -> JksContent:
    """Returns the entries of a store. Without a password its integrity is not checked, as in Java. Raises ValueError
    if the file is damaged or has another password.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        made = hashlib.sha1(_utf16(password) + _WHITENER + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(made, digest):
            raise ValueError("Keystore was tampered with, or password was incorrect")
    reader = _Reader(body)
    reader.bytes_of(len(MAGIC))
    version = reader.number(">I")
    if version not in (1, 2):
        raise ValueError(f"version {version} of JKS is not known")
    keys: list[JksKey] = []
    certificates: list[bytes] = []
    for _ in range(reader.number(">I")):
        tag, alias, _time = reader.number(">I"), reader.text(), reader.number(">Q")
        if tag == _KEY_TAG:
            protected = reader.block()
            chain = tuple(_certificate(reader, version) for _ in range(reader.number(">I")))
            keys.append(JksKey(alias, protected, chain))
        elif tag == _CERTIFICATE_TAG:
            certificates.append(_certificate(reader, version))
        else:
            raise ValueError(f"an entry of kind {tag} is not known")
    return JksContent(tuple(keys), tuple(certificates))


def _certificate(reader: _Reader, version: int) -> bytes:
    if version == 2 and (kind := reader.text()) not in ("X.509", "X509"):
        raise ValueError(f"a certificate of kind {kind} is not known")
    return reader.block()


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def decrypt(protected: bytes, password: str) -> bytes:
    """Returns a key as PKCS #8. Raises ValueError for another password."""
    parts = only(protected).parts
    if len(parts) != 2:
        raise ValueError("a key is malformed")
    data, secret = parts[1].content, _utf16(password)
    salt, body, check = data[:_SALT_BYTES], data[_SALT_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    stream, link = bytearray(), salt
    while len(stream) < len(body):
        link = hashlib.sha1(secret + link, usedforsecurity=False).digest()
        stream += link
    key = (int.from_bytes(body, "big") ^ int.from_bytes(stream[: len(body)], "big")).to_bytes(len(body), "big")
    made = hashlib.sha1(secret + key, usedforsecurity=False).digest()
    if not hmac.compare_digest(made, check):
        raise ValueError("Cannot recover key: its password was incorrect (ssl.key.password)")
    return key
