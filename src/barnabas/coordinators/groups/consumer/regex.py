"""Subscriptions by a regular expression (KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.patterns import PATTERN_LETTERS_MAX, PatternError, matcher


class ResolvedRegex(NamedTuple):
    """The topics that an expression stood for when the metadata was at `version`, at that wall-clock time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def check_regex(regex: str) -> None:
    """RequestFailed: INVALID_REGULAR_EXPRESSION."""
    try:
        matcher(regex)
    except PatternError as error:
        raise RequestFailed(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex[:PATTERN_LETTERS_MAX]}` is not a valid regular expression: {error}.",
        ) from None


def resolve(regex: str, names: Iterable[str], *, version: int, timestamp_ms: int) -> ResolvedRegex:
    """One that cannot be compiled, as from another's log, stands for nothing."""
    try:
        matches = matcher(regex)
    except PatternError:
        return ResolvedRegex(frozenset(), version, timestamp_ms)
    return ResolvedRegex(frozenset(name for name in names if matches(name)), version, timestamp_ms)
