"""The parameters of a request, parsed and checked: each method raises Problem for a value that it does not accept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from barnabas.console.problems import Problem

_TEXT_MAX: Final = 8_192
_INT64: Final = (1 << 63) - 1


class Parameters:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        return self._values.get(name, "") != ""

    def text(self, name: str, default: str | None = None) -> str:
        """Returns a text parameter. It is required if there is no default."""
        value = self._values.get(name, "")
        if not value:
            if default is None:
                raise Problem("bad-request", f"{name} is missing")
            return default
        if len(value) > _TEXT_MAX:
            raise Problem("bad-request", f"{name} is longer than {_TEXT_MAX} characters")
        return value

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = _INT64) -> int:
        found = self.maybe_number(name, least=least, most=most)
        if found is not None:
            return found
        if default is None:
            raise Problem("bad-request", f"{name} is missing")
        return default

    def maybe_number(self, name: str, *, least: int = 0, most: int = _INT64) -> int | None:
        value = self._values.get(name, "")
        if not value:
            return None
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise Problem("bad-request", f"{name} is not a number: {value[:40]}")
        number = int(value)
        if not least <= number <= most:
            raise Problem("bad-request", f"{name} is not between {least} and {most}: {number}")
        return number

    def numbers(self, name: str) -> list[int]:
        """Returns the numbers of a list with commas, each one once."""
        parts = [part for part in self.text(name).split(",") if part]
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise Problem("bad-request", f"{name} is not a list of numbers")
        return sorted({int(part) for part in parts})

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self._values.get(name, "")
        if value not in ("", "0", "1", "true", "false"):
            raise Problem("bad-request", f"{name} is neither 0 nor 1: {value[:40]}")
        return default if not value else value in ("1", "true")

    def choice(self, name: str, known: Collection[str], default: str | None = None) -> str:
        value = self.text(name, default)
        if value not in known:
            raise Problem("bad-request", f"{name} is not one of {', '.join(known)}: {value[:40]}")
        return value

    def several(self, name: str, known: Collection[str] | None = None) -> frozenset[str]:
        """Returns the parts of a list with commas."""
        found = frozenset(part for part in self.text(name, "").split(",") if part)
        if known is not None and (others := found.difference(known)):
            raise Problem("bad-request", f"{name} is not one of {', '.join(known)}: {min(others)[:40]}")
        return found
