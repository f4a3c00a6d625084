"""The TLS contexts of a node, for the listeners that it serves and for the listeners of other nodes that it connects
to.

A context is looked up for each connection, so a change of certificates acts on the next connection and leaves the open
ones alone. Changes come by IncrementalAlterConfigs (KIP-226): the broker that receives a change calls `check` with the
resulting configuration. When the change arrives in the metadata, even with the same value as before, `refresh` reads
the files that have changed.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

from barnabas.common.config import BrokerConfig
from barnabas.common.endpoints import TLS_PROTOCOLS
from barnabas.common.errors import ConfigError
from barnabas.protocol.peer_security import inter_broker_security, tls_listeners
from barnabas.tls.certificates import Certificate, subject_of
from barnabas.tls.listener_contexts import ListenerContexts, files_of, handshake
from barnabas.tls.listener_settings import SASL_CLIENT_AUTH_WARNING, ListenerSettings, unused_client_auth
from barnabas.tls.mapping_rules import NoMatchingRuleError

log = logging.getLogger("barnabas.tls")

_ANONYMOUS = "User:ANONYMOUS"
_REFUSED = "Validation of dynamic config update of SSLFactory failed: org.apache.kafka.common.config.ConfigException: "


class NodeContexts:
    """The TLS contexts of a node, by listener."""

    def __init__(self, config: BrokerConfig) -> None:
        """Reads all stores. Raises ConfigError that names the listener, the key and what is wrong."""
        self._config = config
        self._peers = inter_broker_security(config).tls
        self._by_name = {name: _contexts(config, name) for name in tls_listeners(config)}
        self._check_peers()
        for name, contexts in self._by_name.items():
            self._warn(name, contexts)

    def _check_peers(self) -> None:
        """Raises ConfigError if a broker with these stores would refuse itself."""
        contexts = None if self._peers is None else self._by_name[self._peers]
        if contexts is None or contexts.server is None or self._peers not in _served(self._config):
            return
        try:
            handshake(contexts.server, contexts.client)
        except ssl.SSLError as error:
            raise ConfigError(
                f"listener {self._peers}: A client SSLEngine created with the provided settings can't connect to a "
                f"server SSLEngine created with those settings: {shown(error)}"
            ) from None

    def _warn(self, listener: str, contexts: ListenerContexts) -> None:
        if listener in _served(self._config) and unused_client_auth(self._config, listener):
            log.warning("%s", SASL_CLIENT_AUTH_WARNING)
        warn_if_expired(contexts)

    def certificates(self) -> Iterator[tuple[str, Certificate]]:
        """Yields the listeners with their certificates of this moment."""
        for name, contexts in sorted(self._by_name.items()):
            for _, certificate in contexts.certificates:
                yield name, certificate

    # -- listeners

    def add(self, listener: str) -> None:
        """Reads the stores of a listener that begins to accept, unless they were read already. Raises ConfigError."""
        if listener not in self._by_name:
            made = self._by_name[listener] = _contexts(self._config, listener)
            self._warn(listener, made)

    def remove(self, listener: str) -> None:
        """Forgets a listener that accepts no more connections."""
        self._by_name.pop(listener, None)

    # -- connections

    def server(self, listener: str) -> ssl.SSLContext:
        """Returns the current context for a connection that the listener accepts."""
        context = self._by_name[listener].server
        assert context is not None, "checked at start and at each change"
        return context

    def client(self, listener: str) -> ssl.SSLContext:
        """Returns the current context for a connection to this listener of another node."""
        return self._by_name[listener].client

    def principal(self, listener: str, certificate: bytes | None) -> str:
        """Returns the principal of a peer with this certificate. Raises ValueError if no rule maps its name, or if
        it is malformed.
        """
        if certificate is None or self._config.security_protocol_of(listener) != "SSL":
            return _ANONYMOUS
        name = subject_of(certificate)
        try:
            return f"User:{self._by_name[listener].rules.principal_name(name)}"
        except NoMatchingRuleError as error:
            text = f"Failed to map name for '{name}' based on SSL principal mapping rules: {error}"
            raise NoMatchingRuleError(text) from None

    # -- changes

    def check(self, proposed: BrokerConfig) -> None:
        """Raises ConfigError if the node must not change to this configuration while it runs."""
        for name in tls_listeners(proposed):
            now = self._by_name.get(name)
            if now is None:
                _contexts(proposed, name)
                continue
            settings = ListenerSettings.of(proposed, name)
            if settings != now.settings or files_of(settings) != now.files:
                self._compatible(name, settings)

    def refresh(self) -> None:
        """Replaces the contexts of each listener whose settings or files have changed. Settings that cannot be used are
        reported, and the former contexts stay.
        """
        current = set(tls_listeners(self._config))
        for name, now in self._by_name.items():
            if name not in current:
                continue  # The listener is about to be closed.
            try:
                settings = ListenerSettings.of(self._config, name)
                if settings == now.settings and files_of(settings) == now.files:
                    continue
                made = self._compatible(name, settings)
            except ConfigError as error:
                log.error("the certificates of listener %s stay as they are: %s", name, error)
                continue
            self._by_name[name] = made
            warn_if_expired(made)
            log.info("listener %s uses %s from now on", name, _described(made))

    def _compatible(self, name: str, settings: ListenerSettings) -> ListenerContexts:
        """Returns the contexts for these settings. Raises ConfigError if the listener must not change to them."""
        now = self._by_name[name]
        made = ListenerContexts(settings)
        why = _incompatibility(now, made)
        if why is None and name == self._peers and now.server is not None and made.server is not None:
            why = _not_verifiable(now, made)
        if why is not None:
            raise ConfigError(_REFUSED + why)
        return made


def warn_if_expired(contexts: ListenerContexts) -> None:
    expired = contexts.expired(datetime.now(UTC))
    if expired is not None:
        log.warning(
            "%s: the certificate of %s is valid from %s to %s only: peers will refuse it",
            contexts.settings.place.name,
            expired.subject,
            expired.not_before.isoformat(),
            expired.not_after.isoformat(),
        )


def _served(config: BrokerConfig) -> set[str]:
    """Returns the listeners with TLS that this node serves."""
    return {each.name for each in config.listeners if each.security_protocol in TLS_PROTOCOLS}


def _contexts(config: BrokerConfig, listener: str) -> ListenerContexts:
    """Reads the stores of a listener. Raises ConfigError."""
    made = ListenerContexts(ListenerSettings.of(config, listener))
    if made.server is None and listener in _served(config):
        raise ConfigError(
            f"listener {listener}: ssl.keystore.location is not set: a listener with TLS needs a certificate, "
            "from ssl.keystore.location or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    return made


def _incompatibility(now: ListenerContexts, then: ListenerContexts) -> str | None:
    """Returns why a listener must not change between these contexts, in Kafka's words; None if it can."""
    if not now.keys:
        if then.keys:
            return "Cannot add SSL keystore to an existing listener for which no keystore was configured."
    elif not then.keys:
        return "Cannot remove the SSL keystore from an existing listener for which a keystore was configured."
    else:
        why = _other_names(now, then)
        if why is not None:
            return why
    if now.settings.trust_store is None and then.settings.trust_store is not None:
        return "Cannot add SSL truststore to an existing listener for which no truststore was configured."
    return None


def _other_names(now: ListenerContexts, then: ListenerContexts) -> str | None:
    before, after = now.certificates, then.certificates
    allowed = then.settings.allows_other_names, then.settings.allows_other_alternative_names
    if len(before) != len(after) and not all(allowed):
        return (
            f"Keystore entries do not match, existing store contains {len(before)} entries, "
            f"new store contains {len(after)} entries"
        )
    for (old_alias, old), (new_alias, new) in zip(before, after, strict=False):
        if not allowed[0] and old.subject.casefold() != new.subject.casefold():
            return (
                f"Keystore DistinguishedName does not match:  existing={{alias={old_alias}, DN={old.subject}}}, "
                f"new={{alias={new_alias}, DN={new.subject}}}"
            )
        if not allowed[1] and not new.alternative_names >= old.alternative_names:
            return (
                f"Keystore SubjectAltNames do not match:  existing={{alias={old_alias}, SAN={_listed(old)}}}, "
                f"new={{alias={new_alias}, SAN={_listed(new)}}}"
            )
    return None


def _listed(certificate: Certificate) -> str:
    return f"[{', '.join(f'[{kind}, {text}]' for kind, text in sorted(certificate.alternative_names))}]"


def _not_verifiable(now: ListenerContexts, then: ListenerContexts) -> str | None:
    """Returns why a node with one of these contexts would refuse one with the other; None if both connect."""
    assert now.server is not None
    assert then.server is not None
    try:
        handshake(now.server, then.client)
        handshake(then.server, now.client)
    except ssl.SSLError as error:
        return shown(error)
    return None


def _described(contexts: ListenerContexts) -> str:
    return ", ".join(f"{each.subject} (until {each.not_after:%Y-%m-%d})" for _, each in contexts.certificates)


def shown(error: ssl.SSLError) -> str:
    """Returns the cause of a failed handshake in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = error.reason or str(error)
    return str(reason).replace("_", " ").lower()
