"""Settings as registers: the values that each setting can have, as far as the operator who alone changes it knows.

A change that was acknowledged is in force until the next one; a change that was refused never is. An unanswered change
can take effect at any later time, even after those that follow it. So can a change that was answered late: a broker
sends it again after it has lost its connection to the controller, as Apache Kafka does, and the first request can still
be on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from barnabas.simulation.metadata_dict import Key, State

_UNSET: Final = None
#: The time from which on a broker may have sent a change twice.
_REPEATED_US: Final = 100_000


class Answer(Enum):
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"  # no answer, or one that does not say whether the change was made


class Registers:
    """The settings by their keys in the state of the metadata (`metadata_dict`)."""

    def __init__(self) -> None:
        self._possible: dict[Key, set[Any]] = {}
        #: Keys with a change under way -> when it was sent.
        self._busy: dict[Key, int] = {}
        #: Keys of which a change was never answered, or late.
        self._uncertain: set[Key] = set()

    def is_busy(self, key: Key) -> bool:
        return key in self._busy

    def send(self, key: Key, now_us: int) -> None:
        """Notes that a change is sent."""
        assert key not in self._busy, "one change of a setting at a time"
        self._busy[key] = now_us
        self._possible.setdefault(key, {_UNSET})

    def end(self, key: Key, value: Any, answer: Answer, now_us: int) -> None:
        """Notes the end of a change to this value, which was sent; None removes the setting."""
        sent_us = self._busy.pop(key)
        possible = self._possible[key]
        if answer is Answer.UNKNOWN:
            self._uncertain.add(key)
            possible.add(value)
        elif answer is Answer.DONE:
            if key not in self._uncertain:
                possible.clear()
            possible.add(value)
            if now_us - sent_us >= _REPEATED_US:
                self._uncertain.add(key)

    def settings(self) -> Iterator[Key]:
        """Yields the keys that a change could have set."""
        return (key for key, possible in self._possible.items() if possible != {_UNSET})

    def wrong(self, state: State) -> str:
        """Returns the first setting that has a value which it cannot have, or ""."""
        for key, possible in self._possible.items():
            if key not in self._busy and state.get(key) not in possible:
                return f"{key} is {state.get(key)}, it was set to {' or '.join(map(str, possible))}"
        return ""
