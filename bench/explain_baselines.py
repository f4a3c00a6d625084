"""The other sides of the score: the codes of the journal alone, and rankings of metrics as of nsigma and BARO.

A ranking names a metric of a broker, not a cause. So each metric, and each code, stands for the cause that it had most
often in tuning seeds (`Dictionary`); this is more than an operator knows. The time of the fault is given to them, as in
the papers: nsigma (3-sigma rule) compares means by standard deviations; BARO (Pham et al., FSE 2024) medians by the
quartiles of the time before, and ranks by the largest deviation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Final, NamedTuple

from explain_truth import NOTHING, Event, Guess

#: A smaller deviation counts as none.
_SIGMAS_MIN: Final = 3.0
_RANKED: Final = 5


class Sign(NamedTuple):
    """A code or a metric that a baseline noticed, and the broker."""

    name: str
    component: str


def codes(events: Iterable[Event]) -> list[Sign]:
    """Returns the causes that the controller's decisions name, in order, without self-reports."""
    found: dict[Sign, None] = {}
    for event in events:
        if "metadata_offset" in event and event.get("cause") not in _CONSEQUENCES:
            broker = f"broker {event['broker']}" if "broker" in event else ""
            topic = f"topic {event['topic']}" if "topic" in event else ""
            found[Sign(str(event["cause"]), broker or topic)] = None
    return list(found)


_CONSEQUENCES: Final = frozenset({"follower-caught-up", "broker-back", "controller-there"})

Series = Sequence[tuple[int, Mapping[str, float]]]


def nsigma(series: Series, begin_ms: int, until_ms: int) -> list[Sign]:
    return _ranked(series, begin_ms, until_ms, fmean, pstdev)


def baro(series: Series, begin_ms: int, until_ms: int) -> list[Sign]:
    return _ranked(series, begin_ms, until_ms, median, _quartiles)


def _quartiles(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]


def _ranked(
    series: Series,
    begin_ms: int,
    until_ms: int,
    centre: Callable[[Sequence[float]], float],
    spread: Callable[[Sequence[float]], float],
) -> list[Sign]:
    """Returns the metrics with the largest deviation after the beginning from the time before."""
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    for time_ms, values in series:
        part = before if time_ms < begin_ms else after
        if time_ms <= until_ms:
            for name, value in values.items():
                part.setdefault(name, []).append(value)
    scores = {}
    for name, known in before.items():
        usual = centre(known)
        # A figure that never changes has no spread: a twentieth of it counts as one.
        scale = spread(known) or abs(usual) / 20 or 0.5
        scores[name] = max((abs(value - usual) / scale for value in after.get(name, ())), default=0.0)
    ranked = sorted((name for name in scores if scores[name] >= _SIGMAS_MIN), key=lambda name: -scores[name])
    return [
        Sign(metric, f"broker {broker}") for metric, _, broker in (name.partition("@") for name in ranked[:_RANKED])
    ]


class Dictionary:
    """The cause that each name had most often in tuning seeds, and the most frequent cause of all."""

    def __init__(self, examples: Iterable[tuple[Sequence[Sign], str]]) -> None:
        counts: dict[str, Counter[str]] = {}
        overall: Counter[str] = Counter()
        for signs, cause in examples:
            overall[cause] += 1
            counts.setdefault(signs[0].name if signs else NOTHING, Counter())[cause] += 1
        self._causes = {name: max(sorted(each), key=each.__getitem__) for name, each in counts.items()}
        self._causes.setdefault(NOTHING, NOTHING)
        self.most_frequent = max(sorted(overall), key=overall.__getitem__) if overall else NOTHING

    def guesses(self, signs: Sequence[Sign]) -> tuple[Guess, ...]:
        if not signs:
            return (Guess(self._causes[NOTHING], ""),)
        found = (Guess(self._causes.get(sign.name, self.most_frequent), sign.component) for sign in signs)
        return tuple(dict.fromkeys(found))
