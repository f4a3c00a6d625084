"""Times as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from barnabas.history.errors import HistoryError

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d{1,6})?)?")


def time_of(when: int | str | datetime, last_ms: int) -> int:
    """Converts a time to milliseconds: from milliseconds, a datetime, or a text: "2026-11-26T12:03:10", "12:03:10" on
    the last recorded day, or "10m" before the last recorded time. UTC, unless the text says otherwise. Raises
    HistoryError.
    """
    if isinstance(when, int):
        return when
    if isinstance(when, datetime):
        return _milliseconds(when)
    text = when.strip()
    if text.isdigit():
        return int(text)
    if text[:-1].isdigit() and text[-1:] in _UNITS_MS:
        return last_ms - int(text[:-1]) * _UNITS_MS[text[-1]]
    try:
        if _CLOCK.fullmatch(text):
            return _last_time(text, last_ms)
        return _milliseconds(datetime.fromisoformat(text))
    except ValueError:
        raise HistoryError(
            f"invalid time: {text} (12:03:10, 2026-11-26T12:03:10, milliseconds, or 10m before the end)"
        ) from None


def _last_time(text: str, last_ms: int) -> int:
    last = datetime.fromtimestamp(last_ms / 1000, UTC)
    clock = datetime.fromisoformat(f"{last.date().isoformat()}T{text.zfill(len(text) + (text[1] == ':'))}")
    found = clock.replace(tzinfo=UTC)
    return _milliseconds(found if found <= last else found - timedelta(days=1))


def _milliseconds(moment: datetime) -> int:
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
