"""The definition of a configuration key: its type, its limits, how its text is parsed and shown.

The keys themselves are the generated rows of `config_table`. Error messages are those of an Apache Kafka broker
(`Invalid value 5x for configuration retention.ms: Not a number of type LONG`), because tools show them to users.

    text --parse--> value --check--> value within the limits --show--> text as DescribeConfigs returns it

A value is bool, int, float, str, tuple[str, ...] for a list, or None for a key without a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.common import config_table, zookeeper_config_table
from barnabas.common.errors import ConfigError

Value = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """The types of configuration values, with their numbers in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The sources of configuration values, with their numbers in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ResourceType(IntEnum):
    """The resources with configurations (`ConfigResource.Type`)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_INTEGER_BITS = {ConfigType.INT: 32, ConfigType.SHORT: 16, ConfigType.LONG: 64}

READ_ONLY = "read-only"
PER_BROKER = "per-broker"
CLUSTER_WIDE = "cluster-wide"


def invalid(name: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}")


class ConfigKey(NamedTuple):
    """A configuration key. `update_mode` is set for broker keys, `server_default` (a broker key) for topic keys."""

    name: str
    type: ConfigType
    default: str | None
    limits: str | None
    importance: str
    internal: bool
    update_mode: str | None = None
    server_default: str | None = None

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """Returns the value that `text` stands for, within the key's limits. Raises ConfigError otherwise."""
        value = parse_text(self.name, self.type, text)
        if self.limits is not None:
            _check_for(self.limits)(self.name, value)
        return value

    def default_value(self) -> Value:
        return None if self.default is None else parse_text(self.name, self.type, self.default)


def parse_text(name: str, kind: ConfigType, text: str) -> Value:
    """Returns the value of `text` as a `kind`, without limits. Surrounding blanks are ignored."""
    trimmed = text.strip()
    bits = _INTEGER_BITS.get(kind)
    if bits is not None:
        return _parse_integer(name, kind, trimmed, bits)
    if kind is ConfigType.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if kind is ConfigType.DOUBLE:
        try:
            return float(trimmed.replace("_", "?"))
        except ValueError:
            raise invalid(name, text, "Not a number of type DOUBLE") from None
    if kind is ConfigType.LIST:
        return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
    return trimmed


def _parse_integer(name: str, kind: ConfigType, text: str, bits: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdigit():
        value = int(text)
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return value
    raise invalid(name, text, f"Not a number of type {kind.name}")


def show(value: Value) -> str | None:
    """Formats a value as Kafka does (Java's notation for doubles, lists joined by commas)."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _show_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _show_double(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e7 or value != value or value in (float("inf"), float("-inf")):
        return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    shortest = repr(value)
    digits = shortest.partition("e")[0].replace(".", "").strip("-").strip("0") or "0"
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


# Limits, in the notation of Kafka's definitions.

_Check = Callable[[str, Value], None]
_checks: dict[str, _Check] = {}


def _check_for(limits: str) -> _Check:
    check = _checks.get(limits)
    if check is None:
        check = _checks[limits] = _compile_limits(limits)
    return check


def _compile_limits(limits: str) -> _Check:
    if limits == "[1,...,9] or -1":
        return _check_gzip_level
    if limits == "non-empty string":
        return _check_non_empty
    if limits.startswith("[partitionId]"):
        return _check_throttled_replicas
    if limits.startswith("(case insensitive) ["):
        return _one_of(_names(limits.removeprefix("(case insensitive) ")), ignore_case=True)
    if limits.startswith("[") and "..." in limits:
        return _within(limits)
    if "by_duration:" in limits:
        return _check_auto_offset_reset
    if limits.startswith("["):
        return _one_of(_names(limits))
    # "non-null string" and "non-empty list" need no check here: text is never null, and these lists are checked when
    # they are parsed as voters and bootstrap servers.
    return _check_nothing


def _names(limits: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in limits.strip("[]").split(","))


def _within(limits: str) -> _Check:
    low_text, _, high_text = limits.strip("[]").partition("...")
    low = float(low_text.rstrip(",")) if "." in low_text else int(low_text.rstrip(","))
    high_text = high_text.lstrip(",")
    high = None if not high_text else float(high_text) if "." in high_text else int(high_text)

    def check(name: str, value: Value) -> None:
        assert isinstance(value, (int, float)), f"{name} is not a number"
        if value < low:
            raise invalid(name, show(value), f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, show(value), f"Value must be no more than {high}")

    return check


def _one_of(names: tuple[str, ...], *, ignore_case: bool = False) -> _Check:
    allowed = {name.lower() for name in names} if ignore_case else set(names)
    hint = " (case insensitive)" if ignore_case else ""

    def check(name: str, value: Value) -> None:
        for item in value if isinstance(value, tuple) else (value,):
            assert isinstance(item, str), f"{name} is not a string"
            if (item.lower() if ignore_case else item) not in allowed:
                raise invalid(name, item, f"String must be one of{hint}: {', '.join(names)}")

    return check


def _check_nothing(name: str, value: Value) -> None:
    pass


def _check_gzip_level(name: str, value: Value) -> None:
    if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def _check_non_empty(name: str, value: Value) -> None:
    if value == "":
        raise invalid(name, value, "String must be non-empty")


def _check_throttled_replicas(name: str, value: Value) -> None:
    assert isinstance(value, tuple), f"{name} is not a list"
    if value == ("*",):
        return
    for item in value:
        partition, colon, broker = item.partition(":")
        if not (colon and partition.isdecimal() and broker.isdecimal()):
            raise invalid(
                name,
                f"[{', '.join(value)}]",
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )


def _check_auto_offset_reset(name: str, value: Value) -> None:
    text = str(value)
    if text in ("latest", "earliest") or (text.startswith("by_duration:P") and len(text) > len("by_duration:P")):
        return
    raise invalid(
        name,
        value,
        f"Invalid value `{text}` for configuration {name}. The value must be either 'earliest', 'latest' or of the "
        "format 'by_duration:<PnDTnHnMn.nS>'.",
    )


# The tables.


def _keys(rows: Iterable[config_table.Row], *, topic: bool = False) -> dict[str, ConfigKey]:
    types = {kind.name.lower(): kind for kind in ConfigType}
    keys = {}
    for name, kind, default, limits, importance, internal, last in rows:
        mode, server_default = (None, last) if topic else (last, None)
        keys[name] = ConfigKey(name, types[kind], default, limits, importance, internal, mode, server_default)
    return keys


BROKER_KEYS = _keys(config_table.BROKER)
#: Barnabas's own keys: read from the properties file, not shown to clients, which compare with Kafka's.
OWN_KEYS = _keys(
    (
        ("barnabas.jaas.config.file", "string", "", None, "medium", False, READ_ONLY),
        ("barnabas.sasl.oauthbearer.allowed.files", "list", "", None, "medium", False, READ_ONLY),
        ("barnabas.sasl.oauthbearer.allowed.urls", "list", "", None, "medium", False, READ_ONLY),
        ("barnabas.cluster.events.enable", "boolean", "true", None, "medium", False, READ_ONLY),
        ("barnabas.leader.election.strategy", "string", "assignment", None, "medium", False, READ_ONLY),
        ("barnabas.log.unsynced.bytes.max", "long", "67108864", "[0,...]", "low", False, READ_ONLY),
        ("barnabas.metrics.listener", "string", "", None, "medium", False, READ_ONLY),
        ("barnabas.max.batch.records", "int", "1000000", "[1,...]", "low", False, READ_ONLY),
        ("barnabas.max.decompressed.batch.bytes", "int", "104857600", "[1,...]", "low", False, READ_ONLY),
        (
            "barnabas.verify.records",
            "string",
            "true",
            "(case insensitive) [true, uncompressed, false]",
            "medium",
            False,
            READ_ONLY,
        ),
        # A key of Apache Kafka 4.4, which has it for topics as well.
        ("max.decompressed.message.bytes", "int", "2147483639", "[1,...]", "low", False, READ_ONLY),
        ("barnabas.cluster.events.retention.ms", "long", "604800000", "[-1,...]", "low", False, READ_ONLY),
    )
)
#: The keys of a broker in ZooKeeper mode: those of Kafka 3.9.1. Later keys keep their defaults, and are not described.
ZOOKEEPER_MODE_KEYS = {
    name: key._replace(internal=True) if name in zookeeper_config_table.LATER else key
    for name, key in (BROKER_KEYS | _keys(zookeeper_config_table.BROKER)).items()
}
TOPIC_KEYS = _keys(config_table.TOPIC, topic=True)
GROUP_KEYS = _keys(config_table.GROUP)
CLIENT_METRICS_KEYS = _keys(config_table.CLIENT_METRICS)
REQUIRED_KEYS = config_table.REQUIRED

#: Keys with the same meaning in different units: the first one that is set counts.
_PRECEDENCE = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS: dict[str, tuple[str, ...]] = {name: group for group in _PRECEDENCE for name in group}
# The scheduler's interval is the default of the other key, not the reverse.
_SYNONYMS["log.flush.interval.ms"] = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")

LISTENER_PREFIX = "listener.name."
#: Keys that can be set for a listener in the whole cluster; others with its prefix belong to one broker.
CLUSTER_LEVEL_LISTENER_KEYS = ("max.connections", "max.connection.creation.rate")
#: The keys of which a node's listeners consist.
LISTENER_KEYS = ("listeners", "listener.security.protocol.map")
#: Suffixes of keys with the prefix `listener.name.<listener>.<mechanism>.`.
_MECHANISM_KEYS = (
    "sasl.jaas.config",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
    "sasl.server.max.receive.size",
    *(name for name in BROKER_KEYS if name.startswith(("sasl.oauthbearer.", "sasl.login."))),
)


def base_key(name: str, keys: Mapping[str, ConfigKey] = BROKER_KEYS) -> ConfigKey | None:
    """Returns the key of `name` among the broker's keys, without a possible prefix `listener.name.X.`."""
    key = keys.get(name) or OWN_KEYS.get(name)
    if key is not None or not name.startswith(LISTENER_PREFIX):
        return key
    rest = name[len(LISTENER_PREFIX) :].partition(".")[2]
    if rest in keys:
        return keys[rest]
    return next((keys[end] for end in _MECHANISM_KEYS if rest.endswith("." + end)), None)


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Returns the keys whose values apply to `name`, by precedence, including itself."""
    names = _SYNONYMS.get(name)
    if names is not None:
        return names
    base = base_key(name)
    return (name,) if base is None or base.name == name else (name, base.name)
