"""The TLS contexts of one listener: one for connections that it accepts, one for those that this node dials to it.

Every certificate of the trust store is trusted, even one that is not an authority, as in Java. Keys are passed to
OpenSSL in an anonymous file in memory, never on a disk.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from barnabas.common.errors import ConfigError
from barnabas.tls import pem, suites
from barnabas.tls.alerts import ServerContext
from barnabas.tls.certificates import Certificate, parse_certificate
from barnabas.tls.listener_settings import ListenerSettings, Place
from barnabas.tls.mapping_rules import MappingRules
from barnabas.tls.stores import KeyEntry, modified_ns, read_keys, read_trusted

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerContexts:
    """The contexts made from a listener's settings and files at one moment."""

    def __init__(self, settings: ListenerSettings) -> None:
        """Reads the stores and creates the contexts. Raises ConfigError."""
        self.settings = settings
        self.files = files_of(settings)
        self.keys = () if settings.key_store is None else read_keys(settings.place, settings.key_store)
        self._trusted = None if settings.trust_store is None else read_trusted(settings.place, settings.trust_store)
        self.rules = MappingRules(settings.mapping_rules)
        self.client = self._client()
        self.server = self._server() if self.keys else None

    @property
    def certificates(self) -> list[tuple[str, Certificate]]:
        """Returns the listener's own certificates by alias."""
        return [(entry.alias, parse_certificate(entry.chain[0])) for entry in self.keys]

    def expired(self, now: datetime) -> Certificate | None:
        """Returns one of the listener's own certificates that is not valid at this time; None if all are."""
        return next((each for _, each in self.certificates if not each.not_before <= now <= each.not_after), None)

    def _server(self) -> ssl.SSLContext:
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = _CLIENT_AUTH[self.settings.client_auth]
        # Sessions are not resumed under TLS 1.3: a client that is no longer trusted must not return with an old one.
        context.num_tickets = 0
        self._fill(context)
        return context

    def _client(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.settings.checks_names
        self._fill(context)
        return context

    def _fill(self, context: ssl.SSLContext) -> None:
        settings = self.settings
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        self._limit(context)
        if self._trusted is None:
            context.load_default_certs()
        else:
            try:
                context.load_verify_locations(cadata=b"".join(dict.fromkeys(self._trusted)))
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(
                    f"{settings.place.name}: a certificate of the trust store is damaged: {error}"
                ) from None
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for entry in self.keys:
            try:
                _load(context, entry)
            except (ssl.SSLError, ValueError) as error:
                raise ConfigError(
                    f"{settings.place.name}: the key of the key store cannot be used: {_reason(error, settings.place)}"
                ) from None

    def _limit(self, context: ssl.SSLContext) -> None:
        """Limits a context to the enabled versions and suites."""
        versions = [_VERSIONS[each] for each in self.settings.versions]
        chosen = suites.choose(self.settings.suites)
        if chosen is not None:
            possible = {ssl.TLSVersion.TLSv1_2: chosen.allows_tls12, ssl.TLSVersion.TLSv1_3: chosen.allows_tls13}
            versions = [each for each in versions if possible[each]]
            if not versions:
                place, shown = self.settings.place, ",".join(self.settings.versions)
                raise ConfigError(
                    f"{place.name}: {place.key_prefix}ssl.cipher.suites={','.join(self.settings.suites)} has no suite "
                    f"for {place.key_prefix}ssl.enabled.protocols={shown}"
                )
            if chosen.openssl_list:
                context.set_ciphers(chosen.openssl_list)
        context.minimum_version, context.maximum_version = min(versions), max(versions)


def files_of(settings: ListenerSettings) -> tuple[int | None, int | None]:
    """Returns the times at which the files of both stores were last changed."""
    return modified_ns(settings.key_store), modified_ns(settings.trust_store)


def _load(context: ssl.SSLContext, entry: KeyEntry) -> None:
    text = entry.key_pem + "".join(pem.block_of(pem.CERTIFICATE, each) for each in entry.chain)
    descriptor = os.memfd_create("barnabas", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        # OpenSSL would ask for a missing password on the terminal, so an empty one is given.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=entry.password or "")
    finally:
        os.close(descriptor)


def _reason(error: Exception, place: Place) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate of the chain"
    if reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ", None) or "PEM" in str(error):
        return f"the private key is damaged, or {place.key_password} is wrong"
    return str(reason).lower().replace("_", " ")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Performs a handshake in memory, without a check of names. Raises ssl.SSLError if it fails."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    checked, client.check_hostname = client.check_hostname, False
    try:
        ends: Sequence[ssl.SSLObject] = (
            client.wrap_bio(to_client, to_server),
            server.wrap_bio(to_server, to_client, server_side=True),
        )
    finally:
        client.check_hostname = checked
    waiting = list(ends)
    for _ in range(10):
        for end in tuple(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return
    raise ssl.SSLError("the handshake does not end")
