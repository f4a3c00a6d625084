"""The TLS settings of connections to ZooKeeper (`zookeeper.ssl.*`), with the rules of ZooKeeper's own client: a key has
the password of its store, and the end of a file's name can give the type of a store.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.config_keys import invalid
from barnabas.common.settings import Settings
from barnabas.tls.listener_settings import VERSIONS, ListenerSettings, Place, StoreSettings

_PREFIX: Final = "zookeeper."
_PLACE: Final = Place("connections to ZooKeeper", _PREFIX, f"{_PREFIX}ssl.keystore.password")
_TYPES: Final = ("JKS", "PKCS12", "PEM")
_TYPE_OF_ENDING: Final = {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".pem": "PEM"}
#: Java's name of all versions.
_ANY: Final = "TLS"


def zookeeper_settings(config: Settings) -> ListenerSettings:
    """Reads the settings. Raises ConfigError for values that are not possible here."""
    return ListenerSettings(
        _PLACE,
        _store(config, "keystore"),
        _store(config, "truststore"),
        client_auth="none",
        versions=_versions(config),
        suites=config.list_of("zookeeper.ssl.cipher.suites"),
        checks_names=_checks_names(config),
        mapping_rules="DEFAULT",
        allows_other_names=True,
        allows_other_alternative_names=True,
    )


def _store(config: Settings, kind: str) -> StoreSettings | None:
    location = config.str_or_none(f"zookeeper.ssl.{kind}.location")
    if not location:
        return None
    password = config.str_or_none(f"zookeeper.ssl.{kind}.password") or None
    return StoreSettings(_type(config, kind, location), location, password, password)


def _type(config: Settings, kind: str, location: str) -> str:
    key = f"zookeeper.ssl.{kind}.type"
    text = config.str_or_none(key)
    if text:
        if text.upper() not in _TYPES:
            raise invalid(key, text, f"{', '.join(_TYPES)} are allowed")
        return text.upper()
    found = next((name for ending, name in _TYPE_OF_ENDING.items() if location.lower().endswith(ending)), None)
    if found is None:
        raise _PLACE.refused(
            f"ssl.{kind}.location",
            location,
            f"{key} is needed ({', '.join(_TYPES)}): the name ends with none of {', '.join(_TYPE_OF_ENDING)}",
        )
    return found


def _versions(config: Settings) -> tuple[str, ...]:
    protocol = config.str_of("zookeeper.ssl.protocol")
    if protocol not in (_ANY, *VERSIONS):
        raise invalid("zookeeper.ssl.protocol", protocol, f"{', '.join((_ANY, *VERSIONS))} are allowed")
    enabled = config.list_of("zookeeper.ssl.enabled.protocols")
    if set(enabled) - set(VERSIONS):
        raise invalid("zookeeper.ssl.enabled.protocols", ",".join(enabled), f"{', '.join(VERSIONS)} are allowed")
    return enabled or (VERSIONS if protocol == _ANY else (protocol,))


def _checks_names(config: Settings) -> bool:
    key = "zookeeper.ssl.endpoint.identification.algorithm"
    algorithm = config.str_or_none(key) or ""
    if algorithm.lower() not in ("", "https"):
        raise invalid(key, algorithm, "https and an empty value are allowed")
    return bool(algorithm)
