"""The constraints on a broker's configuration in ZooKeeper mode, each with one line that says what is allowed.

`zookeeper.connect` chooses the mode. The keys, their types and their defaults are those of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.common import zookeeper_security
from barnabas.common.config_keys import invalid
from barnabas.common.errors import ConfigError
from barnabas.common.settings import Settings

_CONNECT: Final = "zookeeper.connect"
_PROTOCOL: Final = "inter.broker.protocol.version"
_VERSION: Final = re.compile(r"([0-9]+)\.([0-9]+)(\.[0-9]+)*(-IV[0-9]+)?", re.ASCII)
#: The lowest protocol that Kafka 3.9.1 describes in its current form, and the last release with ZooKeeper mode.
_LOWEST: Final = (3, 4)
_HIGHEST: Final = (3, 9)


def check(config: Settings) -> None:
    """Raises ConfigError for settings that exclude each other, and for those that are not supported."""
    roles = config.list_of("process.roles")
    if roles:
        raise ConfigError(
            f"process.roles={','.join(roles)} and {_CONNECT}={config.str_of(_CONNECT)} exclude each other: the former "
            "is for KRaft, the latter for ZooKeeper mode"
        )
    _check_protocol(config)
    _check_broker_id(config)
    _check_control_plane(config)
    if config.bool_of("zookeeper.metadata.migration.enable"):
        raise invalid(
            "zookeeper.metadata.migration.enable",
            "true",
            "a running cluster cannot be migrated; stop it and use `barnabas migrate-zookeeper`",
        )
    zookeeper_security.check(config)
    config.warnings += zookeeper_security.warnings_of(config)


def session_timeout_ms(config: Settings) -> int:
    return config.int_of("zookeeper.session.timeout.ms")


def connection_timeout_ms(config: Settings) -> int:
    """Returns how long the first connection to ZooKeeper can take."""
    found = config.int_or_none("zookeeper.connection.timeout.ms")
    return session_timeout_ms(config) if found is None else found


def is_id_generated(config: Settings) -> bool:
    """Returns whether the properties file leaves the broker's id to ZooKeeper."""
    return config.int_of("node.id") < 0


def _check_protocol(config: Settings) -> None:
    text = config.str_of(_PROTOCOL)
    match = _VERSION.fullmatch(text)
    if match is None or not _LOWEST <= (int(match[1]), int(match[2])) <= _HIGHEST:
        raise invalid(_PROTOCOL, text, "3.4 to 3.9 are allowed")


def _check_broker_id(config: Settings) -> None:
    broker_id, text = config.int_of("node.id"), config.originals.get("broker.id", "-1").strip()
    is_open = config.bool_of("broker.id.generation.enable")
    if not is_open and broker_id < 0:
        raise ConfigError("requirement failed: broker.id must be greater than or equal to 0")
    highest = config.int_of("reserved.broker.max.id")
    if is_open and not -1 <= int(text) <= highest:
        raise ConfigError(
            "requirement failed: broker.id must be greater than or equal to -1 and not greater than "
            f"reserved.broker.max.id ({text} and {highest})"
        )


def _check_control_plane(config: Settings) -> None:
    name = config.str_or_none("control.plane.listener.name")
    if name is None:
        return
    listeners = [item.partition(":")[0].strip().upper() for item in config.list_of("listeners")]
    if name.upper() not in listeners:
        raise invalid("control.plane.listener.name", name, f"it must be one of the listeners ({','.join(listeners)})")
    inter_broker = config.str_or_none("inter.broker.listener.name") or config.str_of("security.inter.broker.protocol")
    if name.upper() == inter_broker.upper():
        raise invalid(
            "control.plane.listener.name", name, f"it must not be the inter-broker listener, which is {inter_broker}"
        )
