"""The one exception a command ends with when it cannot do what was asked."""

from __future__ import annotations


class Failure(Exception):
    """Shown to the person as one line, with a hint under it; no traceback. Exit code 1."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
