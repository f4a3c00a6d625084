"""`make mutants`: the draw, the copy, what is run in it, results, the page; and a small draw."""

from __future__ import annotations

import hashlib
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import mutants
from mutation import campaign, report, worlds
from mutation.campaign import Budgets, Campaign, affordable, fair
from mutation.candidates import PACKAGES, Mutant, all_mutants, draw, mutants_of
from mutation.measured import Reaching
from mutation.reach import name_of
from mutation.results import SITUATIONS, TESTS, WORLDS, Result, Results, Stage, Verdict, Verdicts
from mutation.shadow import Ended, Shadow

_MODULE = """
class Log:
    def append(self, record):
        if record.size > self.size_max:
            raise ValueError
        self.end_offset = record.offset + 1
        self.file.sync()

    def cut(self, offset):
        return min(offset, self.end_offset)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two small packages."""
    root = tmp_path / "repository"
    for package in ("storage", "raft"):
        for name in ("one", "two"):
            path = root / "src" / "barnabas" / package / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_MODULE.replace("Log", f"Log{name}{package}"))
    (root / "tools").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


# -- the draw


def test_a_longer_draw_begins_with_the_shorter_one(repository: Path) -> None:
    found = list(all_mutants(repository))
    assert len(found) > 20
    whole = draw(repository, found, 1, len(found))
    assert len(whole) == len(found) == len(set(whole))
    assert draw(repository, found, 1, 7) == whole[:7]
    assert draw(repository, found, 2, 7) != whole[:7]


def test_packages_and_operators_come_in_turn(repository: Path) -> None:
    drawn = draw(repository, all_mutants(repository), 1, 12)
    assert Counter(mutant.package for mutant in drawn) == {"storage": 6, "raft": 6}
    assert max(Counter((mutant.package, mutant.operator) for mutant in drawn).values()) == 1


def test_another_module_changes_little_in_a_draw(repository: Path) -> None:
    before = {mutant.name for mutant in draw(repository, all_mutants(repository), 1, 20)}
    (repository / "src" / "barnabas" / "raft" / "one.py").write_text("def f(a):\n    return a + 1\n")
    after = {mutant.name for mutant in draw(repository, all_mutants(repository), 1, 20)}
    kept = {name for name in before if not name.startswith("raft/one.py")}
    assert len(kept & after) >= len(kept) - 3


def test_a_name_stays_while_its_function_stays() -> None:
    one = [mutant.name for mutant in mutants_of("raft/a.py", _MODULE)]
    other = [mutant.name for mutant in mutants_of("raft/a.py", "import os\n" + _MODULE.replace("min", "max"))]
    assert [name for name in one if ".append:" in name] == [name for name in other if ".append:" in name]
    assert not {name for name in one if ".cut:" in name} & set(other)


@pytest.mark.full
def test_all_packages_have_mutants_of_the_field() -> None:
    found = Counter(mutant.package for mutant in all_mutants(mutants.ROOT) if mutant.operator == "drop-recheck")
    assert set(found) == set(PACKAGES)


# -- the copy


def _storage_mutant(repository: Path, operator: str) -> Mutant:
    return next(each for each in all_mutants(repository, ["storage"]) if each.operator == operator)


def test_the_copy_is_mutated_for_a_while_and_the_repository_never(repository: Path, tmp_path: Path) -> None:
    shadow = Shadow(repository, tmp_path / "copy")
    shadow.refresh()
    mutant = _storage_mutant(repository, "skip-sync")
    copy = tmp_path / "copy" / "src" / "barnabas" / mutant.path
    original = copy.read_text()
    cached = copy.parent / "__pycache__" / f"{copy.stem}.cpython-311.pyc"
    cached.parent.mkdir()
    cached.write_bytes(b"of the original")
    with shadow.mutated(mutant):
        assert copy.read_text() == original.replace("self.file.sync()", "pass")
        assert not cached.exists()
        cached.write_bytes(b"of the mutant")
        assert (repository / "src" / "barnabas" / mutant.path).read_text() == original
    assert copy.read_text() == original
    assert not cached.exists()


def test_a_refresh_repairs_what_an_interrupted_run_left(repository: Path, tmp_path: Path) -> None:
    shadow = Shadow(repository, tmp_path / "copy")
    shadow.refresh()
    copy = tmp_path / "copy" / "src" / "barnabas" / "raft" / "one.py"
    original = copy.read_text()
    copy.write_text(original.replace("min", "max"))
    leftover = copy.with_name("gone.py")
    leftover.write_text("")
    shadow.refresh()
    assert copy.read_text() == original
    assert not leftover.exists()


def test_a_process_that_loops_or_waits_is_ended(repository: Path, tmp_path: Path) -> None:
    (repository / "tools" / "loops.py").write_text("while True: pass\n")
    (repository / "tools" / "waits.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    (repository / "tools" / "ends.py").write_text("print('done')\n")
    shadow = Shadow(repository, tmp_path / "copy")
    shadow.refresh()
    assert shadow.run("loops", [], cpu_s_max=0.5, wall_s_max=300).is_overdue
    waits = shadow.run("waits", [], cpu_s_max=30, wall_s_max=2)
    assert waits.is_overdue
    assert waits.output in ("here\n", "")
    ends = shadow.run("ends", [], cpu_s_max=30, wall_s_max=300)
    assert (ends.output, ends.is_overdue) == ("done\n", False)
    assert 0 < ends.cpu_s < 30


# -- what is run


def test_a_function_is_named_by_its_module_and_its_place() -> None:
    assert name_of("/x/src/barnabas/raft/core.py", "Core.run") == "raft/core.py:Core.run"
    assert name_of("/x/src/barnabas/raft/core.py", "Core.run.<locals>.<lambda>") == "raft/core.py:Core.run"
    inner = "Core.run.<locals>.done"
    assert name_of("/x/src/barnabas/raft/core.py", f"{inner}.<locals>.<listcomp>") == f"raft/core.py:{inner}"
    assert name_of("/x/src/barnabas/common/host.py", "Host.run") is None
    assert name_of("/x/tests/raft/core.py", "Core.run") is None


def test_each_kind_of_worlds_gets_as_much_time() -> None:
    cheap = [Reaching(f"quorum:{seed}", 1.0) for seed in range(1, 6)]
    dear = [Reaching("groups:1", 2.5), Reaching("groups:2", 2.5)]
    ordered = [each.name for each in fair([*dear, *cheap])]
    assert ordered == ["quorum:1", "quorum:2", "groups:1", "quorum:3", "quorum:4", "groups:2", "quorum:5"]


def test_tests_of_the_package_come_first_within_the_budget() -> None:
    own = [Reaching("tests/unit/raft/test_a.py::test_1", 1.0), Reaching("tests/unit/raft/test_a.py::test_2", 3.0)]
    other = [Reaching("tests/unit/broker/test_b.py::test_3", 0.1), Reaching("tests/property/test_c.py::test_4", 9.0)]
    chosen = affordable("raft", [*other, *own], 5.0)
    assert [each.name.rpartition("_")[2] for each in chosen] == ["1", "2", "3"]


def test_all_worlds_have_a_name_and_a_bad_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {name.partition(":")[0] for name in worlds.names()} == set(worlds.KINDS)
    assert worlds.explore("quorum:1") is None

    def fail(seed: int) -> str:
        raise KeyError(seed)

    monkeypatch.setitem(worlds.KINDS, "quorum", worlds.Kind(fail, 1))
    found = worlds.explore("quorum:7")
    assert found is not None
    assert found.startswith("KeyError: 7")


def test_a_machine_on_which_nothing_starts_kills_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Known:
        is_current = False

        def has(self, name: str) -> bool:
            return False

        def worlds(self, place: str) -> Sequence[Reaching]:
            return [Reaching("quorum:1", 1.0)]

        tests = worlds

    shadow = Shadow(repository, tmp_path / "copy")
    shadow.refresh()
    monkeypatch.setattr(shadow, "run", lambda *arguments, **limits: Ended("", "No module named crc32c\n", 0.1, False))
    one = Campaign(shadow, Known(), Budgets())
    with pytest.raises(RuntimeError, match="the test also fails without a mutant: the start: No module named crc32c"):
        one.run(_storage_mutant(repository, "skip-sync"), (WORLDS,))


_BEGUN = '{"begins": "tests/a.py::test_b"}\n'


@pytest.mark.parametrize(
    ("output", "is_overdue", "expected"),
    [
        (_BEGUN + '{"ends": 0}\n', False, None),
        (_BEGUN + '{"by": "tests/a.py::test_b", "found": "no"}\n{"ends": 1}\n', False, ("tests/a.py::test_b", "no")),
        (_BEGUN, True, ("tests/a.py::test_b", "it does not end")),
        ("", False, ("the start", "ImportError")),
        ('{"ends": 4}\n', False, ("the start", "ImportError")),
    ],
    ids=["all pass", "one fails", "one does not end", "no process", "no test"],
)
def test_what_a_run_of_tests_says(output: str, is_overdue: bool, expected: tuple[str, str] | None) -> None:
    tests = campaign._Tests(Shadow(mutants.ROOT, mutants.BUILD))
    assert tests.kill(Ended(output, "ImportError\n", 1.0, is_overdue)) == expected


def test_a_test_that_is_gone_is_no_kill() -> None:
    tests = campaign._Tests(Shadow(mutants.ROOT, mutants.BUILD))
    with pytest.raises(RuntimeError, match=r"gone: ERROR: not found: a\.py"):
        tests.kill(Ended('{"ends": 4}\n', "ERROR: not found: a.py::test_b\n", 1.0, False))


# -- results


def _result(name: str, **stages: Stage) -> Result:
    return Result(name, name.partition("/")[0], "constant", 7, "a | b", "a", dict(stages))


_SURVIVED = Stage(None, None, 40.0, 12)
_FOUND = Stage("quorum:7", "two leaders", 2.0, 30)
_FAILED = Stage("tests/unit/raft/test_a.py::test_b[1]", "assert 1 == 2", 5.0, 4)


def test_a_later_try_of_one_stage_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "data" / "results.jsonl"
    results = Results(path)
    results.add(_result("raft/a.py:f:constant:1:aa", worlds=_SURVIVED, tests=_FAILED))
    results.add(_result("raft/b.py:f:constant:1:bb", worlds=_SURVIVED))
    results.add(_result("raft/a.py:f:constant:1:aa", worlds=_FOUND))
    assert len(path.read_text().splitlines()) == 3
    read = Results(path)
    assert [list(each.stages.values()) for each in read] == [[_FOUND, _FAILED], [_SURVIVED]]
    read.compact()
    assert len(path.read_text().splitlines()) == 2
    assert list(Results(path)) == list(read)


def test_a_verdict_is_of_one_kind_and_given_once(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.toml"
    path.write_text(
        'note = "seed 1"\n[[verdict]]\nmutant = "a"\nequivalent = "same"\n[[verdict]]\nmutant = "b"\nmended = "test"\n'
    )
    assert Verdicts(path) == {"a": Verdict(equivalent="same"), "b": Verdict(mended="test")}
    path.write_text(path.read_text() + '[[verdict]]\nmutant = "a"\nmended = "test"\n')
    with pytest.raises(ValueError, match="a: exactly one"):
        Verdicts(path)


def test_equivalent_mutants_do_not_count() -> None:
    results = [
        _result("raft/a.py:f:constant:1:aa", worlds=_FOUND, tests=_FAILED),
        _result("raft/b.py:f:constant:1:bb", worlds=_SURVIVED, tests=_FAILED),
        _result("raft/c.py:f:constant:1:cc", worlds=_SURVIVED, tests=_SURVIVED, situations=_SURVIVED),
        _result("raft/d.py:f:constant:1:dd", worlds=Stage(None, None, 0.0, 0), tests=_SURVIVED),
    ]
    verdicts = {results[2].name: Verdict(equivalent="nobody reads it"), results[1].name: Verdict(mended="test_a")}
    text = report.page(results, verdicts, "Budgets of 20 s.", {results[1].name: "nothing compares it"})
    assert "Budgets of 20 s." in text
    assert "4 mutants were tried; 1 of them are equivalent" in text
    assert "| killed by anything | 95 % | 2 (67 %) of 3 |" in text
    assert "| killed by worlds alone | 75 % | 1 (33 %) of 3 |" in text
    assert "| the same before tests were added for survivors | | 1 (33 %) of 3 |" in text
    assert "| CPU time until the first kill, median | 60 s | 3.5 s |" in text
    assert "nobody reads it" in text
    assert "`raft/d.py:f:constant:1:dd` | line 7: `a \\| b` → `a` | not examined yet" in text
    assert "quorum:7 (2) | test_a: test_b (5)" in text
    assert "| not executed | - (40) |" in text
    assert "- nothing compares it (1): `raft/b.py:f:constant:1:bb`\n" in text
    assert "- not examined yet (1): `raft/d.py:f:constant:1:dd`\n" in text
    assert "An independent sample" not in text
    text = report.page(results, verdicts, "", fresh=results[:2], fresh_note="Drawn with seed 5.")
    assert "## An independent sample, with worlds alone\n\nDrawn with seed 5.\n" in text
    assert "| tried | 2 |\n" in text
    assert "| killed by worlds | 1 (50 %) |\n" in text


def test_the_page_is_that_of_the_results() -> None:
    assert mutants.PAGE.read_text() == mutants.page(), "python tools/mutants.py --report"


def test_every_verdict_is_about_a_result() -> None:
    verdicts = Verdicts(mutants.VERDICTS)
    results = Results(mutants.RESULTS).by_name
    assert {*verdicts, *verdicts.unseen} <= set(results)
    assert not [name for name in verdicts.unseen if results[name].killed_by(WORLDS)]


@pytest.mark.full
def test_survivors_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [mutant.name for mutant in list(all_mutants(mutants.ROOT, ["raft"]))[:4]]
    results = Results(tmp_path / "results.jsonl")
    results.add(_result(names[0], worlds=_FOUND, tests=_SURVIVED))
    results.add(_result(names[1], worlds=_SURVIVED, tests=_FAILED))
    results.add(_result(names[2], worlds=_SURVIVED, tests=_SURVIVED))
    results.add(_result("raft/gone.py:f:constant:1:aa", worlds=_SURVIVED, tests=_SURVIVED))
    verdicts = tmp_path / "verdicts.toml"
    verdicts.write_text("")
    monkeypatch.setattr(mutants, "VERDICTS", verdicts)

    def planned(*arguments: str) -> list[tuple[str, Sequence[str]]]:
        return [(mutant.name, stages) for mutant, stages in mutants.plan(mutants.parse(arguments), results)]

    assert planned("--again", "survivors") == [(names[2], (WORLDS, TESTS, SITUATIONS))]
    assert planned("--again", "worlds") == [(names[1], (WORLDS,)), (names[2], (WORLDS,))]
    assert planned("--mutant", names[3]) == [(names[3], (WORLDS, TESTS, SITUATIONS))]
    verdicts.write_text(f'[[verdict]]\nmutant = "{names[2]}"\nequivalent = "same"\n')
    assert planned("--again", "survivors") == []


# -- a small draw


class _Recorded:
    """A record of what killed mutants the last time, in the place of what all worlds and tests execute."""

    is_current = False

    def __init__(self, results: Sequence[Result]) -> None:
        self._by_place = {_place_of(each.name): each for each in results}

    def has(self, name: str) -> bool:
        return False

    def worlds(self, place: str) -> list[Reaching]:
        """Returns the world that killed it, and others of its kind, if the seeds have shifted."""
        by = self._by_place[place].stages[WORLDS].by
        assert by is not None
        kind = by.partition(":")[0]
        names = [by, *(name for name in worlds.names() if name.startswith(kind + ":") and name != by)]
        return [Reaching(name, 2.0) for name in names]

    def tests(self, place: str) -> list[Reaching]:
        by = self._by_place[place].stages[TESTS].by
        assert by is not None
        return [Reaching(by, 5.0)]


def _place_of(name: str) -> str:
    return ":".join(name.split(":")[:2])


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_small_draw_is_killed_again(tmp_path: Path) -> None:
    """Ten mutants that a world and a fast test killed within seconds are killed by both again."""
    present = {mutant.name: mutant for mutant in all_mutants(mutants.ROOT)}
    quick = [
        result
        for result in Results(mutants.RESULTS)
        if result.name in present
        and (world := result.killed_by(WORLDS)) is not None
        and (test := result.killed_by(TESTS)) is not None
        and world.cpu_s + test.cpu_s < 15
        and ":" in str(world.by)
        and "::" in str(test.by)
    ]
    quick.sort(key=lambda result: hashlib.sha256(result.name.encode()).digest())
    assert len(quick) >= 10, "most of the mutants are gone: run `make mutants` again"
    shadow = Shadow(mutants.ROOT, tmp_path / "copy")
    shadow.refresh()
    small = Campaign(shadow, _Recorded(quick[:10]), Budgets(worlds_s=60.0, tests_s=30.0))
    alive = {}
    for result in quick[:10]:
        again = small.run(present[result.name], (WORLDS, TESTS))
        if len(again.kills) < 2:
            alive[result.name] = again.stages
    assert alive == {}


def test_the_tool_lists_its_draw(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["--list", "--count", "3", "--only", "raft"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(line.startswith("raft/") for line in lines[::2])
