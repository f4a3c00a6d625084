"""Filters of records: expressions in CEL, a language that cannot loop without end, read files or run code.

value.amount > 10 && key.startsWith("a")     value: JSON, or text
headers["trace"] == "7" || offset == 12      headers: by name, as text
value.lines.exists(line, line.count > 2)     a list: all, exists, exists_one, filter, map
"""

from __future__ import annotations

import re
from typing import Any, Final

import cel

from barnabas.console.messages.values import value_of
from barnabas.records.record import Record

NAMES: Final = ("key", "value", "headers", "partition", "offset", "timestamp", "size")
LENGTH_MAX: Final = 2_000
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|filter|map)\s*\(\s*([A-Za-z_]\w*)\s*,")
_WHERE: Final = re.compile(r"<input>:(\d+):(\d+): (?:Syntax error: )?(.*)")


class FilterError(Exception):
    """The error for an expression that is not a filter. `where` is its line and column."""

    def __init__(self, text: str, where: tuple[int, int] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.where = where


class Filter:
    """A compiled filter expression. Raises FilterError for an invalid one."""

    def __init__(self, expression: str) -> None:
        if len(expression) > LENGTH_MAX:
            raise FilterError(f"a filter can have at most {LENGTH_MAX} characters")
        try:
            self._program = cel.compile(expression)
        except ValueError as error:
            raise _error_of(str(error)) from error
        # The variable of a macro, such as x in value.lines.exists(x, x.n > 2), is listed like a name.
        unknown = sorted(set(self._program.variables()).difference(NAMES, _MACRO.findall(expression)))
        if unknown:
            raise FilterError(f"there is no name {unknown[0]} in a filter; names: {', '.join(NAMES)}")
        self._wants_headers = "headers" in self._program.variables()
        #: Records for which the filter had no result, and the first reason.
        self.failures = 0
        self.first_failure: str | None = None

    def matches(self, record: Record, partition: int) -> bool:
        """Returns whether the record matches; False if it lacks a field that the filter uses."""
        try:
            found = self._program.execute(self._names(record, partition))
        except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            self.failures += 1
            self.first_failure = self.first_failure or f"offset {record.offset}: {error}"[:300]
            return False
        return found is True

    def _names(self, record: Record, partition: int) -> dict[str, Any]:
        return {
            "key": value_of(record.key),
            "value": value_of(record.value),
            "headers": {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
            if self._wants_headers
            else {},
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "size": len(record.key or b"") + len(record.value or b""),
        }


def _error_of(text: str) -> FilterError:
    found = _WHERE.search(text)
    if found is None:
        return FilterError(text.splitlines()[0][:300])
    return FilterError(found[3][:300], (int(found[1]), int(found[2])))
