"""Reads the syntax of `java.util.Properties`, in which Kafka's configuration files are written.

A logical line is `key = value`, `key: value` or `key value`; blanks before the key and around the separator do not
count, those after the value do. Lines that begin with "#" or "!" are comments. An odd number of "\\" at the end of a
line continues it, dropping the next line's leading blanks. `\\t \\n \\r \\f \\uXXXX` are escapes; any other escaped
character stands for itself. A later key replaces an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.common.errors import ConfigError

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Returns the properties in `text`, in the order of the file."""
    properties = {}
    for line in _logical_lines(text):
        end = _key_end(line)
        rest = line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        properties[_unescape(line[:end])] = _unescape(rest)
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    pending: list[str] = []
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2 == 1:
            pending.append(line[:-1])
            continue
        yield "".join([*pending, line])
        pending = []
    if pending:
        yield "".join(pending)


def _key_end(line: str) -> int:
    escaped = False
    for position, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=:" or character in _BLANKS:
            return position
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ConfigError(f"\\u{digits} in {text!r} is not a character: four hexadecimal digits are required")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(escape, escape))
    return "".join(out)
