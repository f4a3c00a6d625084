"""Decisions at limits, made a second time: sizes, ages, epochs, sequences and majorities.

A wrong limit shows nowhere for long: a segment rolls too early, an offset expires an hour too late, an ISR shrinks one
millisecond too soon. So each decision of a table is made again by a simple function, with the same arguments and on the
same state, and both must agree. A run meets a limit exactly once in a million times. So the product's function is also
asked what it would decide exactly at its limits, one below and one above them; only functions without effects have
such probes.

The wrappers exist only while a run is judged. They only observe: a run is the same with and without them.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final

from barnabas.common.errors import FatalFault, RecordsRejected, RequestFailed
from barnabas.simulation.ambient import replaced
from barnabas.simulation.history import Violation
from barnabas.simulation.rare_events import unobserved
from barnabas.simulation.simulated_cluster import Cluster

#: The answer of a second decision about state that it cannot see without an effect on the run.
UNJUDGED: Final = object()
#: The calls of each costly function that are compared in a cluster.
_COMPARED_AT_FIRST: Final = 25
_COMPARED: Final = 16
#: The calls of each function that are judged in any case.
_JUDGED_AT_FIRST: Final = 30
_PRODUCT: Final = "barnabas."
_REFUSALS: Final = (RequestFailed, RecordsRejected, FatalFault)

Arguments = tuple[Any, ...]


def _itself(result: Any, *_: Any) -> Any:
    return result


def _no_probes(*_: Any, **__: Any) -> Iterable[Arguments]:
    return ()


@dataclass(frozen=True, slots=True)
class SecondDecision:
    """A function of the product, and the simple function that decides the same."""

    #: "module:function" or "module:Class.method", below `barnabas`.
    target: str
    #: Takes the same arguments. A refusal is raised as the product raises it; only its error code counts.
    expected: Callable[..., Any]
    #: Takes the same arguments. Returns others, close to the limits.
    probes: Callable[..., Iterable[Arguments]] = _no_probes
    #: Makes the result comparable: takes the result, and the arguments.
    shown: Callable[..., Any] = _itself
    #: Whether only a world that consists of such decisions compares every call and asks the probes: in a cluster that
    #: would take too long.
    is_costly: bool = False
    #: After the first calls, one of so many is judged: whole clusters call some functions very often.
    judged_every: int = 1
    #: The calls that are probed: the first ones, and then one of so many.
    probed: tuple[int, int] = (15, 25)


def costly(*table: SecondDecision) -> tuple[SecondDecision, ...]:
    return tuple(replace(row, is_costly=True) for row in table)


class SecondDecisions:
    """The judge of one run."""

    def __init__(self, table: Sequence[SecondDecision], *, has_costly_probes: bool = False) -> None:
        self._table = table
        self._has_costly_probes = has_costly_probes
        self._is_probing = False
        self._problems: list[Violation] = []
        self._calls: Counter[str] = Counter()
        self._is_open = False
        #: The number of decisions that were compared.
        self.compared = 0

    def check(self, cluster: Cluster | None = None) -> None:
        """Raises the first violation; within the product's call it could be taken for an error of the product."""
        if self._problems:
            raise self._problems[0]

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Judges all decisions while the context is open. Raises LookupError if a function does not exist."""
        with ExitStack() as stack:
            for owner, name, replacement in self._replacements():
                stack.enter_context(replaced(owner, name, replacement))
            self._is_open = True
            stack.callback(self._close)
            yield
        self.check()

    def _close(self) -> None:
        self._is_open = False

    def _replacements(self) -> list[tuple[Any, str, Any]]:
        """Returns what is replaced: a method in its class, a function in its module and in all that imported it."""
        found: list[tuple[Any, str, Any]] = []
        functions: dict[int, Any] = {}
        for row in self._table:
            module_name, _, path = row.target.partition(":")
            owner: Any = importlib.import_module(_PRODUCT + module_name)
            *owners, name = path.split(".")
            for each in owners:
                owner = vars(owner)[each]
            original: Any = vars(owner).get(name)
            if not callable(original):
                raise LookupError(f"{row.target} is not a function")
            judged = self._judged(original, row)
            if owners:
                found.append((owner, name, judged))
            else:
                functions[id(original)] = judged
        for key, module in list(sys.modules.items()):
            if key.startswith(_PRODUCT):
                own = vars(module)
                found += [(module, name, functions[id(own[name])]) for name in own if id(own[name]) in functions]
        return found

    def _judged(self, original: Callable[..., Any], row: SecondDecision) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(original):
            return self._judged_in_steps(original, row)

        @wraps(original)
        def judged(*arguments: Any, **named: Any) -> Any:
            if not self._is_open or self._is_left_out(row):
                return original(*arguments, **named)
            self._probe(row, arguments, named, original)
            return self._decide(row, arguments, named, original)

        every = row.judged_every
        if every == 1:
            return judged
        skipped = -_JUDGED_AT_FIRST

        @wraps(original)
        def sometimes_judged(*arguments: Any, **named: Any) -> Any:
            nonlocal skipped
            skipped += 1
            if skipped > 0:
                if skipped < every:
                    return original(*arguments, **named)
                skipped = 0
            return judged(*arguments, **named)

        return sometimes_judged

    def _is_left_out(self, row: SecondDecision) -> bool:
        """Counts a call. Returns whether it is not judged, because there are too many."""
        if self._is_probing:
            return False
        self._calls[row.target] += 1
        call = self._calls[row.target]
        is_sampled = row.is_costly and not self._has_costly_probes
        return is_sampled and call > _COMPARED_AT_FIRST and call % _COMPARED > 0

    def _judged_in_steps(self, original: Callable[..., Any], row: SecondDecision) -> Callable[..., Any]:
        """Judges what a generator returns; its steps are its caller's."""

        @wraps(original)
        def judged(*arguments: Any, **named: Any) -> Generator[Any, Any, Any]:
            if not self._is_open or self._is_left_out(row):
                return (yield from original(*arguments, **named))
            self._probe(row, arguments, named, original)
            expected = _outcome(row.expected, arguments, named)
            try:
                result = yield from original(*arguments, **named)
            except _REFUSALS as refusal:
                self._judge(row, arguments, expected, _refused(refusal))
                raise
            self._judge(row, arguments, expected, row.shown(result, *arguments))
            return result

        return judged

    def _probe(self, row: SecondDecision, arguments: Arguments, named: Any, original: Callable[..., Any]) -> None:
        """Asks the function about its limits; what it calls for that is judged, but has no probes of its own."""
        if self._is_probing or (row.is_costly and not self._has_costly_probes):
            return
        first, interval = row.probed
        call = self._calls[row.target]
        if call > (first if row.judged_every == 1 else first // 2) and call % interval:
            return
        self._is_probing = True
        try:
            with unobserved():
                for probe in list(row.probes(*arguments, **named)):
                    self._compare(row, probe, named, _outcome(row.expected, probe, named), original)
        finally:
            self._is_probing = False

    def _decide(self, row: SecondDecision, arguments: Arguments, named: Any, original: Callable[..., Any]) -> Any:
        expected = _outcome(row.expected, arguments, named)
        try:
            result = original(*arguments, **named)
        except _REFUSALS as refusal:
            self._judge(row, arguments, expected, _refused(refusal))
            raise
        self._judge(row, arguments, expected, row.shown(result, *arguments))
        return result

    def _compare(
        self, row: SecondDecision, arguments: Arguments, named: Any, expected: Any, original: Callable[..., Any]
    ) -> None:
        try:
            result = original(*arguments, **named)
            if inspect.isgenerator(result):
                result = _finished(result)
            found = row.shown(result, *arguments)
        except _REFUSALS as refusal:
            found = _refused(refusal)
        except Exception as error:
            # The caller did not ask this, so it is no failure of the caller.
            found = "failed", type(error).__name__
        self._judge(row, arguments, expected, found)

    def _judge(self, row: SecondDecision, arguments: Arguments, expected: Any, found: Any) -> None:
        if expected is UNJUDGED:
            return
        self.compared += 1
        if found != expected and not self._problems:
            shown = ", ".join(repr(each)[:200] for each in arguments if not callable(each))
            self._problems.append(
                Violation(f"decided otherwise: {row.target}({shown}) is {found!r}, it should be {expected!r}")
            )


def _finished(steps: Generator[Any, Any, Any]) -> Any:
    """Returns what a generator returns in the end."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


def _outcome(decide: Callable[..., Any], arguments: Arguments, named: Any) -> Any:
    try:
        with unobserved():
            return decide(*arguments, **named)
    except _REFUSALS as refusal:
        return _refused(refusal)


def _refused(refusal: BaseException) -> tuple[str, object]:
    return "refused", getattr(refusal, "code", None)
