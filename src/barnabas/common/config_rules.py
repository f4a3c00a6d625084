"""Constraints on values of groups and client metrics subscriptions beyond their types (KIP-1071, KIP-714).

Topics have theirs in `log_config`, nodes in `config`. Messages and codes are those of Kafka's controller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.common.config import BrokerConfig
from barnabas.common.config_keys import CLIENT_METRICS_KEYS, GROUP_KEYS
from barnabas.common.errors import ConfigError, ErrorCode, RequestFailed

_CLIENT_LABELS = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_PUSH_INTERVAL_MIN_MS = 100
_PUSH_INTERVAL_MAX_MS = 3_600_000

#: Group key -> the broker's bounds for it.
_GROUP_BOUNDS: dict[str, tuple[str | None, str]] = {
    f"{kind}.{name}": (f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")
    for kind, names in (
        ("consumer", ("session.timeout.ms", "heartbeat.interval.ms")),
        ("share", ("session.timeout.ms", "heartbeat.interval.ms", "record.lock.duration.ms")),
        ("streams", ("session.timeout.ms", "heartbeat.interval.ms")),
    )
    for name in names
}
_GROUP_BOUNDS["streams.num.standby.replicas"] = (None, "group.streams.max.standby.replicas")


def check_group(values: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises RequestFailed if these settings are not allowed for a group on this broker."""
    for name in values:
        if name not in GROUP_KEYS:
            raise RequestFailed(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    effective: dict[str, int] = {}
    try:
        parsed = {name: GROUP_KEYS[name].parse(text) for name, text in values.items()}
    except ConfigError as error:
        raise RequestFailed(ErrorCode.INVALID_CONFIG, str(error)) from None
    for name, (low, high) in _GROUP_BOUNDS.items():
        value = parsed.get(name, broker.value_of(f"group.{name}"))
        assert isinstance(value, int), name
        effective[name] = value
        if low is not None and value < broker.int_of(low):
            raise RequestFailed(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {low}")
        if value > broker.int_of(high):
            raise RequestFailed(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {high}")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if effective[session] <= effective[heartbeat]:
            raise RequestFailed(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


def check_client_metrics(values: Mapping[str, str]) -> None:
    """Raises RequestFailed if these settings are not allowed for a client metrics subscription."""
    for name, text in values.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        try:
            value = key.parse(text)
        except ConfigError as error:
            raise RequestFailed(ErrorCode.INVALID_CONFIG, str(error)) from None
        if name == "interval.ms":
            assert isinstance(value, int), name
            if not _PUSH_INTERVAL_MIN_MS <= value <= _PUSH_INTERVAL_MAX_MS:
                raise RequestFailed(
                    ErrorCode.INVALID_REQUEST,
                    f"Invalid value {value} for interval.ms, interval must be between {_PUSH_INTERVAL_MIN_MS} and "
                    f"{_PUSH_INTERVAL_MAX_MS} (1 hour)",
                )
        if name == "match":
            assert isinstance(value, tuple), name
            for pattern in value:
                _check_match(pattern)


def _check_match(pattern: str) -> None:
    """Checks a selector `label=regular expression`."""
    label, equals, expression = pattern.partition("=")
    try:
        re.compile(expression)
    except re.error:
        equals = ""
    if not equals or not expression or label.strip() not in _CLIENT_LABELS:
        raise RequestFailed(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
