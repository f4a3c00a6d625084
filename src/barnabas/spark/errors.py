"""The exceptions of the source and the sink; a wrong option is `barnabas.common.errors.ConfigError`.

ClusterUnreachable   no broker answers in time; the text contains the addresses and the last cause
RequestRefused       a broker answers with an error that no retry can repair
DataLost             records that were to be read are gone or were rewritten, with their `ranges`
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.spark.losses import LostRange


class SourceFailed(Exception):
    """The base of the exceptions of the source and the sink."""


class ClusterUnreachable(SourceFailed):
    """Signals that no broker answered in time."""


class RequestRefused(SourceFailed):
    """Signals that a broker refused a request."""


class DataLost(SourceFailed):
    """Signals that some records that the query was to read no longer exist."""

    def __init__(self, ranges: Sequence[LostRange]) -> None:
        shown = "; ".join(map(str, ranges[:20])) + (f"; and {len(ranges) - 20} more" if len(ranges) > 20 else "")
        super().__init__(
            f"records are lost: {shown}. With failOnDataLoss=false the query continues after them, and writes them to "
            "the table at lostRangesPath if that is given"
        )
        self.ranges = tuple(ranges)

    def __reduce__(self) -> tuple[type[DataLost], tuple[Sequence[LostRange]]]:
        return DataLost, (self.ranges,)
