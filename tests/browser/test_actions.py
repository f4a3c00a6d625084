"""Every action of the page on topics, partitions, groups and brokers, through its dialog; a client reads its effect."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, ResourceType
from playwright.sync_api import expect
from tests.support.browser import Visit, axe_violations
from tests.support.console_dialogs import Client, choose, go_through, rows_of, until
from tests.support.console_server import RunningConsole
from tests.support.shop import GROUP, ORDERS, ORDERS_PARTITIONS, ORDERS_RECORDS

from barnabas.embedded.cluster import EmbeddedCluster

# Each file needs a cluster, a console and a browser, so `make test` runs the screens and not the actions.
pytestmark = pytest.mark.full

PER_PARTITION = ORDERS_RECORDS // ORDERS_PARTITIONS


@pytest.fixture(scope="module")
def client(cluster: EmbeddedCluster) -> Client:
    return Client(cluster.bootstrap)


def _create(client: Client, console: RunningConsole, name: str, *, records: int = 0, replicas: int = 3) -> None:
    """Creates a topic of one partition with records, and waits until the console knows it."""
    config = {"min.insync.replicas": "1"}
    client.admin.create_topics([NewTopic(name, 1, replicas, config=config)])[name].result(15)
    producer = Producer({"bootstrap.servers": client.bootstrap})
    for number in range(records):
        producer.produce(name, str(number).encode() * 100, partition=0)
    assert producer.flush(20) == 0
    console.until(
        lambda: (
            console.ask("topic", name=name).status == 200
            and (console.get("topic", name=name)["partitions"][0]["high_watermark"] or 0) >= records
        ),
        "the console does not know the topic",
    )


def test_a_topic_is_created_configured_widened_and_cloned(visit: Visit, client: Client) -> None:
    page = visit.open("/topics")
    page.get_by_role("button", name="New topic").click()
    plan = go_through(page, "New topic", "Create", Name="made-here", Partitions="2", Settings="retention.ms=86400000")
    assert "creates made-here with 2 partitions, 3 replicas" in plan
    assert [len(each) for each in client.replicas("made-here")] == [3, 3]
    assert client.config(ResourceType.TOPIC, "made-here", "retention.ms") == "86400000"

    page.goto(f"{visit.url}/topic?name=made-here&tab=configs&config=max.message.bytes")
    page.get_by_role("button", name="Edit max.message.bytes").click()
    go_through(page, "Set max.message.bytes", "Set", New_value_of_max="123456")
    assert client.config(ResourceType.TOPIC, "made-here", "max.message.bytes") == "123456"

    choose(page, "Add partitions")
    plan = go_through(page, "Add partitions to made-here", "Add", Partitions_in_total="4")
    assert "adds 2 partitions" in plan
    assert len(client.replicas("made-here")) == 4

    page.goto(f"{visit.url}/topic?name=made-here")
    expect(rows_of(page, "Partitions")).to_have_count(4)
    choose(page, "Clone")
    plan = go_through(page, "Clone made-here", "Create", Name_of_the_new_topic="made-again")
    assert "retention.ms = 86400000" in plan
    assert len(client.replicas("made-again")) == 4
    assert client.config(ResourceType.TOPIC, "made-again", "max.message.bytes") == "123456"


def test_records_are_deleted_up_to_an_offset_and_all(visit: Visit, client: Client) -> None:
    page = visit.open(f"/partition?topic={ORDERS}&partition=3")
    choose(page, "Delete records up to an offset")
    go_through(page, f"Delete records of {ORDERS}-3", "Delete the records", Delete_all_records_before_offset="7")
    assert client.offsets(ORDERS, 3) == (7, PER_PARTITION)
    assert client.offsets(ORDERS, 2) == (0, PER_PARTITION)
    page.goto(f"{visit.url}/topic?name={ORDERS}")
    choose(page, "Delete records")
    go_through(page, f"Delete records of {ORDERS}", "Delete the records")
    assert client.offsets(ORDERS, 2) == (PER_PARTITION, PER_PARTITION)


def test_a_topic_is_created_again_empty_and_deleted(visit: Visit, client: Client, console: RunningConsole) -> None:
    visit.allow("404")  # The open page asks for the topic while it is deleted and created again.
    _create(client, console, "renewed", records=20)
    before = client.topic("renewed")
    page = visit.open("/topic?name=renewed")
    choose(page, "Delete and create again")
    plan = go_through(page, "Delete renewed", "Delete and create", Type_the_name="renewed")
    assert "creates renewed again, empty: 1 partitions, 3 replicas" in plan
    after = until("the topic is there again", lambda: client.topic("renewed"))
    assert before is not None
    assert str(after.topic_id) != str(before.topic_id)
    assert client.offsets("renewed") == (0, 0)
    console.until(lambda: console.get("topic", name="renewed")["partitions"][0]["high_watermark"] == 0, "the new one")
    page.goto(f"{visit.url}/topic?name=renewed")
    choose(page, "Delete the topic")
    go_through(page, "Delete renewed", "Delete the topic", Type_the_name="renewed")
    until("the topic is gone", lambda: client.topic("renewed") is None)


def test_a_leader_is_elected_after_its_replicas_were_ordered(
    visit: Visit, client: Client, console: RunningConsole
) -> None:
    _create(client, console, "ordered")
    first, second, third = client.replicas("ordered")[0]
    page = visit.open("/partition?topic=ordered&partition=0")
    choose(page, "Move its replicas")
    go_through(page, "Move the replicas of ordered-0", "Begin the move", Replicas_then=f"{second},{first},{third}")
    until("the order is new", lambda: client.replicas("ordered")[0][0] == second)
    assert client.leaders("ordered") == [first]
    console.until(lambda: console.get("topic", name="ordered")["partitions"][0]["preferred"] == second, "the order")
    page.goto(f"{visit.url}/partition?topic=ordered&partition=0")
    choose(page, "Elect a leader")
    plan = go_through(page, "Elect a leader of ordered-0", "Elect")
    assert f"ordered-0: leader {first} -> {second}" in plan
    assert client.leaders("ordered") == [second]

    # The same for the topic, and for the whole cluster.
    body = {"partitions": [{"topic": "ordered", "partition": 0, "replicas": [first, second, third]}]}
    assert console.post("actions/reassign", body).status == 200
    console.until(lambda: console.get("topic", name="ordered")["partitions"][0]["preferred"] == first, "the order")
    page.goto(f"{visit.url}/topic?name=ordered")
    choose(page, "Elect preferred leaders (1)")
    go_through(page, "Elect preferred leaders", "Elect")
    until("the preferred one leads", lambda: client.leaders("ordered") == [first])
    body = {"partitions": [{"topic": "ordered", "partition": 0, "replicas": [third, first, second]}]}
    assert console.post("actions/reassign", body).status == 200
    console.until(lambda: console.get("topic", name="ordered")["partitions"][0]["preferred"] == third, "the order")
    page.goto(f"{visit.url}/brokers")
    page.get_by_role("button", name="Elect all preferred leaders").click()
    go_through(page, "Elect the preferred leaders of all partitions", "Elect")
    until("the preferred one leads", lambda: client.leaders("ordered") == [third])


def test_offsets_of_a_group_are_reset_and_deleted_and_then_the_group(visit: Visit, client: Client) -> None:
    page = visit.open("/groups")
    page.get_by_role("link", name=GROUP).click()
    page.get_by_role("button", name="Reset offsets").click()
    plan = go_through(page, f"Reset offsets of {GROUP}", "Reset", To="shift", Value="-5")
    assert f"{ORDERS}-0: " in plan
    committed = client.committed(GROUP, ORDERS, ORDERS_PARTITIONS)
    assert len(set(committed)) <= 2
    assert all(each >= 0 for each in committed)
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To").first.select_option("time")
    dialog.get_by_label("Value").fill("soon")
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("alert")).to_have_text("“soon” is no time.")
    go_through(page, f"Reset offsets of {GROUP}", "Reset", Value="2000-01-01 12:00", Of_the_topic=ORDERS)
    begins = [client.offsets(ORDERS, partition)[0] for partition in range(ORDERS_PARTITIONS)]
    assert client.committed(GROUP, ORDERS, ORDERS_PARTITIONS) == begins
    page.get_by_role("button", name="Reset offsets").click()
    go_through(page, f"Reset offsets of {GROUP}", "Reset", To="latest")
    ends = [client.offsets(ORDERS, partition)[1] for partition in range(ORDERS_PARTITIONS)]
    assert client.committed(GROUP, ORDERS, ORDERS_PARTITIONS) == ends
    page.reload()
    page.get_by_role("button", name="Delete offsets").click()
    plan = go_through(page, f"Delete offsets of {GROUP}", "Delete the offsets")
    assert f"deletes {ORDERS_PARTITIONS} offsets" in plan
    assert client.committed(GROUP, ORDERS, ORDERS_PARTITIONS) == [OFFSET_INVALID] * ORDERS_PARTITIONS
    consumer = Consumer({"bootstrap.servers": client.bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(ORDERS, 0, 1)], asynchronous=False)
    consumer.close()
    page.reload()
    page.get_by_role("button", name="Delete", exact=True).click()
    go_through(page, f"Delete {GROUP}", "Delete the group", Type_the_name=GROUP)
    until("the group is gone", lambda: GROUP not in client.groups())


def test_a_setting_of_a_broker_is_changed_and_reset(visit: Visit, client: Client) -> None:
    key = "log.cleaner.backoff.ms"
    before = client.config(ResourceType.BROKER, "2", key)
    page = visit.open(f"/broker?id=2&tab=configs&config={key}")
    page.get_by_role("button", name=f"Edit {key}").click()
    go_through(page, f"Set {key}", "Set", New_value_of="23456")
    until("the broker has the value", lambda: client.config(ResourceType.BROKER, "2", key) == "23456")
    assert client.config(ResourceType.BROKER, "1", key) == before
    page.reload()
    page.get_by_role("button", name=f"Edit {key}").click()
    go_through(page, f"Set {key}", "Set", New_value_of="")
    until("the broker has the default", lambda: client.config(ResourceType.BROKER, "2", key) == before)


def test_a_hanging_transaction_is_aborted(visit: Visit, client: Client, console: RunningConsole) -> None:
    _create(client, console, "halted")
    producer = Producer(
        {"bootstrap.servers": client.bootstrap, "transactional.id": "halts", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("halted", b"open")
    assert producer.flush(20) == 0
    plain = Producer({"bootstrap.servers": client.bootstrap})
    plain.produce("halted", b"behind")
    assert plain.flush(20) == 0
    reader = Consumer(
        {
            "bootstrap.servers": client.bootstrap,
            "group.id": "reads-halted",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        reader.assign([TopicPartition("halted", 0, 0)])
        assert reader.poll(1.0) is None, "an open transaction stops readers of committed records"
        page = visit.open("/partition?topic=halted&partition=0")
        page.get_by_role("button", name="Abort the transaction of producer").click()
        plan = go_through(page, "Abort the transaction of producer", "Abort the transaction")
        assert "in halted-0 from offset 0 on" in plan
        read = until("the record behind is read", lambda: reader.poll(0.5))
        assert read.value() == b"behind"
        page.reload()
        expect(page.get_by_role("region", name="Producers, scrollable")).to_be_visible()
        expect(page.get_by_role("button", name="Abort the transaction of producer")).to_have_count(0)
    finally:
        reader.close()


def test_an_unclean_leader_is_elected_when_no_other_can_lead(
    visit: Visit, cluster: EmbeddedCluster, client: Client, console: RunningConsole
) -> None:
    _create(client, console, "behind", replicas=1)
    (leader,) = client.replicas("behind")[0]
    follower = leader % 3 + 1
    moves = {"partitions": [{"topic": "behind", "partition": 0, "replicas": [leader, follower]}]}
    assert console.post("actions/reassign", moves).status == 200

    def isr() -> list[int]:
        found: list[int] = console.get("topic", name="behind")["partitions"][0]["isr"]
        return sorted(found)

    console.until(lambda: isr() == sorted([leader, follower]), "both are in sync")
    cluster.kill(follower)
    console.until(lambda: isr() == [leader], "the follower is out of sync", within_s=40)
    producer = Producer({"bootstrap.servers": client.bootstrap})
    producer.produce("behind", b"only on the leader", partition=0)
    assert producer.flush(20) == 0
    cluster.kill(leader)
    cluster.start_again(follower)
    try:
        console.until(
            lambda: console.get("topic", name="behind")["partitions"][0]["leader"] == -1, "no leader", within_s=40
        )
        page = visit.open("/partition?topic=behind&partition=0")
        choose(page, "Elect a leader")
        plan = go_through(page, "Elect a leader of behind-0", "Elect", Election="unclean")
        assert "records that the elected replica lacks are lost" in plan
        fresh = Client(cluster.bootstrap)
        until("the follower leads", lambda: fresh.leaders("behind") == [follower])
        assert fresh.offsets("behind") == (0, 0), "the record is lost"
    finally:
        cluster.start_again(leader)


def test_chosen_topics_are_changed_and_emptied_with_what_became_of_each(
    visit: Visit, client: Client, console: RunningConsole
) -> None:
    visit.allow("40[049]")
    names = ["batch-a", "batch-b", "batch-c"]
    for name in names:
        _create(client, console, name, records=5)
    page = visit.open("/topics?q=batch-*")
    expect(rows_of(page, "Topics")).to_have_count(3)

    page.get_by_label("Choose all topics that match").check()
    page.get_by_role("button", name="Change a setting").click()
    plan = go_through(page, "Change a setting of 3 topics", "Set", Setting="retention.ms", New_value="172800000")
    assert "retention.ms: 604800000 -> 172800000" in plan
    assert {client.config(ResourceType.TOPIC, name, "retention.ms") for name in names} == {"172800000"}
    expect(rows_of(page, "Topics").nth(2)).to_contain_text("delete 2 d")
    expect(page.get_by_role("group", name="Chosen topics")).to_have_count(0)

    for name in names[:2]:
        page.get_by_label(f"Choose {name}").check()
    page.get_by_role("button", name="Add partitions").click()
    plan = go_through(page, "Add partitions to 2 topics", "Add", Partitions_in_total="2")
    assert "adds 1 partitions, it has 1" in plan
    assert [len(client.replicas(name)) for name in names] == [2, 2, 1]
    console.until(lambda: console.get("topic", name="batch-b")["total"] == 2, "the partitions")

    # A topic with compaction alone keeps its records: the plan says so, the others are emptied.
    body = {"kind": "topic", "name": "batch-b", "set": {"cleanup.policy": "compact"}}
    assert console.post("actions/alter-configs", body).status == 200
    page.goto(f"{visit.url}/topics?q=batch-*&chosen=*&do=records")
    dialog = page.get_by_role("dialog", name="Delete all records of 3 topics")
    dialog.get_by_label("Type the number of topics").fill("3")
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("status")).to_contain_text("batch-b not done: brokers delete no records of a topic whose")
    dialog.get_by_role("button", name="Delete the records").click()
    expect(dialog.get_by_role("status")).to_contain_text("What it did")
    assert axe_violations(page) == []
    outcomes = dialog.locator(".results li")
    assert [each.get_attribute("data-ok") for each in outcomes.all()] == ["false", "true", "true"]
    expect(outcomes.first).to_contain_text("batch-b not done")
    dialog.get_by_role("button", name="Close").last.click()
    expect(dialog).to_have_count(0)
    assert [client.offsets(name) for name in names] == [(5, 5), (0, 5), (5, 5)]
    expect(page).to_have_url(re.compile("chosen=batch-b$"))


def test_of_chosen_topics_the_one_that_is_gone_is_named(visit: Visit, client: Client, console: RunningConsole) -> None:
    visit.allow("40[049]")
    for name in ("gone-a", "gone-b"):
        _create(client, console, name)
    page = visit.open("/topics?q=gone-*&chosen=gone-a,gone-b&do=delete")
    dialog = page.get_by_role("dialog", name="Delete 2 topics")
    dialog.get_by_label("Type the number of topics").fill("1")
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("status")).to_contain_text("deletes 2 topics, permanently")
    # Another client deletes one of them before.
    client.admin.delete_topics(["gone-b"])["gone-b"].result(15)
    dialog.get_by_role("button", name="Delete the topics").click()
    expect(dialog.get_by_role("alert")).to_contain_text("confirm must repeat")
    dialog.get_by_label("Type the number of topics").fill("2")
    dialog.get_by_role("button", name="Show what it does").click()
    dialog.get_by_role("button", name="Delete the topics").click()
    outcomes = dialog.locator(".results li")
    expect(outcomes.first).to_contain_text("gone-b not done")
    expect(outcomes.last).to_contain_text("gone-a done")
    assert client.topic("gone-a") is None
    entries = console.get("audit")["entries"]
    assert [(each["action"], each["result"]) for each in entries[:2]] == [
        ("delete-topics", "partial"),
        ("delete-topics", "begun"),
    ]
    assert entries[0]["arguments"]["topics"] == ["gone-a", "gone-b"]


def test_every_change_is_in_the_audit_and_a_refused_one_says_why(visit: Visit, console: RunningConsole) -> None:
    visit.allow("40[09]")
    page = visit.open(f"/topic?name={ORDERS}")
    choose(page, "Delete the topic")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type the name").fill("another")
    dialog.get_by_role("button", name="Show what it does").click()
    dialog.get_by_role("button", name="Delete the topic").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"confirm must repeat the name {ORDERS}")
    page.keyboard.press("Escape")
    page.goto(f"{visit.url}/settings")
    first = rows_of(page, "Entries of the audit").first
    expect(first).to_contain_text("delete-topic")
    expect(first).to_contain_text("refused")
    assert axe_violations(page) == []
    entries = console.get("audit", limit=100)["entries"]
    assert all(json.dumps(each["arguments"]) for each in entries)
