"""How many of the possible moments of a fault a test covers: all in the full suite, every fourth in the quick one."""

from __future__ import annotations

import pytest

#: For `parametrize`: the distance between two moments.
STRIDES = [pytest.param(4, id="sample"), pytest.param(1, marks=pytest.mark.full, id="all")]
