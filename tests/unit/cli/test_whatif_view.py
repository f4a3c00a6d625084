"""The text of an answer of `barnabas whatif`."""

from __future__ import annotations

import pytest
from tests.support.situations import partition, situation

from barnabas.cli.whatif_view import row, show_answer, summary, verdict
from barnabas.whatif import Answer, ask, parse_question
from barnabas.whatif.situation import Situation

ORDERS = {"orders": [partition([1, 2, 3]), partition([3, 1, 2]), partition([3])]}


def asked(state: Situation, words: str) -> Answer:
    return ask(state, parse_question(words.split()))


def test_the_summary_has_figures_and_notes() -> None:
    assert list(summary(asked(situation(ORDERS, min_isr=2), "kill 3"))) == [
        "what if: kill 3   not safe",
        "        1  offline: no leader",
        "        2  at min ISR: writes are refused after one more loss",
        "        1  new leader",
        "        3  of 3 partitions change",
    ]


def test_what_was_so_before_is_counted_apart() -> None:
    state = situation({"orders": [partition([2], isr=[2], leader=-1)]})
    lines = list(summary(asked(state, "kill 1")))
    assert lines[1:] == [
        "        0  of 1 partition change",
        "        1  offline already before, not counted",
        "  note: 1 is the active controller: the others elect a new one first",
    ]


def test_a_row_shows_before_and_after() -> None:
    answer = asked(situation(ORDERS), "kill 3")
    assert [row(outcome)[:4] for outcome in answer.partitions] == [
        ("orders-2", "offline", "3 -> none", "3"),
        ("orders-1", "new-leader, under-replicated", "3 -> 1", "3,1,2 -> 1,2"),
        ("orders-0", "under-replicated", "1", "1,2,3 -> 1,2"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("kill 3", "not safe"),
        ("kill 2", "nothing is lost"),
        ("drain 2", "not possible"),
        ("restart-all", "there is no safe order"),
    ],
)
def test_the_verdict(words: str, said: str) -> None:
    assert verdict(asked(situation(ORDERS), words)) == said


def test_the_list_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(asked(situation(ORDERS), "kill 3"), 1)
    shown = capsys.readouterr()
    assert "orders-2" in shown.out
    assert "orders-1" not in shown.out
    assert "2 partitions more; --limit shows them, --json all" in shown.err


def test_a_plan_has_steps_with_what_they_wait_for(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(asked(situation({"orders": [partition([1, 2, 3])]}, min_isr=2), "restart-all"), 20)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "what if: restart-all   there is a safe order"
    assert [line.split("  ")[-1].strip() for line in lines[-3:]] == [
        "-",
        "broker 2 is in the ISR of 1 partition again (orders-0)",
        "broker 3 is in the ISR of 1 partition again (orders-0)",
    ]
    assert "broker 1 (active controller)" in lines[-1]


def test_reasons_are_listed_by_broker(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(asked(situation(ORDERS), "restart-all"), 20)
    assert "broker 3:\n  orders-2 is offline: its only replica is on broker 3\n" in capsys.readouterr().out


def test_the_proposal_of_a_drain_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show_answer(asked(situation({"orders": [partition([1, 2])]}), "drain 2"), 20)
    assert '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,3]' in capsys.readouterr().out
