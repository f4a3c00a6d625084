"""Subscriptions by a regular expression (KIP-848): RE2's syntax, matched against whole topic names.

RE2 takes time linear in its input whatever the expression, so a client cannot stop the broker with one; the price is
that it has neither look-around nor back references.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import re2

from barnabas.common.errors import ErrorCode, RequestFailed

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_COMPILED_MAX = 1_024


class ResolvedRegex(NamedTuple):
    """The topics that an expression stood for when the metadata was at `version`, at that wall-clock time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@lru_cache(_COMPILED_MAX)
def _compile(regex: str) -> Any:
    return re2.compile(regex, _OPTIONS)


def check_regex(regex: str) -> None:
    """RequestFailed: INVALID_REGULAR_EXPRESSION."""
    try:
        _compile(regex)
    except re2.error as error:
        problem = error.args[0]
        text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise RequestFailed(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}.",
        ) from None


def resolve(regex: str, names: Iterable[str], *, version: int, timestamp_ms: int) -> ResolvedRegex:
    """One that cannot be compiled, as from another's log, stands for nothing."""
    try:
        matches = _compile(regex).fullmatch
    except re2.error:
        return ResolvedRegex(frozenset(), version, timestamp_ms)
    return ResolvedRegex(frozenset(name for name in names if matches(name)), version, timestamp_ms)
