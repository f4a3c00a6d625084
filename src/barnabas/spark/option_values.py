"""Parsers of option values. Every refusal is a ConfigError with the key, the value and what is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from barnabas.common.endpoints import parse_address
from barnabas.common.errors import ConfigError
from barnabas.common.types import TopicPartition


def refused(key: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(f"option {key}={value!r}: {allowed}")


class OptionReader:
    """The options by their documented names; Spark may have changed their case. Each is removed when it is read, and
    the remaining ones are unknown.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._left = {key.lower(): value for key, value in options.items()}

    def text(self, key: str, default: str | None = None) -> str | None:
        return self._left.pop(key.lower(), default)

    def required(self, key: str, what: str) -> str:
        value = self.text(key)
        if value is None or not value.strip():
            raise ConfigError(f"option {key} is missing: {what}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.text(key)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise refused(key, value, "expected true or false")
        return value.strip().lower() == "true"

    def integer(self, key: str, default: int, low: int = 0, high: int = (1 << 63) - 1) -> int:
        found = self.maybe_integer(key, low, high)
        return default if found is None else found

    def maybe_integer(self, key: str, low: int = 0, high: int = (1 << 63) - 1) -> int | None:
        value = self.text(key)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise refused(key, value, f"expected a whole number from {low} to {high}")
        return number

    def choice(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.text(key, default)
        assert value is not None
        if value.strip().lower() not in allowed:
            raise refused(key, value, f"expected one of {', '.join(allowed)}")
        return value.strip().lower()

    def names(self, key: str) -> tuple[str, ...] | None:
        """Returns comma-separated names."""
        value = self.text(key)
        if value is None:
            return None
        names = tuple(dict.fromkeys(each.strip() for each in value.split(",") if each.strip()))
        if not names:
            raise refused(key, value, "expected at least one name; commas separate names")
        return names

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """Removes the remaining options with the prefix, and returns them without it."""
        found = {key: value for key, value in self._left.items() if key.startswith(prefix)}
        for key in found:
            del self._left[key]
        return {key.removeprefix(prefix): value for key, value in found.items()}

    def rest(self) -> list[str]:
        return sorted(self._left)


def addresses(key: str, value: str) -> tuple[tuple[str, int], ...]:
    """Parses `host:port,host:port`."""
    found = []
    for part in value.split(","):
        if part.strip():
            try:
                address = parse_address(key, part)
            except ConfigError as error:
                raise refused(key, value, f"expected host:port,host:port ({error})") from None
            if not address.host or not address.port:
                raise refused(key, value, "expected host:port,host:port")
            found.append((address.host, address.port))
    if not found:
        raise refused(key, value, "expected at least one host:port")
    return tuple(found)


def pattern(key: str, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise refused(key, value, f"expected a regular expression for whole topic names ({error})") from None


def partition_numbers(key: str, value: str, low: int) -> dict[TopicPartition, int]:
    """Parses `{"topic": {"0": 23, "1": -1}}`: a number of at least `low` for each partition."""
    form = 'expected a JSON object such as {"topic": {"0": 23, "1": 5}}'
    found = {}
    for topic, partitions in _object(key, value, form).items():
        if not isinstance(partitions, dict):
            raise refused(key, value, form)
        for index, number in partitions.items():
            if not (index.isascii() and index.isdigit()) or type(number) is not int or number < low:
                raise refused(key, value, f"{form}, with numbers from {low}; {topic}-{index} has {number!r}")
            found[TopicPartition(topic, int(index))] = number
    if not found:
        raise refused(key, value, form)
    return found


def partition_lists(key: str, value: str) -> tuple[TopicPartition, ...]:
    """Parses `{"topic": [0, 1]}`."""
    form = 'expected a JSON object such as {"topic": [0, 1]}'
    found = []
    for topic, partitions in _object(key, value, form).items():
        if not isinstance(partitions, list) or not all(type(each) is int and each >= 0 for each in partitions):
            raise refused(key, value, form)
        found += [TopicPartition(topic, each) for each in sorted(set(partitions))]
    if not found:
        raise refused(key, value, form)
    return tuple(found)


def _object(key: str, value: str, form: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise refused(key, value, form)
    return parsed
