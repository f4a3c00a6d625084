"""A record of what each world and each test executes (`mutation.reach`), kept in a folder until something changes.

A test file that changed is measured again. If the product changed, the measurement stays as an estimate, until
`measure` is called for everything: then a kill counts only after its test passed without the mutant.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mutation.shadow import Shadow, files_of

#: The folders with tests that can run against mutants.
TEST_FOLDERS: Final = (
    *(f"tests/unit/{name}/" for name in ("broker", "cli", "common", "controller", "coordinators", "histories")),
    *(f"tests/unit/{name}/" for name in ("raft", "replication", "server", "storage", "testing", "znodes", "zookeeper")),
    "tests/property/",
    "tests/conformance/",
    "tests/simulation/",
)
_WORLDS_FILE: Final = "worlds.jsonl"
_TESTS_FILE: Final = "tests.jsonl"
_STATE_FILE: Final = "measured.json"
_HOURS_MAX: Final = 2 * 3600.0


class Reaching(NamedTuple):
    """A world or test, and its ordinary CPU time."""

    name: str
    cpu_s: float


class Measured:
    def __init__(self, root: Path, folder: Path, shadow: Shadow) -> None:
        self._root, self._folder, self._shadow = root, folder, shadow
        state = folder / _STATE_FILE
        self._state: dict[str, Any] = json.loads(state.read_text()) if state.exists() else {}
        self._load()

    def _load(self) -> None:
        self._worlds = _read(self._folder / _WORLDS_FILE)
        self._tests = _read(self._folder / _TESTS_FILE, frozenset(self._current_files()))
        lists = [*self._worlds.values(), *self._tests.values()]
        self._names = {each.name for reaching in lists for each in reaching}

    @property
    def is_current(self) -> bool:
        """Whether the measurement was made with this product and these worlds."""
        return bool(self._state.get("product") == self._product())

    def _product(self) -> str:
        return self._shadow.digest("src/", "tests/support/", "tests/simulation/raft/")

    def has(self, name: str) -> bool:
        return name in self._names

    def worlds(self, place: str) -> Sequence[Reaching]:
        return self._worlds.get(place, [])

    def tests(self, place: str) -> Sequence[Reaching]:
        return self._tests.get(place, [])

    def _current_files(self) -> list[str]:
        """Returns the test files that have not changed since the measurement."""
        known: dict[str, str] = self._state.get("files", {})
        return [path for path, digest in self._files().items() if known.get(path) == digest]

    def test_files(self) -> list[str]:
        """Returns all files with tests that can run against mutants."""
        return list(self._files())

    def stale_files(self) -> list[str]:
        """Returns the test files that were not measured as they are now."""
        current = frozenset(self._current_files())
        return [path for path in self._files() if path not in current]

    def _files(self) -> dict[str, str]:
        paths = [path for path in files_of(self._root) if path.startswith(TEST_FOLDERS)]
        tests = sorted(path for path in paths if Path(path).name.startswith("test_") and path.endswith(".py"))
        return {path: hashlib.sha256((self._root / path).read_bytes()).hexdigest()[:16] for path in tests}

    def world_names(self) -> list[str]:
        """Returns the names of all worlds."""
        ended = self._shadow.run("mutation.worlds", [], cpu_s_max=_HOURS_MAX, wall_s_max=_HOURS_MAX)
        return ended.output.split("\n")[:-1]

    def not_measured(self, names: Sequence[str]) -> list[str]:
        known = frozenset(self._state.get("worlds", ()))
        return [name for name in names if name not in known]

    def measure_worlds(self, names: Sequence[str], *, is_everything: bool) -> None:
        """Measures these worlds, and keeps the measurements of the others."""
        self._measure(_WORLDS_FILE, "worlds", names)
        if is_everything:
            self._save(product=self._product(), worlds=list(names))
        else:
            self._save(worlds=[*self._state.get("worlds", ()), *names])

    def measure_tests(self, files: Sequence[str]) -> None:
        """Measures these files again, and keeps the measurements of the others."""
        self._measure(_TESTS_FILE, "tests", files)
        digests = self._files()
        self._save(files={**self._state.get("files", {}), **{path: digests[path] for path in files}})

    def _measure(self, file: str, what: str, names: Sequence[str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        part, whole = self._folder / "part.jsonl", self._folder / file
        arguments = [str(part.resolve()), what, *names]
        ended = self._shadow.run("mutation.reach", arguments, cpu_s_max=_HOURS_MAX, wall_s_max=4 * _HOURS_MAX)
        if ended.errors.strip():
            print(ended.errors.strip()[-2000:])
        anew = frozenset(names)
        kept = [row for row in _rows(whole) if row[0].partition("::")[0] not in anew]
        _write(whole, [*kept, *_rows(part)])
        part.unlink()

    def _save(self, **state: Any) -> None:
        self._state.update(state)
        (self._folder / _STATE_FILE).write_text(json.dumps(self._state, indent=1))
        self._load()


_Row = tuple[str, float, list[str]]


def _rows(path: Path) -> list[_Row]:
    rows: list[_Row] = []
    functions: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        found = json.loads(line)
        if "function" in found:
            functions.append(found["function"])
        else:
            rows.append((found["name"], found["cpu_s"], [functions[number] for number in found["reaches"]]))
    return rows


def _write(path: Path, rows: Iterable[_Row]) -> None:
    numbers: dict[str, int] = {}
    with path.open("w", encoding="utf-8") as file:
        for name, cpu_s, functions in rows:
            for function in functions:
                if function not in numbers:
                    numbers[function] = len(numbers)
                    print(json.dumps({"function": function}), file=file)
            reaches = [numbers[function] for function in functions]
            print(json.dumps({"name": name, "cpu_s": cpu_s, "reaches": reaches}), file=file)


def _read(path: Path, files: Collection[str] | None = None) -> dict[str, list[Reaching]]:
    """Returns the tests and worlds that reach each function, in the order of the file; only tests in `files`, if
    given.
    """
    found: defaultdict[str, list[Reaching]] = defaultdict(list)
    for name, cpu_s, functions in _rows(path):
        if files is not None and name.partition("::")[0] not in files:
            continue
        reaching = Reaching(name, cpu_s)
        for function in functions:
            found[function].append(reaching)
    return found
