"""Patterns that clients give, of topics and of transactional ids: RE2's syntax, matched against whole names.

RE2 takes time linear in its input whatever the expression, so a client cannot stop the broker with one; the price is
that it has neither look-around nor back references.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
# Without groups to capture a name takes microseconds, else up to a millisecond for each hundred letters of a pattern.
_OPTIONS.never_capture = True
#: A longer one may be too large for RE2's fast way.
PATTERN_LETTERS_MAX: Final = 4_096
_COMPILED_MAX = 1_024


class PatternError(ValueError):
    """It is none. The text says why."""


@lru_cache(_COMPILED_MAX)
def matcher(pattern: str) -> Callable[[str], Any]:
    """Called with a name, true if all of it matches. Raises PatternError."""
    if len(pattern) > PATTERN_LETTERS_MAX:
        raise PatternError(f"it has {len(pattern)} letters, {PATTERN_LETTERS_MAX} are allowed")
    try:
        matches: Callable[[str], Any] = re2.compile(pattern, _OPTIONS).fullmatch
    except re2.error as error:
        problem = error.args[0]
        raise PatternError(problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)) from None
    return matches
