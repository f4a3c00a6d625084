"""Regular expressions and replacements of Java, for keys whose values have them, in Python's."""

from __future__ import annotations

import re
from typing import Final

#: Python treats a brace that is not a repetition as text; Java refuses it.
_BRACE: Final = re.compile(r"\{(?![0-9]+(,[0-9]*)?\})")
_CLASS_OR_ESCAPE: Final = re.compile(r"\\[pPxN]\{[^}]*\}|\\.|\[[^]]*\]")
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")


class ReplacementError(ValueError):
    """The error for a replacement that Java refuses when it is used."""


def java_pattern(text: str) -> re.Pattern[str]:
    """Returns a pattern of Java. Raises re.error."""
    if _BRACE.search(_CLASS_OR_ESCAPE.sub("", text)):
        raise re.error("a brace that is not a repetition")
    return re.compile(_NAMED_GROUP.sub("(?P<", text))


def expanded(replacement: str, match: re.Match[str]) -> str:
    """Returns the replacement with its references resolved, as Java's `Matcher.appendReplacement` does. Raises
    ReplacementError."""
    result: list[str] = []
    position = 0
    while position < len(replacement):
        char = replacement[position]
        position += 1
        if char == "\\":
            if position == len(replacement):
                raise ReplacementError("a replacement ends with a backslash")
            result.append(replacement[position])
            position += 1
        elif char == "$":
            group, position = _reference(replacement, position, match)
            result.append(group)
        else:
            result.append(char)
    return "".join(result)


def _reference(replacement: str, position: int, match: re.Match[str]) -> tuple[str, int]:
    """Returns the text of the group named at this position, and the position behind it."""
    named = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}").match(replacement, position)
    if named is not None and named.group(1) in match.re.groupindex:
        return match.group(named.group(1)) or "", named.end()
    digit = replacement[position : position + 1]
    if not (digit.isascii() and digit.isdigit()) or int(digit) > match.re.groups:
        raise ReplacementError(f"a replacement refers to ${digit}, which the pattern does not have")
    number = int(digit)
    position += 1
    while (digit := replacement[position : position + 1]).isascii() and digit.isdigit():
        if number * 10 + int(digit) > match.re.groups:
            break
        number = number * 10 + int(digit)
        position += 1
    return match.group(number) or "", position
