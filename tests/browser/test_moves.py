"""Moves on the page against real brokers: plans, throttles, progress, the end; other factors, and drains."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic, ResourceType
from playwright.sync_api import expect
from tests.support.browser import Visit, axe_violations
from tests.support.console_dialogs import Client, choose, go_through, rows_of, until
from tests.support.console_server import RunningConsole

from barnabas.embedded.cluster import EmbeddedCluster

pytestmark = pytest.mark.full
#: Records of a topic that takes some seconds to copy with the throttle of the tests.
_RECORDS = 60
_RECORD = b"x" * 100_000
_THROTTLE = "400000"


@pytest.fixture(scope="module")
def client(cluster: EmbeddedCluster) -> Client:
    return Client(cluster.bootstrap)


def _second_directory(cluster: EmbeddedCluster, console: RunningConsole) -> Path:
    """Starts broker 1 again with a second log directory, in which it would create all new replicas. Returns it."""
    file = Path(cluster.directory) / "broker-1" / "server.properties"
    found = file.parent / "data-2"
    cluster.stop(1)
    lines = file.read_text(encoding="utf-8").splitlines()
    lines = [f"{line},{found}" if line.startswith("log.dirs=") else line for line in lines]
    file.write_text("\n".join(lines), encoding="utf-8")
    cluster.start_again(1)
    console.until(lambda: len(console.get("broker", id=1)["directories"] or ()) == 2, "the broker has two directories")
    return found


def _fill(
    client: Client, console: RunningConsole, name: str, partitions: int = 1, at: list[int] | None = None
) -> list[list[int]]:
    """Creates a topic with one replica, `at` this broker if one is named, and megabytes of records. Returns its
    replicas.
    """
    topic = (
        NewTopic(name, partitions, 1)
        if at is None
        else NewTopic(name, partitions, replica_assignment=[at] * partitions)
    )
    client.admin.create_topics([topic])[name].result(15)
    producer = Producer({"bootstrap.servers": client.bootstrap, "compression.type": "none"})
    for number in range(_RECORDS):
        producer.produce(name, _RECORD, partition=number % partitions)
    assert producer.flush(30) == 0
    console.until(lambda: console.ask("topic", name=name).status == 200, "the console does not know the topic")
    console.until(lambda: (console.get("topic", name=name)["partitions"][0]["size_bytes"] or 0) > 1_000_000, "sizes")
    return client.replicas(name)


def _was_set(cluster: EmbeddedCluster, rate: str | None) -> bool:
    """Returns whether the metadata log has this rate of a broker; None is the removal. Brokers do not tell it."""
    value = b"\x00" if rate is None else bytes([len(rate) + 1]) + rate.encode()
    logs = Path(cluster.directory).glob("**/__cluster_metadata-0/*.log")
    return any(b"leader.replication.throttled.rate" + value in each.read_bytes() for each in logs)


def test_a_plan_is_generated_executed_with_a_throttle_watched_and_verified(
    visit: Visit, client: Client, cluster: EmbeddedCluster, console: RunningConsole, tmp_path: Path
) -> None:
    ((before,),) = _fill(client, console, "travels")
    other = before % 3 + 1
    page = visit.open("/moves")
    expect(page.get_by_role("region", name="Running moves").first).to_contain_text("No replica moves now")
    assert axe_violations(page) == []
    page.get_by_role("button", name="Generate a plan").click()
    plan = go_through(page, "Generate a plan", "Take the plan", Topics="travels", To_brokers=str(other))
    assert f"travels-0: replicas {before} → {other}" in plan
    expect(rows_of(page, "Planned moves")).to_contain_text("travels-0")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save as JSON").click()
    file = tmp_path / "plan.json"
    saved.value.save_as(file)
    assert json.loads(file.read_text())["partitions"][0]["replicas"] == [other]

    page.get_by_role("button", name="Execute").click()
    plan = go_through(page, "Execute the plan", "Begin the moves", Throttle=_THROTTLE)
    assert "at most 400,000 bytes a second" in plan
    assert _was_set(cluster, _THROTTLE)
    assert client.config(ResourceType.TOPIC, "travels", "leader.replication.throttled.replicas") == f"0:{before}"
    row = rows_of(page, "Running moves")
    expect(row).to_contain_text("travels-0")
    expect(page.get_by_role("region", name="Summary")).to_contain_text("400 kB/s")
    expect(row).to_contain_text(re.compile(r"\d+(\.\d)? [km]?B/s", re.IGNORECASE), timeout=15_000)
    expect(row).to_contain_text(re.compile(r"in \d+(\.\d)? s"), timeout=15_000)
    assert axe_violations(page) == []
    page.get_by_role("button", name="Throttle", exact=True).click()
    plan = go_through(page, "Throttle the moves that run", "Set the throttle", Bytes_a_second="50000000")
    assert "limits the copying of 1 partitions" in plan
    assert _was_set(cluster, "50000000")
    until("the move ends", lambda: client.replicas("travels") == [[other]], within_s=60)
    expect(page.get_by_role("region", name="Running moves").first).to_contain_text("No replica moves", timeout=10_000)
    console.until(lambda: console.get("topic", name="travels")["partitions"][0]["replicas"] == [other], "the table")
    page.get_by_role("button", name="Verify").click()
    plan = go_through(page, "Verify the plan", "Remove the throttles")
    assert "1 complete" in plan
    assert _was_set(cluster, None)
    assert client.config(ResourceType.TOPIC, "travels", "leader.replication.throttled.replicas") == ""


def test_a_move_is_cancelled_and_its_throttle_ends(visit: Visit, client: Client, console: RunningConsole) -> None:
    before = _fill(client, console, "stays")
    other = before[0][0] % 3 + 1
    page = visit.open("/moves")
    page.get_by_role("button", name="Open a plan").click()
    text = json.dumps({"version": 1, "partitions": [{"topic": "stays", "partition": 0, "replicas": [other]}]})
    go_through(page, "Open a plan", "Take the plan", JSON=text)
    page.get_by_role("button", name="Execute").click()
    go_through(page, "Execute the plan", "Begin the moves", Throttle="100000")
    expect(rows_of(page, "Running moves")).to_contain_text("stays-0")
    page.get_by_role("button", name="Cancel its moves").click()
    plan = go_through(page, "Cancel the moves of the plan", "Cancel the moves")
    assert f"stays-0: replicas stay {before[0]}" in plan
    until("the move is gone", lambda: client.replicas("stays") == before)
    expect(page.get_by_role("region", name="Running moves").first).to_contain_text("No replica moves now")
    assert client.config(ResourceType.TOPIC, "stays", "leader.replication.throttled.replicas") == ""


def test_one_of_two_moves_is_cancelled(visit: Visit, client: Client, console: RunningConsole) -> None:
    before = _fill(client, console, "pair", partitions=2, at=[1])
    page = visit.open("/moves")
    page.get_by_role("button", name="Open a plan").click()
    rows = [{"topic": "pair", "partition": partition, "replicas": [2]} for partition in range(2)]
    go_through(page, "Open a plan", "Take the plan", JSON=json.dumps({"version": 1, "partitions": rows}))
    page.get_by_role("button", name="Execute").click()
    go_through(page, "Execute the plan", "Begin the moves", Throttle="100000")
    expect(rows_of(page, "Running moves")).to_have_count(2)
    page.get_by_role("button", name="Cancel the move of pair-0").click()
    plan = go_through(page, "Cancel the move of pair-0", "Cancel the move")
    assert f"pair-0: replicas stay {before[0]}" in plan
    assert "pair-1" not in plan
    expect(rows_of(page, "Running moves")).to_have_count(1)
    expect(rows_of(page, "Running moves")).to_contain_text("pair-1")
    assert client.config(ResourceType.TOPIC, "pair", "leader.replication.throttled.replicas") != "", "one move runs"
    page.get_by_role("button", name="Throttle", exact=True).click()
    go_through(page, "Throttle the moves that run", "Set the throttle", Bytes_a_second="50000000")
    until("the other move ends", lambda: client.replicas("pair") == [[1], [2]], within_s=60)


def test_replicas_move_between_the_directories_of_a_broker(
    visit: Visit, client: Client, cluster: EmbeddedCluster, console: RunningConsole
) -> None:
    _fill(client, console, "carried", partitions=2, at=[1])
    second_directory = _second_directory(cluster, console)
    page = visit.open("/broker?id=1&tab=directories")
    page.get_by_role("link", name="Move its replicas").first.click()
    plan = go_through(
        page,
        "Plan moves between log directories",
        "Take the plan",
        To_directory=str(second_directory),
        Topics="carried",
    )
    assert f"carried-0: broker 1: {second_directory}" in plan
    planned = rows_of(page, "Planned moves")
    expect(planned).to_have_count(2)
    expect(planned.first).to_contain_text("broker-1/data-2")
    page.get_by_role("button", name="Execute").click()
    plan = go_through(page, "Execute the plan", "Begin the moves", Throttle_between_log_directories="100000")
    assert f"-> {second_directory}" in plan
    assert "at most 100,000 bytes a second are copied between log directories" in plan
    running = rows_of(page, "Moves between log directories")
    expect(running).to_have_count(2)
    expect(page.get_by_role("region", name="Summary")).to_contain_text("100 kB/s between directories")
    assert axe_violations(page) == []

    page.get_by_role("button", name="Cancel the move of carried-1 on broker 1").click()
    plan = go_through(page, "Cancel the move of carried-1 on broker 1", "Cancel the move")
    assert "carried-1 on broker 1: stays in" in plan
    expect(running).to_have_count(1)
    expect(running).to_contain_text("carried-0")
    page.get_by_role("button", name="Throttle", exact=True).click()
    go_through(page, "Throttle the moves that run", "Set the throttle", Between_log_directories="50000000")
    until("the replica is in the other directory", (second_directory / "carried-0").exists, within_s=60)
    assert not (second_directory / "carried-1").exists()
    expect(running).to_have_count(0, timeout=10_000)
    page.get_by_role("button", name="Verify").click()
    plan = go_through(page, "Verify the plan", "Remove the throttles")
    assert "1 complete, 1 not complete" in plan
    assert f"rather than {second_directory}, and no move to it is in progress" in plan
    assert client.offsets("carried", 0) == (0, _RECORDS // 2), "the records are there"


def test_a_topic_gets_more_and_fewer_replicas(visit: Visit, client: Client, console: RunningConsole) -> None:
    before = client.replicas("single")
    page = visit.open("/topic?name=single")
    choose(page, "Change the replication factor")
    go_through(page, "Replication factor of single", "Begin the moves", Replicas_of_each_partition="3")
    until("three replicas", lambda: [len(each) for each in client.replicas("single")] == [3, 3], within_s=40)
    assert [each[0] for each in client.replicas("single")] == [each[0] for each in before], "the preferred one stays"
    console.until(lambda: console.get("topic", name="single")["replication"] == 3, "the table has it")
    page.goto(f"{visit.url}/topic?name=single")
    choose(page, "Change the replication factor")
    go_through(page, "Replication factor of single", "Begin the moves", Replicas_of_each_partition="1")
    until("one replica", lambda: client.replicas("single") == before, within_s=40)


def test_the_answer_to_what_if_is_on_the_map_and_its_plan_is_executed(
    visit: Visit, client: Client, console: RunningConsole
) -> None:
    page = visit.open("/whatif?ask=lose-broker&broker=2")
    page.get_by_role("link", name="Show it on the map").click()
    expect(page).to_have_url(re.compile("/map.*ask=lose-broker"))
    expect(page.get_by_role("status").filter(has_text="What if broker 2 died?")).to_be_visible()
    expect(page.locator('.map-head[data-up="false"]')).to_contain_text("Broker 2")
    silent = page.locator('.map-legend li[data-look="broker silent"]')
    expect(silent).not_to_have_attribute("data-count", "0")
    page.goto(f"{visit.url}/map?ask=lose-broker&broker=2&fill=severity")
    expect(page.locator('.map-legend li[data-look="at min ISR"]')).not_to_have_attribute("data-count", "0")
    assert axe_violations(page) == []
    page.get_by_role("link", name="As it is").click()
    expect(page.locator('.map-head[data-up="false"]')).to_have_count(0)
    expect(silent).to_have_attribute("data-count", "0")

    client.admin.create_topics([NewTopic("leaves", 3, 1)])["leaves"].result(15)
    console.until(lambda: console.ask("topic", name="leaves").status == 200, "the topic is there")
    victim = client.replicas("leaves")[0][0]
    page.goto(f"{visit.url}/broker?id={victim}")
    page.get_by_role("link", name="Drain").click()
    page.get_by_role("button", name="Open the plan in Moves").click()
    expect(rows_of(page, "Planned moves").filter(has_text="leaves-0")).to_be_visible()
    page.get_by_role("button", name="Execute").click()
    go_through(page, "Execute the plan", "Begin the moves")
    until("the broker has none of it", lambda: all(victim not in each for each in client.replicas("leaves")), 60)
