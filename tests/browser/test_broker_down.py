"""Brokers that die while screens are open: the main case of the console, in a real browser against real processes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.support.browser import Visit, axe_violations, seconds_until
from tests.support.console_server import RunningConsole
from tests.support.shop import ORDERS

from barnabas.embedded.cluster import EmbeddedCluster

#: The time for a change to be on every screen. A second is usual; the tests share their machine with other processes.
SHOWN_WITHIN_S = 8.0
SHOWN_WITHIN_MS = SHOWN_WITHIN_S * 1000
BACK_WITHIN_MS = 60_000.0
#: A browser opens six connections to a host, and each tab that is seen keeps one for its stream.
TABS_PER_CONTEXT = 4
#: The victim of a kill that is not a certain broker.
CONTROLLER = "controller"


@pytest.fixture
def well(cluster: EmbeddedCluster, console: RunningConsole) -> Iterator[None]:
    """Starts after the test the brokers that it stopped, and waits until all is in sync again."""
    yield
    down = [node.node_id for node in cluster.nodes if not node.running]
    if down:
        cluster.start_again(*down)
    console.until(lambda: _is_well(console), "the cluster does not recover", within_s=60)


def _is_well(console: RunningConsole) -> bool:
    found = console.ask("overview").json
    return not found["problem"] and not found["silent"] and found["data"]["severity"] == "ok"


def _leaderless_count(console: RunningConsole, broker: int) -> int:
    return sum(each["leader"] == broker for each in console.get("topic", name=ORDERS)["partitions"])


@pytest.mark.full
@pytest.mark.usefixtures("well")
def test_a_killed_broker_is_seen_on_every_open_screen(
    visit: Visit, cluster: EmbeddedCluster, console: RunningConsole, record_property: Callable[[str, object], None]
) -> None:
    victim = 2
    led = next(each for each in console.get("topic", name=ORDERS)["partitions"] if each["leader"] == victim)
    addresses = {
        "map": "/map",
        "overview": "/",
        "topic": f"/topic?name={ORDERS}",
        "partition": f"/partition?topic={ORDERS}&partition={led['partition']}",
        "brokers": "/brokers",
    }
    pages = {name: visit.open(address) for name, address in addresses.items()}
    for page in pages.values():
        expect(page.locator(".live")).to_have_attribute("data-live", "on")
    row = pages["topic"].get_by_role("region", name="Partitions").locator(f'tbody tr[data-index="{led["partition"]}"]')
    shown: dict[str, Callable[[], None]] = {
        "map": lambda: expect(pages["map"].locator('.map-head[data-up="false"]')).to_contain_text(
            f"Broker {victim}", timeout=SHOWN_WITHIN_MS
        ),
        "overview": lambda: expect(
            pages["overview"].get_by_role("region", name="Worst partitions").locator("li").first
        ).to_be_visible(timeout=SHOWN_WITHIN_MS),
        "topic": lambda: expect(row.locator('[data-replica="leader"]')).not_to_have_text(
            str(victim), timeout=SHOWN_WITHIN_MS
        ),
        "partition": lambda: expect(pages["partition"].get_by_role("region", name="Summary")).to_contain_text(
            f"OSR {victim}", timeout=SHOWN_WITHIN_MS
        ),
        "brokers": lambda: expect(pages["brokers"].get_by_role("region", name="Brokers").first).to_contain_text(
            "silent", timeout=SHOWN_WITHIN_MS
        ),
    }
    cluster.kill(victim)
    took = {name: round(seconds_until(condition), 2) for name, condition in shown.items()}
    record_property("seconds from the end of the process to each screen, one after the other", took)
    assert sum(took.values()) < SHOWN_WITHIN_S, took
    for name, page in pages.items():
        expect(page.get_by_role("status").filter(has_text=f"Broker {victim} has not answered")).to_be_visible()
        assert axe_violations(page) == [], name
    expect(pages["partition"].get_by_role("region", name="Explanation")).to_contain_text(
        f"broker {victim}", timeout=SHOWN_WITHIN_MS
    )

    cluster.start_again(victim)
    expect(pages["map"].locator('.map-head[data-up="false"]')).to_have_count(0, timeout=BACK_WITHIN_MS)
    expect(pages["map"].locator('.map-legend li[data-look="out of sync"]')).to_have_attribute(
        "data-count", "0", timeout=BACK_WITHIN_MS
    )
    expect(row).to_contain_text("in sync", timeout=BACK_WITHIN_MS)
    for page in pages.values():
        expect(page.get_by_role("status").filter(has_text="has not answered")).to_have_count(0)


@pytest.mark.full
@pytest.mark.usefixtures("well")
def test_a_screen_opened_while_a_broker_is_down_is_complete(
    visit: Visit, cluster: EmbeddedCluster, console: RunningConsole
) -> None:
    cluster.kill(1)
    console.until(lambda: bool(console.ask("overview").json["silent"]), "the console does not notice")
    for address, text in {
        "/": "refuse writes|at min ISR|under-replicated|under min ISR",
        "/topics?state=warning&q=orders": "1 of ",
        f"/topic?name={ORDERS}": "at min ISR",
        "/broker?id=1": "silent",
        "/broker?id=2": "answers",
        "/groups": "Group",
        "/timeline": "broker-(gone|silent)",
    }.items():
        page = visit.open(address)
        expect(page.locator("main")).to_contain_text(re.compile(text), timeout=SHOWN_WITHIN_MS)
        expect(page.get_by_role("status").filter(has_text="Broker 1 has not answered")).to_be_visible()
        page.close()


@pytest.mark.usefixtures("well")
def test_every_screen_shows_a_moment_of_the_past(
    visit: Visit, cluster: EmbeddedCluster, console: RunningConsole
) -> None:
    page = visit.open("/map")
    whole = page.locator('.map-legend li[data-look="broker silent"][data-count="0"]')
    expect(whole).to_be_visible()
    time.sleep(1.0)
    before_ms = console.ask("overview").json["now_ms"]
    cluster.kill(3)
    expect(page.locator('.map-head[data-up="false"]')).to_contain_text("Broker 3", timeout=SHOWN_WITHIN_MS)
    console.until(lambda: "at min ISR" in str(console.get("topic", name=ORDERS)), "the ISR does not shrink")
    time.sleep(1.0)
    broken_ms = console.ask("overview").json["now_ms"]
    cluster.start_again(3)
    console.until(lambda: _is_well(console), "the cluster does not recover", within_s=60)

    page.goto(f"{visit.url}/map?at={broken_ms}")
    expect(page.locator('.map-legend li[data-look="broker silent"]')).not_to_have_attribute("data-count", "0")
    expect(page.get_by_role("status").filter(has_text="Actions are off")).to_be_visible()
    expect(page.locator(".live")).to_have_attribute("data-live", "past")
    page.goto(f"{visit.url}/map?at={before_ms}")
    expect(whole).to_be_visible()
    page.goto(f"{visit.url}/topic?name={ORDERS}&at={broken_ms}")
    rows = page.get_by_role("region", name="Partitions").locator("tbody tr")
    expect(rows.first).to_contain_text("at min ISR")
    expect(page.get_by_label("Actions")).to_have_count(0)
    assert axe_violations(page) == []
    page.get_by_role("link", name="Topics").click()
    expect(page).to_have_url(re.compile(f"at={broken_ms}"))
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page).not_to_have_url(re.compile(f"at={broken_ms}"))
    page.keyboard.press("n")
    expect(page).not_to_have_url(re.compile("at="))
    expect(page.locator(".live")).to_have_attribute("data-live", "on")
    box = slider.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.97, box["y"] + 20, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"at=\d+"))
    page.go_back()
    expect(page).not_to_have_url(re.compile("at="))


@pytest.mark.full
@pytest.mark.usefixtures("well")
def test_the_lab_stops_pauses_and_starts_a_broker(visit: Visit) -> None:
    page = visit.open("/map")
    page.get_by_role("button", name="Lab").click()
    lab = page.get_by_role("complementary", name="Lab")
    broker = lab.locator("li").filter(has_text="Broker 3")
    broker.get_by_role("button", name="Pause broker 3").click()
    expect(broker.locator(".lab-state")).to_have_text("paused")
    down = page.locator('.map-head[data-up="false"]')
    expect(down).to_contain_text("Broker 3", timeout=15_000)
    assert axe_violations(page) == []
    broker.get_by_role("button", name="Resume broker 3").click()
    expect(down).to_have_count(0, timeout=BACK_WITHIN_MS)
    broker.get_by_role("button", name="Kill -9 broker 3").click()
    expect(broker.locator(".lab-state")).to_have_text("stopped")
    expect(down).to_contain_text("Broker 3", timeout=SHOWN_WITHIN_MS)
    broker.get_by_role("button", name="Start broker 3").click()
    expect(broker.locator(".lab-state")).to_have_text("running", timeout=BACK_WITHIN_MS)
    expect(down).to_have_count(0, timeout=BACK_WITHIN_MS)


def _screens(console: RunningConsole, victim: int) -> dict[str, str]:
    """Returns the address of each screen. The partition is one that the victim leads."""
    led = next(
        each["partition"] for each in console.get("topic", name=ORDERS)["partitions"] if each["leader"] == victim
    )
    other = victim % 3 + 1
    return {
        "overview": "/",
        "map": "/map",
        "topics": f"/topics?q={ORDERS}",
        "topic": f"/topic?name={ORDERS}",
        "partition": f"/partition?topic={ORDERS}&partition={led}",
        "messages": f"/messages?topic={ORDERS}&partition={led}&from=start&limit=5",
        "groups": "/groups",
        "brokers": "/brokers",
        "timeline": f"/timeline?from={console.ask('overview').json['now_ms']}",
        "whatif": f"/whatif?ask=restart&broker={other}",
        "moves": "/moves",
        "settings": "/settings",
    }


@contextmanager
def _opened(
    browser: Browser, console: RunningConsole, addresses: Mapping[str, str], *, allowed: str = "^$"
) -> Iterator[dict[str, Page]]:
    """Opens all of them at the same time, and waits until each is live."""
    with ExitStack() as stack:
        pages: dict[str, Page] = {}
        visits: list[Visit] = []
        for number, (name, address) in enumerate(addresses.items()):
            if number % TABS_PER_CONTEXT == 0:
                visits.append(stack.enter_context(closing(Visit(browser, console.url))))
                visits[-1].allow(allowed)
            pages[name] = visits[-1].open(address)
        for name, page in pages.items():
            expect(page.locator(".live"), name).to_have_attribute("data-live", "on")
            _is_complete(name, page)
        yield pages
        for visit in visits:
            visit.check()


def _is_complete(name: str, page: Page) -> None:
    """Expects that a screen shows its data, and neither an error nor that it waits."""
    kept = {
        "overview": ".ladder",
        "map": ".map-canvas[data-drawn]",
        "topics": f'section [title="{ORDERS}"], [role=region] [title="{ORDERS}"]',
        "partition": ".explanation",
        "timeline": "[aria-label=Events], .empty",
        "whatif": "[aria-label=Verdict]",
        "moves": "[aria-label=Running]",
        "settings": '[aria-label="This console"]',
    }.get(name, "[role=region] tbody tr")
    expect(page.locator("main").locator(kept).first, name).to_be_visible(timeout=SHOWN_WITHIN_MS)
    expect(page.locator("main").get_by_role("alert"), name).to_have_count(0)
    expect(page.locator("main .waiting"), name).to_have_count(0)


def _expect_the_death(pages: Mapping[str, Page], victim: int) -> None:
    """Expects what each screen shows of a broker that died."""

    def contains(name: str, selector: str, text: str) -> None:
        expect(pages[name].locator(selector).first, name).to_contain_text(re.compile(text), timeout=SHOWN_WITHIN_MS)

    for name, page in pages.items():
        said = page.get_by_role("status").filter(has_text=re.compile(rf"Broker {victim} has not answered for \d"))
        expect(said, name).to_be_visible(timeout=SHOWN_WITHIN_MS)
    contains("overview", '[aria-label="Worst partitions"] li', "offline|ISR")
    contains("map", '.map-head[data-up="false"]', f"Broker {victim}")
    contains("topics", "tbody tr[data-index]", "at min ISR")
    contains("topic", '[aria-label="Partitions"] tbody tr', "at min ISR")
    contains("partition", '[aria-label="Summary"]', f"OSR {victim}")
    contains("brokers", '[aria-label="Brokers"]', "silent")
    contains("timeline", "main", f"[Bb]roker {victim}")


@pytest.mark.usefixtures("well")
@pytest.mark.parametrize(
    "killed", [CONTROLLER, *(pytest.param(each, marks=pytest.mark.full) for each in (1, 2, 3))], ids=str
)
def test_every_screen_shows_the_death_of_a_broker(
    browser: Browser, cluster: EmbeddedCluster, console: RunningConsole, killed: int | str
) -> None:
    controller = int(console.get("overview")["controller"])
    victim = controller if killed == CONTROLLER else int(killed)
    with _opened(browser, console, _screens(console, victim)) as pages:
        verdict = pages["whatif"].get_by_role("region", name="Verdict")
        before = verdict.inner_text()
        cluster.kill(victim)
        _expect_the_death(pages, victim)
        expect(verdict).not_to_have_text(before, use_inner_text=True, timeout=SHOWN_WITHIN_MS)
        if victim == controller:
            chip = pages["map"].locator(".map-head").filter(has_text="controller")
            expect(chip).not_to_contain_text(f"Broker {victim}", timeout=SHOWN_WITHIN_MS)
            console.until(lambda: console.get("overview")["controller"] not in (victim, -1), "no new controller")
        for name, page in pages.items():
            _is_complete(name, page)
            if name in ("groups", "messages", "timeline", "whatif", "moves", "settings"):
                assert axe_violations(page) == [], name
        cluster.start_again(victim)
        for name, page in pages.items():
            said = page.get_by_role("status").filter(has_text="has not answered")
            expect(said, name).to_have_count(0, timeout=BACK_WITHIN_MS)
        expect(pages["overview"].locator(".health")).to_contain_text("in sync", timeout=BACK_WITHIN_MS)


@pytest.mark.full
@pytest.mark.usefixtures("well")
def test_all_brokers_gone_and_back(browser: Browser, cluster: EmbeddedCluster, console: RunningConsole) -> None:
    leader = int(console.get("topic", name=ORDERS)["partitions"][0]["leader"])
    # The moves are asked for again and again, and nobody answers.
    with _opened(browser, console, _screens(console, leader), allowed="503.*/api/moves") as pages:
        cluster.kill()
        for name, page in pages.items():
            # A screen whose own request failed meanwhile says so in addition.
            said = page.locator(".warning.critical").filter(has_text="No broker answers")
            expect(said, name).to_be_visible(timeout=SHOWN_WITHIN_MS)
            expect(said, name).to_contain_text("old.")
        with pages["moves"].expect_response(lambda answer: "/api/moves" in answer.url and not answer.ok):
            pass  # The screen keeps its data after a request that nobody answered.
        for name, page in pages.items():
            _is_complete(name, page)
        cluster.start()
        for name, page in pages.items():
            for text in ("No broker answers", "has not answered"):
                said = page.get_by_role("status").filter(has_text=text)
                expect(said, name).to_have_count(0, timeout=BACK_WITHIN_MS)
        expect(pages["overview"].locator(".health")).to_contain_text(
            "All partitions are in sync", timeout=BACK_WITHIN_MS
        )
