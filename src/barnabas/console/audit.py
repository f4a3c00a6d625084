"""The audit log: who did what, from where, with which result; one JSON object on each line of a file.

An action is written before it begins and after it ended, so that the log also has an action during which the console
died. The last entries are kept in memory, large ones without all of their arguments, which the file has.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

_KEPT: Final = 1_000
#: Characters of the arguments of an entry that are kept in memory.
_ARGUMENTS_KEPT: Final = 16_384
_LOG: Final = logging.getLogger(__name__)


class Audit:
    def __init__(self, path: Path | None, clock_ms: Callable[[], int]) -> None:
        self.path = path
        self._clock_ms = clock_ms
        self._entries: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._next = 1
        #: Why the last entry could not be written; None if it was.
        self.problem: str | None = None
        #: Whether the file ends within a line.
        self._is_cut = False
        if path is not None:
            self._read(path)

    def write(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Writes an entry, with its number and time."""
        found = {"id": self._next, "time_ms": self._clock_ms(), **entry}
        self._next += 1
        self._entries.append(_kept(found))
        if self.path is not None:
            line = json.dumps(found, ensure_ascii=False)
            try:
                self._append(self.path, f"\n{line}" if self._is_cut else line)
                self.problem, self._is_cut = None, False
            except OSError as error:
                # A full disk can have taken a part of the line.
                self._is_cut = True
                self.problem = f"the audit log cannot be written: {error.strerror or error}"
                _LOG.error("%s: %s", self.problem, found)
        return found

    def entries(
        self, *, before: int | None = None, limit: int = 100, is_seen: Callable[[Mapping[str, Any]], bool] | None = None
    ) -> list[dict[str, Any]]:
        """Returns entries, the newest first; only those that `is_seen` returns True for."""
        found = [
            entry
            for entry in self._entries
            if (before is None or entry["id"] < before) and (is_seen is None or is_seen(entry))
        ]
        return found[::-1][:limit]

    @staticmethod
    def _append(path: Path, line: str) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="utf-8") as file:
            file.write(line + "\n")

    def _read(self, path: Path) -> None:
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    self._is_cut = not line.endswith("\n")
                    try:
                        entry = json.loads(line)
                        self._next = max(self._next, int(entry["id"]) + 1)
                    except (ValueError, KeyError, TypeError):
                        continue  # A line that a crash cut off.
                    self._entries.append(_kept(entry))
        except FileNotFoundError:
            return


def _kept(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns an entry as it is kept in memory: a plan of many thousand moves would need a megabyte."""
    text = json.dumps(entry.get("arguments"), ensure_ascii=False)
    return entry if len(text) <= _ARGUMENTS_KEPT else entry | {"arguments": {"shortened": text[:_ARGUMENTS_KEPT]}}
