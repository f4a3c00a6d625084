"""A record of 100 MB in the console, and two operators who create the same topic at once; with a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.console_server import RunningConsole, embedded_target

from barnabas.console.state import ConsoleOptions
from barnabas.testing import Cluster

pytestmark = pytest.mark.long_turns("a record of 100 MB is written, and read, in one piece")
HUGE_BYTES = 100_000_000
LIMIT = {"max.message.bytes": str(HUGE_BYTES + 1_000_000)}
#: The largest answer for a list of records: a text is cut.
ANSWER_MAX = 1_000_000


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("huge", 1, 1, config=LIMIT)])["huge"].result(20)
        settings = {"bootstrap.servers": running.bootstrap, "message.max.bytes": HUGE_BYTES + 500_000}
        producer = Producer(settings | {"queue.buffering.max.kbytes": 300_000})
        producer.produce("huge", b"before", partition=0)
        assert producer.flush(20) == 0
        producer.produce("huge", b"x" * HUGE_BYTES, partition=0)
        assert producer.flush(60) == 0
        producer.produce("huge", b"after", partition=0)
        assert producer.flush(20) == 0
        with RunningConsole([embedded_target(Path(running.directory))], ConsoleOptions(interval_s=0.5)) as found:
            found.filled()
            found.session()
            found.until(lambda: found.ask("topic", name="huge").status == 200, "the topic is there")
            yield found


@pytest.mark.full
def test_a_record_of_100_megabytes_is_cut_and_hides_no_other(console: RunningConsole) -> None:
    path = "/api/messages?topic=huge&partition=0&from=start&limit=10&seconds=30"
    answer = console.request("GET", path, timeout_s=60)
    assert answer.status == 200, answer.body[:500]
    assert len(answer.body) < ANSWER_MAX
    rows = answer.json["data"]["records"]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert rows[1]["size"] == HUGE_BYTES
    assert rows[1]["value"]["is_cut"] is True
    assert rows[2]["value"]["text"] == "after"


@pytest.mark.full
def test_two_operators_create_the_same_topic_and_one_is_told_that_it_exists(console: RunningConsole) -> None:
    def create(partitions: int) -> tuple[int, str]:
        answer = console.post("actions/create-topic", {"name": "both", "partitions": partitions, "replication": 1})
        return answer.status, answer.body.decode()

    with ThreadPoolExecutor(2) as threads:
        found = sorted(threads.map(create, (1, 2)))
    assert [status == 200 for status, _ in found] == [True, False], found
    assert "TOPIC_ALREADY_EXISTS" in found[1][1]
    console.until(lambda: console.ask("topic", name="both").status == 200, "the topic is there")
    results = [each["result"] for each in console.get("audit")["entries"] if each["action"] == "create-topic"]
    assert sorted(results) == ["begun", "begun", "ok", "refused"]
