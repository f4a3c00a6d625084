"""The refusal of a request, as the page shows it: a code, one line of text, and a hint."""

from __future__ import annotations

from typing import Any, Final

#: The HTTP status of each code.
STATUSES: Final = {
    "login": 401,
    "role": 403,
    "csrf": 403,
    "read-only": 403,
    "host": 421,
    "rate": 429,
    "past": 409,
    "refused": 409,
    "not-found": 404,
    "unknown-cluster": 404,
    "bad-request": 400,
    "filter": 400,
    "too-large": 413,
    "timeout": 504,
    "unreachable": 503,
    "internal": 500,
}


class Problem(Exception):
    """An error response. `code` is a key of `STATUSES`; `more` are further fields for the page."""

    def __init__(self, code: str, text: str, hint: str | None = None, **more: Any) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.hint = hint
        self.more = more

    @property
    def status(self) -> int:
        return STATUSES[self.code]

    def to_json(self) -> dict[str, Any]:
        hint = {} if self.hint is None else {"hint": self.hint}
        return {"error": {"code": self.code, "text": self.text, **hint, **self.more}}
