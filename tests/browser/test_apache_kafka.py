"""The same page on Apache Kafka: 4.1.0 with KRaft, by its metadata log and by looks, and 3.9.1 and 2.8.2 with Apache
ZooKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic, ResourceType
from playwright.sync_api import expect
from tests.support.apache_clusters import (
    KRAFT,
    LAST_WITH_ZOOKEEPER,
    OLD,
    ApacheCluster,
    addresses,
    apache_cluster,
)
from tests.support.browser import Visit, axe_violations
from tests.support.console_dialogs import Client, choose, go_through, rows_of, until
from tests.support.console_server import RunningConsole
from tests.support.shop import GROUP, ORDERS, ORDERS_PARTITIONS, fill

from barnabas.console.state import ConsoleOptions
from barnabas.console.target import Target
from barnabas.monitor.broker_connection import Address

pytestmark = pytest.mark.full
#: A session of a broker ends after some seconds, and then its partitions have other leaders.
SHOWN_MS = 40_000.0
BACK_MS = 120_000.0
#: Megabytes of each partition, which take some seconds to copy with the throttle of the test.
CARRIED, CARRIED_RECORDS = "carried", 80
CARRIED_RECORD = b"x" * 100_000
CARRIED_THROTTLE = "100000"


class Running(NamedTuple):
    cluster: ApacheCluster
    release: str
    bootstrap: str
    controllers: tuple[Address, ...]

    @property
    def has_quorum(self) -> bool:
        return self.release == KRAFT


@pytest.fixture(scope="module", params=[f"{KRAFT}-by-its-log", f"{KRAFT}-by-looks", LAST_WITH_ZOOKEEPER, OLD])
def apache(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    release, _, feed = str(request.param).partition("-")
    with apache_cluster(release, tmp_path_factory.mktemp("apache")) as cluster:
        fill(cluster.bootstrap)
        yield Running(cluster, release, cluster.bootstrap, cluster.controllers if feed == "by-its-log" else ())


@pytest.fixture(scope="module")
def console(apache: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """Provides a console of the Apache cluster, which replaces the one of our brokers in this file."""
    target = Target("apache", addresses(apache.bootstrap), controllers=apache.controllers)
    options = ConsoleOptions(history=tmp_path_factory.mktemp("history") / "history.db")
    with RunningConsole([target], options) as found:
        found.filled()
        yield found


@pytest.fixture(scope="module")
def client(apache: Running) -> Client:
    return Client(apache.bootstrap)


def test_every_screen_shows_it(visit: Visit, apache: Running, console: RunningConsole) -> None:
    console.until(lambda: GROUP in str(console.get("groups")), "the group is not known", within_s=30)
    shown = {
        "/": r"4\d topics",
        "/map": "Broker 3",
        "/topics?q=orders": ORDERS,
        f"/topic?name={ORDERS}": "in sync",
        f"/topic?name={ORDERS}&tab=configs": "min.insync.replicas",
        f"/partition?topic={ORDERS}&partition=0": "Why it is so",
        f"/messages?topic={ORDERS}&partition=0&from=start&limit=5": "number",
        "/groups": "billing",
        "/brokers": "KRaft" if apache.has_quorum else "has no quorum of its own",
        "/broker?id=2": "answers",
        "/timeline": "Nothing has happened|event",
        "/whatif?ask=lose-broker&broker=2": "safe.*under-replicated",
        "/moves": "No replica moves now",
        "/settings": "What was changed",
    }
    for path, text in shown.items():
        page = visit.open(path)
        expect(page.locator("main")).to_contain_text(re.compile(text), timeout=20_000)
        assert axe_violations(page) == [], path
        page.close()
    rows = console.get("topic", name=ORDERS)["partitions"]
    assert [row["high_watermark"] for row in rows] == [50] * ORDERS_PARTITIONS
    assert all(row["size_bytes"] > 0 for row in rows)


def test_actions_work_on_it(visit: Visit, client: Client, console: RunningConsole) -> None:
    visit.allow("404")  # The open page asks for the topic while it is deleted and created again.
    page = visit.open("/topics")
    page.get_by_role("button", name="New topic").click()
    go_through(page, "New topic", "Create", Name="made-here", Partitions="1", Replication_factor="1")
    (before,) = client.replicas("made-here")
    console.until(lambda: console.ask("topic", name="made-here").status == 200, "the topic is there")
    page.goto(f"{visit.url}/topic?name=made-here&tab=configs&config=retention.ms")
    page.get_by_role("button", name="Edit retention.ms", exact=True).click()
    go_through(page, "Set retention.ms", "Set", New_value_of="86400000")
    until("set", lambda: client.config(ResourceType.TOPIC, "made-here", "retention.ms") == "86400000")

    choose(page, "Change the replication factor")
    go_through(page, "Replication factor of made-here", "Begin the moves", Replicas_of_each_partition="2")
    until("two replicas", lambda: len(client.replicas("made-here")[0]) == 2, within_s=40)
    page.goto(f"{visit.url}/moves")
    page.get_by_role("button", name="Generate a plan").click()
    go_through(page, "Generate a plan", "Take the plan", Topics="made-here", To_brokers="1,2,3", Seed="4")
    target = rows_of(page, "Planned moves").first.locator("td").nth(1).inner_text()
    page.get_by_role("button", name="Execute").click()
    go_through(page, "Execute the plan", "Begin the moves", Throttle="10000000")
    wanted = [int(each) for each in target.split(",")]
    until("the plan is done", lambda: client.replicas("made-here") == [wanted], within_s=60)
    assert before
    console.until(lambda: console.get("topic", name="made-here")["partitions"][0]["replicas"] == wanted, "the table")
    page.get_by_role("button", name="Verify").click()
    assert "1 complete" in go_through(page, "Verify the plan", "Remove the throttles")

    page.goto(f"{visit.url}/partition?topic=made-here&partition=0")
    choose(page, "Elect a leader")
    go_through(page, "Elect a leader of made-here-0", "Elect")
    until("the preferred one leads", lambda: client.leaders("made-here") == [wanted[0]])
    page.goto(f"{visit.url}/groups")
    page.get_by_role("link", name=GROUP).click()
    page.get_by_role("button", name="Reset offsets").click()
    go_through(page, f"Reset offsets of {GROUP}", "Reset", To="earliest")
    assert client.committed(GROUP, ORDERS, ORDERS_PARTITIONS) == [0] * ORDERS_PARTITIONS
    page.goto(f"{visit.url}/topic?name=made-here")
    choose(page, "Delete and create again")
    go_through(page, "Delete made-here", "Delete and create", Type_the_name="made-here")
    found = until("the topic is there again", lambda: client.topic("made-here"))
    assert len(found.partitions) == 1
    until("with its setting", lambda: client.config(ResourceType.TOPIC, "made-here", "retention.ms") == "86400000")


def _carried(client: Client, apache: Running, console: RunningConsole) -> Path:
    """Creates a topic of megabytes at broker 1. Returns the log directory that has less of its replicas."""
    client.admin.create_topics([NewTopic(CARRIED, 4, replica_assignment=[[1]] * 4)])[CARRIED].result(20)
    producer = Producer({"bootstrap.servers": client.bootstrap, "compression.type": "none"})
    for number in range(CARRIED_RECORDS):
        producer.produce(CARRIED, CARRIED_RECORD, partition=number % 4)
    assert producer.flush(60) == 0
    console.until(lambda: console.ask("topic", name=CARRIED).status == 200, "the topic is there", within_s=40)
    directories = apache.cluster.directories(1)
    return min(directories, key=lambda each: len(list(each.glob(f"{CARRIED}-*"))))


def test_replicas_move_between_the_directories_of_a_broker(
    visit: Visit, apache: Running, client: Client, console: RunningConsole
) -> None:
    target = _carried(client, apache, console)
    there = len(list(target.glob(f"{CARRIED}-?")))
    page = visit.open("/moves")
    page.get_by_role("button", name="Plan for directories").click()
    title = "Plan moves between log directories"
    fields = {"Broker": "1", "To_directory": str(target), "Topics": CARRIED}
    plan = go_through(page, title, "Take the plan", **fields)
    moved = [index for index in range(4) if f"{CARRIED}-{index}: broker 1: {target}" in plan]
    assert len(moved) == 4 - there >= 2, plan
    expect(rows_of(page, "Planned moves")).to_have_count(len(moved))
    page.get_by_role("button", name="Execute").click()
    rate = {"Throttle_between_log_directories": CARRIED_THROTTLE}
    plan = go_through(page, "Execute the plan", "Begin the moves", **rate)
    assert f"-> {target}" in plan
    running = rows_of(page, "Moves between log directories")
    expect(running).to_have_count(len(moved), timeout=20_000)
    expect(page.get_by_role("region", name="Summary")).to_contain_text("100 kB/s between directories")
    page.get_by_role("button", name="Verify").click()
    assert f"{len(moved)} running" in go_through(page, "Verify the plan", "Remove the throttles")

    cancelled = f"{CARRIED}-{moved[-1]}"
    page.get_by_role("button", name=f"Cancel the move of {cancelled} on broker 1").click()
    plan = go_through(page, f"Cancel the move of {cancelled} on broker 1", "Cancel the move")
    assert f"{cancelled} on broker 1: stays in" in plan
    expect(running).to_have_count(len(moved) - 1)
    page.get_by_role("button", name="Throttle", exact=True).click()
    go_through(page, "Throttle the moves that run", "Set the throttle", Between_log_directories="50000000")
    for index in moved[:-1]:
        until("the replica is in the other directory", (target / f"{CARRIED}-{index}").exists, within_s=90)
    assert not (target / cancelled).exists()
    expect(running).to_have_count(0, timeout=20_000)
    page.get_by_role("button", name="Verify").click()
    plan = go_through(page, "Verify the plan", "Remove the throttles")
    assert f"{len(moved) - 1} complete, 1 not complete" in plan
    assert f"rather than {target}, and no move to it is in progress" in plan
    assert [client.offsets(CARRIED, index) for index in range(4)] == [(0, CARRIED_RECORDS // 4)] * 4


def test_a_killed_broker_is_seen_and_scrubbed_back(visit: Visit, apache: Running, console: RunningConsole) -> None:
    rows = console.get("topic", name=ORDERS)["partitions"]
    led = next(each for each in rows if each["leader"] == 2)
    whole_ms = int(console.ask("overview").json["now_ms"])
    console.until(lambda: (console.get("history")["last_ms"] or 0) > whole_ms, "the recording continues")
    pages = {path: visit.open(path) for path in ("/map", f"/topic?name={ORDERS}", "/brokers")}
    for page in pages.values():
        expect(page.locator(".live")).to_have_attribute("data-live", "on")
    apache.cluster.kill(2)
    try:
        expect(pages["/map"].locator('.map-head[data-up="false"]')).to_contain_text("Broker 2", timeout=SHOWN_MS)
        row = rows_of(pages[f"/topic?name={ORDERS}"], "Partitions").nth(led["partition"])
        expect(row.locator('[data-replica="leader"]')).not_to_have_text("2", timeout=SHOWN_MS)
        expect(row).to_contain_text("at min ISR", timeout=SHOWN_MS)
        expect(pages["/brokers"].get_by_role("region", name="Brokers").first).to_contain_text("silent")
        page = visit.open(f"/partition?topic={ORDERS}&partition={led['partition']}")
        expect(page.get_by_role("region", name="Explanation")).to_contain_text("the cause is not known")
        assert axe_violations(page) == []
        page.goto(f"{visit.url}/topic?name={ORDERS}&at={whole_ms}")
        expect(rows_of(page, "Partitions").nth(led["partition"])).to_contain_text("in sync")
    finally:
        apache.cluster.start_again(2)
    expect(pages["/map"].locator('.map-head[data-up="false"]')).to_have_count(0, timeout=BACK_MS)
    expect(pages["/map"].locator('.map-legend li[data-look="out of sync"]')).to_have_attribute(
        "data-count", "0", timeout=BACK_MS
    )
