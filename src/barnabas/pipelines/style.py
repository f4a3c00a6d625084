"""The style of all pictures: one palette, one style of axes, and event marks.

The palette is that of Okabe and Ito, whose colours differ for every common kind of colour vision. Vermilion is kept for
failures, so no broker has it. No picture relies on colour alone: bars have labels, and marks have captions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from matplotlib import colors as mcolors
from matplotlib import dates as mdates

BLUE: Final = "#0072B2"
FAILURE: Final = "#D55E00"
GREY: Final = "#6B6B6B"
#: The colour of marks: visible on every colour of a series.
MARK: Final = "#1A1A1A"
#: The colours of brokers, causes and the like, in this order.
SERIES: Final = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
#: The colours of a partition's troubles, the worst first.
TROUBLES: Final = {"unavailable": FAILURE, "under_min_isr": "#E69F00", "under_replicated": "#F0E442"}
SIZE: Final = (10.0, 4.5)
DPI: Final = 110

_SETTINGS: Final[dict[Any, Any]] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 24.0,
    "axes.titleweight": "bold",
    "figure.dpi": DPI,
    "font.size": 10.0,
    "grid.color": "#E3E3E3",
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "savefig.dpi": DPI,
}


class Mark(NamedTuple):
    """An event at a point in time, such as the kill of a broker."""

    time_ms: int
    text: str

    @property
    def time(self) -> datetime:
        """The time in the form that the axes use: in UTC, and without a time zone."""
        return datetime.fromtimestamp(self.time_ms / 1000, UTC).replace(tzinfo=None)


def apply() -> None:
    """Sets the style for all pictures of this process."""
    mpl.rcParams.update(_SETTINGS)


def series(number: int) -> str:
    """Returns the colour of the first (1), second, ... of a series; for "no broker" (-1), the colour of failures."""
    return FAILURE if number < 0 else SERIES[(number - 1) % len(SERIES)]


def text_on(colour: str) -> str:
    """Returns the text colour for this background: white on dark, black on light."""
    red, green, blue = mcolors.to_rgb(colour)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black"


def time_axis(axes: Any) -> None:
    dates: Any = mdates
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel("time (UTC)")


def draw_marks(axes: Any, marks: Sequence[Mark]) -> None:
    """Draws a line with its text above the axes for each mark; the time between the first and the last is shaded."""
    if len(marks) > 1:
        axes.axvspan(marks[0].time, marks[-1].time, color=GREY, alpha=0.15, linewidth=0, zorder=0)
    for number, mark in enumerate(marks):
        axes.axvline(mark.time, color=MARK, linewidth=1.5, linestyle="-" if number == 0 else "--")
        # Texts of marks that are close to each other go to opposite sides of their lines.
        side = "right" if number == 0 and len(marks) > 1 else "left"
        axes.annotate(
            f"{mark.text} " if side == "right" else f" {mark.text}",
            (mark.time, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha=side,
            va="bottom",
            fontsize=9,
            color=MARK,
        )


def legend(axes: Any) -> None:
    """Draws a legend to the right of the picture, with each label once."""
    named: dict[str, Any] = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    names = sorted(named)
    if names:
        axes.legend([named[name] for name in names], names, loc="upper left", bbox_to_anchor=(1.0, 0.97))


def legend_above(axes: Any) -> None:
    """Draws a legend between the title and the picture, where it covers nothing."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderpad=0.2, fontsize=9)
