"""Every reading screen in a real browser, against a real cluster of three brokers that are all well."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, expect
from tests.support.browser import PHONE, WIDE, Visit, axe_violations, axe_violations_in_both_themes
from tests.support.console_server import RunningConsole
from tests.support.shop import GROUP, HOSTILE, LONG, ORDERS, ORDERS_PARTITIONS, ORDERS_RECORDS

from barnabas.embedded.cluster import EmbeddedCluster

#: A part of the scrubber's request alone; the scrubber is on every screen.
SCRUBBERS = "limit=400"
#: Each screen, and a text that it shows only with its data.
SCREENS = {
    "/": "All partitions are in sync",
    "/map": "Broker 3",
    "/map?as=table": "Every partition is in sync",
    "/map?group=leader": "group by",
    "/map?group=state&as=table": "Group",
    "/topics": "events-00",
    f"/topic?name={ORDERS}": "replication factor",
    f"/topic?name={ORDERS}&tab=history": f"{ORDERS}-0",
    f"/topic?name={ORDERS}&tab=configs": "min.insync.replicas",
    f"/topic?name={LONG}": "replication factor",
    f"/partition?topic={ORDERS}&partition=0": "Why it is so",
    f"/messages?topic={ORDERS}": "Partition and offset",
    "/groups": "billing",
    "/brokers": "Quorum",
    "/broker?id=2": "This replica",
    "/timeline": "topic-created",
    "/whatif?ask=lose-broker&broker=2": "would change",
    "/moves": "No plan is open",
    "/compare": "Choose the first moment",
    "/settings": "This console",
}


@pytest.fixture(scope="module", autouse=True)
def content(cluster: EmbeddedCluster, console: RunningConsole) -> None:
    """Creates a topic that the console sees being created, and waits until it has read the groups."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("late", 2, 3)])["late"].result(20)
    console.until(lambda: "topic-created" in str(console.get("timeline")), "the console does not see the topic")
    console.until(lambda: console.get("groups")["total"] == 1, "the console does not see the group", within_s=60)


@pytest.fixture
def page(visit: Visit) -> Page:
    return visit.open("/")


def _goto(page: Page, visit: Visit, address: str) -> None:
    page.goto(visit.url + address)
    expect(page.locator("main")).to_contain_text(SCREENS[address])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("address", SCREENS)
def test_a_screen_shows_its_data_fits_a_phone_and_has_no_violation(
    browser: Browser, console: RunningConsole, address: str
) -> None:
    """A screen shows its data, has no violation of accessibility in light and dark, and needs no sideways scrolling."""
    visit = Visit(browser, console.url)
    try:
        page = visit.open(address)
        expect(page.locator("main")).to_contain_text(SCREENS[address])
        assert axe_violations(page) == []
        page.get_by_role("button", name="Dark theme").click()
        assert axe_violations(page) == []
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        expect(page.locator("main")).to_contain_text(SCREENS[address])
        assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE[0]
        visit.check()
    finally:
        visit.close()


def test_the_topic_page_shows_what_the_brokers_say(page: Page, visit: Visit, cluster: EmbeddedCluster) -> None:
    _goto(page, visit, f"/topic?name={ORDERS}")
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(ORDERS, timeout=10).topics[ORDERS]
    rows = page.get_by_role("region", name="Partitions").locator("tbody tr")
    expect(rows).to_have_count(ORDERS_PARTITIONS)
    for number, partition in metadata.partitions.items():
        cells = [text.strip() for text in rows.nth(number).locator("th, td").all_inner_texts()]
        assert cells[0] == str(number)
        assert cells[1] == "in sync"
        assert cells[2].endswith("kB"), "the log has some kilobytes"
        assert cells[3] == str(partition.leader)
        assert cells[4] == f"{partition.replicas[0]} ✓", "the preferred replica leads a new topic"
        assert cells[5].split() == [str(broker) for broker in partition.replicas]
        assert sorted(cells[6].split(", ")) == sorted(str(broker) for broker in partition.isrs)
        assert cells[7:9] == ["–", "–"], "no replica is out of sync, none is in the ELR"
        assert cells[9:11] == ["0", str(ORDERS_RECORDS // ORDERS_PARTITIONS)]
        assert cells[11] == "none"


def test_the_palette_opens_the_dialogs_of_actions(page: Page) -> None:
    expect(page.locator("main")).to_contain_text(SCREENS["/"])
    for name, title, address in (
        ("New topic", "New topic", "/topics?do=create"),
        ("Elect all", "Elect the preferred leaders of all partitions", "/brokers?do=elect"),
    ):
        page.keyboard.press("Control+k")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name=title)
        expect(dialog).to_be_visible()
        expect(page).to_have_url(re.compile(re.escape(address)))
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(page).not_to_have_url(re.compile("do="))


def test_the_link_matrix_has_both_directions_of_each_pair(page: Page, visit: Visit) -> None:
    _goto(page, visit, "/brokers")
    matrix = page.get_by_role("region", name="Link matrix")
    expect(matrix.locator("tbody tr")).to_have_count(3)
    expect(matrix.locator('td[data-link="ok"]')).to_have_count(6)
    expect(matrix.locator("tbody tr").first).to_contain_text("Broker 1")
    assert axe_violations(page) == []


def test_filters_sorting_and_screens_are_in_the_address_and_back_works(page: Page, visit: Visit) -> None:
    _goto(page, visit, "/topics")
    page.get_by_role("searchbox", name="Filter topics by name").fill("events-0*")
    rows = page.get_by_role("region", name="Topics").locator("tbody tr[data-index]")
    expect(rows).to_have_count(10)
    assert page.url.endswith("/topics?q=events-0*")
    page.get_by_role("region", name="Topics").get_by_role("link", name="Topic").click()
    expect(page).to_have_url(re.compile("sort=name&desc=1"))
    expect(rows.first).to_contain_text("events-09")
    rows.first.get_by_role("link").click()
    expect(page).to_have_title(re.compile("^events-09"))
    page.go_back()
    expect(rows.first).to_contain_text("events-09")
    page.go_back()
    expect(rows.first).to_contain_text("events-00")
    page.go_forward()
    expect(rows.first).to_contain_text("events-09")
    page.reload()
    expect(rows.first).to_contain_text("events-09")


def test_everything_is_reached_with_keys_alone(page: Page, visit: Visit) -> None:
    expect(page.locator("main")).to_contain_text(SCREENS["/"])
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert axe_violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Go to")
    expect(dialog).to_be_visible()
    page.keyboard.type("order")
    expect(dialog.get_by_role("option").first).to_contain_text(ORDERS)
    assert axe_violations(page) == []
    page.keyboard.press("Enter")
    expect(page).to_have_title(re.compile(f"^{ORDERS} · Topic"))
    page.get_by_role("region", name="Partitions").focus()
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_title(re.compile(f"^{ORDERS}-1 · Partition"))
    page.keyboard.press("g")
    page.keyboard.press("m")
    expect(page).to_have_title(re.compile("^Map"))
    picture = page.get_by_role("application")
    picture.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map-spoken")).to_contain_text("on broker 1: ")
    page.keyboard.press("Enter")
    expect(page).to_have_title(re.compile("· Partition"))


def test_the_map_has_groups_in_the_address_for_the_keys_and_in_the_table(page: Page, visit: Visit) -> None:
    page.goto(f"{visit.url}/map?zoom=1.50")
    page.get_by_label("group by").select_option("leader")
    expect(page).to_have_url(re.compile(r"/map\?zoom=1.50&group=leader$"))
    page.reload()
    picture, spoken = page.get_by_role("application"), page.locator("#map-spoken")
    picture.focus()
    cells: list[str] = []
    for key in ("ArrowDown", "PageDown", "PageDown"):
        page.keyboard.press(key)
        expect(spoken).to_contain_text(re.compile(rf"led by broker {len(cells) + 1}, \d+ partitions: .* on broker 1: "))
        cells.append(spoken.inner_text())
    page.keyboard.press("PageUp")
    expect(spoken).to_have_text(cells[1])
    page.get_by_role("button", name="As a table").click()
    groups = page.get_by_role("region", name="Groups, in the order of the map").locator("tbody tr[data-index]")
    expect(groups).to_have_count(3)
    rows = page.get_by_role("region", name="Partitions, in the order of the map")
    first = 0
    for number, cell in enumerate(cells):
        name, partitions = groups.nth(number).locator("th, td").all_inner_texts()[:2]
        assert cell.startswith(f"{name}, {partitions} partitions: ")
        # The first partition that broker 1 holds of the group; it holds all that have three replicas.
        rows.evaluate("(box, index) => { box.scrollTop = index * 34 }", first)
        place = rows.locator(f'tbody tr[data-index="{first}"] th')
        if "single" not in (place.inner_text() + cell):
            assert cell.split(": ")[1].startswith(f"{place.inner_text()} on broker 1")
        first += int(partitions)
    page.go_back()
    expect(page.get_by_role("application")).to_be_visible()
    page.get_by_label("group by").select_option("topic")
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    before = spoken.inner_text().split(",")[0]
    page.keyboard.press("PageDown")
    expect(spoken).not_to_contain_text(before)
    topic = spoken.inner_text().split(",")[0]
    assert f": {topic}-" in spoken.inner_text()
    page.keyboard.press("Enter")
    expect(page).to_have_title(re.compile(rf"^{re.escape(topic)}-\d+ · Partition"))


def test_the_list_of_topics_draws_only_the_rows_in_sight(page: Page, visit: Visit) -> None:
    page.set_viewport_size({"width": WIDE[0], "height": 500})
    page.goto(f"{visit.url}/topics?internal=1")
    region = page.get_by_role("region", name="Topics")
    expect(region).to_contain_text("events-00")
    total = int(region.locator("table").get_attribute("aria-rowcount") or 0) - 1
    assert total >= 43, "forty small topics and the others"
    assert region.locator("tbody tr[data-index]").count() < total
    region.evaluate("(box) => { box.scrollTop = box.scrollHeight }")
    expect(region.locator(f'tbody tr[data-index="{total - 1}"]')).to_contain_text("single")


def test_a_list_that_gets_more_rows_fills_a_larger_window(page: Page, visit: Visit) -> None:
    page.set_viewport_size({"width": WIDE[0], "height": 320})
    page.goto(f"{visit.url}/topics?q=nothing-here")
    expect(page.locator("main")).to_contain_text("No topic matches the filter")
    page.get_by_role("searchbox", name="Filter topics by name").fill("")
    rows = page.get_by_role("region", name="Topics").locator("tbody tr[data-index]")
    expect(rows.first).to_be_visible()
    assert rows.count() < 40
    page.set_viewport_size({"width": WIDE[0], "height": 1600})
    expect(page.get_by_role("region", name="Topics")).to_contain_text("single")


def test_topics_are_chosen_with_keys_and_the_choice_is_in_the_address(page: Page, visit: Visit) -> None:
    page.goto(f"{visit.url}/topics?q=events-0*")
    region, bar = page.get_by_role("region", name="Topics"), page.get_by_role("group", name="Chosen topics")
    rows = region.locator("tbody tr[data-index]")
    expect(rows).to_have_count(10)
    expect(rows.first).to_contain_text("delete 7 d")
    region.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press(" ")
    expect(rows.first.get_by_role("checkbox")).to_be_checked()
    expect(bar).to_contain_text("1 topic chosen")
    for key in ("ArrowDown", "ArrowDown", "Shift+ArrowDown", "Shift+ArrowDown"):
        page.keyboard.press(key)
    expect(bar).to_contain_text("4 topics chosen")
    expect(rows.nth(4).get_by_role("link")).to_be_focused()
    page.keyboard.press("x")
    assert page.url.endswith("q=events-0*&chosen=events-00%2Cevents-02%2Cevents-03")
    rows.nth(6).get_by_role("checkbox").click()
    rows.nth(8).get_by_role("checkbox").click(modifiers=["Shift"])
    expect(bar).to_contain_text("6 topics chosen")
    page.keyboard.press("ArrowDown")
    expect(rows.nth(9).get_by_role("checkbox")).to_be_focused()
    page.reload()
    expect(bar).to_contain_text("6 topics chosen")
    assert [row.get_by_role("checkbox").is_checked() for row in rows.all()] == [
        number in (0, 2, 3, 6, 7, 8) for number in range(10)
    ]
    head = page.get_by_label("Choose all topics that match")
    assert head.evaluate("(box) => box.indeterminate")
    assert axe_violations_in_both_themes(page) == []
    region.focus()
    page.keyboard.press("Control+a")
    expect(page).to_have_url(re.compile(r"chosen=\*$"))
    expect(head).to_be_checked()
    page.get_by_role("button", name="Choose none").click()
    expect(bar).to_have_count(0)
    expect(rows.first.get_by_role("checkbox")).not_to_be_checked()


def test_hostile_text_is_text(page: Page, visit: Visit) -> None:
    page.goto(f"{visit.url}/groups")
    page.get_by_role("link", name=GROUP).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="Offsets by partition").locator("tbody tr[data-index]")).to_have_count(
        ORDERS_PARTITIONS
    )
    page.goto(f"{visit.url}/messages?topic={ORDERS}&partition=0&from=start&limit=20")
    rows = page.get_by_role("region", name="Records").locator("tbody tr")
    expect(rows).to_have_count(20)
    each = ORDERS_RECORDS // ORDERS_PARTITIONS
    found = page.get_by_role("status").filter(has_text="read")
    expect(found).to_contain_text("20 records of 20 read")
    expect(found).to_contain_text(f"as were asked for, and {each - 20} offsets are left")
    page.get_by_role("button", name="Later records").click()
    expect(rows).to_have_count(40)
    expect(found).to_contain_text("40 records of 40 read")
    expect(found).to_contain_text(f"and {each - 40} offsets are left")
    expect(rows.first).to_contain_text(f"{HOSTILE} 0")
    rows.first.get_by_role("link").click()
    record = page.get_by_role("complementary", name="Record")
    expect(record.get_by_role("region", name="Value")).to_have_text(
        json.dumps({"number": 0, "text": HOSTILE}, indent=2)
    )
    expect(record.get_by_role("region", name=f"Header {HOSTILE}")).to_have_text(HOSTILE)
    assert axe_violations(page) == []
    assert page.locator("main img, aside img").count() == 0


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/map",
        "/topics",
        "/topics?q=events-0&sort=size&desc=1&state=ok",
        f"/topic?name={ORDERS}",
        f"/partition?topic={ORDERS}&partition=1",
        "/groups?q=bill",
        "/brokers",
        "/timeline?topic=late",
    ],
)
def test_a_screen_begins_with_one_request_which_the_page_names(visit: Visit, address: str) -> None:
    asked: list[str] = []
    page = visit.context.new_page()
    page.on("request", lambda request: asked.append(request.url.removeprefix(visit.url)))
    page.goto(visit.url + address)
    expect(page.locator(".live")).to_have_attribute("data-live", "on")
    named = page.locator("link[rel=preload]").get_attribute("href")
    assert named is not None
    route = named.partition("?")[0]
    before = asked[: next(place for place, each in enumerate(asked) if "/api/live" in each)]
    first = [each for each in before if each.partition("?")[0] == route and SCRUBBERS not in each]
    assert first == [named]
    assert not any("/api/session" in each for each in asked)


def test_what_does_not_exist_says_so(page: Page, visit: Visit) -> None:
    visit.allow("404")
    page.goto(f"{visit.url}/topic?name=nothing-here")
    expect(page.get_by_role("alert")).to_contain_text("It is not there")
    page.goto(f"{visit.url}/no/such/page")
    expect(page.locator("main")).to_contain_text("no such page")
    page.goto(f"{visit.url}/topics?q=nothing-here")
    expect(page.locator("main")).to_contain_text("No topic matches the filter")


def test_a_hidden_tab_has_no_stream_and_resumes(page: Page, visit: Visit) -> None:
    opened: list[str] = []
    page.on("request", lambda request: opened.append(request.url) if "/api/live" in request.url else None)
    _goto(page, visit, f"/topic?name={ORDERS}")
    live = page.locator(".live")
    expect(live).to_have_attribute("data-live", "on")
    page.evaluate(
        """() => { Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true});
        document.dispatchEvent(new Event('visibilitychange')); }"""
    )
    expect(live).to_have_attribute("data-live", "off")
    page.evaluate(
        """() => { Object.defineProperty(document, 'visibilityState', {value: 'visible', configurable: true});
        document.dispatchEvent(new Event('visibilitychange')); }"""
    )
    expect(live).to_have_attribute("data-live", "on")
    assert "after=" in opened[-1], "the stream resumes where it was"
