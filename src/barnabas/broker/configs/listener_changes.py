"""Changes of `listeners` and `listener.security.protocol.map` at run time: what a broker refuses, in Kafka's words.

As in Kafka, a listener can be added, and one that is not advertised can be removed. `advertised.listeners` cannot be
changed; without it all listeners are advertised, so none can be removed. A listener that stays keeps its security
protocol, and settings of its own that cannot be changed for a running listener.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from barnabas.common.config import BrokerConfig
from barnabas.common.config_keys import BROKER_KEYS, CLUSTER_LEVEL_LISTENER_KEYS, LISTENER_KEYS, LISTENER_PREFIX
from barnabas.common.endpoints import SECURITY_PROTOCOLS
from barnabas.common.errors import ConfigError

_LISTENERS, _MAP = LISTENER_KEYS
_ADVERTISED: Final = "advertised.listeners"
_CONTROLLERS: Final = "controller.listener.names"
_NETWORK_THREADS: Final = "num.network.threads"
_ENDPOINT: Final = re.compile(r"^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$")
#: The keys without prefix whose change leads Kafka to check the listeners (`DynamicListenerConfig`).
_CHECKED: Final = frozenset(
    {
        *LISTENER_KEYS,
        *CLUSTER_LEVEL_LISTENER_KEYS,
        _NETWORK_THREADS,
        "principal.builder.class",
        "ssl.client.auth",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.jaas.config",
        "sasl.enabled.mechanisms",
        *(name for name in BROKER_KEYS if name.startswith(("sasl.kerberos.", "sasl.login.refresh."))),
    }
)
#: The settings of a listener that can be changed while it serves: those of its stores, and its limits.
_CHANGEABLE: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password", *CLUSTER_LEVEL_LISTENER_KEYS)


class _Endpoint(NamedTuple):
    name: str
    host: str
    port: int


def check(current: BrokerConfig, per_broker: Mapping[str, str], cluster_default: Mapping[str, str]) -> None:
    """Raises ConfigError if these dynamic layers have listeners that no configuration of this node can have."""
    then = _layers(current, per_broker, cluster_default)
    now = _layers(current, current.per_broker, current.cluster_default)
    if all(then.get(key) == now.get(key) for key in LISTENER_KEYS):
        return
    protocols = _protocols(current, then)
    listeners = _endpoints(_text(then, _LISTENERS), protocols, has_distinct_ports=True)
    advertised = listeners
    if _ADVERTISED in then:
        advertised = _endpoints(then[_ADVERTISED], protocols, has_distinct_ports=False)
    _check_names(current, listeners, advertised, is_advertised=_ADVERTISED in then)


def refusal(current: BrokerConfig, per_broker: Mapping[str, str], cluster_default: Mapping[str, str]) -> str | None:
    """Returns why a running broker must not change to these layers; None if it can."""
    then = _layers(current, per_broker, cluster_default)
    now = _layers(current, current.per_broker, current.cluster_default)
    if all(then.get(key) == now.get(key) for key in _CHECKED):
        return None
    before, after = _protocols(current, now), _protocols(current, then)
    old = [each.name for each in _endpoints(_text(now, _LISTENERS), before, has_distinct_ports=False)]
    new = [each.name for each in _endpoints(_text(then, _LISTENERS), after, has_distinct_ports=False)]
    text = now.get(_ADVERTISED, _text(now, _LISTENERS))
    shown = [each.name for each in _endpoints(text, before, has_distinct_ports=False)]
    shown = [name for name in shown if name not in current.controller_listener_names]
    if not set(shown) <= set(new):
        return f"Advertised listeners '{_set(shown)}' must be a subset of listeners '{_set(new)}'"
    for name in (each for each in new if each in old):
        if _fixed_settings(then, name) != _fixed_settings(now, name):
            return (
                f"Configs cannot be updated dynamically for existing listener ListenerName({name}), "
                "restart broker or create a new listener for update"
            )
        if before[name] != after[name]:
            return f"Security protocol cannot be updated for existing listener ListenerName({name})"
    return None


def _layers(config: BrokerConfig, per_broker: Mapping[str, str], cluster_default: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts in force, without defaults."""
    return {**config.originals, **cluster_default, **per_broker}


def _text(texts: Mapping[str, str], key: str) -> str:
    return texts.get(key, BROKER_KEYS[key].default or "")


def _protocols(config: BrokerConfig, texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the security protocol of each listener's name. Raises ConfigError."""
    found = {}
    for item in _text(texts, _MAP).split(","):
        name, _, protocol = item.strip().rpartition(":")
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in {_MAP}")
        found[name.strip().upper()] = protocol.upper()
    if _MAP not in texts:
        # With the default map, the controllers' listeners need not be named.
        found.update({name: "PLAINTEXT" for name in config.controller_listener_names if name not in found})
    return found


def _endpoints(text: str, protocols: Mapping[str, str], *, has_distinct_ports: bool) -> list[_Endpoint]:
    """Parses listeners. Raises ConfigError."""
    found: list[_Endpoint] = []
    for item in (each.strip() for each in text.split(",")):
        if not item:
            continue
        parsed = _ENDPOINT.fullmatch(item)
        why = None
        if parsed is None:
            why = f"Unable to parse {item} to a broker endpoint"
        elif parsed[1].upper() not in protocols:
            why = f"No security protocol defined for listener {parsed[1].upper()}"
        if why is not None or parsed is None:
            raise ConfigError(f"Error creating broker listeners from '{text}': {why}")
        found.append(_Endpoint(parsed[1].upper(), parsed[2], int(parsed[3])))
    if len({each.name for each in found}) != len(found):
        raise _required(f"Each listener must have a different name, listeners: {text}")
    if has_distinct_ports:
        _check_ports(text, found)
    return found


def _check_ports(text: str, endpoints: Sequence[_Endpoint]) -> None:
    """Raises ConfigError if listeners share a port, other than one with an IPv4 and one with an IPv6 address."""
    by_port: dict[int, list[_Endpoint]] = {}
    for each in endpoints:
        if each.port:
            by_port.setdefault(each.port, []).append(each)
    for port, sharing in by_port.items():
        if len(sharing) == 1:
            continue
        versions = [_ip_version(each.host) for each in sharing]
        numeric = [version for version in versions if version]
        if len(versions) - len(numeric) > 1:
            raise _required(f"Each listener must have a different port, listeners: {text}")
        if len(numeric) > 2:
            raise ConfigError(
                "Each listener must have a different port unless exactly one listener has an IPv4 address and the "
                f"other IPv6 address, listeners: {text}, port: {port}"
            )
        why = (
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
            f"listeners: {text}, port: {port}"
        )
        if len(numeric) == 2 and numeric[0] == numeric[1]:
            raise _required(why)
        if len(numeric) == 2 and len(versions) > 2:
            raise ConfigError(why)


def _ip_version(host: str) -> int:
    """Returns 4 or 6; 0 for a name."""
    try:
        return ip_address(host).version
    except ValueError:
        return 0


def _check_names(
    config: BrokerConfig, listeners: Sequence[_Endpoint], advertised: Sequence[_Endpoint], *, is_advertised: bool
) -> None:
    """Raises ConfigError if a listener is missing that this node needs, or one is advertised that it cannot have."""
    controllers = config.controller_listener_names
    present = [each.name for each in listeners]
    shown = [each for each in advertised if each.name not in controllers]
    names = [each.name for each in shown]
    if config.is_controller:
        usable = {*present, *(each.name for each in advertised)} if is_advertised else set(present)
        what = f"appearing in the '{_LISTENERS}' configuration when running the KRaft controller role"
        if usable.isdisjoint(controllers):
            raise _required(f"{_CONTROLLERS} must contain at least one value {what}")
        if not set(controllers) <= set(present):
            raise _required(f"{_CONTROLLERS} must only contain values {what}")
    elif not set(present).isdisjoint(controllers):
        raise _required(
            f"{_CONTROLLERS} must not contain a value appearing in the '{_LISTENERS}' configuration when running KRaft "
            "with just the broker role"
        )
    if not names:
        raise _required(
            f"There must be at least one broker advertised listener. Perhaps all listeners appear in {_CONTROLLERS}?"
        )
    if config.inter_broker_listener not in names:
        raise _required(
            f"inter.broker.listener.name must be a listener name defined in {_ADVERTISED}. The valid options based on "
            f"currently configured listeners are {','.join(names)}"
        )
    if not set(names) <= set(present):
        raise _required(
            f"{_ADVERTISED} listener names must be equal to or a subset of the ones defined in {_LISTENERS}. Found "
            f"{','.join(names)}. The valid options based on the current configuration are {','.join(present)}"
        )
    if any(each.host == "0.0.0.0" for each in shown):
        raise _required(f"{_ADVERTISED} cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.")


def _fixed_settings(texts: Mapping[str, str], listener: str) -> dict[str, str]:
    """Returns the listener's own settings that cannot be changed while it serves."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    own = {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
    return {key: text for key, text in own.items() if not key.startswith(_CHANGEABLE) and key != _NETWORK_THREADS}


def _set(names: Sequence[str]) -> str:
    """Returns a set of listeners as Scala shows it. In Scala the order of five and more elements depends on hashes."""
    return f"{'Set' if len(names) < 5 else 'HashSet'}({', '.join(f'ListenerName({name})' for name in names)})"


def _required(why: str) -> ConfigError:
    return ConfigError(f"requirement failed: {why}")
