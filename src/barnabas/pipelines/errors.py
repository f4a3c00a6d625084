"""The exception of this package."""

from __future__ import annotations


class PipelineError(Exception):
    """An operation that failed: one line for the user, and a hint on what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message
