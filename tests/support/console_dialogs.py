"""The dialogs of the console's page, as a user goes through them: fill in, see what it will do, do it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType, TopicDescription
from playwright.sync_api import Locator, Page, expect
from tests.support.browser import axe_violations_in_both_themes

T = TypeVar("T")


def go_through(page: Page, title: str, verb: str, **fields: str) -> str:
    """Fills in the open dialog by labels (`_` is a space), looks at the plan, and does it. Returns the plan."""
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog).to_be_visible()
    for label, value in fields.items():
        field = dialog.get_by_label(label.replace("_", " ")).first
        if field.evaluate("(each) => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    dialog.get_by_role("button", name="Show what it does").click()
    plan = dialog.get_by_role("status")
    expect(plan).to_be_visible()
    violations = axe_violations_in_both_themes(page)
    assert violations == [], f"{title}: {violations}"
    found = plan.inner_text()
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(dialog).to_have_count(0, timeout=30_000)
    return found


def choose(page: Page, option: str) -> None:
    """Chooses an action from the screen's list."""
    page.get_by_label("Actions").select_option(label=option)


def rows_of(page: Page, table: str) -> Locator:
    return page.get_by_role("region", name=table).locator("tbody tr[data-index]")


def until(what: str, attempt: Callable[[], T | None], within_s: float = 20.0) -> T:
    """Returns the first result that is neither None nor False."""
    deadline_s = time.monotonic() + within_s
    while True:
        found = attempt()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


class Client:
    """A client of the cluster that reads what an action did."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin: AdminClient = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, name: str) -> TopicDescription | None:
        """Returns a topic; None if there is none."""
        future = self.admin.describe_topics(TopicCollection([name]), request_timeout=10)[name]
        try:
            found: TopicDescription = future.result(15)
            return found
        except Exception as error:
            if "UNKNOWN_TOPIC_OR_PART" in str(error):
                return None
            raise

    def replicas(self, name: str) -> list[list[int]]:
        found = self.topic(name)
        assert found is not None, name
        return [[node.id for node in each.replicas] for each in sorted(found.partitions, key=lambda one: one.id)]

    def leaders(self, name: str) -> list[int]:
        found = self.topic(name)
        assert found is not None, name
        return [
            -1 if each.leader is None else each.leader.id for each in sorted(found.partitions, key=lambda one: one.id)
        ]

    def config(self, kind: ResourceType, name: str, key: str) -> str | None:
        (future,) = self.admin.describe_configs([ConfigResource(kind, name)], request_timeout=10).values()
        found = future.result(15)
        return None if key not in found else found[key].value

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Returns the first offset of a partition, and its end."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "looks", "enable.auto.commit": False})
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10, cached=False)
            return low, high
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """Returns the committed offsets; -1001 for none."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "enable.auto.commit": False})
        try:
            wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
            return [each.offset for each in consumer.committed(wanted, timeout=10)]
        finally:
            consumer.close()

    def groups(self) -> set[str]:
        return {each.group_id for each in self.admin.list_consumer_groups(request_timeout=10).result(15).valid}
