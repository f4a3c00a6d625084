"""The outcome of an action, and of its dry run, as the page gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.console.problems import Problem

#: A subject, its error code and the broker's message.
Result = tuple[str, int, str | None]
#: The subjects that the text of an outcome names if they failed; `results` has all.
_FAILED_SHOWN: Final = 10


def plan(lines: Sequence[str], warnings: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"ok": True, "plan": list(lines), "warnings": list(warnings), **more}


def outcome(text: str, results: Iterable[Result], accepted: frozenset[int] = frozenset()) -> dict[str, Any]:
    """Returns the outcome by subject. Raises Problem if every subject failed."""
    shown = []
    for subject, code, message in results:
        is_done = not code or code in accepted
        shown.append({"subject": subject, "ok": is_done, "text": "" if not code else reason(code, message)})
    return outcome_of(text, shown)


def outcome_of(text: str, shown: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the outcome of subjects with `ok` and `text`. Raises Problem if every subject failed."""
    failed = [each for each in shown if not each["ok"]]
    if failed:
        first = "; ".join(f"{each['subject']}: {each['text']}" for each in failed[:_FAILED_SHOWN])
        more = f" (and {len(failed) - _FAILED_SHOWN} more)" if len(failed) > _FAILED_SHOWN else ""
        if len(failed) == len(shown):
            raise Problem("refused", first + more, results=shown)
        text = f"{text}; {len(failed)} of {len(shown)} failed: {first}{more}"
    return {"ok": not failed, "text": text, "results": shown}


def reason(code: int, message: str | None) -> str:
    """Returns the broker's message with the name of the error code."""
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    return f"{message} ({name})" if message else name
