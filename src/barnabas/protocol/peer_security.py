"""How the nodes of a cluster secure their connections to each other.

The inter-broker listener (`inter.broker.listener.name`) and the first listener of the controllers
(`controller.listener.names`) decide: their security protocol, and the settings with their prefix `listener.name.X.`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.endpoints import TLS_PROTOCOLS
from barnabas.common.kerberos_settings import KerberosKeys
from barnabas.common.log_in_settings import GSSAPI, OAUTHBEARER, credentials_of, mechanism_to_log_in
from barnabas.protocol.sasl.logins import Login


class LoginUnavailable(Exception):
    """The error for a log-in that has no credentials now, such as a token that has not arrived. A later try can have
    them.
    """


class ChannelSecurity(NamedTuple):
    """The security of a channel's links."""

    #: The listener whose TLS settings apply (`common.host.Links.dial`); None means plain text.
    tls: str | None = None
    #: Returns the credentials for a log-in that begins now, or raises LoginUnavailable; None if the listener has no
    #: log-in.
    login: Callable[[], Login] | None = None
    #: Returns the keys for tickets, in place of credentials; None if the mechanism is not GSSAPI.
    keys: Callable[[], KerberosKeys] | None = None

    @property
    def has_log_in(self) -> bool:
        return self.login is not None or self.keys is not None


PLAINTEXT = ChannelSecurity()


def inter_broker_security(config: BrokerConfig) -> ChannelSecurity:
    """Returns the security of connections to other brokers."""
    return security_on(config, config.inter_broker_listener)


def controller_security(config: BrokerConfig) -> ChannelSecurity:
    """Returns the security of connections to controllers."""
    names = config.controller_listener_names
    return security_on(config, names[0]) if names else inter_broker_security(config)


def security_on(config: BrokerConfig, listener: str) -> ChannelSecurity:
    """Returns the security of connections to this listener of other nodes."""
    protocol = config.security_protocol_of(listener)
    mechanism = mechanism_to_log_in(config, listener)
    return ChannelSecurity(
        tls=listener if protocol in TLS_PROTOCOLS else None,
        login=(lambda: _login(config, listener)) if mechanism not in (None, GSSAPI) else None,
        keys=(lambda: KerberosKeys.of(config, listener)) if mechanism == GSSAPI else None,
    )


def _login(config: BrokerConfig, listener: str) -> Login:
    mechanism = mechanism_to_log_in(config, listener)
    assert mechanism is not None, "the security protocol of a listener does not change"
    if mechanism == OAUTHBEARER:
        found: Login = config.login_for(listener)
        return found
    return Login(mechanism, *credentials_of(config, listener, mechanism))


def peer_listeners(config: BrokerConfig) -> list[str]:
    """Returns the listeners of other nodes that this node dials."""
    names = list(config.controller_listener_names[:1])
    if config.is_broker:
        names.append(config.inter_broker_listener)
    return list(dict.fromkeys(names))


def tls_listeners(config: BrokerConfig) -> list[str]:
    """Returns the listeners with TLS that this node serves, or dials on other nodes."""
    served = {each.name for each in config.listeners if each.security_protocol in TLS_PROTOCOLS}
    dialled = {each.tls for each in (inter_broker_security(config), controller_security(config))}
    return sorted(served | {each for each in dialled if each is not None})
