"""Patterns that clients send for topics and transactional ids: RE2's syntax, matched against whole names.

RE2 takes time linear in its input for every expression, so that no client can block the broker with one. The price is
that it supports neither look-around nor back references.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
# Without capturing groups a match takes microseconds; with them it takes up to a millisecond per hundred characters of
# the pattern.
_OPTIONS.never_capture = True
#: A longer pattern can be too large for RE2's fast implementation.
PATTERN_CHARACTERS_MAX: Final = 4_096
_COMPILED_MAX = 1_024


class PatternError(ValueError):
    """An invalid pattern; the text gives the reason."""


@lru_cache(_COMPILED_MAX)
def matcher(pattern: str) -> Callable[[str], Any]:
    """Returns a function that is true for names which `pattern` matches as a whole. Raises PatternError."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"it has {len(pattern)} characters; at most {PATTERN_CHARACTERS_MAX} are allowed")
    try:
        matches: Callable[[str], Any] = re2.compile(pattern, _OPTIONS).fullmatch
    except re2.error as error:
        problem = error.args[0]
        raise PatternError(problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)) from None
    return matches
