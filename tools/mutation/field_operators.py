"""Operators of this field: mistakes that people make in replicated, asynchronous code that writes to a disk.

drop-recheck    a continuation does not check again that the state it was started for still holds
drop-guard      a function does not refuse an invalid call
skip-sync       written data are not synced
drop-reset      an attribute is not reset
one-of-two      of several collections that are updated together, one is forgotten
key-part        a part of a composite key is not compared
answer-early    a request is answered before the step that comes before the answer
not-waited      a callback that should run after an operation runs immediately
keep-waiter     something that waits, a timer or an open request is not removed
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from mutation.sources import Change, Edit, Scope, Source, blocks, call_of, is_informing, name_of, nodes
from mutation.usual_operators import Operator, swap

NAMES = (
    "drop-recheck",
    "drop-guard",
    "skip-sync",
    "drop-reset",
    "one-of-two",
    "key-part",
    "answer-early",
    "not-waited",
    "keep-waiter",
)
#: Names of callbacks, which run later than the code that passed them on.
_CONTINUATION = re.compile(r"^_*(on|done|after|retry|again|continue|resume|tick|expire|finish|then)(_|$)|<locals>")
_SYNC = re.compile(r"^(?!_*on_)(.*_)?(f?sync|flush|persist)(_|$|ed)")
_ANSWER = re.compile(r"(^|_)(done|reply|answer|respond|complete|callback|finish|then)$")
_LATER = re.compile(r"(^|_)(call_soon|call_later|when|after|then|await|defer|run_later|on)(_|$)")
_WAITING = re.compile(r"wait|pending|watch|timer|delayed|callback|request|in_?flight|purgatory|scheduled|retr|open_")
_NO_STEPS = (ast.FunctionDef, ast.ClassDef, ast.Assert)
_REMOVALS = frozenset({"pop", "remove", "discard", "clear", "cancel", "popleft", "popitem"})
_UPDATES = _REMOVALS | {"add", "append", "update", "insert", "extend", "setdefault", "appendleft"}


def drop_rechecks(source: Source, scope: Scope) -> Iterator[Change]:
    name = scope.name.rpartition(".")[2]
    continues = bool(_CONTINUATION.search(name) or "<locals>" in scope.name or name in source.passed_on)
    for block in blocks(scope.function):
        for statement in block:
            if not isinstance(statement, ast.If) or statement.orelse:
                continue
            if _is_exit(statement.body[-1]) and len(statement.body) <= 2:
                operator = "drop-recheck" if continues and _reads_state(statement.test) else "drop-guard"
                yield Change(operator, statement.lineno, (source.replace(statement, "pass"),))
            elif continues and _reads_state(statement.test):
                yield Change("drop-recheck", statement.lineno, (source.replace(statement.test, "True"),))


def _is_exit(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Return | ast.Continue | ast.Break | ast.Raise)


def _reads_state(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute | ast.Call | ast.Subscript) for node in ast.walk(test))


def skip_syncs(source: Source, scope: Scope) -> Iterator[Change]:
    for node in nodes(scope.function):
        call = call_of(node) if isinstance(node, ast.stmt) else None
        if call is not None and _SYNC.search(name_of(call.func)) and not _is_reply(call):
            assert isinstance(node, ast.stmt)
            yield Change("skip-sync", node.lineno, (source.replace(node, "pass"),))
        elif isinstance(node, ast.keyword) and node.arg == "sync" and ast.unparse(node.value) == "True":
            yield Change("skip-sync", node.value.lineno, (source.replace(node.value, "False"),))


def _is_reply(call: ast.Call) -> bool:
    """Returns whether a call is given a reply callback, as that of SyncGroup: such a call syncs no file."""
    return any(name_of(argument) == "reply" for argument in call.args)


def drop_resets(source: Source, scope: Scope) -> Iterator[Change]:
    if scope.function.name == "__init__":
        return
    for node in nodes(scope.function):
        call = call_of(node) if isinstance(node, ast.stmt) else None
        is_cleared = call is not None and name_of(call.func) == "clear"
        if is_cleared or (
            isinstance(node, ast.Assign)
            and all(isinstance(target, ast.Attribute) for target in node.targets)
            and _is_empty(node.value)
        ):
            assert isinstance(node, ast.stmt)
            yield Change("drop-reset", node.lineno, (source.replace(node, "pass"),))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            yield from _kept(source, node, node.targets[0])


def _kept(source: Source, node: ast.Assign, target: ast.Tuple) -> Iterator[Change]:
    """Yields `a, self.b = self.b, []`, where `self.b` stays."""
    if not isinstance(node.value, ast.Tuple) or len(target.elts) != 2 or len(node.value.elts) != 2:
        return
    attribute, value = target.elts[1], node.value.elts[1]
    if isinstance(attribute, ast.Attribute) and _is_empty(value):
        yield Change("drop-reset", node.lineno, (source.replace(value, source.text_of(attribute)),))


def _is_empty(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Constant):
        return node.value in (None, 0, False, True, b"", "")
    if isinstance(node, ast.Call):
        return name_of(node.func) in ("set", "dict", "list", "deque", "frozenset") and not node.args
    return (isinstance(node, ast.List | ast.Tuple) and not node.elts) or (isinstance(node, ast.Dict) and not node.keys)


def one_of_two(source: Source, scope: Scope) -> Iterator[Change]:
    for block in blocks(scope.function):
        updated = [(statement, place) for statement in block if (place := _updated(source, statement))]
        if len({place for _, place in updated}) > 1:
            for statement, _ in updated:
                yield Change("one-of-two", statement.lineno, (source.replace(statement, "pass"),))


def _updated(source: Source, statement: ast.stmt) -> str:
    """Returns the collection, kept in an attribute, that a statement updates."""
    found: ast.expr | None = None
    if isinstance(statement, ast.Assign | ast.Delete) and isinstance(statement.targets[0], ast.Subscript):
        found = statement.targets[0].value
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
        found = statement.target.value
    elif (call := call_of(statement)) is not None and isinstance(call.func, ast.Attribute):
        found = call.func.value if call.func.attr in _UPDATES else None
    while isinstance(found, ast.Subscript):
        found = found.value
    return source.text_of(found) if isinstance(found, ast.Attribute) else ""


def key_parts(source: Source, scope: Scope) -> Iterator[Change]:
    """Replaces one part by a constant wherever the function names a key of one collection, or builds a key."""
    keys: defaultdict[tuple[str, int], list[ast.Tuple]] = defaultdict(list)
    for node in nodes(scope.function):
        for place, key in _keys(source, scope, node):
            keys[place, len(key.elts)].append(key)
    for (_, parts), found in keys.items():
        for part in range(parts):
            replaced = [key.elts[part] for key in found]
            if not any(isinstance(each, ast.Constant | ast.Starred) for each in replaced):
                edits = tuple(source.replace(each, "0") for each in replaced)
                yield Change("key-part", replaced[0].lineno, edits)


def _keys(source: Source, scope: Scope, node: ast.AST) -> Iterator[tuple[str, ast.Tuple]]:
    found: list[tuple[str, ast.expr | None]] = []
    if isinstance(node, ast.Subscript):
        found = [(source.text_of(node.value), node.slice)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in ("get", "pop", "setdefault", "add", "discard", "remove"):
            found = [(source.text_of(node.func.value), node.args[0])]
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        found = [(source.text_of(node.comparators[0]), node.left)]
    elif isinstance(node, ast.Assign) and "key" in name_of(node.targets[0]):
        found = [(name_of(node.targets[0]), node.value)]
    elif isinstance(node, ast.Return) and "key" in scope.function.name:
        found = [("", node.value)]
    yield from ((place, key) for place, key in found if isinstance(key, ast.Tuple) and len(key.elts) > 1)


def early_answers(source: Source, scope: Scope) -> Iterator[Change]:
    for block in blocks(scope.function):
        for before, statement in pairwise(block):
            call = call_of(statement)
            if call is None or not _ANSWER.search(name_of(call.func)) or _binds(before, statement):
                continue
            if not _is_exit(before) and not isinstance(before, _NO_STEPS) and not _only_informs(before):
                yield swap(source, "answer-early", before, statement)


def _only_informs(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If | ast.For):
        return all(_only_informs(each) for each in [*statement.body, *statement.orelse])
    return is_informing(statement)


def _binds(before: ast.stmt, statement: ast.stmt) -> bool:
    bound = {node.id for node in ast.walk(before) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return any(isinstance(node, ast.Name) and node.id in bound for node in ast.walk(statement))


def not_waited(source: Source, scope: Scope) -> Iterator[Change]:
    for block in blocks(scope.function):
        for statement in block:
            call = call_of(statement)
            if call is None or not call.args:
                continue
            last = call.args[-1]
            if isinstance(last, ast.Lambda) and not last.args.args and not last.args.vararg:
                yield Change("not-waited", statement.lineno, (source.replace(statement, source.text_of(last.body)),))
            elif (
                isinstance(last, ast.Attribute) and _LATER.search(name_of(call.func)) and last.attr in _methods(source)
            ):
                text = f"{source.text_of(last)}()"
                yield Change("not-waited", statement.lineno, (source.replace(statement, text),))


def _methods(source: Source) -> set[str]:
    """Returns the methods of the module that need no argument."""
    return {
        scope.function.name
        for scope in source.scopes()
        if len(scope.function.args.args) == 1 and not scope.function.args.kwonlyargs and scope.name.count(".")
    }


def keep_waiters(source: Source, scope: Scope) -> Iterator[Change]:
    for node in nodes(scope.function):
        if isinstance(node, ast.Delete) and isinstance(node.targets[0], ast.Subscript):
            if _WAITING.search(source.text_of(node.targets[0].value)):
                yield Change("keep-waiter", node.lineno, (source.replace(node, "pass"),))
        elif isinstance(node, ast.Call):
            edit = _not_removed(source, scope, node)
            if edit is not None:
                yield Change("keep-waiter", node.lineno, (edit,))


def _not_removed(source: Source, scope: Scope, call: ast.Call) -> Edit | None:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _REMOVALS:
        return None
    owner = source.text_of(call.func.value)
    if not _WAITING.search(owner):
        return None
    for node in nodes(scope.function):
        if isinstance(node, ast.Expr) and node.value is call:
            return source.replace(node, "pass")
    if call.func.attr == "pop" and len(call.args) == 2:
        return source.replace(call, f"{owner}.get({', '.join(map(source.text_of, call.args))})")
    if call.func.attr in ("pop", "popleft") and len(call.args) < 2:
        position = "0" if call.func.attr == "popleft" else source.text_of(call.args[0]) if call.args else "-1"
        return source.replace(call, f"{owner}[{position}]")
    return None


OPERATORS: Sequence[Operator] = (
    skip_syncs,
    keep_waiters,
    drop_resets,
    one_of_two,
    drop_rechecks,
    key_parts,
    early_answers,
    not_waited,
)
