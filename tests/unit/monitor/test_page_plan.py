"""The order in which pages are asked, the brokers that are asked, and the share of their time that it takes."""

from __future__ import annotations

import pytest

from barnabas.monitor.budget import Budget
from barnabas.monitor.page_plan import HEAL_S, Page, PagePlan, covered


def complete(plan: PagePlan, ends: list[tuple[str, int] | None], now_s: float = 0.0) -> None:
    for end in ends:
        page = next(page for page in plan.pages if not page.is_answered)
        plan.asked(page, now_s)
        plan.answered(page, end)


def starts(plan: PagePlan) -> list[tuple[str, int] | None]:
    return [page.start for page in plan.pages]


def test_each_page_begins_where_the_one_before_ended() -> None:
    plan = PagePlan(1.0)
    complete(plan, [("b", 0), ("c", 7), None])
    assert starts(plan) == [None, ("b", 0), ("c", 7)]
    assert plan.is_complete
    plan.answered(plan.pages[0], ("a", 3))
    assert starts(plan) == [None, ("a", 3), ("b", 0), ("c", 7)]
    plan.answered(plan.pages[0], ("bb", 0))
    assert starts(plan) == [None, ("bb", 0), ("c", 7)]
    plan.answered(plan.pages[0], None)
    assert starts(plan) == [None]


def test_every_broker_is_asked_for_its_own_pages_and_for_all_when_it_is_alone() -> None:
    plan = PagePlan(1.0)
    complete(plan, [("b", 0), ("c", 0), None])
    assert plan.due(1, [1, 2, 3], 0.5) is None, "not yet"
    assert [plan.due(broker, [1, 2, 3], 2.0) for broker in (1, 2, 3)] == plan.pages
    assert plan.due(2, [1, 3], 2.0) is None
    for _ in range(3):
        page = plan.due(3, [3], 2.0)
        assert page is not None
        plan.asked(page, 2.0)
    assert plan.due(3, [3], 2.0) is None


def test_pages_move_on_to_the_next_broker_and_are_compared_in_full() -> None:
    plan = PagePlan(1.0)
    complete(plan, [("b", 0), None])
    first, second = plan.pages
    plan.healed(first, 0.0, 7)
    assert not plan.must_decode(first, HEAL_S - 1, 8)
    assert plan.must_decode(first, HEAL_S, 8)
    assert not plan.must_decode(first, HEAL_S, 7), "nothing has changed since"
    plan.healed(first, 0.0, -1)
    assert plan.must_decode(first, HEAL_S, 7), "something had just changed"
    assert plan.due(1, [1, 2], 2.0) is first
    assert plan.due(1, [1, 2], 2.0 + HEAL_S) is second


def test_a_page_without_an_answer_is_urgent_and_in_a_hurry_all_are() -> None:
    plan = PagePlan(10.0)
    complete(plan, [("b", 0), None], now_s=1.0)
    assert plan.due(1, [1], 2.0) is None
    plan.failed(plan.pages[1])
    assert plan.due(1, [1], 2.0) is plan.pages[1]
    plan.hurry()
    assert all(page.is_urgent for page in plan.pages)


def test_without_pages_of_the_broker_topics_are_asked_by_names_and_all_only_rarely() -> None:
    plan = PagePlan(1.0)
    complete(plan, [None])
    plan.divided([("a", "b"), ("c",)])
    assert [page.names for page in plan.pages] == [None, ("a", "b"), ("c",)]
    kept = plan.pages[1]
    plan.divided([("a", "b"), ("c", "d")])
    assert plan.pages[1] is kept
    assert plan.due(1, [1], 2.0) is not plan.pages[0]
    plan.divided([])
    assert not plan.pages[0].is_rare


@pytest.mark.parametrize(
    ("start", "end", "names"),
    [
        (None, None, ("", None)),
        (None, ("b", 3), ("", "b")),
        (("b", 0), ("c", 0), ("b", "c")),
        (("b", 3), None, ("b\0", None)),
    ],
)
def test_a_page_covers_the_topics_of_which_it_has_the_first_partition(
    start: tuple[str, int] | None, end: tuple[str, int] | None, names: tuple[str, str | None]
) -> None:
    assert covered(start, end) == names
    assert Page(start).is_urgent


def test_a_broker_is_asked_again_when_its_time_is_paid_for() -> None:
    budget = Budget(0.01)
    budget.spend(100.0, 100.003, 2_000, 1e-5)
    assert not budget.is_free(100.29)
    assert budget.is_free(100.31)
    slow = Budget(0.01)
    slow.spend(100.0, 130.0, 100, 1e-5)
    assert slow.is_free(100.13), "a slow network is not the broker's work"
