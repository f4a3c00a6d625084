"""Pages that stay open: another cluster on the same screen, a console that is started again, answers that come late."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import methodcaller
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import APIResponse, Browser, Page, Route, expect
from tests.support.browser import Visit, build_page
from tests.support.console_dialogs import rows_of
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.serving import Place
from barnabas.console.state import ConsoleOptions, clock_ms
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState

TOPIC = "topic-00001"
#: More partitions than the stream of a topic's page sends.
WIDE, WIDE_PARTITIONS = "wide", 520
REFUSED = "Failed to load resource"


@pytest.fixture(scope="module")
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=12, partitions=4, journal=True) as found:
        found.change(lambda state: state.create_topic(WIDE, WIDE_PARTITIONS))
        yield found


@pytest.fixture(scope="module")
def other() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=3, partitions=1) as found:
        yield found


@pytest.fixture(scope="module")
def console(
    phantom: PhantomCluster, other: PhantomCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningConsole]:
    """Provides a console of two simulated clusters, which replaces the one of real brokers in this file."""
    build_page()
    options = ConsoleOptions(
        interval_s=0.1, timeout_s=1.0, budget_share=1.0, history=tmp_path_factory.mktemp("history") / "history.db"
    )
    with RunningConsole([target_of(phantom, "first"), target_of(other, "second")], options) as found:
        found.filled()
        found.until(lambda: bool(found.ask("overview", cluster="second").json["is_filled"]), "the second cluster")
        yield found


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Waits longer than usual: many of these tests wait for a poll and a stream on a busy machine."""
    expect.set_options(timeout=20_000)
    yield
    expect.set_options(timeout=5_000)


def _is_live(page: Page) -> None:
    expect(page.locator(".live")).to_have_attribute("data-live", "on")


def _write(phantom: PhantomCluster, topic: str = TOPIC) -> None:
    phantom.change(lambda state: state.produce(topic, 0, 7))


def test_another_cluster_is_shown_on_the_same_screen(visit: Visit) -> None:
    page = visit.open("/")
    facts = page.locator(".health .facts")
    expect(facts).to_contain_text("14 topics")
    # The history of the first cluster is on the page when the other one is chosen, and no answer replaces it.
    expect(page.get_by_role("slider")).to_be_visible()
    page.route(re.compile(r"/api/history\?.*cluster=second"), lambda route: None)
    page.get_by_label("Cluster").select_option("second")
    expect(facts).to_contain_text("3 topics, 3 partitions")
    _is_live(page)
    expect(page.get_by_role("contentinfo", name="Time")).to_contain_text("keeps no history")
    page.go_back()
    expect(facts).to_contain_text("14 topics")
    expect(page.get_by_role("slider")).to_be_visible()


def test_an_unknown_cluster_is_said_and_not_asked_for_again(visit: Visit) -> None:
    visit.allow(REFUSED)
    page = visit.open("/map?cluster=nowhere")
    expect(page.get_by_role("status")).to_have_text("this console has no cluster nowhere")
    page.get_by_role("link", name="The first cluster of this console").click()
    expect(page.locator(".health .facts")).to_contain_text("14 topics")


def test_a_partition_keeps_what_only_brokers_know_after_a_change(visit: Visit, phantom: PhantomCluster) -> None:
    page = visit.open(f"/partition?topic={TOPIC}&partition=0")
    replicas, producers = page.get_by_role("region", name="Replicas, scrollable"), page.get_by_label("Producers")
    expect(replicas).to_contain_text("/data")
    expect(producers).to_contain_text("does not support")
    _is_live(page)
    before = page.get_by_label("Summary").inner_text()
    _write(phantom)
    expect(page.get_by_label("Summary")).not_to_have_text(before, use_inner_text=True)
    expect(replicas.locator("tbody tr")).to_have_count(3)
    expect(replicas).to_contain_text("/data")
    expect(producers).to_contain_text("does not support")


def test_a_replica_that_moves_to_another_directory_has_both(visit: Visit, phantom: PhantomCluster) -> None:
    def move(state: PhantomState) -> None:
        state.directories = 2
        state.futures[TOPIC, 2, 1] = ("/data/1-1", 4_000)

    def end(state: PhantomState) -> None:
        state.futures.clear()
        state.directories = 1

    phantom.change(move)
    try:
        page = visit.open(f"/partition?topic={TOPIC}&partition=2")
        row = page.get_by_role("region", name="Replicas, scrollable").locator("tr", has_text="Broker 1")
        expect(row.locator("td").last.locator("div")).to_have_text(["/data/1", "/data/1-1 (moving here: 4.0 kB)"])
    finally:
        phantom.change(end)


def test_a_wide_topic_keeps_all_partitions_and_is_changed_as_a_whole(visit: Visit, phantom: PhantomCluster) -> None:
    page = visit.open(f"/topic?name={WIDE}&sort=partition&desc=1")
    rows, summary = rows_of(page, "Partitions"), page.get_by_label("Summary")
    expect(rows.first).to_contain_text(str(WIDE_PARTITIONS - 1))
    _is_live(page)
    expect(summary).to_contain_text("0 records")
    phantom.change(lambda state: state.produce(WIDE, WIDE_PARTITIONS - 1, 5))
    phantom.change(lambda state: state.produce(WIDE, 0, 5))
    expect(summary).to_contain_text("10 records")
    expect(rows.first).to_contain_text(str(WIDE_PARTITIONS - 1))
    actions = page.get_by_label("Actions")
    actions.select_option("partitions")
    expect(page.get_by_label("Partitions in total")).to_have_value(str(WIDE_PARTITIONS + 1))
    page.keyboard.press("Escape")
    actions.select_option("records")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("status")).to_contain_text(f"{WIDE}-{WIDE_PARTITIONS - 1} before the end")
    dialog.get_by_label("Of the partition").select_option("519")
    dialog.get_by_label("Before the offset").fill("3")
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("status").locator("li")).to_have_text(
        f"deletes the records of {WIDE}-519 before offset 3"
    )


def test_a_broker_is_live_and_keeps_what_it_was_asked_for(visit: Visit, phantom: PhantomCluster) -> None:
    page = visit.open("/broker?id=2&tab=directories")
    directories, summary = page.locator("ul.cards"), page.get_by_label("Summary")
    expect(directories).to_contain_text("/data")
    _is_live(page)
    before = phantom.requests[DescribeConfigsRequest.NAME]
    size = summary.locator("span").filter(has_text=re.compile(r"B$"))
    text = size.inner_text()
    phantom.change(lambda state: state.produce(TOPIC, 0, 90_000))
    expect(size).not_to_have_text(text)
    expect(directories).to_contain_text("/data")
    assert phantom.requests[DescribeConfigsRequest.NAME] - before <= 2, "a change of sizes is no question to the broker"


def test_a_changed_setting_is_shown_and_the_file_has_the_values(visit: Visit) -> None:
    page = visit.open(f"/topic?name={TOPIC}&tab=configs")
    row = rows_of(page, "Configuration").filter(has_text="retention.ms")
    expect(row).to_contain_text("604800000")
    row.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New value of retention.ms").fill("77000")
    dialog.get_by_role("button", name="Show what it does").click()
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(row).to_contain_text("77000")
    file = page.get_by_role("link", name="Configuration as JSON")
    assert "%22retention.ms%22%3A%20%2277000%22" in (file.get_attribute("href") or "")
    assert file.get_attribute("download") == f"topic-{TOPIC}.json"


def test_defaults_of_all_brokers_are_set_and_the_audit_has_it_at_once(visit: Visit) -> None:
    page = visit.open("/settings")
    defaults = page.get_by_role("region", name="Defaults of all brokers")
    defaults.get_by_role("button", name="Set a default").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Setting").fill("log.retention.ms")
    dialog.get_by_label("Value").fill("5000")
    dialog.get_by_role("button", name="Show what it does").click()
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(defaults).to_contain_text("log.retention.ms")
    expect(rows_of(page, "Entries of the audit").first).to_contain_text("configurations of cluster were changed")


def test_the_lanes_of_a_topic_follow_its_changes(visit: Visit, phantom: PhantomCluster) -> None:
    page = visit.open(f"/topic?name={TOPIC}&tab=history")
    _is_live(page)
    phantom.change(lambda state: state.shrink_isr(TOPIC, 3, 1))
    page.get_by_text("As a table").click()
    rows = page.get_by_role("region", name="Changes as a table").locator("tbody tr", has_text=f"{TOPIC}-3")
    expect(rows).to_have_count(2)
    phantom.change(lambda state: state.expand_isr(TOPIC, 3, 1))
    expect(rows).to_have_count(3)


def test_the_key_after_the_one_that_opens_the_palette_belongs_to_it(visit: Visit) -> None:
    """The second key is pressed before the browser draws a frame: "t" would change the theme of the page."""
    page = visit.open("/topics")
    _is_live(page)
    theme = page.locator("html").get_attribute("data-theme")
    focused = page.evaluate(
        """async () => {
          const press = (target, key, more) =>
            target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more }));
          press(document.body, 'k', { ctrlKey: true });
          for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
          press(document.activeElement, 't', {});
          return document.activeElement.getAttribute('role');
        }"""
    )
    assert focused == "combobox"
    expect(page.get_by_role("dialog", name="Go to")).to_be_visible()
    assert page.locator("html").get_attribute("data-theme") == theme


def test_keys_change_nothing_under_a_dialog_and_work_beside_the_lab(visit: Visit) -> None:
    page = visit.open("/topics?do=create")
    dialog = page.get_by_role("dialog", name="New topic")
    dialog.get_by_role("button", name="Cancel").focus()
    address = page.url
    for key in ("t", "l", "g", "m", "Control+k"):
        page.keyboard.press(key)
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.url == address
    assert page.get_by_role("dialog").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    expect(page.get_by_role("complementary", name="Lab")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("m")
    expect(page).to_have_title(re.compile("Map"))
    expect(page.get_by_role("complementary", name="Lab")).to_be_visible()
    page.keyboard.press("l")
    expect(page.get_by_role("complementary", name="Lab")).to_have_count(0)


def test_what_the_stream_sends_meanwhile_is_not_taken_back_by_a_slow_map(visit: Visit, phantom: PhantomCluster) -> None:
    page = visit.open("/map?fill=lag&as=table")
    out = page.locator("tr", has_text="Broker 1").locator("td").nth(3)
    expect(out).to_have_text("0")
    _is_live(page)
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/api/map?**", lambda route: held.append((route, route.fetch())))
    _until(page, lambda: len(held) == 1)
    phantom.change(lambda state: state.shrink_isr(TOPIC, 0, 1))
    try:
        expect(out).to_have_text("1")
        route, answer = held[0]
        route.fulfill(response=answer)
        # The next request shows that the answer to the first one has been taken.
        _until(page, lambda: len(held) == 2)
        expect(out).to_have_text("1")
    finally:
        phantom.change(lambda state: state.expand_isr(TOPIC, 0, 1))
        page.unroute_all(behavior="ignoreErrors")


def test_what_is_typed_stays_when_the_answer_comes(visit: Visit) -> None:
    page = visit.context.new_page()
    held: list[Route] = []
    page.route("**/api/messages?**", lambda route: held.append(route))
    page.goto(f"{visit.url}/messages?topic={TOPIC}")
    form = page.get_by_role("form", name="Search")
    form.get_by_label("contains").fill("half a wo")
    _until(page, lambda: len(held) == 1)
    held[0].continue_()
    page.unroute_all()
    expect(page.get_by_text("No record was found")).to_be_visible()
    expect(form.get_by_label("contains")).to_have_value("half a wo")
    form.get_by_label("read").select_option("time")
    for text, is_time in (("yesterday", False), ("", False), ("12:03", True)):
        form.get_by_label("at", exact=True).fill(text)
        form.get_by_role("button", name="Read").click()
        if is_time:
            expect(page).to_have_url(re.compile(r"value=\d{13}"))
            expect(form.get_by_label("at", exact=True)).to_have_value(re.compile(r"^\d{4}-\d\d-\d\d 12:03:00$"))
        else:
            expect(form.get_by_role("alert")).to_contain_text("time")
            assert "value=" not in page.url


def test_a_change_without_an_answer_is_not_said_to_be_asked_again(visit: Visit, phantom: PhantomCluster) -> None:
    visit.allow(REFUSED)
    page = visit.open("/topics?do=create")
    page.route("**/api/actions/**", lambda route: route.abort())
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").first.fill("one")
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Whether it has done that is not known")


def test_events_stay_in_the_list_while_new_ones_come(
    visit: Visit, console: RunningConsole, phantom: PhantomCluster
) -> None:
    phantom.change(lambda state: state.create_topic("busy", 7))
    page = visit.open("/timeline?topic=busy")

    def total() -> int:
        return int(console.get("timeline", topic="busy")["total"])

    def has_more_than(number: int) -> bool:
        return total() > number

    turn = 0
    while (before := total()) <= 230:
        # Fewer at once than are shown as one event.
        phantom.change(partial(_flap, partitions=range(7), is_out=turn % 2 == 0))
        turn += 1
        console.until(partial(has_more_than, before), "the console sees the change")
    events, found = page.locator("ol.events > li"), page.locator(".found")
    shown = total()
    expect(found).to_have_text(f"{shown} events")
    expect(events).to_have_count(200)
    page.get_by_role("button", name="Earlier events").click()
    expect(events).to_have_count(shown)
    phantom.change(partial(_flap, partitions=range(7), is_out=turn % 2 == 0))
    console.until(partial(has_more_than, shown), "the console sees the last change")
    expect(found).to_have_text(f"{total()} events")
    expect(events).to_have_count(total())


def _flap(state: PhantomState, partitions: Iterable[int], *, is_out: bool) -> None:
    for partition in partitions:
        (state.shrink_isr if is_out else state.expand_isr)("busy", partition, 2)


def test_events_are_filtered_by_their_cause(visit: Visit, phantom: PhantomCluster) -> None:
    phantom.change(lambda state: state.create_topic("caused", 2))
    phantom.change(lambda state: state.shrink_isr("caused", 0, 2))
    page = visit.open("/timeline?topic=caused")
    events, cause = page.locator("ol.events > li"), page.get_by_label("cause")
    expect(events).to_have_count(2)
    assert cause.locator("option").all_inner_texts() == ["any", "tested (2)"]
    cause.select_option("tested")
    expect(page).to_have_url(re.compile("cause=tested"))
    expect(events).to_have_count(2)
    page.goto(f"{visit.url}/timeline?topic=caused&cause=broker-gone")
    expect(page.get_by_role("region", name="Events")).to_contain_text("No event of this time matches the filter")
    assert cause.locator("option").all_inner_texts() == ["any", "tested (2)", "broker-gone"]


def test_the_minute_that_lasts_is_the_present(visit: Visit) -> None:
    page = visit.open(f"/timeline?at={clock_ms()}")
    picture = page.get_by_role("application")
    picture.focus()
    # Beyond the end of the hour there is nothing.
    for _ in range(70):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".live")).to_have_attribute("data-live", "on")
    assert "at=" not in page.url


def test_a_page_goes_on_with_a_console_that_was_started_again(
    browser: Browser, phantom: PhantomCluster, tmp_path: Path
) -> None:
    targets, options = [target_of(phantom)], ConsoleOptions(interval_s=0.1, history=tmp_path / "history.db")
    paths = {"/": ".health .facts", "/topics?q=fresh": ".found", "/groups": ".found"}
    with RunningConsole(targets, options) as first:
        first.filled()
        visit = Visit(browser, first.url)
        visit.allow(f"{REFUSED}|ERR_")
        pages = [visit.open(path) for path in paths]
        for page in pages:
            _is_live(page)
    try:
        for page in pages:
            expect(page.locator(".live")).to_have_attribute("data-live", "lost")
        # A change while the console is away is on no stream.
        phantom.change(lambda state: state.create_topic("fresh", 1))
        place = Place(port=urlsplit(visit.url).port or 0)
        with RunningConsole(targets, options, place=place) as second:
            second.filled()
            for page in pages:
                expect(page.locator(".live")).to_have_attribute("data-live", "on", timeout=20_000)
            expect(pages[1].locator(".found")).to_contain_text("1 of")
            pages[1].get_by_role("button", name="New topic").click()
            dialog = pages[1].get_by_role("dialog")
            dialog.get_by_label("Name").first.fill("one")
            dialog.get_by_role("button", name="Show what it does").click()
            expect(dialog.get_by_role("alert")).not_to_contain_text("session")
    finally:
        visit.close()


def test_a_recording_that_begins_after_the_page_is_on_it(browser: Browser, tmp_path: Path) -> None:
    with PhantomCluster(topics=2) as late:
        for broker in (1, 2, 3):
            late.silence(broker)
        options = ConsoleOptions(interval_s=0.1, timeout_s=1.0, history=tmp_path / "history.db")
        with RunningConsole([target_of(late)], options) as running:
            visit = Visit(browser, running.url)
            visit.allow(f"{REFUSED}.*503")
            try:
                page = visit.open("/settings")
                footer = page.get_by_role("contentinfo", name="Time")
                expect(page.get_by_role("region", name="This console")).to_contain_text("not recorded")
                expect(footer).to_have_text("The history begins with the first answer of a broker.")
                for broker in (1, 2, 3):
                    late.silence(broker, is_silent=False)
                expect(page.get_by_role("slider")).to_be_visible()
                expect(page.get_by_role("region", name="This console")).to_contain_text("since 20")
                visit.check()
            finally:
                visit.close()


def test_minutes_in_trouble_are_on_the_time_line_under_every_screen(
    visit: Visit, console: RunningConsole, phantom: PhantomCluster
) -> None:
    for broker in (1, 2):
        phantom.change(methodcaller("shrink_isr", "topic-00004", 1, broker))
    console.until(lambda: any(row[2] for row in console.get("history")["minutes"]), "a minute is in trouble")

    def later() -> list[list[int]]:
        return [row for row in console.get("history", **{"from": clock_ms() - 1})["minutes"] if row[2]]

    # A minute that has just begun is in trouble from the next poll on.
    console.until(lambda: 1 <= len(later()) <= 2, "from the minute of the time on")
    page = visit.open("/brokers")
    expect(page.get_by_role("slider")).to_have_attribute(
        "aria-label", re.compile(r"under min ISR or offline in \d+ min")
    )
    for broker in (1, 2):
        phantom.change(methodcaller("expand_isr", "topic-00004", 1, broker))


def test_policies_and_lags_are_sorted(visit: Visit, console: RunningConsole, phantom: PhantomCluster) -> None:
    assert (
        console.post(
            "actions/alter-configs", {"kind": "topic", "name": "topic-00007", "set": {"cleanup.policy": "compact"}}
        ).status
        == 200
    )
    page = visit.open("/topics?q=topic-0000")
    rows = rows_of(page, "Topics")
    expect(rows.first).to_contain_text("topic-00000")
    page.get_by_role("link", name="Policy").click()
    expect(rows.first).to_contain_text("topic-00007")
    expect(rows.first).to_contain_text("compact")
    page.get_by_role("link", name="Policy").click()
    expect(rows.last).to_contain_text("topic-00007")
    expect(page.get_by_role("columnheader", name="Policy")).to_have_attribute("aria-sort", "descending")


def _until(page: Page, condition: Callable[[], bool], within_s: float = 20.0) -> None:
    """Waits for a condition while the page's events are handled."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come"
        page.wait_for_timeout(20)
