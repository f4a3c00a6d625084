"""Subscriptions by a regular expression (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.patterns import PATTERN_CHARACTERS_MAX, PatternError, matcher

#: Returns those of the given topics that a client may describe.
Describable = Callable[[Iterable[str]], Collection[str]]


class ResolvedRegex(NamedTuple):
    """The topics that matched an expression in metadata of `version`, at that wall-clock time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def check_regex(regex: str) -> None:
    """Raises RequestFailed with INVALID_REGULAR_EXPRESSION if the expression is invalid."""
    try:
        matcher(regex)
    except PatternError as error:
        raise RequestFailed(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex[:PATTERN_CHARACTERS_MAX]}` is not a valid regular expression: {error}.",
        ) from None


def resolve(regex: str, names: Iterable[str], *, version: int, timestamp_ms: int) -> ResolvedRegex:
    """Returns the names that match. An expression that does not compile, for example from a log of Kafka, matches
    none."""
    try:
        matches = matcher(regex)
    except PatternError:
        return ResolvedRegex(frozenset(), version, timestamp_ms)
    return ResolvedRegex(frozenset(name for name in names if matches(name)), version, timestamp_ms)
