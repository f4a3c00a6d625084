"""Patterns that clients give, of topics and of transactional ids: RE2's syntax, matched against whole names.

RE2 takes time linear in its input whatever the expression, so a client cannot stop the broker with one; the price is
that it has neither look-around nor back references.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_COMPILED_MAX = 1_024


class PatternError(ValueError):
    """It is none. The text says why."""


@lru_cache(_COMPILED_MAX)
def matcher(pattern: str) -> Callable[[str], Any]:
    """Called with a name, true if all of it matches. Raises PatternError."""
    try:
        matches: Callable[[str], Any] = re2.compile(pattern, _OPTIONS).fullmatch
    except re2.error as error:
        problem = error.args[0]
        raise PatternError(problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)) from None
    return matches
