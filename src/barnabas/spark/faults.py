"""What the source and the sink raise towards Spark; a wrong option is `barnabas.common.errors.ConfigError`.

ClusterUnreachable   nobody answers, or not in time; the text names the addresses and the last cause
RequestRefused       a broker answers with an error that no retry mends
DataLost             records that were to be read are gone or were rewritten; `ranges` says which
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.spark.losses import LostRange


class SourceFailed(Exception):
    """Any of the failures below."""


class ClusterUnreachable(SourceFailed):
    """No broker answers."""


class RequestRefused(SourceFailed):
    """A broker says no."""


class DataLost(SourceFailed):
    """Not all records that the query was to read are there."""

    def __init__(self, ranges: Sequence[LostRange]) -> None:
        shown = "; ".join(map(str, ranges[:20])) + (f"; and {len(ranges) - 20} more" if len(ranges) > 20 else "")
        super().__init__(
            f"records are lost: {shown}. With failOnDataLoss=false the query goes on behind them, and writes them to "
            "the table at lostRangesPath if that is given"
        )
        self.ranges = tuple(ranges)

    def __reduce__(self) -> tuple[type[DataLost], tuple[Sequence[LostRange]]]:
        return DataLost, (self.ranges,)
