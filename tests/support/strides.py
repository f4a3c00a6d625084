"""The moments of a fault that a test covers: all in the full suite, every fourth in the quick one."""

from __future__ import annotations

import pytest

#: The distance between two moments, for `parametrize`.
STRIDES = [pytest.param(4, id="sample"), pytest.param(1, marks=pytest.mark.full, id="all")]
