"""The number of requests and their durations, by API and version.

Durations, from reading a request to its response, are counted in buckets of powers of two of a millisecond: one
addition per request. Requests that the produce shortcut answers are not timed and count in the first bucket, because
they wait for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.common.metrics import TimeBuckets

_VERSION_BITS: Final = 16
#: Clients can send ApiVersions with any version: unknown versions are counted as this one.
_VERSION_MAX: Final = 99


class RequestCounts:
    """The request counts of all listeners of a broker."""

    def __init__(self) -> None:
        self._found: dict[int, TimeBuckets] = {}

    def of(self, api_key: int, version: int) -> TimeBuckets:
        key = api_key << _VERSION_BITS | version & 0xFFFF
        found = self._found.get(key)
        if found is None:
            if not 0 <= version <= _VERSION_MAX:
                return self.of(api_key, _VERSION_MAX)
            found = self._found[key] = TimeBuckets()
        return found

    def __iter__(self) -> Iterator[tuple[int, int, TimeBuckets]]:
        """Yields (API key, version, durations of the requests of that API and version)."""
        for key, times in sorted(self._found.items()):
            yield key >> _VERSION_BITS, key & (1 << _VERSION_BITS) - 1, times
