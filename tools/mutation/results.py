"""The results of a campaign, a line of JSON for each mutant and try; and the verdicts of people on survivors.

A later line of a mutant replaces the earlier one's stages, one by one: a new try of the worlds keeps what the tests
found.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mutation.candidates import Mutant

WORLDS: Final = "worlds"
TESTS: Final = "tests"
SITUATIONS: Final = "situations"


@dataclass(frozen=True)
class Stage:
    """The result of a stage with a mutant."""

    #: The world or test that found it; None: survived.
    by: str | None
    found: str | None
    cpu_s: float
    #: How many of the stage's worlds or tests execute the function.
    reached_by: int


@dataclass
class Result:
    """The results of one mutant."""

    name: str
    package: str
    operator: str
    line: int
    before: str
    after: str
    stages: dict[str, Stage] = field(default_factory=dict)

    @staticmethod
    def of(mutant: Mutant) -> Result:
        package, operator = mutant.package, mutant.operator
        return Result(mutant.name, package, operator, mutant.line, mutant.before, mutant.after)

    def killed_by(self, stage: str) -> Stage | None:
        found = self.stages.get(stage)
        return None if found is None or found.by is None else found

    @property
    def kills(self) -> list[Stage]:
        return [stage for stage in self.stages.values() if stage.by is not None]


class Results:
    """The results in one file, in the order of their first tries."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.by_name: dict[str, Result] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._merge(_decode(json.loads(line)))

    def __iter__(self) -> Iterator[Result]:
        return iter(self.by_name.values())

    def _merge(self, result: Result) -> None:
        known = self.by_name.get(result.name)
        if known is not None:
            result.stages = {**known.stages, **result.stages}
        self.by_name[result.name] = result

    def add(self, result: Result) -> None:
        self._merge(result)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            print(json.dumps(asdict(result)), file=file)

    def compact(self) -> None:
        """Rewrites the file with one line for each mutant."""
        lines = [json.dumps(asdict(result)) + "\n" for result in self]
        self._path.write_text("".join(lines), encoding="utf-8")


def _decode(fields: dict[str, Any]) -> Result:
    stages = {name: Stage(**stage) for name, stage in fields.pop("stages").items()}
    return Result(**fields, stages=stages)


@dataclass(frozen=True)
class Verdict:
    """A person's verdict on a mutant that survived: it is equivalent, the tests were extended, or a task remains."""

    equivalent: str = ""
    mended: str = ""
    open: str = ""


class Verdicts(dict[str, Verdict]):
    """The file kept by hand: verdicts by mutant, a `note` on how the results were made, one on a sample that
    only worlds were tried against (`fresh`), and the reasons why no world
    finds a mutant (`unseen`).

    Raises ValueError if a verdict is not of exactly one kind.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        self.note: str = content.get("note", "").strip()
        #: How the sample was made that was tried against worlds alone.
        self.fresh_note: str = content.get("fresh", "").strip()
        #: Mutant -> reason.
        self.unseen: dict[str, str] = {
            mutant: row["reason"] for row in content.get("unseen", []) for mutant in row["mutants"]
        }
        for row in content.get("verdict", []):
            verdict = Verdict(row.get("equivalent", ""), row.get("mended", ""), row.get("open", ""))
            kinds = [verdict.equivalent, verdict.mended, verdict.open]
            if sum(map(bool, kinds)) != 1 or row["mutant"] in self:
                raise ValueError(f"{row['mutant']}: exactly one verdict is wanted")
            self[row["mutant"]] = verdict
