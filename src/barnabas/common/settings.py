"""The layers of a node's configuration, and typed access to them.

    DYNAMIC_BROKER > DYNAMIC_DEFAULT_BROKER > STATIC_BROKER > DEFAULT

The static layer is the properties file; the two dynamic ones come from the metadata log while the node runs and never
stop it: an invalid value is left out and reported. Reading is a dict look-up, so no reader needs a copy of a setting
that can change; a component that must act on a change subscribes. `Broker._on_broker_config` (`broker/assembly.py`)
updates the dynamic layers when the metadata changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.common import config_docs
from barnabas.common.authorizer_keys import AUTHORIZER_KEYS
from barnabas.common.config_keys import (
    BROKER_KEYS,
    CLUSTER_LEVEL_LISTENER_KEYS,
    LISTENER_PREFIX,
    OWN_KEYS,
    PER_BROKER,
    READ_ONLY,
    REQUIRED_KEYS,
    ZOOKEEPER_MODE_KEYS,
    ConfigKey,
    ConfigSource,
    Value,
    base_key,
    broker_synonyms,
)
from barnabas.common.errors import ConfigError

_DEFAULTS: dict[str, Value] = {name: key.default_value() for name, key in (BROKER_KEYS | OWN_KEYS).items()}


def is_zookeeper_mode(properties: Mapping[str, str]) -> bool:
    """Returns whether a node with these properties is a broker in ZooKeeper mode."""
    return bool(properties.get("zookeeper.connect", "").strip())


class Settings:
    """Typed access to broker keys through the layers of the configuration."""

    __slots__ = (
        "_check_files",
        "_cluster_default",
        "_defaults",
        "_find_login",
        "_identity",
        "_per_broker",
        "_reread_files",
        "_static",
        "_subscribers",
        "_values",
        "keys",
        "warnings",
    )

    def __init__(self, properties: Mapping[str, str], identity: Mapping[str, Value] | None = None) -> None:
        """Creates the settings of a node. `identity` has values that are not in its properties file, such as a
        generated broker id.
        """
        self._static = dict(properties)
        self._identity = dict(identity or {})
        #: The keys of the node's mode, without those of Barnabas.
        self.keys: Mapping[str, ConfigKey] = BROKER_KEYS
        self._defaults: Mapping[str, Value] = _DEFAULTS
        if is_zookeeper_mode(properties):
            self.keys = ZOOKEEPER_MODE_KEYS
            self._defaults = _DEFAULTS | {name: key.default_value() for name, key in self.keys.items()}
        self._per_broker: dict[str, str] = {}
        self._cluster_default: dict[str, str] = {}
        self._subscribers: list[Callable[[frozenset[str]], None]] = []
        self._find_login: Callable[[str], Any] | None = None
        self._check_files: Callable[[Any], None] | None = None
        self._reread_files: Callable[[], None] | None = None
        #: Warnings about the properties file: unknown keys, and keys without effect.
        self.warnings: list[str] = []
        for name in sorted(REQUIRED_KEYS):
            if name not in self._static and self.keys is BROKER_KEYS:
                raise ConfigError(f'Missing required configuration "{name}" which has no default value.')
        self._values = dict(self._defaults)
        for name, text in self._static.items():
            self._take_static(name, text)
        self._values.update(self._identity)

    def _take_static(self, name: str, text: str) -> None:
        key = self.base_key(name)
        if key is None:
            if name in AUTHORIZER_KEYS:
                if not self._static.get("authorizer.class.name"):
                    self.warnings.append(f"{name} has no effect: authorizer.class.name is not set")
                return
            self.warnings.append(config_docs.unknown(name))
            return
        try:
            self._values[name] = key.parse(text)
        except ConfigError as error:
            # The error names the key without the prefix of the listener: several listeners can have it.
            raise ConfigError(str(error).replace(f"configuration {key.name}:", f"configuration {name}:")) from None
        if name in self.keys and self._values[name] != self._defaults[name]:
            note = config_docs.note_on(name)
            if note is not None:
                self.warnings.append(f"{name}={'[hidden]' if key.is_sensitive else text} {note}")

    # Reading.

    def base_key(self, name: str) -> ConfigKey | None:
        """Returns the key of `name` in the node's mode, without a possible prefix `listener.name.X.`."""
        return base_key(name, self.keys)

    def value_of(self, key: str) -> Value:
        """Returns the value in force. Raises KeyError for an unknown key."""
        return self._values[key]

    def int_of(self, key: str) -> int:
        value = self._values[key]
        if type(value) is not int:
            raise ConfigError(f"{key} is not set" if value is None else f"{key} is not an integer")
        return value

    def int_or_none(self, key: str) -> int | None:
        return None if self._values[key] is None else self.int_of(key)

    def float_of(self, key: str) -> float:
        value = self._values[key]
        assert isinstance(value, float), f"{key} is not a double"
        return value

    def bool_of(self, key: str) -> bool:
        value = self._values[key]
        assert isinstance(value, bool), f"{key} is not a boolean"
        return value

    def str_of(self, key: str) -> str:
        """Returns the text. Raises ConfigError if it is not set."""
        value = self._values[key]
        if not isinstance(value, str):
            raise ConfigError(f"{key} is not set" if value is None else f"{key} is not a string")
        return value

    def str_or_none(self, key: str) -> str | None:
        return None if self._values[key] is None else self.str_of(key)

    def list_of(self, key: str) -> tuple[str, ...]:
        """Returns the items of a list key, or of a text that Kafka splits at commas (`listeners`, `log.dirs`)."""
        value = self._values[key]
        if isinstance(value, str):
            return tuple(item.strip() for item in value.split(",") if item.strip())
        return value if isinstance(value, tuple) else ()

    def value_on(self, listener: str, key: str) -> Value:
        """Returns the value in force for a listener: that of `listener.name.<listener>.<key>`, else that of `key`.
        Raises KeyError for an unknown key.
        """
        prefixed = f"{LISTENER_PREFIX}{listener.lower()}.{key}"
        return self._values[prefixed] if prefixed in self._values else self._values[key]

    def value_or_none(self, key: str) -> Value:
        """Returns the value in force; None if `key` is not set, or unknown."""
        return self._values.get(key)

    def text_or_none(self, key: str) -> str | None:
        """Returns the text of a key with a prefix; None if it is not set."""
        value = self._values.get(key)
        return value if isinstance(value, str) else None

    # Layers.

    @property
    def originals(self) -> Mapping[str, str]:
        """Returns the static layer as it was given, including unknown keys."""
        return self._static

    @property
    def per_broker(self) -> Mapping[str, str]:
        return self._per_broker

    @property
    def cluster_default(self) -> Mapping[str, str]:
        return self._cluster_default

    def synonyms_of(self, name: str) -> list[tuple[ConfigSource, str, str]]:
        """Returns (source, key, text) of every layer that sets `name`, strongest first (KIP-226).

        Other keys above the first mention of `name` itself are omitted, as Kafka omits them.
        """
        names = broker_synonyms(name)
        found: list[tuple[ConfigSource, str, str]] = []
        for source, layer in (
            (ConfigSource.DYNAMIC_BROKER, self._per_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self._cluster_default),
            (ConfigSource.STATIC_BROKER, self._static),
        ):
            found += [(source, key, layer[key]) for key in names if key in layer]
        for key in names:
            default = self.keys[key].default if key in self.keys else None
            if default is not None:
                found.append((ConfigSource.DEFAULT, key, default))
        first = next((index for index, (_, key, _) in enumerate(found) if key == name), len(found))
        return found[first:]

    def update_dynamic(self, per_broker: Mapping[str, str], cluster_default: Mapping[str, str]) -> list[str]:
        """Replaces both dynamic layers and notifies the subscribers of changes. Returns a message for each invalid
        setting that was left out.
        """
        problems: list[str] = []
        values = dict(self._defaults)
        for name, text in self._static.items():
            if (key := self.base_key(name)) is not None:
                values[name] = key.parse(text)
        values.update(self._identity)
        for layer, source in ((cluster_default, "cluster-wide default"), (per_broker, "per-broker setting")):
            for name, text in layer.items():
                if self.base_key(name) is None:
                    continue  # Throttle rates, and keys that a later release may know: kept, without effect here.
                try:
                    values[name] = self.dynamic_key(name, per_broker=layer is per_broker).parse(text)
                except ConfigError as error:
                    problems.append(f"{source} left out: {error}")
        changed = frozenset(
            name for name in values.keys() | self._values.keys() if values.get(name) != self._values.get(name)
        )
        self._per_broker = dict(per_broker)
        self._cluster_default = dict(cluster_default)
        self._values = values
        problems += self._on_values()
        if changed:
            for subscriber in list(self._subscribers):
                subscriber(changed)
        if self._reread_files is not None:
            # A file can have changed under the same name, so setting the same name again reads the file again.
            self._reread_files()
        return problems

    def _on_values(self) -> list[str]:
        """Follows a change of the values, before the subscribers do. Returns messages about values that have no
        effect."""
        return []

    def use_files(self, check: Callable[[Any], None], reread: Callable[[], None]) -> None:
        """Sets the functions of the component that reads the files named by settings. `check` raises ConfigError if the
        node must not change to a configuration; `reread` is called after each change of a dynamic layer, even one that
        sets the same values again.
        """
        self._check_files, self._reread_files = check, reread

    def check_files(self, proposed: Settings) -> None:
        """Raises ConfigError if the node must not change to the files that `proposed` names."""
        if self._check_files is not None:
            self._check_files(proposed)

    def use_logins(self, find: Callable[[str], Any]) -> None:
        """Sets the function of the owner of this node's tokens: it returns the login for a listener of other nodes."""
        self._find_login = find

    def login_for(self, listener: str) -> Any:
        """Returns the login by a token on a listener of other nodes."""
        assert self._find_login is not None, "the node's tokens are there before its connections"
        return self._find_login(listener)

    def dynamic_key(self, name: str, *, per_broker: bool) -> ConfigKey:
        """Returns the key that a dynamic layer can set. Raises ConfigError if the key cannot be set dynamically."""
        key = self.base_key(name)
        if key is None:
            raise ConfigError(f"Unknown dynamic config {name}")
        if key.update_mode == READ_ONLY and key.name == name:
            raise ConfigError(f"Cannot update these configs dynamically: Set({name})")
        is_own = key.update_mode == PER_BROKER or (key.name != name and key.name not in CLUSTER_LEVEL_LISTENER_KEYS)
        if not per_broker and is_own:
            raise ConfigError(
                f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
            )
        return key

    def subscribe(self, on_change: Callable[[frozenset[str]], None]) -> None:
        """Registers a callback, which is called with the names of the keys whose value in force has changed."""
        self._subscribers.append(on_change)
