"""The values of an action's body: which are accepted, and what stands for those that are missing."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.console.actions.inputs import Inputs
from barnabas.console.problems import Problem


@pytest.mark.parametrize(("body", "found"), [({}, 7), ({"value": None}, 7), ({"value": 0}, 0), ({"value": -5}, -5)])
def test_an_empty_number_is_the_default(body: dict[str, Any], found: int) -> None:
    assert Inputs(body).number("value", least=-10, most=10, default=7) == found


@pytest.mark.parametrize("value", [None, "1", 1.5, True, 11, -11, [1]])
def test_what_is_no_number_of_the_range_is_refused(value: object) -> None:
    with pytest.raises(Problem, match="value is not a number between -10 and 10"):
        Inputs({"value": value}).number("value", least=-10, most=10)
