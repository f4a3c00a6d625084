"""The one exception with which a command ends if it cannot do its task."""

from __future__ import annotations


class Failure(Exception):
    """An error that is shown as one line with a hint below it and no traceback. The exit code is 1."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
