"""Tables as CSV for spreadsheets. A text that a spreadsheet would run as a formula gets an apostrophe before it, and so
does a part of a text that is a cell of its own where semicolons or tabs separate cells.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

#: The media type of such a file.
CSV: Final = "text/csv; charset=utf-8"
#: The beginnings of formulas; some programs also take the wide letters of East Asian fonts.
_SIGNS: Final = "=+\\-@\uff1d\uff0b\uff0d\uff20"
_FORMULA: Final = re.compile(rf"^(?=[{_SIGNS}\t\r\n])|([;\t\r\n][\" ]*)(?=[{_SIGNS}])")


def csv_text(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Returns the rows with these columns; a list is written with spaces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(map(cell, columns))
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
    return _FORMULA.sub(lambda found: f"{found[1] or ''}'", text)


def file_name(*parts: str) -> str:
    """Returns a file name of harmless characters."""
    kept = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in "-".join(parts)
    )
    return kept.lstrip(".")[:100] or "file"
