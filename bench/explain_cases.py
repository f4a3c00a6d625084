"""A case of the score: a run, the answers of `explain` to it, and what the baselines noticed. Small, so that many can
be kept; worker processes return it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import explain_baselines
from barnabas.cli.incident import causes_of
from barnabas.cli.journal_reader import distinct
from barnabas.cli.root_causes import CERTAIN
from explain_baselines import Sign
from explain_driver import quiet, run
from explain_truth import AFTER_HEALING, ASKINGS, NOTHING, UNKNOWN, Answered, Asking, Episode, Event, Guess, Truth

#: A kind that is run for a time without a fault.
QUIET: Final = "quiet"


class Case(NamedTuple):
    kind: str
    seed: int
    truths: tuple[Truth, ...]
    #: The ranked answers to each of `ASKINGS`.
    answers: tuple[tuple[Guess, ...], ...]
    #: The time from the beginning until the answer is right and stays so; None if it never is.
    explained_ms: int | None
    #: The time that the answer takes, of the CPU.
    answer_ms: float
    codes: tuple[Sign, ...]
    nsigma: tuple[Sign, ...]
    baro: tuple[Sign, ...]

    def answered(self, asking: Asking) -> Answered:
        return Answered(self.kind, self.seed, self.truths, self.answers[ASKINGS.index(asking)])

    def by(self, guesses: Sequence[Guess]) -> Answered:
        return Answered(self.kind, self.seed, self.truths, tuple(guesses))


def answer(events: Sequence[Event]) -> tuple[Guess, ...]:
    """Returns what `explain` says. A first answer that is unknown is an abstention."""
    return tuple(
        Guess(cause.code, cause.component, cause.certainty == CERTAIN) for cause in causes_of(distinct(list(events)))
    )


def case_of(episode: Episode) -> Case:
    answers = tuple(answer(episode.read_by(episode.asked_ms(asking))) for asking in ASKINGS)
    begun = time.process_time()
    answer(episode.read_by(episode.over_ms))
    took_ms = (time.process_time() - begun) * 1_000
    seen = [event for event in episode.read_by(episode.over_ms) if episode.truths[0].cause != NOTHING or event]
    until_ms = episode.begin_ms + 10_000
    return Case(
        episode.kind,
        episode.seed,
        episode.truths,
        answers,
        _explained_ms(episode),
        took_ms,
        tuple(explain_baselines.codes(seen)),
        tuple(explain_baselines.nsigma(episode.series, episode.begin_ms, until_ms)),
        tuple(explain_baselines.baro(episode.series, episode.begin_ms, until_ms)),
    )


def _explained_ms(episode: Episode) -> int | None:
    """Returns when the right cause became the first answer for good."""
    if episode.truths[0].cause in (NOTHING, UNKNOWN):
        return None
    changed_ms = [read_ms for read_ms, _ in episode.journal] + [each.since_ms for each in episode.waiting]
    times = sorted({time_ms for time_ms in changed_ms if time_ms >= episode.begin_ms})
    found: int | None = None
    for time_ms in times:
        guesses = answer(episode.read_by(time_ms))
        first = guesses[0] if guesses else Guess(NOTHING, "")
        is_right = any((first.cause, first.component) == (truth.cause, truth.component) for truth in episode.truths)
        found = (time_ms if found is None else found) if is_right else None
    return None if found is None else found - episode.begin_ms


def case(kind: str, seed: int) -> Case:
    """Runs a case. `kind` is one of the driver's, or "quiet:HOURS"."""
    name, _, hours = kind.partition(":")
    return case_of(quiet(seed, float(hours)) if name == QUIET else run(kind, seed))


__all__ = ["AFTER_HEALING", "QUIET", "Case", "answer", "case", "case_of"]
