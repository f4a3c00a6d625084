"""The tables of docs/explain-score.md. They are written between two marks; the text around them is by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from explain_baselines import Dictionary
from explain_cases import QUIET, Case
from explain_kinds import KINDS, UNSEEN
from explain_metrics import (
    Share,
    abstentions,
    accuracy_at,
    both_found,
    cause_alone,
    confusion,
    is_abstention,
    of_causes,
    quantile,
    sure_and_wrong,
)
from explain_truth import AFTER_10_S, AFTER_HEALING, ASKINGS, NOTHING, Answered, Guess

BEGIN: Final = "<!-- tables: written by bench/explain_report.py -->"
#: The names of kinds with real processes begin with this (`explain_processes`).
PROCESSES: Final = "process "
END: Final = "<!-- end of the tables -->"


def page(text: str, scoring: Sequence[Case], tuning: Sequence[Case]) -> str:
    """Returns the page with new tables."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{tables(scoring, tuning)}\n{END}{after or chr(10)}"


def tables(scoring: Sequence[Case], tuning: Sequence[Case]) -> str:
    single = [case for case in scoring if case.kind in KINDS]
    seeds = sorted({case.seed for case in single})
    parts = [
        f"{len(single)} runs of {len(KINDS)} kinds, seeds {seeds[0]} to {seeds[-1]}." if seeds else "No runs.",
        _overall(single),
        _others(single, tuning),
        _of_kinds(single),
        _of_causes([case.answered(AFTER_HEALING) for case in single]),
        _confusion([case.answered(AFTER_HEALING) for case in single]),
        _apart(scoring),
        _processes([case for case in scoring if case.kind.startswith(PROCESSES)]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def _overall(cases: Sequence[Case]) -> str:
    rows = []
    for asking in ASKINGS:
        asked = [case.answered(asking) for case in cases]
        shares: list[Share] = [accuracy_at(asked, 1), accuracy_at(asked, 3), sure_and_wrong(asked), abstentions(asked)]
        rows.append((asking.title, *shares))
    times = [
        math.inf if case.explained_ms is None else case.explained_ms / 1_000
        for case in cases
        if case.truths[0].cause != NOTHING
    ]
    took = [case.answer_ms for case in cases]
    p50, p90, p99 = (_s(quantile(times, share)) for share in (0.5, 0.9, 0.99))
    after = f"Time from the beginning to the right answer: p50 {p50}, p90 {p90}, p99 {p99}."
    cost = f"The answer itself takes {quantile(took, 0.5):.1f} ms of CPU, p99 {quantile(took, 0.99):.1f} ms."
    head = ("asked", "AC@1 (95 %)", "AC@3", "certain and wrong", "abstained")
    return f"### Overall\n\n{_table(head, rows)}\n\n{after} {cost}"


def _s(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"{seconds:.1f} s"


def _others(cases: Sequence[Case], tuning: Sequence[Case]) -> str:
    by_name: dict[str, Callable[[Case], Sequence[Guess]]] = {}
    for name in ("codes", "nsigma", "baro"):
        known = Dictionary((getattr(case, name), case.truths[0].cause) for case in tuning)
        by_name[name] = lambda case, name=name, known=known: known.guesses(getattr(case, name))  # type: ignore[misc]
    frequent = Dictionary((case.codes, case.truths[0].cause) for case in tuning).most_frequent
    by_name["frequent"] = lambda case: (Guess(frequent, case.truths[0].component),)
    titles = {
        "codes": "the codes of the journal alone, after healing",
        "nsigma": "nsigma over the metrics, after 10 s",
        "baro": "BARO-like, over the same metrics, after 10 s",
        "frequent": f"always the most frequent cause ({frequent}), with the right component",
    }
    rows = [
        (titles[name], accuracy_at(asked, 1), accuracy_at(asked, 3), cause_alone(asked))
        for name, guess in by_name.items()
        for asked in [[case.by(guess(case)) for case in cases]]
    ]
    return f"### Baselines\n\n{_table(('', 'AC@1 (95 %)', 'AC@3', 'cause alone'), rows)}"


def _of_kinds(cases: Sequence[Case]) -> str:
    rows = []
    for kind in KINDS:
        own = [case for case in cases if case.kind == kind]
        shares = [accuracy_at([case.answered(asking) for case in own], 1) for asking in ASKINGS]
        times = [math.inf if case.explained_ms is None else case.explained_ms / 1_000 for case in own]
        cells = [f"{share.count} of {share.total}" for share in shares]
        cause = own[0].truths[0].cause if own else ""
        rows.append((kind, cause, *cells, "-" if cause == NOTHING else _s(quantile(times, 0.5))))
    head = ("kind", "cause", *(asking.title for asking in ASKINGS), "time, p50")
    return f"### By kind: right first answers\n\n{_table(head, rows)}"


def _of_causes(cases: Sequence[Answered]) -> str:
    rows = []
    for row in of_causes(cases):
        low, high = row.f1_interval
        rows.append((row.cause, row.precision, row.recall, f"{row.f1:.2f} ({low:.2f}-{high:.2f})"))
    return f"### By cause, after healing\n\n{_table(('cause', 'precision', 'recall', 'F1'), rows)}"


def _confusion(cases: Sequence[Answered]) -> str:
    counts = confusion(cases)
    truths = sorted({truth for truth, _ in counts})
    rows = []
    for truth in truths:
        answered = sorted(((count, name) for (cause, name), count in counts.items() if cause == truth), reverse=True)
        rows.append((truth, ", ".join(f"{name} {count}" for count, name in answered)))
    table = _table(("true cause", "answered"), rows)
    return f"### Confusion matrix, after healing\n\nWhat was answered for each true cause:\n\n{table}"


def _apart(cases: Sequence[Case]) -> str:
    rows = []
    for kind in UNSEEN:
        for asking in (AFTER_10_S, AFTER_HEALING):
            asked = [case.answered(asking) for case in cases if case.kind == kind]
            silent = Share(sum(is_abstention(each.first) for each in asked), len(asked))
            wrong = Share(sum(each.first.is_sure and not is_abstention(each.first) for each in asked), len(asked))
            rows.append((f"{kind}, {asking.title}", f"unknown or nothing {silent}, certain and wrong {wrong}"))
    pairs = [case for case in cases if "+" in case.kind]
    for asking in (AFTER_10_S, AFTER_HEALING):
        asked = [case.answered(asking) for case in pairs]
        text = f"one of them first {accuracy_at(asked, 1)}, both in the first three {both_found(asked, 3)}"
        rows.append((f"pairs of faults, {asking.title}", text))
    quiet = [case for case in cases if case.kind.startswith(QUIET)]
    hours = sum(case.truths[0].end_ms - case.truths[0].begin_ms for case in quiet) / 3_600_000
    alarms = sum(len(case.answers[-1]) for case in quiet)
    rows.append(("quiet", f"{alarms} false alarms in {hours:.1f} virtual hours"))
    return f"### Unseen kinds, pairs, quiet hours\n\n{_table(('', ''), rows)}"


def _processes(cases: Sequence[Case]) -> str:
    if not cases:
        return "### With real processes\n\nNot measured in this run."
    rows = []
    for kind in dict.fromkeys(case.kind for case in cases):
        own = [case for case in cases if case.kind == kind]
        shares = [accuracy_at([case.answered(asking) for case in own], 1) for asking in ASKINGS]
        answered = ", ".join(dict.fromkeys(case.answered(AFTER_HEALING).first.cause for case in own))
        rows.append((kind.removeprefix(PROCESSES), *(f"{share.count} of {share.total}" for share in shares), answered))
    late = accuracy_at([case.answered(AFTER_HEALING) for case in cases], 1)
    head = ("kind", *(asking.title for asking in ASKINGS), "answered after the end")
    return f"### With real processes\n\nAfter the end {late} are right.\n\n{_table(head, rows)}"
