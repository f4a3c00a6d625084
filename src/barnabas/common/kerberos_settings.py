"""The settings of GSSAPI on a listener: this node's principal and keys, and the service name of other nodes.

listener.name.<listener>.gssapi.sasl.jaas.config    Krb5LoginModule with principal, keyTab, serviceName
[listener.name.<listener>.]sasl.kerberos.service.name
[listener.name.<listener>.]sasl.kerberos.principal.to.local.rules
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.common.errors import ConfigError
from barnabas.common.kerberos_names import KEY as RULES
from barnabas.common.kerberos_names import LocalNames
from barnabas.common.log_in_settings import (
    GSSAPI,
    ListenerSettings,
    has_log_in,
    jaas_entry,
    jaas_key,
    mechanism_to_log_in,
    mechanisms_of,
)

_SERVICE_NAME = "sasl.kerberos.service.name"


class KerberosKeys(NamedTuple):
    """The principal of this node on a listener, and where its keys are."""

    #: The principal whose keys are used; None for all keys of the keytab.
    principal: str | None
    #: The keytab; None stands for the machine's own one or, for links to other nodes, its ticket cache.
    keytab: str | None
    #: The first component of the principals of other nodes.
    service: str

    @classmethod
    def of(cls, config: ListenerSettings, listener: str) -> KerberosKeys:
        """Reads the JAAS entry of a listener. Raises ConfigError."""
        entry, key = jaas_entry(config, listener, GSSAPI), jaas_key(listener, GSSAPI)
        if entry is None:
            raise ConfigError(f"{key} must be set, with the principal and the keyTab of this node")
        options = entry.options
        principal, keytab = options.get("principal"), options.get("keyTab")
        if principal is None and not _is_true(options, "useTicketCache"):
            raise ConfigError(f'{key} needs principal="SERVICE/HOST@REALM" (or "*" for all keys of the keyTab)')
        if not _is_true(options, "useKeyTab"):
            if keytab is not None:
                raise ConfigError(f"{key} has a keyTab, which has no effect without useKeyTab=true")
            if not _is_true(options, "useTicketCache"):
                raise ConfigError(f"{key} needs useKeyTab=true: nobody can type a password here")
        if keytab is not None:
            keytab = keytab.removeprefix("file://").removeprefix("FILE:")
        return cls(None if principal == "*" else principal, keytab, _service(config, listener, options, key))


def _service(config: ListenerSettings, listener: str, options: Mapping[str, str], key: str) -> str:
    named, configured = options.get("serviceName"), config.value_on(listener, _SERVICE_NAME)
    found = named or (configured if isinstance(configured, str) else "")
    if not found:
        raise ConfigError(f"{key} has no serviceName, and {_SERVICE_NAME} is not set: one of them is needed")
    if named and configured and named != configured:
        raise ConfigError(f"{key} has serviceName={named}, and {_SERVICE_NAME} is {configured}: they must agree")
    return found


def check(config: ListenerSettings) -> None:
    """Checks the settings of all listeners, own and of peers, that use GSSAPI. Raises ConfigError."""
    for listener in config.listeners:
        if has_log_in(listener.security_protocol) and GSSAPI in mechanisms_of(config, listener.name):
            KerberosKeys.of(config, listener.name)
            LocalNames(rules_of(config, listener.name), "")
    peers = [*config.controller_listener_names[:1], *([config.inter_broker_listener] if config.is_broker else [])]
    for name in peers:
        if mechanism_to_log_in(config, name) == GSSAPI:
            KerberosKeys.of(config, name)


def rules_of(config: ListenerSettings, listener: str) -> tuple[str, ...]:
    """Returns the rules from principals to users."""
    found = config.value_on(listener, RULES)
    return tuple(str(rule) for rule in found) if isinstance(found, tuple) else ()


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"
