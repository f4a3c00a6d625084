"""The style of charts: distinguishable colours, readable texts, marks with their texts."""

from __future__ import annotations

import itertools

import pytest
from matplotlib import colors as mcolors
from matplotlib import dates as mdates
from matplotlib import pyplot as plt

from barnabas.pipelines import style
from barnabas.pipelines.style import Mark

#: Colours as people without one kind of cone see them (Viénot 1999, in linear RGB).
_SIGHT = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deuteranopia": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def linear(colour: str) -> tuple[float, ...]:
    return tuple(one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in mcolors.to_rgb(colour))


def seen(colour: str, sight: str) -> tuple[float, ...]:
    rgb = linear(colour)
    return tuple(sum(weight * one for weight, one in zip(row, rgb, strict=True)) for row in _SIGHT[sight])


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("sight", _SIGHT)
def test_the_first_colours_differ_for_everyone(sight: str) -> None:
    """Three brokers, and no leader."""
    for one, other in itertools.combinations([*style.SERIES[:3], style.FAILURE], 2):
        apart = max(abs(a - b) for a, b in zip(seen(one, sight), seen(other, sight), strict=True))
        assert apart > 0.1, (one, other, apart)


def test_every_broker_has_a_colour_and_none_that_of_failures() -> None:
    assert style.series(1) == style.SERIES[0] == style.series(len(style.SERIES) + 1)
    assert style.series(-1) == style.FAILURE
    assert style.FAILURE not in style.SERIES


@pytest.mark.parametrize("colour", [*style.SERIES, style.FAILURE])
def test_texts_on_colours_can_be_read(colour: str) -> None:
    light, dark = sorted((luminance(colour), luminance(style.text_on(colour))), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3.0


def test_marks_are_lines_with_texts_at_their_times() -> None:
    figure, axes = plt.subplots()
    marks = [Mark(1_700_000_000_000, "killed"), Mark(1_700_000_005_000, "back")]
    style.draw_marks(axes, marks)
    assert [text.get_text().strip() for text in axes.texts] == ["killed", "back"]
    days = [mdates.date2num(mark.time) for mark in marks]  # type: ignore[no-untyped-call]
    assert [float(mdates.date2num(line.get_xdata()[0])) for line in axes.lines] == pytest.approx(days)  # type: ignore[index, no-untyped-call]
    assert len(axes.patches) == 1
    plt.close(figure)
    figure, axes = plt.subplots()
    style.draw_marks(axes, [])
    assert not axes.lines
    assert not axes.patches
    plt.close(figure)
