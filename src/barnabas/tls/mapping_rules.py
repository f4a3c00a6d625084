"""`ssl.principal.mapping.rules`: from the name of a certificate to the name of a principal.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),.*$/$1/L,DEFAULT

The first rule whose pattern matches the whole name decides; DEFAULT leaves the name unchanged. Results are those of
Kafka's `SslPrincipalMapper`, which replaces every match of the pattern in the name.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.common.config_keys import invalid
from barnabas.common.java_patterns import ReplacementError, expanded, java_pattern

_KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\$([0-9]+)")


class NoMatchingRuleError(ValueError):
    """The error for a name that no rule maps to a principal."""


class _Rule(NamedTuple):
    """A mapping rule. The rule DEFAULT has no pattern."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Returns the mapped name, or None if the rule does not match. Raises NoMatchingRuleError for a reference to a
        group that the pattern does not have.
        """
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        replacement = _without_missing_groups(self.replacement, self.pattern.groups)
        try:
            mapped = self.pattern.sub(lambda match: expanded(replacement, match), name)
        except ReplacementError as error:
            raise NoMatchingRuleError(str(error)) from None
        return mapped.lower() if self.case == "L" else mapped.upper() if self.case == "U" else mapped


class MappingRules:
    def __init__(self, text: str) -> None:
        """Parses the rules. Raises ConfigError for an invalid one."""
        self._text = text
        self._rules = [rule for part in _SPLITTER.finditer(text.strip()) if (rule := _parse(part.group(1))) is not None]

    def principal_name(self, name: str) -> str:
        """Returns the name of the principal. Raises NoMatchingRuleError if no rule matches."""
        for rule in self._rules:
            mapped = rule.apply(name)
            if mapped is not None:
                return mapped
        raise NoMatchingRuleError(f"no rule of {_KEY} applies to {name}")


def _parse(text: str) -> _Rule | None:
    """Returns the rule that `text` describes; None for an empty text."""
    match = _PARSER.match(text)
    assert match is not None, "the last alternative matches any text"
    if match.end() != len(text):
        raise invalid(_KEY, text, f"Invalid rule: `{text}`, unmatched substring: `{text[match.end() :]}`")
    default, pattern, replacement, case, _ = match.groups()
    if default is not None:
        return _Rule()
    if pattern is None:
        return None
    try:
        return _Rule(java_pattern(pattern), replacement, case)
    except re.error as error:
        raise invalid(_KEY, text, f"Invalid rule: {error}") from None


def _without_missing_groups(replacement: str, groups: int) -> str:
    """Escapes references to groups that the pattern does not have, so that they stay as text. The positions are those
    in the text before the first escape, as in Kafka.
    """
    if not groups:
        return replacement
    value = replacement
    for found in _REFERENCE.finditer(replacement):
        digits = found.group(1)
        if digits.startswith("0"):
            continue
        number = int(digits)
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            value = value[: found.start()] + "\\" + value[found.start() :]
    return value
