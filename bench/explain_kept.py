"""The cases of the score that are kept, so that a score of many hours is measured in several sessions.

The file has a line of JSON for each case. It is part of the published results: all tables can be computed from it.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from explain_baselines import Sign
from explain_cases import Case
from explain_truth import Guess, Truth

NAME: Final = "explain-cases.jsonl.gz"
Job = tuple[str, int]


class KeptCases:
    """The cases by kind and seed. A job without a case did not settle: its cluster did not become whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_job: dict[Job, Case | None] = {}
        if path.exists():
            with gzip.open(path, "rt", encoding="utf-8") as file:
                self._by_job = dict(decode(line) for line in file)

    def missing(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yields those of the jobs that have not run yet."""
        return (job for job in jobs if job not in self._by_job)

    def of(self, jobs: Iterable[Job]) -> list[Case]:
        """Returns the cases of the jobs that have run."""
        return [case for job in jobs if (case := self._by_job.get(job)) is not None]

    def add(self, job: Job, case: Case | None) -> None:
        self._by_job[job] = case

    def save(self) -> None:
        """Writes the file as a whole. The same cases give the same bytes."""
        lines = "".join(encode(job, case) for job, case in sorted(self._by_job.items(), key=_job))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        new.write_bytes(gzip.compress(lines.encode(), mtime=0))
        os.replace(new, self._path)


def _job(entry: tuple[Job, Case | None]) -> Job:
    return entry[0]


def encode(job: Job, case: Case | None) -> str:
    # A quiet time is found again by the kind of its job, which says how long it is.
    return json.dumps(job if case is None else (*job, *case[2:]), separators=(",", ":")) + "\n"


def decode(line: str) -> tuple[Job, Case | None]:
    kind, seed, *rest = json.loads(line)
    return (kind, seed), _case(kind, seed, *rest) if rest else None


def _case(kind: str, seed: int, truths: Any, answers: Any, explained_ms: Any, answer_ms: Any, *signs: Any) -> Case:
    codes, nsigma, baro = (tuple(Sign(*sign) for sign in each) for each in signs)
    guesses = tuple(tuple(Guess(*guess) for guess in each) for each in answers)
    found = tuple(Truth(*truth) for truth in truths)
    return Case(kind, seed, found, guesses, explained_ms, answer_ms, codes, nsigma, baro)
