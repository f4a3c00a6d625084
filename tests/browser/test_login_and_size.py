"""The log-in and the roles of the page, and a cluster of 40,000 partitions, on brokers that are only their answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.support.browser import Visit, axe_violations
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.security.passwords import hashed
from barnabas.console.security.rights import Role
from barnabas.console.security.users import User, UsersFile
from barnabas.console.state import ConsoleOptions
from barnabas.testing.phantom import PhantomCluster

TOPICS = 10_000


@pytest.fixture(scope="module")
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=TOPICS, partitions=4) as found:
        yield found


@pytest.fixture(scope="module")
def console(phantom: PhantomCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """Provides a console with two users, which replaces the one of real brokers in this file."""
    path = tmp_path_factory.mktemp("users") / "users.json"
    users = UsersFile(path)
    users.put(User("ann", Role.OPERATOR, hashed("correct horse")))
    users.put(User("vic", Role.VIEWER, hashed("battery staple")))
    with RunningConsole([target_of(phantom)], ConsoleOptions(users=path)) as found:
        found.session()
        answer = found.post("login", {"user": "ann", "password": "correct horse"})
        assert answer.status == 200
        found.until(
            lambda: bool(found.ask("overview").json["is_filled"]), "the first poll is not complete", within_s=60
        )
        yield found


def _log_in(visit: Visit, path: str, user: str, password: str) -> None:
    page = visit.open(path)
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_user_logs_in_to_the_screen_of_the_address_and_out(visit: Visit) -> None:
    visit.allow("401")
    page = visit.open("/topics?q=topic-0000*")
    assert axe_violations(page) == []
    page.get_by_label("User").fill("ann")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("button", name="Log in")).to_be_enabled()
    page.get_by_label("Password").fill("correct horse")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Topics").locator("tbody tr[data-index]").first).to_be_visible()
    expect(page).to_have_url(re.compile("q=topic-0000"))
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()


def test_a_viewer_sees_no_action(browser: Browser, console: RunningConsole) -> None:
    for user, password, is_offered in (("vic", "battery staple", False), ("ann", "correct horse", True)):
        visit = Visit(browser, console.url)
        visit.allow("401")
        _log_in(visit, "/topics", user, password)
        page = visit.context.pages[0]
        expect(page.get_by_role("region", name="Topics")).to_be_visible()
        expect(page.get_by_role("button", name="New topic")).to_have_count(int(is_offered))
        expect(page.get_by_role("button", name="Lab")).to_have_count(0)
        expect(page.get_by_label("Choose all topics that match")).to_have_count(int(is_offered))
        page.goto(f"{console.url}topics?chosen=topic-00001&do=delete")
        expect(page.get_by_role("region", name="Topics")).to_be_visible()
        expect(page.get_by_role("button", name="Change a setting")).to_have_count(int(is_offered))
        expect(page.get_by_role("button", name="Delete")).to_have_count(0)
        expect(page.get_by_role("dialog")).to_have_count(0)
        visit.check()
        visit.close()


def test_ten_thousand_topics(visit: Visit, phantom: PhantomCluster) -> None:
    visit.allow("401")
    _log_in(visit, "/topics", "ann", "correct horse")
    page = visit.context.pages[0]
    region = page.get_by_role("region", name="Topics")
    expect(region.locator("table")).to_have_attribute("aria-rowcount", str(TOPICS + 1))
    region.evaluate("(box) => { box.scrollTop = box.scrollHeight / 2 }")
    middle = region.locator(f'tbody tr[data-index="{TOPICS // 2}"]')
    expect(middle).not_to_contain_text("…")
    expect(middle).to_contain_text("in sync")
    assert region.locator("tbody tr[data-index]").count() < 100
    page.get_by_label("Choose all topics that match").check()
    expect(page.get_by_role("group", name="Chosen topics")).to_contain_text("10,000 topics chosen")
    expect(middle.get_by_role("checkbox")).to_be_checked()
    middle.get_by_role("checkbox").uncheck()
    expect(page).to_have_url(re.compile(rf"chosen=\*&without=topic-0{TOPICS // 2}$"))
    page.get_by_role("button", name="Add partitions").click()
    dialog = page.get_by_role("dialog", name="Add partitions to")
    expect(dialog).to_contain_text("At most 1,000 topics are changed at once")
    assert axe_violations(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("searchbox").fill("topic-0000*")
    expect(page).not_to_have_url(re.compile("chosen"))
    page.get_by_role("link", name="Map").click()
    legend = page.locator(".map-legend")
    expect(legend.locator('[data-look="leader"]')).to_have_attribute("data-count", str(4 * TOPICS))
    expect(legend.locator('[data-look="in sync"]')).to_have_attribute("data-count", str(8 * TOPICS))
    picture = page.get_by_role("application")
    picture.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#map-spoken")).to_contain_text("on broker 1")
