"""Incidents on the page: acknowledged, copied as text, compared with a moment before, saved, and opened elsewhere."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.support.browser import Visit, axe_violations
from tests.support.console_dialogs import go_through, rows_of
from tests.support.console_server import RunningConsole
from tests.support.shop import ORDERS

from barnabas.cli.console import incident_target
from barnabas.console.state import ConsoleOptions
from barnabas.embedded.cluster import EmbeddedCluster

pytestmark = pytest.mark.full
SHOWN_MS = 10_000.0


def test_a_kill_is_acknowledged_compared_saved_and_opened_elsewhere(
    visit: Visit, browser: Browser, cluster: EmbeddedCluster, console: RunningConsole, tmp_path: Path
) -> None:
    time.sleep(1.2)
    whole_ms = int(console.ask("overview").json["now_ms"])
    cluster.kill(3)
    page = visit.open("/")
    worst = page.get_by_role("region", name="Worst partitions").locator("li")
    expect(worst.first).to_be_visible(timeout=SHOWN_MS)
    console.until(lambda: "at min ISR" in str(console.get("topic", name=ORDERS)), "the ISR does not shrink")

    first = console.get("overview")["worst"][0]
    name = f"{first['topic']}-{first['partition']}"
    row = worst.filter(has_text=name).first
    row.get_by_role("button", name=f"Acknowledge {name}").click()
    go_through(page, f"Acknowledge {name}", "Acknowledge", Note="the disk of 3 is replaced")
    expect(row).to_contain_text("seen by local")
    expect(row).to_contain_text("the disk of 3 is replaced")
    expect(page.locator(".health")).to_contain_text("1 acknowledged")
    assert axe_violations(page) == []
    row.get_by_role("button", name=f"Withdraw the acknowledgement of {name}").click()
    go_through(page, f"Withdraw the acknowledgement of {name}", "Withdraw")
    expect(row).not_to_contain_text("seen by local")
    page.get_by_role("button", name="Acknowledge all").click()
    go_through(page, "Acknowledge all that is unwell", "Acknowledge")
    unwell = sum(each["partitions"] for each in console.get("overview")["counts"] if each["severity"] != "ok")
    expect(page.locator(".health")).to_contain_text(f"{unwell} acknowledged")

    page.get_by_role("button", name="Copy as text").click()
    text = page.get_by_label("The overview as text").last.input_value()
    assert re.search(r"- .*: (at min ISR|offline).*, leader .*, ISR .* of .*; .*acknowledged by local", text), text
    assert "Broker 3 does not answer" in text
    assert axe_violations(page) == []
    page.keyboard.press("Escape")

    page.goto(f"{visit.url}/compare?from={whole_ms}")
    expect(page.get_by_role("region", name="Brokers and topics")).to_contain_text("broker 3: answers →")
    expect(rows_of(page, "Partitions that differ").first).to_contain_text("in sync")
    expect(page.get_by_role("region", name="Summary")).to_contain_text("partitions differ")
    assert axe_violations(page) == []

    page.goto(f"{visit.url}/timeline")
    page.get_by_role("button", name="Save incident").click()
    page.get_by_label("Note").fill("<b>disk</b> of 3")
    assert axe_violations(page) == []
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the file").click()
    assert re.fullmatch(r"incident-.+\.db", saved.value.suggested_filename)
    file = tmp_path / "elsewhere.db"
    saved.value.save_as(file)
    cluster.start_again(3)
    console.until(lambda: console.get("overview")["severity"] == "ok", "the cluster does not recover", within_s=60)
    assert console.get("overview")["acknowledged"] == 0, "another state ends an acknowledgement"

    with RunningConsole([incident_target(file)], ConsoleOptions()) as other:
        elsewhere = Visit(browser, other.url)
        _look_at_the_incident(elsewhere, other)
        elsewhere.check()
        elsewhere.close()


def _look_at_the_incident(visit: Visit, console: RunningConsole) -> None:
    page = visit.open("/")
    expect(page).to_have_url(re.compile(r"at=\d+"))
    about = page.get_by_role("region", name="Incident")
    expect(about).to_contain_text("<b>disk</b> of 3")
    expect(about).to_contain_text("out of sync since")
    expect(page.locator(".ladder")).to_contain_text("at min ISR")
    expect(page.get_by_role("button", name="Acknowledge all")).to_have_count(0)
    assert axe_violations(page) == []
    page.get_by_role("link", name="Map").click()
    expect(page.locator('.map-head[data-up="false"]')).to_contain_text("Broker 3")
    page.keyboard.press("n")
    expect(page).to_have_url(re.compile(r"at=\d+"))
    page.goto(f"{visit.url}/topic?name={ORDERS}")
    expect(rows_of(page, "Partitions").first).to_contain_text("at min ISR")
    refused = console.post("actions/create-topic", {"name": "never", "dry_run": True})
    assert refused.code == "past"
    assert "incident" in console.ask("messages", topic=ORDERS).json["error"]["text"]


def test_a_file_that_is_no_incident_is_refused_by_one_line(tmp_path: Path) -> None:
    from barnabas.embedded.failures import Failure

    path = tmp_path / "notes.txt"
    path.write_text("nothing")
    with pytest.raises(Failure, match="not a history file"):
        incident_target(path)
    with pytest.raises(Failure, match="no such file"):
        incident_target(tmp_path / "missing.db")
