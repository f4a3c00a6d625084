"""The one exception of the room."""

from __future__ import annotations


class OrdersError(Exception):
    """What could not be done, as one line for a person, and what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
