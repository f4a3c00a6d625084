"""The parts of a declared message: `Field` descriptions, and the base classes of all generated messages.

`Struct` is any group of fields; `Message` is a struct that is complete on the wire or on disk. The generated classes
keep plain values in slots. Only FIELDS describes their form in each version; `codec` generates its functions from it.

Python values by schema type:

    int8 ... int64, uint16   int          string    str            []T     list
    bool                     bool         bytes     bytes          Struct  its class
    float64                  float        uuid      16 raw bytes   records any bytes-like; a view after decoding

None is the null of a nullable field. A tagged struct that is not nullable is also None while it is absent, that is,
while all its fields have their defaults: most are absent in most messages, and then they should cost nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

#: The default value that stands for a new empty list, or for a new struct with its own defaults.
FRESH: tuple[()] = ()

UnknownTags = tuple[tuple[int, bytes], ...]


class Field(NamedTuple):
    """One field of a struct, over all versions. Version ranges are inclusive."""

    attribute: str
    #: Kafka's name, for texts that Kafka's users read.
    name: str
    #: The schema's spelling: `int32`, `[]string`, `[]FetchTopic`, ...
    type: str
    since: int
    until: int
    default: Any
    nullable: tuple[int, int] | None = None
    tag: int | None = None
    tagged: tuple[int, int] | None = None
    #: Whether a version that lacks the field can drop its value silently.
    ignorable: bool = False
    #: False for the one field (client id in the request header) that keeps its old form in flexible versions.
    flexible: bool = True

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]

    def is_tagged_in(self, version: int) -> bool:
        return self.tagged is not None and self.tagged[0] <= version <= self.tagged[1]

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element_type(self) -> str:
        return self.type.removeprefix("[]")

    @property
    def is_struct(self) -> bool:
        """Returns whether the value (or each element) is a struct."""
        return self.element_type[0].isupper()


#: The text in place of a secret.
HIDDEN: Final = "[hidden]"
#: Fields with secrets, or with whole requests that can have some.
_SECRETS: Final = frozenset({"auth_bytes", "hmac", "salted_password", "server_key", "stored_key", "request_data"})
#: Parts of the names of settings whose values are secrets.
_SECRET_SETTINGS: Final = ("password", "jaas.config", "keystore.key", "secret")


class Struct:
    """A group of fields. Two are equal if they have the same class and all fields are equal."""

    __slots__: tuple[str, ...] = ()

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, slot) == getattr(other, slot) for slot in self.__slots__)

    def __repr__(self) -> str:
        shown = [f"{field.attribute}={self._shown(field.attribute)}" for field in self.FIELDS]
        tags = getattr(self, "unknown_tags", ())
        if tags:
            shown.append(f"unknown_tags={tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _shown(self, attribute: str) -> str:
        """Returns the text of a field, without secrets: texts of messages get into logs and errors."""
        return HIDDEN if self.is_secret(attribute) else repr(getattr(self, attribute))

    def is_secret(self, attribute: str) -> bool:
        """Returns whether a field has a value that only its receiver may see."""
        if not getattr(self, attribute):
            return False
        return attribute in _SECRETS or (attribute == "value" and self._is_secret_setting())

    def _is_secret_setting(self) -> bool:
        name = getattr(self, "name", None)
        return isinstance(name, str) and any(part in name for part in _SECRET_SETTINGS)


class Message(Struct):
    """A request, a response, or the content of an on-disk record."""

    __slots__ = ()

    NAME: ClassVar[str]
    #: API key of a request or response, type id of a metadata or coordinator record, else None.
    API_KEY: ClassVar[int | None] = None
    #: Lowest and highest known version, in Kafka 3.9.1 and 4.1.0 together.
    VERSIONS: ClassVar[tuple[int, int]]
    #: The first flexible version (KIP-482), or None.
    FLEXIBLE: ClassVar[int | None] = None
