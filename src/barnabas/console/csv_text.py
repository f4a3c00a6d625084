"""Tables as CSV for spreadsheets. A text that a spreadsheet would run as a formula gets an apostrophe before it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, Final

#: The media type of such a file.
CSV: Final = "text/csv; charset=utf-8"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Returns the rows with these columns; a list is written with spaces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([cell(row.get(column)) for column in columns])
    return out.getvalue()


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return str(value)
    text = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return "'" + text if text.startswith(_FORMULA) else text


def file_name(*parts: str) -> str:
    """Returns a file name of harmless characters."""
    kept = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in "-".join(parts)
    )
    return kept.lstrip(".")[:100] or "file"
