"""A JAAS file (`barnabas.jaas.config.file`) as a fallback for `sasl.jaas.config`, in Kafka's order:

listener.name.<listener>.<mechanism>.sasl.jaas.config  >  section <listener>.KafkaServer  >  section KafkaServer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common import jaas
from barnabas.common.config_keys import LISTENER_PREFIX
from barnabas.common.errors import ConfigError

KEY: Final = "barnabas.jaas.config.file"
_SECTION: Final = "KafkaServer"
_JAAS: Final = "sasl.jaas.config"


def with_jaas_file(properties: Mapping[str, str], read: Callable[[str], str]) -> Mapping[str, str]:
    """Returns the properties of a node with the entries of its JAAS file, if it has one. `read` returns the text of a
    file. Raises ConfigError.
    """
    path = properties.get(KEY, "").strip()
    if not path:
        return properties
    try:
        text = read(path)
    except OSError as error:
        raise ConfigError(f"{KEY}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{KEY}: cannot read {path}: the file is not UTF-8") from error
    try:
        sections = jaas.parse_file(text, _SECTION)
    except jaas.JaasError as error:
        raise ConfigError(f"{KEY}: {path}: {error}") from None
    found = dict(properties)
    for listener in _listeners(properties):
        entries = sections.get(f"{listener}.{_SECTION}", sections.get(_SECTION, []))
        for mechanism, module in jaas.MODULE_OF.items():
            key = f"{LISTENER_PREFIX}{listener}.{mechanism.lower()}.{_JAAS}"
            entry = next((each for each in entries if each.module == module), None)
            if entry is not None and key not in found:
                found[key] = jaas.shown(entry)
    return found


def _listeners(properties: Mapping[str, str]) -> list[str]:
    """Returns the names of the listeners that the node serves or dials, in lower case, and of those that it knows a
    security protocol for: they can be added while it runs."""
    named = [each.partition(":")[0] for each in properties.get("listener.security.protocol.map", "").split(",")]
    named += [each.partition("://")[0] for each in properties.get("listeners", "").split(",")]
    named += properties.get("controller.listener.names", "").split(",")
    named.append(properties.get("inter.broker.listener.name", ""))
    return sorted({each.strip().lower() for each in named} - {""})
