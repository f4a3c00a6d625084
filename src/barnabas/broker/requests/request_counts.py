"""How many requests were answered, and how long that took, by API and version.

Kept for each as counts by power of two of the milliseconds from the read to the answer: an addition for each request.
Requests that the produce shortcut answers at once are not timed and count as the first; it does not wait for anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.common.metrics import TimeBuckets

_VERSION_BITS: Final = 16
#: Clients may ask for ApiVersions in any version: all that there is none of count as this one.
_VERSION_MAX: Final = 99


class RequestCounts:
    """Of all listeners of a broker."""

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
        """(API key, version, times)."""
        for key, times in sorted(self._found.items()):
            yield key >> _VERSION_BITS, key & (1 << _VERSION_BITS) - 1, times
