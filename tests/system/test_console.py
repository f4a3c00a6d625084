"""The console with a real cluster of three brokers: a kill in the lab, with every screen open; records, actions, and
how it was before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.console_server import RunningConsole, embedded_target

from barnabas.console.state import ConsoleOptions
from barnabas.testing import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    history = tmp_path_factory.mktemp("history") / "history.db"
    options = ConsoleOptions(history=history, interval_s=0.5)
    with RunningConsole([embedded_target(cluster.directory)], options) as running:
        running.filled()
        running.session()
        yield running


def test_a_kill_in_the_lab_is_seen_explained_and_scrubbed_back(console: RunningConsole, cluster: Cluster) -> None:
    created = console.post("actions/create-topic", {"name": "orders", "partitions": 6, "replication": 3, "configs": {}})
    assert created.json["ok"] is True, created.body
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(30):
        producer.produce("orders", f'{{"amount": {number}}}'.encode(), key=b"k", partition=number % 6)
    assert producer.flush(20) == 0
    console.until(lambda: console.ask("topic", name="orders").status == 200, "the topic is there")
    found = console.get("messages", topic="orders", filter="value.amount >= 28", limit=5)
    assert sorted(record["value"]["text"] for record in found["records"]) == ['{"amount": 28}', '{"amount": 29}']
    time.sleep(1.1)
    whole_ms = time.time_ns() // 1_000_000
    victim = console.get("topic", name="orders")["partitions"][0]["leader"]
    killed = console.post("lab/kill", {"broker": victim})
    assert killed.status == 200, killed.body

    def is_led_by_others() -> bool:
        return all(row["leader"] not in (victim, -1) for row in console.get("topic", name="orders")["partitions"])

    console.until(is_led_by_others, "other brokers lead its partitions")
    assert victim in {each["broker"] for each in console.ask("overview").json["silent"]}
    for route in ("map", "topics", "brokers", "quorum", "timeline", "groups"):
        assert console.ask(route).status == 200, route
    console.until(lambda: "fenced" in str(console.get("partition", topic="orders", partition=0)), "the cause is known")
    console.until(lambda: (console.get("history")["last_ms"] or 0) > whole_ms, "the recording continues")
    assert console.get("overview", at=whole_ms)["severity"] == "ok"
    assert console.get("topic", name="orders", at=whole_ms)["partitions"][0]["leader"] == victim
    started = console.post("lab/start", {"broker": victim})
    assert started.status == 200, started.body
    console.until(lambda: console.get("overview")["severity"] == "ok", "all replicas are in sync again", 40)


@pytest.mark.full
def test_a_paused_broker_keeps_no_screen_waiting(console: RunningConsole) -> None:
    assert console.post("lab/pause", {"broker": 2}).status == 200
    try:
        console.until(lambda: bool(console.ask("overview").json["silent"]), "the broker is silent")
        for screen in ("overview", "topics", "brokers", "quorum", "timeline", "groups", "whatif?ask=restart&broker=2"):
            begin_s = time.monotonic()
            assert console.request("GET", f"/api/{screen}").status == 200, screen
            assert time.monotonic() - begin_s < 5, screen
        assert console.get("broker", id=2)["directories_problem"]
        states = {each["broker"]: each["state"] for each in console.get("lab")["brokers"]}
        assert states[2] == "paused"
    finally:
        assert console.post("lab/resume", {"broker": 2}).status == 200
    console.until(lambda: not console.ask("overview").json["silent"], "the broker answers again", 40)


@pytest.mark.full
def test_up_with_a_console_serves_it_and_ends_it(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    command = [sys.executable, "-m", "barnabas.cli", "up", "--brokers", "1", "--port", "0", "--dir", str(directory)]
    process = subprocess.Popen(
        [*command, "--console", "--console-port", "0"], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None
        url = next(line.split()[1] for line in process.stdout if line.startswith("console: "))
        assert url.startswith("http://127.0.0.1:")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
    assert (directory / "history.db").exists()
