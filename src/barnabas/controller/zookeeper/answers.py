"""Answers to requests that wait for their decisions; each is given once, even if the controller resigns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Timer, Timers

Refused = Callable[[ErrorCode], None]


class Answer:
    """The answer to one request: a response or an error, given once."""

    __slots__ = ("_refused", "_reply", "_timer", "is_given")

    def __init__(self, reply: Callable[[Any], None], refused: Refused) -> None:
        self._reply = reply
        self._refused = refused
        self._timer: Timer | None = None
        self.is_given = False

    def give(self, response: object) -> None:
        if self._end():
            self._reply(response)

    def refuse(self, code: ErrorCode) -> None:
        if self._end():
            self._refused(code)

    def refuse_after(self, timers: Timers, timeout_ms: int) -> None:
        """Answers with REQUEST_TIMED_OUT at the deadline if there is no other answer. The decision takes effect
        nevertheless.
        """
        self._timer = timers.call_later(max(timeout_ms, 0), lambda: self.refuse(ErrorCode.REQUEST_TIMED_OUT))

    def _end(self) -> bool:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        given, self.is_given = self.is_given, True
        return not given


class Answers:
    """The answers that a controller has not given yet, in one controller epoch."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: set[Answer] = set()

    def add(self, reply: Callable[[Any], None], refused: Refused, timeout_ms: int | None = None) -> Answer:
        self._waiting = {answer for answer in self._waiting if not answer.is_given}
        answer = Answer(reply, refused)
        if timeout_ms is not None:
            answer.refuse_after(self._timers, timeout_ms)
        self._waiting.add(answer)
        return answer

    def close(self) -> None:
        """Answers all waiting requests with NOT_CONTROLLER, so that their senders ask the next controller."""
        waiting, self._waiting = self._waiting, set()
        for answer in waiting:
            answer.refuse(ErrorCode.NOT_CONTROLLER)
