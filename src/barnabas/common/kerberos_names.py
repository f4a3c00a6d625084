r"""`sasl.kerberos.principal.to.local.rules`: from a Kerberos principal to the name of a user.

    RULE:[1:$1@$0](.*@EXAMPLE\.COM)s/@.*//,RULE:[2:$1]/L,DEFAULT

A rule is for principals with this number of components; `$0` is the realm, `$1` and `$2` are the components. The first
rule that applies decides. DEFAULT takes the first component of a principal of the default realm. Results are those of
Kafka's `KerberosShortNamer`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.common.config_keys import invalid
from barnabas.common.java_patterns import ReplacementError, expanded, java_pattern

KEY: Final = "sasl.kerberos.principal.to.local.rules"
_RULE: Final = re.compile(r"(DEFAULT)|RULE:\[([0-9]*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?")
_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_PARAMETER: Final = re.compile(r"([^$]*)(?:\$([0-9]*))?")
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class NoLocalName(ValueError):
    """The error for a principal that no rule maps to a user."""


class KerberosName(NamedTuple):
    """A principal in its parts: `service/host@REALM`. A simple name has a service only."""

    service: str
    host: str | None
    realm: str | None

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        """Parses a principal. Raises NoLocalName."""
        match = _NAME.fullmatch(text)
        if match is not None:
            return cls(*match.groups())
        if "@" in text:
            raise NoLocalName(f"Malformed Kerberos name: {text}")
        return cls(text, None, None)


class _Rule(NamedTuple):
    """A rule; DEFAULT has no format."""

    components: int = 0
    format: str | None = None
    match: re.Pattern[str] | None = None
    substituted: re.Pattern[str] | None = None
    replacement: str = ""
    everywhere: bool = False
    case: str | None = None

    def apply(self, parts: Sequence[str], default_realm: str) -> str | None:
        """Returns the local name; None if the rule does not apply. `parts` are the realm and the components. Raises
        NoLocalName."""
        if self.format is None:
            found = parts[1] if parts[0] == default_realm else None
        elif len(parts) - 1 != self.components:
            found = None
        else:
            found = self._mapped(_with_parameters(self.format, parts))
        if found is None:
            return None
        if _NOT_SIMPLE.search(found):
            raise NoLocalName(f"Non-simple name {found} after a rule of {KEY}")
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _mapped(self, base: str) -> str | None:
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.substituted is None:
            return base
        try:
            count = 0 if self.everywhere else 1
            return self.substituted.sub(lambda match: expanded(self.replacement, match), base, count=count)
        except ReplacementError as error:
            raise NoLocalName(str(error)) from None


def _with_parameters(text: str, parts: Sequence[str]) -> str:
    """Returns the format with the parts of the principal in it. Raises NoLocalName."""
    found: list[str] = []
    for match in _PARAMETER.finditer(text):
        found.append(match[1])
        if match[2] is not None:
            if not match[2] or int(match[2]) >= len(parts):
                raise NoLocalName(f"{text} refers to ${match[2]}, which the principal does not have")
            found.append(parts[int(match[2])])
    return "".join(found)


class LocalNames:
    """The rules of a listener."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Parses the rules. Raises ConfigError."""
        self._rules = [_parse(rule) for rule in rules]
        self._default_realm = default_realm

    def of(self, principal: str) -> str:
        """Returns the user of a principal. Raises NoLocalName."""
        name = KerberosName.parse(principal)
        if name.realm is None:
            return name.service
        parts = [name.realm, name.service, *([] if name.host is None else [name.host])]
        for rule in self._rules:
            found = rule.apply(parts, self._default_realm)
            if found is not None:
                return found
        raise NoLocalName(f"no rule of {KEY} applies to {principal}")


def _parse(text: str) -> _Rule:
    match = _RULE.match(text)
    if match is None or match.end() != len(text):
        rest = text if match is None else text[match.end() :]
        raise invalid(KEY, text, f"Invalid rule: `{text}`, unmatched substring: `{rest}`")
    default, components, form, pattern, substituted, replacement, everywhere, case = match.groups()
    if default is not None:
        return _Rule()
    if not components or int(components) >= 1 << 31:
        raise invalid(KEY, text, "Invalid rule: it needs a number of components")
    try:
        return _Rule(
            int(components),
            form,
            None if pattern is None else java_pattern(pattern),
            None if substituted is None else java_pattern(substituted),
            replacement or "",
            everywhere is not None,
            case,
        )
    except re.error as error:
        raise invalid(KEY, text, f"Invalid rule: {error}") from None
