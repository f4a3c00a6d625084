"""All mutants of the product, each with a name that depends on its function alone, and the choice of those to run. The
draw takes the packages in turn, within a package the operators in turn, and of each operator the mutant that comes
first in an order given by the seed and the names. So a longer draw begins with the shorter one, and a change of the
product changes only few mutants of a draw.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mutation import field_operators, usual_operators
from mutation.sources import Change, Edit, Scope, Source, apply

PACKAGES: Final = ("replication", "controller", "decisions", "raft", "storage", "coordinators", "broker")
PRODUCT: Final = Path("src/barnabas")
#: The operators of `field_operators` come first: a change that two operators make counts for the first of them.
OPERATORS: Final = (*field_operators.OPERATORS, *usual_operators.OPERATORS)
_SHOWN_MAX: Final = 90


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function."""

    name: str
    #: The module below `src/barnabas`, such as `raft/core.py`.
    path: str
    function: str
    operator: str
    line: int
    edits: tuple[Edit, ...]
    before: str
    after: str

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]

    @property
    def place(self) -> str:
        """The function, named as `mutation.reach` names it."""
        return f"{self.path}:{self.function}"


def mutants_of(path: str, text: str) -> Iterator[Mutant]:
    """Yields the mutants of one module."""
    source = Source(text)
    for scope in source.scopes():
        if any(isinstance(item, ast.Name) and item.id == "overload" for item in scope.function.decorator_list):
            continue
        if scope.function.name in ("__repr__", "__str__"):
            continue
        yield from _of_function(path, source, scope)


def _of_function(path: str, source: Source, scope: Scope) -> Iterator[Mutant]:
    seen: set[tuple[Edit, ...]] = set()
    counted: Counter[str] = Counter()
    for operator in OPERATORS:
        for change in operator(source, scope):
            if change.edits not in seen:
                seen.add(change.edits)
                counted[change.operator] += 1
                yield _mutant(path, source, scope, change, counted[change.operator])


def is_valid(root: Path, mutant: Mutant) -> bool:
    """Returns whether the mutated module can be compiled."""
    text = (root / PRODUCT / mutant.path).read_text(encoding="utf-8")
    try:
        compile(apply(text, mutant.edits), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def _mutant(path: str, source: Source, scope: Scope, change: Change, number: int) -> Mutant:
    begin, end = min(edit.start for edit in change.edits), max(edit.end for edit in change.edits)
    moved = [Edit(edit.start - begin, edit.end - begin, edit.text) for edit in change.edits]
    before = source.text[begin:end]
    after = apply(before, moved)
    digest = hashlib.sha256(f"{source.text_of(scope.function)}\0{before}\0{after}".encode()).hexdigest()[:6]
    name = f"{path}:{scope.name}:{change.operator}:{number}:{digest}"
    return Mutant(name, path, scope.name, change.operator, change.line, change.edits, _line(before), _line(after))


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


def all_mutants(root: Path, packages: Iterable[str] = PACKAGES) -> Iterator[Mutant]:
    for package in packages:
        for path in sorted((root / PRODUCT / package).rglob("*.py")):
            yield from mutants_of(path.relative_to(root / PRODUCT).as_posix(), path.read_text(encoding="utf-8"))


def draw(root: Path, mutants: Iterable[Mutant], seed: int, count: int) -> list[Mutant]:
    """Draws mutants of all packages and operators; a function gets a second one only when all others have one."""
    order: dict[str, dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
    for mutant in sorted(mutants, key=lambda each: _rank(seed, each.name), reverse=True):
        order[mutant.package][mutant.operator].append(mutant)
    turns = {package: sorted(groups, key=lambda name: _rank(seed, name)) for package, groups in order.items()}
    used: set[str] = set()
    drawn: list[Mutant] = []
    while len(drawn) < count and any(turns.values()):
        for package in [each for each in PACKAGES if turns.get(each)]:
            operator = turns[package].pop(0)
            taken = _take(root, order[package][operator], used)
            if taken is not None:
                turns[package].append(operator)
                used.add(taken.place)
                drawn.append(taken)
    return drawn[:count]


def _rank(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()


def _take(root: Path, group: list[Mutant], used: set[str]) -> Mutant | None:
    """Removes and returns the last mutant, preferably of a function without one so far; drops mutants that cannot be
    compiled.
    """
    while group:
        fresh = (index for index in range(len(group) - 1, -1, -1) if group[index].place not in used)
        mutant = group.pop(next(fresh, -1))
        if is_valid(root, mutant):
            return mutant
    return None
