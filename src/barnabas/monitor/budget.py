"""The share of a broker's time that watching it can take."""

from __future__ import annotations

from typing import Final

#: The share of one core of each broker that polls can use.
SHARE: Final = 0.01
#: Upper bounds of the broker's time for one partition of a page, for one size or offset, and for a request itself. A
#: longer wait for a response is caused by the network or by other clients.
PAGE_ROW_S: Final = 2.5e-6
VOLUME_ROW_S: Final = 5e-6
_REQUEST_S: Final = 2e-4


class Budget:
    """The budget of one broker."""

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._free_s = 0.0

    def is_free(self, now_s: float) -> bool:
        return now_s >= self._free_s

    @property
    def free_s(self) -> float:
        """Returns the time from which the next request is within the budget."""
        return self._free_s

    def spend(self, begin_s: float, end_s: float, rows: int, row_s: float) -> None:
        """Counts an answer with so many rows."""
        cost_s = min(end_s - begin_s, rows * row_s + _REQUEST_S)
        self._free_s = max(self._free_s, begin_s) + cost_s / self._share
