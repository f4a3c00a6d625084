"""JAAS entries (`sasl.jaas.config`): one login module with its options, of brokers and of clients; and JAAS files,
which have several, in sections.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p" user_u="p";

Only the modules that Kafka documents are allowed, by their names; no class is ever loaded. No error text contains an
option's value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The class name of a login module -> its Java package in Kafka.
MODULES: Final[Mapping[str, str]] = {
    "PlainLoginModule": "org.apache.kafka.common.security.plain.",
    "ScramLoginModule": "org.apache.kafka.common.security.scram.",
    "OAuthBearerLoginModule": "org.apache.kafka.common.security.oauthbearer.",
    "Krb5LoginModule": "com.sun.security.auth.module.",
}
#: SASL mechanism -> the class name of its login module.
MODULE_OF: Final[Mapping[str, str]] = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
    "GSSAPI": "Krb5LoginModule",
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
#: The prefix of the Java packages of Kafka's classes in Databricks' clients.
_SHADED: Final = "kafkashaded."
_USER: Final = "user_"
#: White space and comments. Each comment has one end only, so that a match takes linear time.
_BLANKS: Final = r"\s*(?://[^\n]*(?:\n|\Z)\s*|/\*(?:[^*]|\*(?!/))*\*/\s*)*"
_BLANK: Final = re.compile(_BLANKS)
_TOKEN: Final = re.compile(
    rf"""{_BLANKS}(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([;={{}}])|([^\s"';={{}}]+))""", re.S
)
_ESCAPE: Final = re.compile(r"\\(.)", re.S)


class JaasError(ValueError):
    """An invalid JAAS entry; the message describes the fault."""


@dataclass(frozen=True)
class JaasEntry:
    """A login module and its options. The options are never shown."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """Returns the passwords of the users that the entry lists (`user_NAME="password"`)."""
        return {name[len(_USER) :]: value for name, value in self.options.items() if name.startswith(_USER)}


def parse(text: str) -> JaasEntry:
    """Parses an entry with exactly one module. Raises JaasError."""
    entries = parse_all(text)
    if len(entries) != 1:
        raise JaasError(f"it has {len(entries)} login modules instead of one")
    return entries[0]


def parse_all(text: str) -> list[JaasEntry]:
    return _entries(_tokens(text))


def _entries(tokens: list[tuple[str, bool]]) -> list[JaasEntry]:
    entries, begin = [], 0
    for place, token in enumerate(tokens):
        if token == (";", True):
            entries.append(_entry(tokens[begin:place]))
            begin = place + 1
    if begin < len(tokens):
        raise JaasError('it does not end with ";"')
    return entries


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Returns the words, and whether each is a sign (`;`, `=`, `{` or `}`)."""
    found, position = [], 0
    text = text.rstrip()
    while not _BLANK.fullmatch(text, position):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("a quotation mark is not closed")
        double, single, sign, bare = match.groups()
        quoted = double if double is not None else single
        word = _ESCAPE.sub(r"\1", quoted) if quoted is not None else sign or bare
        found.append((word, sign is not None))
        position = match.end()
    return found


def _entry(tokens: list[tuple[str, bool]]) -> JaasEntry:
    if len(tokens) < 2 or tokens[0][1] or tokens[1][0].lower() not in _FLAGS:
        raise JaasError(f"it must begin with a login module and one of {', '.join(_FLAGS)}")
    package, dot, module = tokens[0][0].rpartition(".")
    if MODULES.get(module) != package.removeprefix(_SHADED) + dot:
        allowed = ", ".join(f"{package}{name}" for name, package in MODULES.items())
        raise JaasError(f"its login module is not one of {allowed}")
    options: dict[str, str] = {}
    for place in range(2, len(tokens), 3):
        option = tokens[place : place + 3]
        if len(option) < 3 or option[0][1] or option[1] != ("=", True) or option[2][1]:
            raise JaasError('its options must have the form name="value"')
        name, value = option[0][0], option[2][0]
        if name in options:
            raise JaasError(f"it has the option {name} twice")
        options[name] = value
    return JaasEntry(module, options)


def parse_file(text: str, last_name: str) -> dict[str, list[JaasEntry]]:
    """Parses a JAAS file: sections of entries, `NAME { entries };`. Returns the sections whose name, after a possible
    prefix and a dot, is `last_name`; others can have modules of any kind. Raises JaasError.
    """
    tokens = _tokens(text)
    sections: dict[str, list[JaasEntry]] = {}
    begin = 0
    while begin < len(tokens):
        head = tokens[begin : begin + 2]
        end = next((place for place in range(begin, len(tokens)) if tokens[place] == ("}", True)), None)
        if len(head) < 2 or head[0][1] or head[1] != ("{", True) or end is None:
            raise JaasError("a section must have the form NAME { entries };")
        name, body = head[0][0], tokens[begin + 2 : end]
        if tokens[end + 1 : end + 2] != [(";", True)]:
            raise JaasError(f'the section {name} does not end with "}};"')
        if name in sections:
            raise JaasError(f"it has the section {name} twice")
        begin = end + 2
        if name.rpartition(".")[2] != last_name:
            continue
        try:
            sections[name] = _entries(body)
        except JaasError as error:
            raise JaasError(f"section {name}: {error}") from None
    return sections


def shown(entry: JaasEntry) -> str:
    """Returns the text of an entry."""
    options = "".join(f" {name}={_quoted(value)}" for name, value in entry.options.items())
    return f"{MODULES[entry.module]}{entry.module} required{options};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
