"""The figures of the score of `explain`: pure functions of truths and answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from explain_truth import NOTHING, UNKNOWN, Answered, Guess, Truth

#: The 97.5 % quantile of the normal distribution, for intervals of 95 %.
_Z: Final = 1.959964


@dataclass(frozen=True, slots=True)
class Share:
    """A share of cases, with its interval of 95 % (Wilson's)."""

    count: int
    total: int

    @property
    def value(self) -> float:
        return self.count / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        if not self.total:
            return 0.0, 1.0
        share, total = self.value, self.total
        centre = share + _Z * _Z / (2 * total)
        spread = _Z * math.sqrt(share * (1 - share) / total + _Z * _Z / (4 * total * total))
        scale = 1 + _Z * _Z / total
        return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)

    def __str__(self) -> str:
        if not self.total:
            return "-"
        low, high = self.interval
        return f"{self.value:.2f} ({low:.2f}-{high:.2f})"


class OfCause(NamedTuple):
    """How well one cause is recognised. It counts as recognised only with the right component."""

    cause: str
    precision: Share
    recall: Share

    @property
    def f1(self) -> float:
        answered, present = self.precision, self.recall
        wrong = answered.total - answered.count + present.total - present.count
        return 2 * present.count / (2 * present.count + wrong) if present.count + wrong else math.nan

    @property
    def f1_interval(self) -> tuple[float, float]:
        """Returns an interval of 95 % at least: F1 grows with both, so it is between those of their bounds."""
        bounds = zip(self.precision.interval, self.recall.interval, strict=True)
        low, high = (2 * p * r / (p + r) if p + r else 0.0 for p, r in bounds)
        return low, high


def is_right(guess: Guess, truth: Truth) -> bool:
    return guess.cause == truth.cause and (guess.component == truth.component or truth.cause in (NOTHING, UNKNOWN))


def is_abstention(guess: Guess) -> bool:
    return guess.cause in (NOTHING, UNKNOWN)


def is_found(answered: Answered, count: int) -> bool:
    """Returns whether the first answers contain the cause; of several faults, one of them."""
    guesses = answered.guesses[:count] or (answered.first,)
    return any(is_right(guess, truth) for guess in guesses for truth in answered.truths)


def cause_alone(cases: Iterable[Answered]) -> Share:
    """Returns the share of cases whose first answer has the right cause, whatever its component."""
    found = [any(case.first.cause == truth.cause for truth in case.truths) for case in cases]
    return Share(sum(found), len(found))


def accuracy_at(cases: Iterable[Answered], count: int) -> Share:
    """Returns AC@count: the share of cases whose cause is among the first answers."""
    found = [is_found(case, count) for case in cases]
    return Share(sum(found), len(found))


def sure_and_wrong(cases: Iterable[Answered]) -> Share:
    """Returns the share of cases in which the first answer is wrong, and said to be sure."""
    found = [case.first.is_sure and not is_found(case, 1) for case in cases]
    return Share(sum(found), len(found))


def abstentions(cases: Iterable[Answered]) -> Share:
    """Returns the share of cases with a cause to be found, in which `explain` names none."""
    found = [is_abstention(case.first) for case in cases if case.truths[0].cause not in (NOTHING, UNKNOWN)]
    return Share(sum(found), len(found))


def of_causes(cases: Sequence[Answered]) -> list[OfCause]:
    """Returns the figures of each cause of a single fault."""
    rows = []
    for cause in sorted({case.truths[0].cause for case in cases}):
        present = [case for case in cases if case.truths[0].cause == cause]
        answered = [case for case in cases if case.first.cause == cause]
        right = sum(is_found(case, 1) for case in present)
        rows.append(OfCause(cause, Share(right, len(answered)), Share(right, len(present))))
    return rows


def confusion(cases: Iterable[Answered]) -> Counter[tuple[str, str]]:
    """Counts the cases by the true cause and the named one; "cause, elsewhere" has a wrong component."""
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases:
        truth, answered = case.truths[0].cause, case.first.cause
        is_elsewhere = truth == answered and not is_found(case, 1)
        counts[truth, f"{answered}, elsewhere" if is_elsewhere else answered] += 1
    return counts


def both_found(cases: Iterable[Answered], count: int) -> Share:
    """Returns the share of runs with several faults in which the first answers contain all of them."""
    found = [
        all(any(is_right(guess, truth) for guess in case.guesses[:count]) for truth in case.truths) for case in cases
    ]
    return Share(sum(found), len(found))


def quantile(values: Iterable[float], share: float) -> float:
    """Returns the smallest value that is not exceeded by this share of the values; infinite values are allowed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
