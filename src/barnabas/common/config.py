"""A node's configuration under Kafka's property names: its identity and addresses, and the defaults of its topics.

An unknown key causes a warning, as in Kafka. So does a known key without effect (`config_docs` has the reasons). A key
for a missing protection (another authorizer) is an error: a node that starts unprotected instead would be worse than
one that does not start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.common import kerberos_settings, log_in_settings, zookeeper_mode
from barnabas.common.authorizer_keys import ACL_AUTHORIZER, ACL_ZOOKEEPER, STANDARD_AUTHORIZER, super_users
from barnabas.common.config_keys import LISTENER_PREFIX, TOPIC_KEYS, Value, invalid
from barnabas.common.endpoints import (
    Address,
    Listener,
    Voter,
    check_distinct_ports,
    parse_address,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from barnabas.common.errors import ConfigError
from barnabas.common.properties import parse_properties
from barnabas.common.settings import Settings, is_zookeeper_mode

__all__ = ["Address", "BrokerConfig", "Listener", "Voter", "parse_properties"]

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

#: Topic key -> broker key of its default, if the broker's value is used unchanged.
_LOG_DEFAULTS = tuple(
    (name.replace(".", "_"), key.server_default)
    for name, key in TOPIC_KEYS.items()
    if key.server_default is not None
    and key.server_default not in ("log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms")
)


class BrokerConfig(Settings):
    """The configuration of one node (broker, controller or both)."""

    __slots__ = ("_listeners", "_log_defaults")

    def __init__(
        self, properties: Mapping[str, str], identity: Mapping[str, Value] | None = None, *, is_served: bool = True
    ) -> None:
        _check_references(properties)
        super().__init__(_filled_in(properties), identity)
        self._log_defaults: tuple[Mapping[str, Value], dict[str, Value]] | None = None
        self._listeners = self._parse_listeners()
        _check(self)
        if is_served:
            _check_log_in(self)
            self.warnings += [*log_in_settings.unused_entries(self), *log_in_settings.own_passwords(self)]
        self.warnings += _unknown_listeners(self)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Parses properties. If a node must not start with them, raises a ConfigError that names the key, its value and
        the allowed values.
        """
        return cls(properties)

    @classmethod
    def of_directories(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Parses properties for a command that only touches the log directories. As in kafka-storage, the settings of
        the log-in can be missing: a node can get them elsewhere, or later. Raises ConfigError.
        """
        return cls(properties, is_served=False)

    def with_broker_id(self, broker_id: int) -> BrokerConfig:
        """Returns a copy with this broker id, for a properties file that does not set one."""
        return BrokerConfig(self._static, {"broker.id": broker_id, "node.id": broker_id})

    def with_dynamic(self, per_broker: Mapping[str, str], cluster_default: Mapping[str, str]) -> BrokerConfig:
        """Returns a copy with these dynamic layers, to validate a change. Raises ConfigError if it is invalid."""
        copy = BrokerConfig(self._static, self._identity)
        problems = copy.update_dynamic(per_broker, cluster_default)
        if problems:
            raise ConfigError(problems[0])
        _check(copy)
        _check_log_in(copy)
        return copy

    def _on_values(self) -> list[str]:
        """Follows a change of the listeners. If this node must not have the new ones, those in use stay, and the reason
        is returned.
        """
        if self.is_zookeeper_mode or not self.is_broker:
            return []  # As in Kafka, the listeners of a controller do not change at run time.
        before = self._listeners
        try:
            self._listeners = self._parse_listeners()
            _check_controller_listeners(self)
            _check_broker_listeners(self)
        except ConfigError as error:
            self._listeners = before
            return [f"the listeners stay {','.join(map(str, before))}: {error}"]
        return []

    # Settings given in several units.

    @property
    def log_retention_ms(self) -> int:
        value = self._first_of(
            ("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)
        )
        return -1 if value < 0 else value

    @property
    def log_roll_ms(self) -> int:
        return self._first_of(("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS))

    @property
    def log_roll_jitter_ms(self) -> int:
        return self._first_of(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS))

    @property
    def log_flush_interval_ms(self) -> int:
        return self._first_of(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))

    @property
    def offsets_retention_ms(self) -> int:
        return self.int_of("offsets.retention.minutes") * _MINUTE_MS

    def _first_of(self, *keys: tuple[str, int]) -> int:
        for name, unit_ms in keys:
            value = self.int_or_none(name)
            if value is not None:
                return value * unit_ms
        raise AssertionError("the last of the keys has a default")

    def log_defaults(self) -> Mapping[str, Value]:
        """Returns the broker's defaults for topics, by field of LogConfig; computed once per change."""
        if self._log_defaults is None or self._log_defaults[0] is not self._values:
            values = {field: self._values[name] for field, name in _LOG_DEFAULTS}
            values["retention_ms"] = self.log_retention_ms
            values["segment_ms"] = self.log_roll_ms
            values["segment_jitter_ms"] = self.log_roll_jitter_ms
            values["flush_ms"] = self.log_flush_interval_ms
            self._log_defaults = (self._values, values)
        return self._log_defaults[1]

    # Identity and addresses of this node.

    @property
    def node_id(self) -> int:
        return self.int_of("node.id")

    @property
    def roles(self) -> tuple[str, ...]:
        return self.list_of("process.roles")

    @property
    def is_zookeeper_mode(self) -> bool:
        return is_zookeeper_mode(self._static)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles or self.is_zookeeper_mode

    @property
    def is_controller(self) -> bool:
        """Returns whether this node can be the controller. In ZooKeeper mode each broker can."""
        return "controller" in self.roles or self.is_zookeeper_mode

    @property
    def rack(self) -> str | None:
        return self.str_or_none("broker.rack")

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Returns all listeners, including those of the controller."""
        return self._listeners

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        names = self.controller_listener_names
        return tuple(listener for listener in self._listeners if listener.name not in names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        names = self.controller_listener_names
        return tuple(listener for listener in self._listeners if listener.name in names)

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.list_of("controller.listener.names"))

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """Returns the addresses for clients and peers; a listener without an advertised one is advertised as it is."""
        by_hand = {
            listener.name: listener
            for listener in parse_listeners(
                "advertised.listeners", self.list_of("advertised.listeners"), self._protocols()
            )
        }
        if not by_hand:
            return self._listeners
        controller_only = tuple(listener for listener in self.controller_listeners if listener.name not in by_hand)
        return (*by_hand.values(), *controller_only)

    @property
    def inter_broker_listener(self) -> str:
        name = self.str_or_none("inter.broker.listener.name")
        return name.upper() if name is not None else self.str_of("security.inter.broker.protocol")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.list_of("log.dirs") or self.list_of("log.dir")

    @property
    def metadata_log_dir(self) -> str:
        return self.str_or_none("metadata.log.dir") or self.log_dirs[0]

    @property
    def voters(self) -> tuple[Voter, ...]:
        """Returns the static quorum (`controller.quorum.voters`); empty if the metadata log names the voters."""
        return parse_voters("controller.quorum.voters", self.list_of("controller.quorum.voters"))

    @property
    def bootstrap_controllers(self) -> tuple[Address, ...]:
        key = "controller.quorum.bootstrap.servers"
        return tuple(parse_address(key, item) for item in self.list_of(key))

    def security_protocol_of(self, listener: str) -> str:
        """Returns the security protocol of a listener, which another node may have: "PLAINTEXT", "SASL_SSL"."""
        return self._protocols().get(listener, listener)

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Returns the names of the listeners that have a security protocol, here or on other nodes."""
        return tuple(self._protocols())

    def _protocols(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        protocols = parse_protocol_map(key, self.list_of(key))
        if key not in self._static and key not in self._per_broker:
            # With the default map, a controller's listener need not be listed: it is plain text.
            names = (name.upper() for name in self.list_of("controller.listener.names"))
            protocols.update({name: "PLAINTEXT" for name in names if name not in protocols})
        return protocols

    def _parse_listeners(self) -> tuple[Listener, ...]:
        items = self.list_of("listeners")
        listeners = parse_listeners("listeners", items, self._protocols())
        check_distinct_ports("listeners", items, listeners)
        return listeners


def _filled_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Fills in `broker.id` and `node.id`, which are two names of one key."""
    filled = dict(properties)
    broker_id, node_id = filled.get("broker.id"), filled.get("node.id")
    if node_id is None and broker_id is not None:
        filled["node.id"] = broker_id
    elif broker_id is None and node_id is not None:
        filled["broker.id"] = node_id
    elif broker_id is not None and node_id is not None and broker_id.strip() != node_id.strip():
        raise ConfigError(
            f"You must set `node.id` to the same value as `broker.id` (they are {node_id} and {broker_id})."
        )
    return filled


#: A reference to a value of a config provider, as Kafka finds it: ${provider:path:key} or ${provider:key}.
_REFERENCE = re.compile(r"\$\{([^}]*?):[^}]*\}")


def _check_references(properties: Mapping[str, str]) -> None:
    """Raises ConfigError for a reference to a config provider: a password would be the text of the reference, which
    others can know.
    """
    providers = {name.strip() for name in properties.get("config.providers", "").split(",")} - {""}
    for key, text in properties.items():
        provider = next((match[1] for match in _REFERENCE.finditer(text) if match[1] in providers), None)
        if provider is not None:
            raise ConfigError(
                f"{key} refers to the config provider {provider}; providers are not supported: set the value itself"
            )


# Constraints between keys. The messages name the keys and their values.


def _check(config: BrokerConfig) -> None:
    _check_authorizer(config)
    if config.is_zookeeper_mode:
        zookeeper_mode.check(config)
    else:
        _check_roles(config)
        _check_controller_listeners(config)
    if not config.log_dirs:
        raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
    if config.is_broker:
        _check_broker_listeners(config)
    _check_numbers(config)


def _unknown_listeners(config: BrokerConfig) -> list[str]:
    """Returns a warning for each key with the prefix of a listener that the node neither has nor knows."""
    names = {*config.protocol_names, *config.controller_listener_names, config.inter_broker_listener}
    prefixes = tuple(f"{LISTENER_PREFIX}{name.lower()}." for name in names)
    return [
        f"{key} has no effect: this node knows no listener of that name; the names in keys are in lower case"
        for key in config.originals
        if key.startswith(LISTENER_PREFIX) and not key.startswith(prefixes)
    ]


def _check_log_in(config: BrokerConfig) -> None:
    log_in_settings.check(config)
    kerberos_settings.check(config)


_QUOTA_CALLBACK = "client.quota.callback.class"
_PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


def _check_authorizer(config: BrokerConfig) -> None:
    authorizer = config.str_of("authorizer.class.name")
    mode, allowed = ("ZooKeeper", ACL_AUTHORIZER) if config.is_zookeeper_mode else ("KRaft", STANDARD_AUTHORIZER)
    if authorizer not in ("", allowed):
        text = f"{allowed} is allowed in {mode} mode; leave it empty to serve all clients"
        raise invalid("authorizer.class.name", authorizer, text)
    elsewhere = config.originals.get(ACL_ZOOKEEPER, "").strip()
    if authorizer == ACL_AUTHORIZER and elsewhere not in ("", config.str_of("zookeeper.connect").strip()):
        raise invalid(ACL_ZOOKEEPER, elsewhere, "the rules are read from the ZooKeeper of zookeeper.connect")
    super_users(config.originals)
    for key, builder in config.originals.items():
        if key.endswith("principal.builder.class") and builder not in ("", _PRINCIPAL_BUILDER):
            raise invalid(key, builder, f"it decides who a client is; only {_PRINCIPAL_BUILDER} is allowed")
    callback = config.originals.get(_QUOTA_CALLBACK, "").strip()
    if callback:
        raise invalid(_QUOTA_CALLBACK, callback, "Java classes cannot be loaded; quotas are those of AlterClientQuotas")


def _check_roles(config: BrokerConfig) -> None:
    if not config.roles:
        raise invalid("process.roles", "", "broker, controller or both are allowed")
    if len(set(config.roles)) != len(config.roles):
        raise invalid("process.roles", ",".join(config.roles), "a role can be listed only once")
    voters = config.voters
    if not voters and not config.bootstrap_controllers:
        raise ConfigError(
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers."
        )
    if voters and config.is_controller != any(voter.node_id == config.node_id for voter in voters):
        must = "must" if config.is_controller else "must not"
        raise ConfigError(
            f"node.id={config.node_id} {must} be among controller.quorum.voters "
            f"({','.join(config.list_of('controller.quorum.voters'))}) if process.roles={','.join(config.roles)}"
        )


def _check_controller_listeners(config: BrokerConfig) -> None:
    names = config.controller_listener_names
    if not names:
        raise ConfigError("controller.listener.names must contain at least one value when running KRaft")
    present = {listener.name for listener in config.listeners}
    if config.is_controller and not present & set(names):
        raise ConfigError(
            f"controller.listener.names ({','.join(names)}) must name one of the listeners "
            f"({','.join(sorted(present))}) if process.roles has the controller"
        )
    if not config.is_controller and present & set(names):
        raise ConfigError(
            "controller.listener.names must not contain a value appearing in the listeners configuration "
            "when running KRaft with just the broker role"
        )


def _check_broker_listeners(config: BrokerConfig) -> None:
    if {"inter.broker.listener.name", "security.inter.broker.protocol"} <= config.originals.keys():
        raise ConfigError(
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set: the listener has "
            f"a security protocol already ({config.security_protocol_of(config.inter_broker_listener)})"
        )
    names = config.controller_listener_names
    present = {listener.name for listener in config.listeners}
    inter_broker = config.inter_broker_listener
    if inter_broker in names or inter_broker not in present:
        raise ConfigError(
            f"inter.broker.listener.name ({inter_broker}) must be one of the broker's listeners "
            f"({','.join(listener.name for listener in config.broker_listeners)})"
        )
    for advertised in config.advertised_listeners:
        if advertised.name not in present:
            raise ConfigError(
                f"advertised.listeners names {advertised.name}, which is not one of the listeners "
                f"({','.join(sorted(present))})"
            )
        if advertised.name not in names and advertised.host in ("0.0.0.0", "::"):
            raise ConfigError(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
            )


_NOT_ABOVE = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)


def _check_numbers(config: BrokerConfig) -> None:
    for lower, upper in _NOT_ABOVE:
        if config.int_of(lower) > config.int_of(upper):
            raise ConfigError(f"{lower} ({config.int_of(lower)}) must not be above {upper} ({config.int_of(upper)})")
    _require(config.log_retention_ms != 0, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    _require(config.log_roll_ms >= 1, "log.roll.ms must be greater than or equal to 1")
    _require(config.log_roll_jitter_ms >= 0, "log.roll.jitter.ms must be greater than or equal to 0")
    _require(
        config.int_of("log.cleaner.dedupe.buffer.size") >= config.int_of("log.cleaner.threads") << 20,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )
    for item in config.list_of("max.connections.per.ip.overrides"):
        host, colon, count = item.rpartition(":")
        if not colon or not host or not count.isdecimal():
            raise invalid("max.connections.per.ip.overrides", item, "each item must have the form host:number")
    _require(
        config.int_of("max.connections.per.ip") > 0 or bool(config.str_of("max.connections.per.ip.overrides")),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    )
    for name in ("offsets.topic.compression.codec",):
        if not 0 <= config.int_of(name) <= 4:
            raise invalid(name, config.int_of(name), "0 (none), 1 (gzip), 2 (snappy), 3 (lz4) and 4 (zstd) are allowed")
    if config.int_of("broker.heartbeat.interval.ms") * 2 > config.int_of("broker.session.timeout.ms"):
        raise ConfigError(
            "broker.session.timeout.ms must be at least twice broker.heartbeat.interval.ms "
            f"({config.int_of('broker.session.timeout.ms')} and {config.int_of('broker.heartbeat.interval.ms')})"
        )


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ConfigError(f"requirement failed: {text}")
