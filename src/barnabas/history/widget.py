"""A scrubber for notebooks: a slider over the moments of a history, with the state at each.

With ipywidgets it is a widget that reads the history when the slider moves. Without, it is a page with a selection of
the moments, each folded up, which needs no kernel and no script.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import numpy as np

from barnabas.history.reader import History
from barnabas.monitor.lines import headline
from barnabas.monitor.texts import at

_STEPS_MAX: Final = 2_000


class StaticScrubber:
    """Some moments of a history, as a page."""

    def __init__(self, history: History, times: Sequence[int]) -> None:
        self._history = history
        self._times = times

    def _repr_html_(self) -> str:
        parts = []
        for time_ms in self._times:
            table = self._history.at(time_ms)
            summary = escape(f"{at(time_ms)}  {headline(table)}")
            parts.append(f"<details><summary>{summary}</summary>{table._repr_html_()}</details>")
        return "".join(parts)


def scrubber(history: History, *, moments: int = 24) -> Any:
    """Returns a widget over all moments, or a page with some of them if ipywidgets is not installed."""
    first_ms, last_ms = history.span()
    times = sorted({first_ms, *history.times(first_ms, last_ms), last_ms})
    try:
        widgets = importlib.import_module("ipywidgets")
    except ImportError:
        return StaticScrubber(history, picked(times, moments))
    slider = widgets.SelectionSlider(
        options=[(at(time_ms), time_ms) for time_ms in picked(times, _STEPS_MAX)],
        continuous_update=False,
        description="at",
        layout=widgets.Layout(width="100%"),
    )
    shown = widgets.HTML(history.at(first_ms)._repr_html_())

    def move(change: Any) -> None:
        shown.value = history.at(change["new"])._repr_html_()

    slider.observe(move, names="value")
    return widgets.VBox([slider, shown])


def picked(times: Sequence[int], count: int) -> list[int]:
    """Returns at most `count` of these times, evenly spread."""
    places: list[int] = np.unique(np.linspace(0, len(times) - 1, num=count).round().astype(int)).tolist()
    return [times[place] for place in places]
