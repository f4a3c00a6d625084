"""The operators of mutation testing: what each of them makes of a few lines, and that all other text stays as it is."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from mutation import field_operators, usual_operators
from mutation.candidates import mutants_of
from mutation.sources import Source, apply


def changed(code: str, operator: str) -> list[tuple[str, str]]:
    """Returns what the operator replaces in the code, and by what."""
    return [
        (mutant.before, mutant.after) for mutant in mutants_of("raft/a.py", dedent(code)) if mutant.operator == operator
    ]


def body(*lines: str) -> str:
    return "class A:\n    def step(self, done):\n" + "".join(f"        {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("operator", "lines", "expected"),
    [
        ("boundary", ["return a < b, a <= b, a > b, a >= b"], [("<", "<="), ("<=", "<"), (">", ">="), (">=", ">")]),
        ("boundary", ["return (a) < (b)"], [("<", "<=")]),
        ("equal-for-order", ["return a <= b, a > b"], [("<=", "=="), (">", "!=")]),
        ("order-for-equal", ["return a == 1"], [("==", "<=")]),
        ("order-for-equal", ["return a == 'x' or a == Role.LEADER or a == ()"], []),
        ("opposite", ["return a == b, a is not b, a in b"], [("==", "!="), ("is not", "is"), ("in", "not in")]),
        ("opposite", ["return a < b == c"], [("==", "!=")]),
        ("off-by-one", ["return a + 1, a - 1"], [("a + 1", "a"), ("a - 1", "a")]),
        ("off-by-one", ["return a[b:]"], [("b", "(b) + 1")]),
        ("off-by-one", ["self.high_watermark = b"], [("b", "(b) + 1")]),
        ("off-by-one", ["self.name = b"], []),
        ("constant", ["return 7, True, a + 1"], [("7", "8"), ("True", "False")]),
        ("negate", ["if a:", "    return 1", "return 2 if b < c else 3"], [("a", "not (a)"), ("b < c", "not (b < c)")]),
        ("negate", ["if a == b:", "    return 1"], []),
        ("drop-not", ["return not a"], [("not a", "a")]),
        ("drop-condition", ["return a and b, a or b"], [("a", "True"), ("b", "True"), ("a", "False"), ("b", "False")]),
        ("and-or", ["return (a) and b and c"], [("and b and", "or b or")]),
        ("min-max", ["return min(a, b)"], [("min", "max")]),
        ("plus-minus", ["return a + b, a - 2, 'x' + a"], [("+", "-"), ("-", "+")]),
        ("swap", ["f()", "g()"], [("f() g()", "g() f()")]),
        ("swap", ["self.a = 1", "self.b = 2"], []),
        ("drop-statement", ["f()", "self.b += 2", "c = 3"], [("f()", "pass"), ("self.b += 2", "pass")]),
        ("skip-sync", ["self.file.sync()"], [("self.file.sync()", "pass")]),
        ("skip-sync", ["disk.write(path, data, sync=True)"], [("True", "False")]),
        ("skip-sync", ["self.on_flushed()", "groups.sync_group(request, reply)"], []),
        (
            "drop-reset",
            ["self.a = None", "self.b = -1", "self.c.clear()"],
            ["self.a = None", "self.b = -1", "self.c.clear()"],
        ),
        ("drop-reset", ["waiting, self.waiting = self.waiting, []"], [("[]", "self.waiting")]),
        ("drop-reset", ["self.a = b"], []),
        ("one-of-two", ["self.a[k] = 1", "self.b.pop(k)"], ["self.a[k] = 1", "self.b.pop(k)"]),
        ("one-of-two", ["self.a[k] = 1", "self.a[j] = 1"], []),
        ("drop-guard", ["if a:", "    return", "f()"], ["if a: return"]),
        ("drop-guard", ["if a:", "    raise ValueError", "f()"], ["if a: raise ValueError"]),
        ("key-part", ["return self.seen[a, b]"], [("a", "0"), ("b", "0")]),
        (
            "key-part",
            ["if (a, b) in self.seen:", "    self.seen.add((a, c))"],
            [
                ("a, b) in self.seen: self.seen.add((a", "0, b) in self.seen: self.seen.add((0"),
                ("b) in self.seen: self.seen.add((a, c", "0) in self.seen: self.seen.add((a, 0"),
            ],
        ),
        ("answer-early", ["self.save()", "done(None)"], [("self.save() done(None)", "done(None) self.save()")]),
        ("answer-early", ["code = self.save()", "done(code)"], []),
        ("answer-early", ["assert a", "done(None)"], []),
        ("not-waited", ["self.log.flush(lambda: done(None))"], [("self.log.flush(lambda: done(None))", "done(None)")]),
        ("not-waited", ["self.timers.call_soon(self.step)"], []),
        (
            "keep-waiter",
            ["self.waiting.remove(a)", "del self.pending[a]"],
            ["self.waiting.remove(a)", "del self.pending[a]"],
        ),
        (
            "keep-waiter",
            ["a = self.waiting.pop(k, None)"],
            [("self.waiting.pop(k, None)", "self.waiting.get(k, None)")],
        ),
        ("keep-waiter", ["a = self.waiting.popleft()"], [("self.waiting.popleft()", "self.waiting[0]")]),
        ("keep-waiter", ["self.names.remove(a)"], []),
    ],
)
def test_an_operator(operator: str, lines: list[str], expected: list[tuple[str, str] | str]) -> None:
    wanted = [(each, "pass") if isinstance(each, str) else each for each in expected]
    assert sorted(changed(body(*lines), operator)) == sorted(wanted)


def test_a_guard_of_a_continuation_is_a_recheck() -> None:
    code = """
        class A:
            def send(self):
                self.channel.send(request, self._answered)

            def _answered(self, answer):
                if self.is_closed:
                    return
                if self.epoch == answer.epoch:
                    self.take(answer)
        """
    assert changed(code, "drop-recheck") == [
        ("if self.is_closed: return", "pass"),
        ("self.epoch == answer.epoch", "True"),
    ]
    assert changed(code.replace("self._answered)", "None)"), "drop-recheck") == []


def test_a_method_that_should_run_later_runs_immediately() -> None:
    code = """
        class A:
            def changed(self):
                self.timers.call_soon(self.work)

            def work(self):
                return 1
        """
    assert changed(code, "not-waited") == [("self.timers.call_soon(self.work)", "self.work()")]


def test_a_function_without_a_result_ends_early() -> None:
    code = """
        def step(a) -> None:
            one(a)
            two(a)
            three(a)
        """
    assert changed(code, "return-early") == [("two(a)", "return"), ("three(a)", "return")]
    assert changed(code.replace("None", "int"), "return-early") == []


def test_a_key_that_is_built_in_one_place_loses_a_part() -> None:
    code = """
        def key_of(a, b):
            return a.name, b
        """
    assert changed(code, "key-part") == [("a.name", "0"), ("b", "0")]


def test_words_of_errors_and_log_lines_are_no_mutants() -> None:
    code = """
        def step(self):
            assert self.a < 1, "no"
            self.host.faults.report(f"{self.a + 1}", 7)
            raise ValueError(1 + 1)
        """
    assert list(mutants_of("raft/a.py", dedent(code))) == []


def test_a_constructor_keeps_its_attributes() -> None:
    code = """
        class A:
            def __init__(self):
                self.a = None
                self.b = []
        """
    assert list(mutants_of("raft/a.py", dedent(code))) == []


def test_all_other_text_stays_as_it_is() -> None:
    text = 'def f(a):\n    name = "größer ≥"; b = a  <  "ß".x + (\n        1)  # <\n    return b\n'
    for mutant in mutants_of("raft/a.py", text):
        (edit,) = mutant.edits
        changed_text = apply(text, mutant.edits)
        assert changed_text[: edit.start] == text[: edit.start]
        assert changed_text.endswith(text[edit.end :])
        ast.parse(changed_text)
    assert [mutant.before for mutant in mutants_of("raft/a.py", text) if mutant.operator == "boundary"] == ["<"]


def test_the_place_of_a_node_counts_characters() -> None:
    source = Source("def f(a):\n    return 'ß' + (a)\n")
    assert [source.text_of(node) for node in ast.walk(source.tree) if isinstance(node, ast.BinOp)] == ["'ß' + (a)"]


def test_every_operator_of_the_field_is_named_and_described() -> None:
    described = [line.split()[0] for line in (field_operators.__doc__ or "").splitlines()[2:] if line]
    assert described == list(field_operators.NAMES)


def test_no_change_is_made_by_two_operators() -> None:
    code = body("if a:", "    return", "self.waiting.clear()", "self.a[k] = None", "self.b.pop(k)", "self.file.sync()")
    mutants = list(mutants_of("raft/a.py", code))
    assert len({mutant.edits for mutant in mutants}) == len(mutants)
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    assert {mutant.operator for mutant in mutants} >= {"skip-sync", "keep-waiter", "one-of-two", "drop-guard"}
    assert len(field_operators.OPERATORS) + len(usual_operators.OPERATORS) > 12
