"""The settings of log-in, for listeners with SASL and for connections to other nodes.

    listener.name.<listener>.<mechanism>.sasl.jaas.config     users and passwords; Kafka's only form for brokers
    [listener.name.<listener>.]sasl.enabled.mechanisms        what a listener offers
    sasl.mechanism.inter.broker.protocol, sasl.mechanism.controller.protocol
                                                              how this node logs in to others, by the entry of the
                                                              listener and mechanism (username, password)

Each error is one line that names the key. None contains the value of an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from barnabas.common import jaas, oauth_settings
from barnabas.common.config_keys import LISTENER_PREFIX, Value, invalid
from barnabas.common.endpoints import Listener
from barnabas.common.errors import ConfigError
from barnabas.common.jaas import JaasEntry
from barnabas.common.oauth_settings import EndpointLogin, ListenerTokens, UnsecuredLogin

OAUTHBEARER: Final = oauth_settings.MECHANISM
GSSAPI: Final = "GSSAPI"
SERVED: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, GSSAPI)
_JAAS: Final = "sasl.jaas.config"
_ENABLED: Final = "sasl.enabled.mechanisms"
_OAUTH: Final = "sasl.oauthbearer."
_LOGIN: Final = "sasl.login."
_REAUTHENTICATION: Final = "connections.max.reauth.ms"
_RECEIVE: Final = "sasl.server.max.receive.size"
_INTER_BROKER: Final = "sasl.mechanism.inter.broker.protocol"
_CONTROLLER: Final = "sasl.mechanism.controller.protocol"
_CLASSES: Final = ("sasl.login.class", *oauth_settings.CLASSES)
#: The prefix of the keys of GSSAPI, which `kerberos_settings` reads.
_KERBEROS: Final = "sasl.kerberos."


class ListenerSettings(Protocol):
    """The part of a node's configuration that log-in uses (`common.config.BrokerConfig`)."""

    @property
    def listeners(self) -> Sequence[Listener]: ...
    @property
    def controller_listener_names(self) -> Sequence[str]: ...
    @property
    def inter_broker_listener(self) -> str: ...
    @property
    def is_broker(self) -> bool: ...
    @property
    def originals(self) -> Mapping[str, str]: ...
    def security_protocol_of(self, listener: str) -> str: ...
    def value_on(self, listener: str, key: str) -> Value: ...
    def value_or_none(self, key: str) -> Value: ...
    def text_or_none(self, key: str) -> str | None: ...
    def str_of(self, key: str) -> str: ...
    def list_of(self, key: str) -> tuple[str, ...]: ...


def has_log_in(security_protocol: str) -> bool:
    return security_protocol.startswith("SASL_")


def mechanisms_of(config: ListenerSettings, listener: str) -> tuple[str, ...]:
    """Returns the mechanisms that a listener offers."""
    found = config.value_on(listener, _ENABLED)
    names = found if isinstance(found, tuple) else ()
    return tuple(dict.fromkeys(name.strip().upper() for name in names))


def jaas_key(listener: str, mechanism: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{_JAAS}"


def jaas_entry(config: ListenerSettings, listener: str, mechanism: str) -> JaasEntry | None:
    """Returns the JAAS entry of a mechanism on a listener; None if there is none. Raises ConfigError."""
    key = jaas_key(listener, mechanism)
    text = config.text_or_none(key)
    if text is None:
        return None
    try:
        entry = jaas.parse(text)
    except jaas.JaasError as error:
        raise ConfigError(f"{key}: {error}") from None
    wanted = jaas.MODULE_OF[mechanism]
    if entry.module != wanted:
        raise ConfigError(f"{key}: it names {entry.module}; for {mechanism} it must name {wanted}")
    return entry


def unused_entries(config: ListenerSettings) -> list[str]:
    """Returns a warning for each JAAS entry in the properties file without the prefix of a listener and a mechanism: it
    has no effect, as in Kafka.
    """
    mechanisms = {f".{each.lower()}.{_JAAS}" for each in SERVED}
    return [
        f"{name} has no effect: it needs the prefix {LISTENER_PREFIX}LISTENER.MECHANISM., in lower case"
        for name in config.originals
        if name.endswith(_JAAS)
        and not (name.startswith(LISTENER_PREFIX) and any(name.endswith(suffix) for suffix in mechanisms))
    ]


def own_passwords(config: ListenerSettings) -> list[str]:
    """Returns a warning for each listener of this node whose users of PLAIN include the node's own with another
    password: nodes with this entry could not log in to each other.
    """
    found = []
    peers = (*config.controller_listener_names[:1], config.inter_broker_listener)
    for listener in (each.name for each in config.listeners if each.name in peers):
        if mechanism_to_log_in(config, listener) == "PLAIN":
            entry = jaas_entry(config, listener, "PLAIN")
            options = {} if entry is None else entry.options
            name = options.get("username", "")
            if options.get(f"user_{name}", options.get("password")) != options.get("password"):
                found.append(
                    f"{jaas_key(listener, 'PLAIN')}: user_{name} is not the password with which this node logs in as "
                    f"{name}, so nodes with this entry cannot log in to each other"
                )
    return found


def credentials_of(config: ListenerSettings, listener: str, mechanism: str) -> tuple[str, str]:
    """Returns the user name and password by which this node logs in on a listener of other nodes. Raises
    ConfigError."""
    entry = jaas_entry(config, listener, mechanism)
    key = jaas_key(listener, mechanism)
    if entry is None:
        raise ConfigError(f"{key} must be set: this node logs in to other nodes on {listener} with {mechanism}")
    name, password = entry.options.get("username"), entry.options.get("password")
    if not name or not password:
        raise ConfigError(
            f"{key} needs the username and password with which this node logs in to other nodes on {listener}"
        )
    return name, password


def login_tokens_of(config: ListenerSettings, listener: str) -> UnsecuredLogin | EndpointLogin:
    """Returns the source of the tokens by which this node logs in on a listener of other nodes. Raises ConfigError."""
    entry = jaas_entry(config, listener, OAUTHBEARER)
    if entry is None:
        key = jaas_key(listener, OAUTHBEARER)
        raise ConfigError(f"{key} must be set: this node logs in to other nodes on {listener} with {OAUTHBEARER}")
    return oauth_settings.login_tokens(config, listener, entry)


def listener_tokens_of(config: ListenerSettings, listener: str) -> ListenerTokens:
    """Returns the tokens that a listener accepts. Raises ConfigError."""
    return oauth_settings.listener_tokens(config, listener, jaas_entry(config, listener, OAUTHBEARER))


def mechanism_to_log_in(config: ListenerSettings, listener: str) -> str | None:
    """Returns the mechanism by which this node logs in on a listener of other nodes; None if it has no log-in."""
    if not has_log_in(config.security_protocol_of(listener)):
        return None
    names = config.controller_listener_names
    key = _CONTROLLER if listener in names else _INTER_BROKER
    return config.str_of(key).strip().upper()


def session_ms_max(config: ListenerSettings, listener: str, mechanism: str) -> int:
    return _number(config, listener, mechanism, _REAUTHENTICATION)


def receive_bytes_max(config: ListenerSettings, listener: str) -> int:
    """Returns the maximum size of a frame before the log-in: the largest limit of the offered mechanisms."""
    return max(_number(config, listener, mechanism, _RECEIVE) for mechanism in mechanisms_of(config, listener))


def _number(config: ListenerSettings, listener: str, mechanism: str, key: str) -> int:
    found = config.value_or_none(f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{key}")
    if found is None:
        found = config.value_on(listener, key)
    assert isinstance(found, int), f"{key} is a number"
    return found


def affects_log_in(keys: Iterable[str]) -> bool:
    """Returns whether one of these keys changes what listeners offer, their users, or the logins of this node."""
    return any(key.endswith((_JAAS, _ENABLED)) or _OAUTH in key or _LOGIN in key or _KERBEROS in key for key in keys)


def check(config: ListenerSettings) -> None:
    """Checks the settings of all listeners with a log-in. Raises ConfigError."""
    secured = [each for each in config.listeners if has_log_in(each.security_protocol)]
    for listener in secured:
        _check_listener(config, listener.name)
    own = {listener.name for listener in config.listeners}
    peers = list(config.controller_listener_names[:1])
    if config.is_broker:
        peers.append(config.inter_broker_listener)
    for name in dict.fromkeys(peers):
        mechanism = mechanism_to_log_in(config, name)
        if mechanism is None:
            continue
        key = _CONTROLLER if name in config.controller_listener_names else _INTER_BROKER
        if mechanism not in SERVED:
            raise invalid(key, mechanism, f"{', '.join(SERVED)} are supported")
        if name in own and mechanism not in mechanisms_of(config, name):
            offered = ",".join(mechanisms_of(config, name))
            raise ConfigError(f"{key} ({mechanism}) must be included in {_ENABLED} of listener {name} ({offered})")
        if mechanism == OAUTHBEARER:
            login_tokens_of(config, name)
        elif mechanism != GSSAPI:
            credentials_of(config, name, mechanism)
    if secured:
        _check_classes(config)


def _check_classes(config: ListenerSettings) -> None:
    """Raises ConfigError for a Java class; for OAUTHBEARER, Kafka's own can be named."""
    for key, name in config.originals.items():
        suffix = next((each for each in _CLASSES if key.endswith(each)), None)
        if suffix is None:
            continue
        allowed = oauth_settings.CLASSES.get(suffix, ())
        if not key.endswith(f".{OAUTHBEARER.lower()}.{suffix}") and not suffix.startswith(_OAUTH):
            allowed = ()
        if name.strip() not in allowed:
            hint = f"; {allowed[0]} can be named" if allowed else ""
            raise ConfigError(f"{key} is not supported: Java classes cannot be loaded{hint}")


def _check_listener(config: ListenerSettings, name: str) -> None:
    offered = mechanisms_of(config, name)
    key = f"{_ENABLED} of listener {name}"
    if not offered:
        raise invalid(key, "", f"at least one of {', '.join(SERVED)} is needed")
    if (size := receive_bytes_max(config, name)) < 1:
        raise invalid(_RECEIVE, size, "Value must be at least 1: what clients send before their log-in is bounded")
    for mechanism in offered:
        if mechanism not in SERVED:
            raise invalid(key, mechanism, f"{', '.join(SERVED)} are supported")
        if jaas_entry(config, name, mechanism) is None and mechanism == "PLAIN":
            raise ConfigError(
                f'{jaas_key(name, mechanism)} must be set, with the users of PLAIN (user_NAME="password")'
            )
        if mechanism == OAUTHBEARER:
            listener_tokens_of(config, name)
