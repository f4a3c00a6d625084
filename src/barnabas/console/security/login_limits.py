"""The limit on guesses of passwords: by user and address, by address, and over all."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

#: The time in which failures count, and how many are allowed in it.
_WINDOW_S: Final = 300.0
_BY_USER: Final = 5
_BY_ADDRESS: Final = 20
_OVER_ALL: Final = 200
_KEPT: Final = 10_000


class LoginLimits:
    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._failures: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def wait_s(self, user: str, address: str) -> float:
        """Returns the seconds until the next attempt is allowed; 0 if it is allowed now."""
        limits = (((user, address), _BY_USER), ((address,), _BY_ADDRESS), ((), _OVER_ALL))
        return max(self._wait_s(key, most) for key, most in limits)

    def failed(self, user: str, address: str) -> None:
        now_s = self._clock_s()
        for key in ((user, address), (address,), ()):
            self._failures.setdefault(key, deque(maxlen=_OVER_ALL)).append(now_s)
            self._failures.move_to_end(key)
        while len(self._failures) > _KEPT:
            self._failures.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        """Takes back the guess that was right, which counted as a failure while it was checked."""
        self._failures.pop((user, address), None)
        for key in ((address,), ()):
            if self._failures.get(key):
                self._failures[key].pop()

    def _wait_s(self, key: tuple[str, ...], most: int) -> float:
        failures, now_s = self._failures.get(key), self._clock_s()
        if failures is None:
            return 0.0
        while failures and now_s - failures[0] >= _WINDOW_S:
            failures.popleft()
        if len(failures) < most:
            return 0.0
        return failures[-most] + _WINDOW_S - now_s
