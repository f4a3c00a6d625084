"""Settings as registers: the values that each setting can have, as far as the operator who alone changes it knows.

A change that was acknowledged is in force until the next one; a change that was refused never is. An unanswered change
can take effect at any later time, even after those that follow it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from barnabas.simulation.metadata_dict import Key, State

_UNSET: Final = None


class Answer(Enum):
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"  # no answer, or one that does not say whether the change was made


class Registers:
    """The settings by their keys in the state of the metadata (`metadata_dict`)."""

    def __init__(self) -> None:
        self._possible: dict[Key, set[Any]] = {}
        #: Keys with a change under way.
        self._busy: set[Key] = set()
        #: Keys of which a change was never answered.
        self._uncertain: set[Key] = set()

    def is_busy(self, key: Key) -> bool:
        return key in self._busy

    def send(self, key: Key, value: Any) -> None:
        """Notes a change that is sent; None removes the setting."""
        assert key not in self._busy, "one change of a setting at a time"
        self._busy.add(key)
        self._possible.setdefault(key, {_UNSET})

    def end(self, key: Key, value: Any, answer: Answer) -> None:
        """Notes the end of a change that was sent."""
        self._busy.discard(key)
        possible = self._possible[key]
        if answer is Answer.UNKNOWN:
            self._uncertain.add(key)
            possible.add(value)
        elif answer is Answer.DONE:
            if key not in self._uncertain:
                possible.clear()
            possible.add(value)

    def settings(self) -> Iterator[Key]:
        """Yields the keys that a change could have set."""
        return (key for key, possible in self._possible.items() if possible != {_UNSET})

    def wrong(self, state: State) -> str:
        """Returns the first setting that has a value which it cannot have, or ""."""
        for key, possible in self._possible.items():
            if key not in self._busy and state.get(key) not in possible:
                return f"{key} is {state.get(key)}, it was set to {' or '.join(map(str, possible))}"
        return ""
