"""The pictures of the console in the documentation: BARNABAS_PICTURES=docs/pictures keeps those of this run."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, expect
from tests.support.browser import REPOSITORY, Visit
from tests.support.console_dialogs import go_through, rows_of
from tests.support.console_server import RunningConsole, embedded_target, target_of
from tests.support.shop import ORDERS

from barnabas.console.security.passwords import hashed
from barnabas.console.security.rights import Role
from barnabas.console.security.users import User, UsersFile
from barnabas.console.state import ConsoleOptions
from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.testing import Cluster
from barnabas.testing.phantom import PhantomCluster

pytestmark = pytest.mark.full
SCREENS_PAGE = REPOSITORY / "docs/console-screens.md"
SIZE = (1180, 640)
TALL = (1180, 900)
#: No picture is larger: the repository keeps them.
BYTES_MAX = 150_000
PAYMENTS, PARCELS = "payments", "parcels"
#: Records of the topic that moves, and their size: some seconds with the throttle of the picture.
PARCEL_RECORDS, PARCEL_BYTES, THROTTLE = 120, 100_000, "50000"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Provides the directory of the pictures, and checks their sizes, and that the documentation has each of them."""
    found = Path(os.environ.get("BARNABAS_PICTURES") or tmp_path)
    yield found
    sizes = {each.name: each.stat().st_size for each in found.glob("console-*.png")}
    assert sizes
    assert max(sizes.values()) < BYTES_MAX, sizes
    text = SCREENS_PAGE.read_text(encoding="utf-8")
    assert [name for name in sizes if f"](pictures/{name})" not in text] == []


def test_pictures_of_a_kill(browser: Browser, console: RunningConsole, folder: Path) -> None:
    time.sleep(4.0)
    whole_ms = int(console.ask("overview").json["now_ms"])
    visit = Visit(browser, console.url, size=SIZE)
    page = visit.open("/map")
    page.get_by_role("button", name="Lab").click()
    page.get_by_role("button", name="Kill -9 broker 2").click()
    expect(page.locator('.map-head[data-up="false"]')).to_contain_text("Broker 2")
    expect(page.locator(".lab-state").nth(1)).to_have_text("stopped")
    page.screenshot(path=folder / "console-lab.png")
    page.get_by_role("button", name="Close", exact=True).click()
    page.screenshot(path=folder / "console-map.png")
    console.until(lambda: "at min ISR" in str(console.get("topic", name=ORDERS)), "the ISR does not shrink")
    time.sleep(4.0)
    for name, address, text in (
        ("overview", "/", "What first"),
        ("topic", f"/topic?name={ORDERS}", "at min ISR"),
        ("lanes", f"/topic?name={ORDERS}&tab=history", f"{ORDERS}-0"),
        ("partition", f"/partition?topic={ORDERS}&partition=0", "Why it is so"),
        ("timeline", "/timeline", "broker-gone"),
        ("whatif", "/whatif?ask=restart&broker=1", "would change"),
        ("map-groups", "/map?group=leader", "group by"),
        ("topics", "/topics?sort=size&desc=1", ORDERS),
        ("brokers", "/brokers", "Links between brokers"),
        ("broker", "/broker?id=1", "This replica"),
        ("compare", f"/compare?from={whole_ms}", "broker 2: answers"),
    ):
        page = visit.open(address)
        expect(page.locator("main")).to_contain_text(text, timeout=20_000)
        time.sleep(2.5)
        page.screenshot(path=folder / f"console-{name}.png")
        page.close()
    page = visit.open("/map")
    expect(page.locator('.map-head[data-up="false"]')).to_contain_text("Broker 2")
    page.keyboard.press("Control+k")
    page.keyboard.type("o")
    expect(page.get_by_role("dialog", name="Go to").get_by_role("option").filter(has_text=ORDERS)).to_be_visible()
    page.screenshot(path=folder / "console-palette.png")
    page = visit.open("/timeline")
    page.get_by_role("button", name="Save incident").click()
    page.get_by_label("Note").fill("broker 2 was killed")
    page.screenshot(path=folder / "console-incident.png")
    dark = Visit(browser, console.url, size=(390, 780), theme="dark")
    page = dark.open("/map")
    expect(page.locator('.map-head[data-up="false"]')).to_contain_text("Broker 2")
    page.screenshot(path=folder / "console-phone.png")
    visit.check()
    dark.check()


def _fill(bootstrap: str) -> None:
    """Creates a topic of payments, and one at broker 2 that takes some time to move."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(PAYMENTS, 3, 3), NewTopic(PARCELS, 3, replica_assignment=[[2], [2], [2]])]
    for made in admin.create_topics(topics).values():
        made.result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "none"})
    for number in range(200):
        _pay(producer, number)
    for number in range(PARCEL_RECORDS):
        producer.produce(PARCELS, b"x" * PARCEL_BYTES, partition=number % 3)
    assert producer.flush(30) == 0


def _pay(producer: Producer, number: int) -> None:
    value = {"order": 1_000 + number, "amount": 5 + number * 37 % 400, "country": ("de", "fr", "pl")[number % 3]}
    headers: list[tuple[str, str | bytes | None]] = [("trace", f"{number:04x}".encode())]
    producer.produce(PAYMENTS, json.dumps(value), f"customer-{number % 17}", number % 3, headers=headers)


def _with_second_directory(cluster: EmbeddedCluster) -> Path:
    """Starts broker 2 again with a second log directory. Returns the first one."""
    file = Path(cluster.directory) / "broker-2" / "server.properties"
    cluster.kill(2)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("broker-2/data\n", f"broker-2/data,{file.parent}/data-2\n"), encoding="utf-8")
    cluster.start_again(2)
    return file.parent / "data"


def test_pictures_of_records_and_moves(
    browser: Browser, cluster: EmbeddedCluster, console: RunningConsole, folder: Path
) -> None:
    first = _with_second_directory(cluster)
    _fill(cluster.bootstrap)
    console.until(lambda: console.ask("topic", name=PARCELS).status == 200, "the console does not know the topic")
    visit = Visit(browser, console.url, size=SIZE)
    _take_records(visit, console, cluster.bootstrap, folder)
    page = visit.open("/moves")
    _begin_moves(page, first)
    for table in ("Running moves", "Moves between log directories"):
        expect(rows_of(page, table).first).to_contain_text(re.compile(r"in \d+"), timeout=30_000)
    page.screenshot(path=folder / "console-moves.png")
    page.get_by_role("button", name="Cancel all").click()
    go_through(page, "Cancel all moves", "Cancel the moves")
    visit.check()


def _readers(bootstrap: str) -> list[Consumer]:
    """Returns the two members of a group that share the payments, after they have read most of them."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "invoices", "auto.offset.reset": "earliest"}
    found = [Consumer({**settings, "client.id": f"invoices-{number}"}) for number in (1, 2)]
    for each in found:
        each.subscribe([PAYMENTS])
    read, deadline_s = 0, time.monotonic() + 60
    while read < 150 or not all(each.assignment() for each in found):
        read += sum(len(each.consume(20, timeout=0.2)) for each in found)
        assert time.monotonic() < deadline_s, "the group does not read"
    for each in found:
        each.commit(asynchronous=False)
    return found


def _take_records(visit: Visit, console: RunningConsole, bootstrap: str, folder: Path) -> None:
    consumers = _readers(bootstrap)
    page = visit.open("/messages?topic=payments&from=start&filter=value.amount%20%3E%20300")
    expect(page.get_by_role("region", name="Records")).to_contain_text("customer-", timeout=20_000)
    page.screenshot(path=folder / "console-messages.png")
    console.until(lambda: "invoices" in str(console.get("groups")), "the console does not know the group", 60.0)
    page.goto(f"{visit.url}/group?name=invoices")
    expect(rows_of(page, "Members")).to_have_count(len(consumers), timeout=20_000)
    time.sleep(2.5)
    page.screenshot(path=folder / "console-group.png")
    for each in consumers:
        each.close()
    page.goto(f"{visit.url}/messages?topic=payments&live=1")
    expect(page.locator(".tail-state")).to_have_text("live")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(200, 212):
        _pay(producer, number)
    assert producer.flush(20) == 0
    expect(page.get_by_role("region", name="Records").locator("tbody tr")).to_have_count(12)
    page.screenshot(path=folder / "console-tail.png")
    page.get_by_role("button", name="Write a record").click()
    dialog = page.get_by_role("dialog", name="Write a record")
    dialog.get_by_label("Key", exact=True).fill("customer-4")
    dialog.locator("textarea").first.fill('{"order": 1212, "amount": 42, "country": "de"}')
    dialog.get_by_role("button", name="Show what it does").click()
    expect(dialog.get_by_role("status")).to_contain_text("What it will do")
    page.set_viewport_size({"width": TALL[0], "height": TALL[1]})
    page.screenshot(path=folder / "console-produce.png")
    page.close()


def _begin_moves(page: Page, first: Path) -> None:
    """Moves two partitions to broker 3, and one to the other directory of broker 2."""
    rows = [{"topic": PARCELS, "partition": partition, "replicas": [3]} for partition in (0, 1)]
    between = {"topic": PARCELS, "partition": 2, "replicas": [2], "log_dirs": [str(first)]}
    page.get_by_role("button", name="Open a plan").click()
    text = json.dumps({"version": 1, "partitions": [*rows, between]})
    go_through(page, "Open a plan", "Take the plan", JSON=text)
    page.get_by_role("button", name="Execute").click()
    limits = {"Throttle": THROTTLE, "Throttle_between": THROTTLE}
    go_through(page, "Execute the plan", "Begin the moves", **limits)


def test_a_picture_of_the_log_in(browser: Browser, tmp_path: Path, folder: Path) -> None:
    users = tmp_path / "users.json"
    UsersFile(users).put(User("ann", Role.OPERATOR, hashed("correct horse battery")))
    with (
        PhantomCluster(topics=3) as phantom,
        RunningConsole([target_of(phantom, "shop")], ConsoleOptions(users=users)) as console,
    ):
        visit = Visit(browser, console.url, size=(1180, 420))
        visit.allow("401")
        page = visit.open("/map")
        page.get_by_label("User").fill("ann")
        page.get_by_label("Password").fill("correct horse battery")
        page.screenshot(path=folder / "console-login.png")
        visit.check()
        visit.close()


def test_a_picture_of_rights(browser: Browser, tmp_path_factory: pytest.TempPathFactory, folder: Path) -> None:
    with (
        Cluster(tmp_path_factory.mktemp("secure"), secure=True) as secure,
        RunningConsole([embedded_target(secure.directory)], ConsoleOptions()) as console,
    ):
        console.filled()
        rule = {"resource": "topic", "pattern": "literal", "name": PAYMENTS, "host": "*", "permission": "allow"}
        for principal, operation in (("User:ann", "read"), ("User:shop", "write")):
            answer = console.post("actions/add-acl", rule | {"principal": principal, "operation": operation})
            assert answer.status == 200, answer.body
        visit = Visit(browser, console.url, size=TALL)
        page = visit.open("/settings")
        expect(page.get_by_role("region", name="ACLs", exact=True)).to_contain_text("User:shop")
        for button, fields in (
            ("Set a password", {"User": "ann", "Password": "correct horse battery"}),
            ("Set a quota", {"Name": "ann", "Value": "1000000"}),
        ):
            page.get_by_role("button", name=button).click()
            go_through(page, button, "Set", **fields)
        expect(page.get_by_role("region", name="Quotas", exact=True)).to_contain_text("1000000")
        page.reload()
        expect(page.get_by_role("region", name="Entries of the audit")).to_contain_text("set-scram-user")
        expect(page.get_by_role("region", name="Quotas", exact=True)).to_contain_text("1000000")
        page.screenshot(path=folder / "console-rights.png")
        visit.check()
