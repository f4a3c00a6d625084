"""Rare events: events of the product that few runs reach, counted by wrappers around methods of the product.

A run without rare events proves little. A row of the tables (`rare_event_table.py`) names an event, a function of the
product, and the condition under which a call of it is the event. The wrappers exist only while a run is counted, and
the product does not know them. They only observe: a run is the same with and without them, event by event. What a
checker asks the product has no effect, and is no event (`unobserved`).
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from types import FunctionType
from typing import Any, Final


class Need(Enum):
    """A part of a run without which an event is impossible."""

    BROKERS = "several brokers"
    CONTROLLERS = "several voters of the quorum"
    QUORUM = "a metadata quorum"
    ZOOKEEPER = "a ZooKeeper server"
    TRANSACTIONS = "transactional clients"
    GROUPS = "members of groups of both protocols"
    SETTINGS = "quotas of clients and properties that change"
    DIRECTORIES = "several log directories, and limits of replication"
    #: Only small worlds reach the event; the clients, operator and configuration of `barnabas simulate` never do.
    SMALL_WORLDS = "the small worlds"


class Call:
    """A call of a wrapped function, as conditions see it."""

    __slots__ = ("arguments", "before", "named", "result", "subject")

    def __init__(self, subject: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        #: The object of a method; the first argument of a function.
        self.subject = subject
        #: The positional arguments without the subject.
        self.arguments = arguments
        self.named = named
        #: The result of the row's `before`.
        self.before: Any = None
        #: The result of the function, or the error that it raised.
        self.result: Any = None

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """Returns an argument that callers can pass by position or by keyword."""
        return self.arguments[place] if place < len(self.arguments) else self.named.get(name, default)


def _always(_: Call) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class RareEvent:
    """A rare event: a row of the table of its area."""

    #: The event as a part of a sentence.
    name: str
    #: "module:function" or "module:Class.method", below `barnabas`.
    target: str
    #: The condition under which a call that is over was the event.
    happened: Callable[[Call], bool] = _always
    #: The state before the call that the condition needs.
    before: Callable[[Call], Any] | None = None
    #: Whether the event is an error of the function; otherwise it is the function's return.
    is_error: bool = False
    needs: frozenset[Need] = frozenset()


#: The counts of a run: the name of an event -> how often it happened.
Counts = Counter[str]
_PRODUCT: Final = "barnabas."


#: An observer of events: gets the event, and the call that was the event.
OnEvent = Callable[[RareEvent, Call], None]


@contextmanager
def counted(events: Iterable[RareEvent]) -> Iterator[Counts]:
    """Counts events while the context is open. Raises LookupError if the target of an event does not exist."""
    counts: Counts = Counter()

    def count(event: RareEvent, _: Call) -> None:
        counts[event.name] += 1

    with observed(events, count):
        yield counts


@contextmanager
def observed(events: Iterable[RareEvent], on_event: OnEvent) -> Iterator[None]:
    """Calls `on_event` for each event while the context is open, at the end of the call that is the event. Raises
    LookupError if the target of an event does not exist.
    """
    by_target: dict[str, list[RareEvent]] = {}
    for event in events:
        by_target.setdefault(event.target, []).append(event)
    installed: list[tuple[Any, str, object]] = []
    try:
        for target, rows in by_target.items():
            owner, name = _found(target)
            original = vars(owner)[name]
            if isinstance(original, staticmethod):
                setattr(owner, name, staticmethod(_observing(original.__func__, rows, on_event)))
            elif isinstance(original, FunctionType):
                setattr(owner, name, _observing(original, rows, on_event))
            else:
                raise LookupError(f"{target} is not a function")
            installed.append((owner, name, original))
        yield
    finally:
        for owner, name, original in reversed(installed):
            setattr(owner, name, original)


class _Questions:
    """The number of open contexts in which the product is only asked."""

    def __init__(self) -> None:
        self.open = 0


_QUESTIONS: Final = _Questions()


@contextmanager
def unobserved() -> Iterator[None]:
    """Lets the product be asked what it would do: calls within the context are no events."""
    _QUESTIONS.open += 1
    try:
        yield
    finally:
        _QUESTIONS.open -= 1


def _found(target: str) -> tuple[Any, str]:
    """Returns the class or module, and the name in it. A method must be in the class itself: an inherited one would be
    counted for other classes too.
    """
    module_name, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(_PRODUCT + module_name)
    try:
        for each in owners:
            owner = vars(owner)[each]
        vars(owner)[name]
    except KeyError as missing:
        raise LookupError(f"{target}: there is no {missing}") from None
    return owner, name


def _observing(original: Callable[..., Any], rows: list[RareEvent], on_event: OnEvent) -> Callable[..., Any]:
    """Returns the function with the conditions of its rows. Most rows look at its return alone, those of all functions
    that are called often among them: for these, nothing is done before the call.
    """
    assert not any(row.is_error and row.before for row in rows), "a row for an error has no before"
    returning = [(row, row.happened) for row in rows if not row.is_error]

    @wraps(original)
    def observing(subject: Any, *arguments: Any, **named: Any) -> Any:
        result = original(subject, *arguments, **named)
        if _QUESTIONS.open:
            return result
        call = Call(subject, arguments, named)
        call.result = result
        for row, happened in returning:
            if happened(call):
                on_event(row, call)
        return result

    is_simple = len(returning) == len(rows) and not any(row.before for row in rows)
    return observing if is_simple else _observing_all(original, rows, on_event)


def _observing_all(original: Callable[..., Any], rows: list[RareEvent], on_event: OnEvent) -> Callable[..., Any]:
    returning = [(row, row.happened, row.before) for row in rows if not row.is_error]
    raising = [(row, row.happened) for row in rows if row.is_error]

    @wraps(original)
    def observing(subject: Any, *arguments: Any, **named: Any) -> Any:
        if _QUESTIONS.open:
            return original(subject, *arguments, **named)
        call = Call(subject, arguments, named)
        befores = [None if before is None else before(call) for _, _, before in returning]
        try:
            call.result = original(subject, *arguments, **named)
        except BaseException as error:
            # The end of a simulated process is not an `Exception`.
            call.result = error
            for row, happened in raising:
                if happened(call):
                    on_event(row, call)
            raise
        for (row, happened, _), call.before in zip(returning, befores, strict=True):
            if happened(call):
                on_event(row, call)
        return call.result

    return observing
