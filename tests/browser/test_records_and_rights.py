"""Records that are masked, followed live, written and copied in the browser; and ACLs, passwords and quotas, in a
cluster with an authorizer.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Locator, Page, expect
from tests.support.browser import Visit, axe_violations, build_page
from tests.support.console_server import RunningConsole, embedded_target

from barnabas.console.messages.masks import HIDDEN, Mask
from barnabas.console.state import ConsoleOptions
from barnabas.testing import Cluster

# Each file needs a cluster, a console and a browser, so `make test` runs the screens and not the actions.
pytestmark = pytest.mark.full

MASKS = (Mask(("cards",), ("value.number",)),)


@pytest.fixture(scope="module")
def secure_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("secure"), secure=True) as running:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": running.bootstrap,
            **running.client_settings,
        }
        topics = [NewTopic("cards", 1, 1), NewTopic("notes", 2, 1), NewTopic("copies", 2, 1), NewTopic("wide", 1, 1)]
        admin = AdminClient(settings)
        for made in admin.create_topics(topics).values():
            made.result(20)
        producer = Producer(settings)
        producer.produce("cards", json.dumps({"number": "4111", "n": 1}).encode(), key="ann")
        producer.produce("wide", b"v", headers=[(f"h{number}", b"x") for number in range(1_003)])
        assert producer.flush(20) == 0
        yield running


@pytest.fixture(scope="module")
def console(secure_cluster: Cluster) -> Iterator[RunningConsole]:
    """Provides a console with masks, which replaces the one of the other files."""
    build_page()
    with RunningConsole([embedded_target(secure_cluster.directory)], ConsoleOptions(masks=MASKS)) as found:
        found.filled()
        found.until(lambda: found.get("topics", internal=0)["total"] >= 4, "the topics are there")
        yield found


def field_of(dialog: Locator, label: str) -> Locator:
    return dialog.locator("label").filter(has_text=re.compile(rf"^{label}")).locator("input, select, textarea").first


def confirm(page: Page, title: str, verb: str, fields: dict[str, str]) -> None:
    """Fills a dialog, looks at what it will do, and does it."""
    dialog = page.get_by_role("dialog", name=title)
    for label, value in fields.items():
        field = field_of(dialog, label)
        if field.evaluate("(each) => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("status")).to_contain_text("What it will do")
    assert axe_violations(page) == []
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(dialog).to_have_count(0)


def test_a_masked_field_is_not_in_the_page(visit: Visit) -> None:
    page = visit.open("/messages?topic=cards&from=start")
    records = page.get_by_role("region", name="Records")
    expect(records).to_contain_text(f'"number":"{HIDDEN}"')
    expect(records).to_contain_text("masked")
    records.get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Value")).to_contain_text(HIDDEN)
    assert axe_violations(page) == []
    assert "4111" not in page.content()
    page.keyboard.press("Escape")
    for name in ("JSONL", "CSV"):
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        content = download.value.path().read_text()
        assert HIDDEN in content
        assert "4111" not in content


def test_headers_that_are_not_shown_are_counted(visit: Visit) -> None:
    page = visit.open("/messages?topic=wide&from=start")
    records = page.get_by_role("region", name="Records")
    expect(records).to_contain_text("1,003 headers")
    records.get_by_role("link").first.click()
    expect(page.get_by_text("3 headers more, which the console does not show.")).to_be_visible()
    expect(page.get_by_role("region", name="Header h999")).to_have_count(1)
    expect(page.get_by_role("region", name="Header h1000")).to_have_count(0)


def test_a_tail_shows_what_is_written_in_the_same_page(visit: Visit) -> None:
    page = visit.open("/messages?topic=notes")
    page.get_by_role("link", name="Live tail").click()
    expect(page).to_have_url(re.compile("live=1"))
    expect(page.locator(".tail-state")).to_have_text("live")
    page.get_by_role("button", name="Write a record").click()
    fields = {"Partition": "1", "Key": "k", "The value is": "json", "Value": '{"hello": "<b>you</b>"}'}
    confirm(page, "Write a record to notes", "Write", fields | {"Headers": "trace: 7\nempty"})
    rows = page.get_by_role("region", name="Records").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text('{"hello": "<b>you</b>"}')
    expect(rows.first).to_contain_text("2 headers")
    expect(page.locator(".facts")).to_contain_text("0 dropped")
    boxes = [each.bounding_box() or {"x": 0.0, "width": 0.0} for each in page.locator(".facts > span").all()]
    gaps = [after["x"] - before["x"] - before["width"] for before, after in itertools.pairwise(boxes)]
    assert min(gaps) > 4, "the facts are apart"
    assert axe_violations(page) == []
    rows.first.get_by_role("link").click()
    page.get_by_role("button", name="Write again").click()
    confirm(page, "Write this record again", "Write", {"Into the topic": "copies"})
    page.goto(f"{visit.url}/messages?topic=copies&from=start")
    expect(page.get_by_role("region", name="Records").locator("tbody tr")).to_have_count(1)
    page.goto(f"{visit.url}/messages?topic=notes&from=start&q=hello")
    page.get_by_role("button", name="Copy").click()
    confirm(page, "Copy records of notes", "Copy", {"Into the topic": "copies"})
    page.goto(f"{visit.url}/messages?topic=copies&from=start")
    expect(page.get_by_role("region", name="Records").locator("tbody tr")).to_have_count(2)


def test_rules_passwords_and_quotas_are_listed_and_changed(visit: Visit, console: RunningConsole) -> None:
    page = visit.open("/settings")
    acls = page.get_by_role("region", name="ACLs", exact=True)
    expect(acls).to_contain_text("There is no rule")
    page.get_by_role("button", name="Add a rule").click()
    confirm(page, "Add a rule", "Set", {"Principal": "User:ann", "Name(?!s)": "notes"})
    expect(acls).to_contain_text("User:ann")
    assert axe_violations(page) == []
    page.get_by_role("button", name="Remove allow User:ann read topic notes").click()
    confirm(page, "Remove allow User:ann read topic notes", "Remove", {})
    expect(acls).to_contain_text("There is no rule")
    page.get_by_role("button", name="Set a password").click()
    confirm(page, "Set a password", "Set", {"User": "bob", "Password": "correct horse battery"})
    expect(page.get_by_role("region", name="SCRAM users", exact=True)).to_contain_text("bob")
    page.get_by_role("button", name="Set a quota").click()
    confirm(page, "Set a quota", "Set", {"Name": "bob", "Value": "1000000"})
    expect(page.get_by_role("region", name="Quotas", exact=True)).to_contain_text("producer_byte_rate 1000000")
    for name, text in (
        ("SCRAM users as CSV", "bob,SCRAM-SHA-512,"),
        ("SCRAM users as JSON", '"user": "bob"'),
        ("Quotas as CSV", "bob,,,1000000.0,"),
        ("ACLs as JSON", '"rows": []'),
    ):
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        content = download.value.path().read_text()
        assert text in content, content
        assert "correct horse" not in content
    page.reload()
    audit = page.get_by_role("region", name="Entries of the audit")
    expect(audit).to_contain_text("set-scram-user")
    expect(audit).to_contain_text("export-scram-users")
    assert "correct horse" not in page.content()
