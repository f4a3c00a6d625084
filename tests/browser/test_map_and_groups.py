"""The map in groups, and who reads what in a consumer group, on brokers that are only their answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect
from tests.support.browser import PHONE, Visit, axe_violations_in_both_themes, build_page
from tests.support.console_dialogs import rows_of
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState

FIRST, SECOND = "topic-00000", "topic-00001"
#: More members than the picture has colours.
MEMBERS = 9
RECORDS, READ = 50, 30


@pytest.fixture(scope="module")
def phantom() -> Iterator[PhantomCluster]:
    def fill(state: PhantomState) -> None:
        state.add_partitions(FIRST, 10)
        state.produce(FIRST, 1, RECORDS)
        state.commit("readers", FIRST, 1, READ)
        state.commit("readers", SECOND, 3, 0)
        members = {f"client{number}-{number:08x}": [(FIRST, number)] for number in range(MEMBERS)}
        members["client1-00000001"] += [(SECOND, 0), (SECOND, 1)]
        state.assign("readers", members)

    with PhantomCluster(topics=500, partitions=4, journal=True) as found:
        found.change(fill)
        yield found


@pytest.fixture(scope="module")
def console(phantom: PhantomCluster) -> Iterator[RunningConsole]:
    """Provides a console of the phantom, which replaces the one of real brokers in this file."""
    build_page()
    with RunningConsole([target_of(phantom)], ConsoleOptions(interval_s=0.1)) as found:
        found.filled()
        yield found


def test_groups_of_the_map_move_with_their_states_and_the_cursor_with_its_replica(
    visit: Visit, phantom: PhantomCluster
) -> None:
    page = visit.open("/map?group=state")
    picture, spoken = page.get_by_role("application"), page.locator("#map-spoken")
    picture.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    # Six were added, and one more is the partition of the journal, which is the first one.
    expect(spoken).to_contain_text("in sync, 2,007 partitions: topic-00000-1 on broker 1")
    phantom.change(lambda state: state.shrink_isr(FIRST, 1, 2))
    expect(spoken).to_contain_text("at min ISR, 1 partition: topic-00000-1 on broker 1")
    page.keyboard.press("ArrowDown")
    expect(spoken).to_contain_text("in sync, 2,006 partitions: __cluster_events-0 on broker 1")
    page.get_by_role("button", name="As a table").click()
    rows = page.get_by_role("region", name="Partitions, in the order of the map")
    expect(rows.locator("table")).to_have_attribute("aria-rowcount", "2008")
    names = rows.locator("tbody tr[data-index] th")
    expect(names.nth(0)).to_have_text("topic-00000-1")
    expect(names.nth(1)).to_have_text("__cluster_events-0")
    assert names.count() < 100
    phantom.change(lambda state: state.expand_isr(FIRST, 1, 2))
    expect(names.nth(0)).to_have_text("__cluster_events-0")
    expect(names.nth(2)).to_have_text("topic-00000-1")


def test_a_group_shows_who_reads_what_and_what_nobody_reads(visit: Visit, console: RunningConsole) -> None:
    console.until(lambda: console.ask("group", name="readers").status == 200, "the group is read", within_s=60)
    page = visit.open("/group?name=readers")
    picture, spoken = page.get_by_role("application"), page.locator("#assignment-spoken")
    picture.focus()
    for key, text in (
        ("ArrowRight", "topic-00000-0: member 1, client0 at /127.0.0.1; no offset is committed"),
        ("ArrowRight", f"topic-00000-1: member 2, client1 at /127.0.0.1; {RECORDS - READ} records behind"),
        ("End", "topic-00001-3: nobody reads it; 0 records behind"),
        ("PageUp", "topic-00001-0: member 2, client1 at /127.0.0.1; no offset is committed"),
        ("PageUp", "topic-00000-0: member 1"),
        ("PageDown", "topic-00001-0: member 2"),
        ("ArrowUp", "topic-00000-0: member 1"),
        ("ArrowDown", "topic-00001-0: member 2"),
    ):
        page.keyboard.press(key)
        expect(spoken).to_contain_text(text)
    rows = rows_of(page, "Members")
    expect(rows).to_have_count(MEMBERS + 1)
    cells = rows.nth(1).locator("th, td")
    assert [text.strip() for text in cells.all_inner_texts()] == [
        "2 client1",
        "3",
        str(RECORDS - READ),
        "topic-00000 1; topic-00001 0–1",
        "/127.0.0.1",
        "client1-00000001",
    ]
    expect(rows.nth(MEMBERS)).to_contain_text("nobody")
    expect(rows.nth(MEMBERS)).to_contain_text("topic-00000 9; topic-00001 2–3")
    assert axe_violations_in_both_themes(page) == []
    rows.nth(1).get_by_role("button").click()
    expect(page).to_have_url(re.compile("member=client1-00000001$"))
    page.reload()
    expect(rows.nth(1).get_by_role("button")).to_have_attribute("aria-pressed", "true")
    rows.nth(MEMBERS).get_by_role("button").click()
    expect(page).to_have_url(re.compile("member=-$"))
    page.go_back()
    expect(rows.nth(1).get_by_role("button")).to_have_attribute("aria-pressed", "true")
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    expect(page.get_by_role("application")).to_be_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE[0]
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page).to_have_title(re.compile("^topic-00000-0 · Partition"))


def test_the_picture_follows_another_assignment(visit: Visit, console: RunningConsole, phantom: PhantomCluster) -> None:
    console.until(lambda: console.ask("group", name="readers").status == 200, "the group is read", within_s=60)
    page = visit.open("/group?name=readers")
    spoken = page.locator("#assignment-spoken")
    page.get_by_role("application").focus()
    for _ in range(2):
        page.keyboard.press("End")
    expect(spoken).to_contain_text("topic-00001-3: nobody reads it")
    phantom.change(lambda state: state.assign("readers", {"other-1": [(SECOND, 3)]}))
    # The page reads the group again when something of the cluster changes.
    phantom.change(lambda state: state.shrink_isr(SECOND, 0, state.topics[SECOND].partitions[0].isr[-1]))
    expect(spoken).to_contain_text("topic-00001-3: member 1, other at /127.0.0.1")
    expect(rows_of(page, "Members")).to_have_count(2)


def test_members_stay_while_their_coordinator_gives_no_answer(
    visit: Visit, console: RunningConsole, phantom: PhantomCluster
) -> None:
    console.until(lambda: console.ask("group", name="readers").status == 200, "the group is read", within_s=60)
    page = visit.open("/group?name=readers")
    rows = rows_of(page, "Members")
    expect(rows.first).to_contain_text("topic-0000", timeout=20_000)
    before = rows.count()

    def without_members(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        body["data"] |= {"members": [], "assigned": [], "problem": "no answer within 2 s"}
        route.fulfill(response=answer, json=body)

    page.route("**/api/group?**", without_members)
    phantom.change(lambda state: state.shrink_isr("topic-00400", 0, 2))
    expect(page.get_by_role("status").filter(has_text="no answer within 2 s")).to_be_visible(timeout=20_000)
    expect(rows).to_have_count(before)
    expect(page.get_by_role("application")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")
