"""Subscriptions by a regular expression (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from itertools import islice
from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.patterns import PATTERN_CHARACTERS_MAX, PatternError, matcher

#: Returns those of the given topics that a client may describe.
Describable = Callable[[Iterable[str]], Collection[str]]

#: The number of names that are matched in a quarter of a millisecond.
_PER_UNIT: Final = 100


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


def resolve(regex: str, names: Iterable[str], describable: Describable | None) -> Generator[int, None, frozenset[str]]:
    """Returns the names that match, in steps. An expression that does not compile, for example from a log of Kafka,
    matches none."""
    try:
        matches = matcher(regex)
    except PatternError:
        return frozenset()
    found: list[str] = []
    left = iter(names)
    while chunk := tuple(islice(left, _PER_UNIT)):
        matching: Collection[str] = [name for name in chunk if matches(name)]
        if describable is not None and matching:
            matching = describable(sorted(matching))
        found += matching
        if len(chunk) == _PER_UNIT:
            yield 1
    return frozenset(found)
