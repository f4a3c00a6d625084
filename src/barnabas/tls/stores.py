"""Key stores and trust stores: PEM, PKCS12 and JKS, recognized by their content.

`ssl.keystore.type=JKS` also opens PKCS12 files, and PKCS12 opens JKS files, as in Java; the type PEM must be set, as in
Kafka. PKCS12 needs the package `cryptography`, which is loaded for such a file only. No key is written to a disk.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from barnabas.common.errors import ConfigError
from barnabas.tls import jks, pem
from barnabas.tls.certificates import parse_certificate
from barnabas.tls.listener_settings import Place, StoreSettings

_DER_BEGIN: Final = b"\x30"
_JCEKS: Final = b"\xce\xce\xce\xce"
#: The maximum size of a store; a larger file is not one.
_FILE_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True)
class KeyEntry:
    """A private key with its certificate chain; the certificate of the key comes first."""

    alias: str
    chain: tuple[bytes, ...]
    #: The key as PEM, encrypted with `password` if that is set.
    key_pem: str = field(repr=False)
    password: str | None = field(default=None, repr=False)


def read_keys(place: Place, store: StoreSettings) -> tuple[KeyEntry, ...]:
    """Returns the keys of a key store. Raises ConfigError if it has none or cannot be read."""
    if store.key_pem is not None:
        return (_pem_key(_Words(place, "ssl.keystore.key"), store.key_pem, store.certificates_pem or "", store),)
    words = _Words(place, "ssl.keystore.location", store.location)
    data = _content(words, store)
    if store.is_pem:
        text = data.decode("ascii", "replace")
        return (_pem_key(words, text, text, store),)
    try:
        found = _jks_keys(data, store) if data.startswith(jks.MAGIC) else _pkcs12_keys(words, data, store)
    except ValueError as error:
        raise words.refused(str(error)) from None
    if not found:
        raise words.refused("the store has no private key")
    _check_certificates(words, [each for entry in found for each in entry.chain])
    return found


def read_trusted(place: Place, store: StoreSettings) -> tuple[bytes, ...]:
    """Returns the certificates of a trust store. Raises ConfigError if it has none or cannot be read."""
    if store.certificates_pem is not None:
        return _pem_certificates(_Words(place, "ssl.truststore.certificates"), store.certificates_pem)
    words = _Words(place, "ssl.truststore.location", store.location)
    data = _content(words, store)
    if store.is_pem:
        return _pem_certificates(words, data.decode("ascii", "replace"))
    try:
        if data.startswith(jks.MAGIC):
            content = jks.read(data, store.password)
            found = (*content.certificates, *(each for key in content.keys for each in key.chain[:1]))
        else:
            found = _pkcs12_certificates(words, data, store.password)
    except ValueError as error:
        raise words.refused(str(error)) from None
    if not found:
        raise words.refused("the store has no certificates")
    _check_certificates(words, found)
    return found


class _Words:
    """The parts of an error text: the place, the configuration key, and its value unless that is secret."""

    def __init__(self, place: Place, key: str, value: str | None = None) -> None:
        self.place = place
        self._key = key
        self._value = value

    def refused(self, why: str) -> ConfigError:
        return self.place.refused(self._key, self._value, why)


def _content(words: _Words, store: StoreSettings) -> bytes:
    """Returns the content of a store's file. Raises ConfigError if it does not have the format that the type names."""
    assert store.location is not None, "a store is a file or text"
    try:
        # A pipe would be waited for, and with it everything else: this runs on the event loop of a running broker.
        if not stat.S_ISREG(os.stat(store.location).st_mode):
            raise words.refused("is not a regular file")
        with open(store.location, "rb") as stream:
            data = stream.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise words.refused(f"cannot be read: {error.strerror}") from None
    if len(data) > _FILE_BYTES_MAX:
        raise words.refused("the file is too large for a store")
    is_binary = data.startswith((jks.MAGIC, _JCEKS, _DER_BEGIN))
    if data.startswith(_JCEKS):
        raise words.refused("this is a JCEKS file; JKS, PKCS12 and PEM are allowed")
    if is_binary and store.is_pem:
        kind = "JKS" if data.startswith(jks.MAGIC) else "PKCS12"
        raise words.refused(f"this is not a PEM file; set the store's type to {kind} if it is one")
    if not is_binary and not store.is_pem:
        if b"-----BEGIN " in data:
            raise words.refused("this is a PEM file; set the store's type to PEM, and remove the store password")
        raise words.refused("the file is none of JKS, PKCS12 and PEM")
    return data


def _pem_key(words: _Words, key_text: str, chain_text: str, store: StoreSettings) -> KeyEntry:
    keys = [each for each in pem.blocks(key_text) if each.label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        why = f"Expected one private key, but found {len(keys)}" if keys else "Private key not provided"
        raise words.refused(why)
    is_encrypted = keys[0].label.startswith("ENCRYPTED") or "ENCRYPTED" in keys[0].text
    if is_encrypted and store.key_password is None:
        raise words.refused(f"the private key is encrypted: {words.place.key_password} is needed")
    return KeyEntry("kafka", _pem_certificates(words, chain_text), keys[0].text, store.key_password)


def _pem_certificates(words: _Words, text: str) -> tuple[bytes, ...]:
    found = [each for each in pem.blocks(text) if each.label == pem.CERTIFICATE]
    if not found:
        raise words.refused("At least one certificate expected, but none found")
    try:
        certificates = tuple(each.der for each in found)
    except ValueError:
        raise words.refused("a certificate is not base64") from None
    _check_certificates(words, certificates)
    return certificates


def _check_certificates(words: _Words, certificates: list[bytes] | tuple[bytes, ...]) -> None:
    for certificate in certificates:
        try:
            parse_certificate(certificate)
        except ValueError as error:
            raise words.refused(f"a certificate is malformed: {error}") from None


def _jks_keys(data: bytes, store: StoreSettings) -> tuple[KeyEntry, ...]:
    password = store.key_password or store.password or ""
    return tuple(
        KeyEntry(key.alias, key.chain, pem.block_of("PRIVATE KEY", jks.decrypt(key.protected, password)))
        for key in jks.read(data, store.password).keys
    )


def _pkcs12(words: _Words, data: bytes, password: str | None) -> Any:
    try:
        module = import_module("cryptography.hazmat.primitives.serialization.pkcs12")
    except ImportError:
        raise words.refused(
            "PKCS12 needs the package cryptography: pip install 'barnabas[tls]', or use PEM or JKS"
        ) from None
    try:
        return module.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise ValueError(f"the file is damaged, or the store's password is wrong ({error})") from None


def _pkcs12_keys(words: _Words, data: bytes, store: StoreSettings) -> tuple[KeyEntry, ...]:
    content = _pkcs12(words, data, store.password)
    if content.key is None or content.cert is None:
        return ()
    forms = import_module("cryptography.hazmat.primitives.serialization")
    key = content.key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    alias = (content.cert.friendly_name or b"").decode("utf-8", "replace")
    return (KeyEntry(alias, (_der(content.cert), *map(_der, content.additional_certs)), key.decode()),)


def _pkcs12_certificates(words: _Words, data: bytes, password: str | None) -> tuple[bytes, ...]:
    content = _pkcs12(words, data, password)
    others = list(content.additional_certs)
    if content.cert is None:
        return tuple(map(_der, others))
    # The chain of a key is not trusted, as in Java, except for the first certificate. An authority that is trusted as
    # well is in the store twice.
    last = content.cert.certificate
    while last.issuer != last.subject:
        issuer = next((each for each in others if each.certificate.subject == last.issuer), None)
        if issuer is None:
            break
        others.remove(issuer)
        last = issuer.certificate
    return tuple(map(_der, (content.cert, *others)))


def _der(certificate: Any) -> bytes:
    forms = import_module("cryptography.hazmat.primitives.serialization")
    encoded: bytes = certificate.certificate.public_bytes(forms.Encoding.DER)
    return encoded


def modified_ns(store: StoreSettings | None) -> int | None:
    """Returns the time at which the store's file was last changed; None if the store has no file, or the file is
    missing.
    """
    if store is None or store.location is None:
        return None
    try:
        return os.stat(store.location).st_mtime_ns
    except OSError:
        return None
