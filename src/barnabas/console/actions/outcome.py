"""The outcome of an action, and of its dry run, as the page gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.common.errors import ErrorCode
from barnabas.console.problems import Problem

#: A subject, its error code and the broker's message.
Result = tuple[str, int, str | None]


def plan(lines: Sequence[str], warnings: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"ok": True, "plan": list(lines), "warnings": list(warnings), **more}


def outcome(text: str, results: Iterable[Result], accepted: frozenset[int] = frozenset()) -> dict[str, Any]:
    """Returns the outcome by subject. Raises Problem if every subject failed."""
    shown = []
    for subject, code, message in results:
        is_done = not code or code in accepted
        shown.append({"subject": subject, "ok": is_done, "text": "" if not code else reason(code, message)})
    failed = [each for each in shown if not each["ok"]]
    if failed and len(failed) == len(shown):
        raise Problem("refused", f"{failed[0]['subject']}: {failed[0]['text']}", results=shown)
    if failed:
        text = f"{text}; {len(failed)} of {len(shown)} failed"
    return {"ok": not failed, "text": text, "results": shown}


def reason(code: int, message: str | None) -> str:
    """Returns the broker's message with the name of the error code."""
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    return f"{message} ({name})" if message else name
