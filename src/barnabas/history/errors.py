"""The exceptions of this package."""

from __future__ import annotations


class HistoryError(Exception):
    """Signals a file that cannot be read or written, or a time that it does not cover. The text is one line."""
