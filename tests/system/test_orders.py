"""Orders replayed into real brokers while brokers or the producer are killed, and input that cannot be served."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.support.survival import known_leader_of, wait_until

from barnabas.cli import entry
from barnabas.orders import topic as topics
from barnabas.orders.faults import Faults
from barnabas.orders.ledger import read_ledger
from barnabas.orders.proof import verify
from barnabas.orders.replay import Progress, ReplayOptions, replay
from barnabas.testing import Cluster

FAULTS = Faults(duplicates=0.01, late=0.02, malformed=0.002, oversized=0.0005, seed=5)
FLAGS = ["--duplicates", "0.01", "--late", "0.02", "--malformed", "0.002", "--oversized", "0.0005", "--seed", "5"]
TWO_WEEKS = {"orders": 3_301, "lines": 35_176}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("orders"), brokers=3) as cluster:
        yield cluster


def command(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas.cli", "orders", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def ended(*arguments: str, code: int) -> tuple[str, str]:
    """Runs a command to its end in this process. Returns its stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        found = entry.run(["orders", *arguments])
    assert found == code, err.getvalue()
    return out.getvalue(), err.getvalue()


def brokers_of(cluster: Cluster) -> set[int]:
    return set(topics.admin_client(cluster.bootstrap, {}).list_topics(timeout=60).brokers)


def grown(ledger: Path, lines: int) -> bool:
    return ledger.exists() and ledger.read_bytes().count(b"\n") >= lines


def until_grown(ledger: Path, lines: int, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 120
    while not grown(ledger, lines):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the replay does not continue"
        time.sleep(0.005)


@pytest.mark.full
def test_a_held_replay_goes_on_at_its_speed_when_it_is_released(cluster: Cluster, tmp_path: Path) -> None:
    """The time of the pause is not caught up: event time continues where it stopped."""
    topics.create(topics.admin_client(cluster.bootstrap, {}), "held")
    released = threading.Event()
    at_release: list[int] = []
    released_s: list[float] = []

    def hold(progress: Progress) -> bool:
        return progress.sent >= 100 and not released.is_set()

    def release() -> None:
        try:
            wait_until(lambda: grown(tmp_path / "ledger", 100), "a hundred lines in the ledger", 60)
            time.sleep(1.0)
            at_release.append((tmp_path / "ledger").read_bytes().count(b"\n"))
        finally:
            released_s.append(time.monotonic())
            released.set()

    thread = threading.Thread(target=release)
    thread.start()
    options = ReplayOptions(cluster.bootstrap, tmp_path / "ledger", topic="held", orders=400, speed=30_000)
    done = replay(options, hold=hold)
    ended_s = time.monotonic()
    thread.join()
    assert done.finished
    assert done.books.orders == 400
    assert at_release[0] <= 102  # the released orders, and the first lines of the ledger
    assert ended_s - released_s[0] > 2.0  # 2.3 s at this speed
    assert verify(tmp_path / "ledger", cluster.bootstrap).balanced


@pytest.mark.full
def test_every_acknowledged_order_is_there_once_though_a_leader_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    topic, ledger = "killed-leader", tmp_path / "ledger"
    topics.create(topics.admin_client(cluster.bootstrap, {}), topic)
    # The speed: two weeks in about ten seconds.
    options = ReplayOptions(cluster.bootstrap, ledger, topic=topic, weeks=2, speed=120_000.0, faults=FAULTS)
    done: list[Progress] = []
    replaying = threading.Thread(target=lambda: done.append(replay(options)))
    replaying.start()
    until_grown(ledger, 500)
    leader = known_leader_of(cluster, topic)
    cluster.kill(leader)
    until_grown(ledger, 1_500)
    cluster.start_broker(leader)
    replaying.join(240)
    assert done
    assert done[0].finished
    assert {"orders": done[0].books.orders, "lines": done[0].books.lines} == TWO_WEEKS
    assert done[0].refused["oversized"] > 0
    proof = verify(ledger, cluster.bootstrap)
    assert proof.balanced, proof.examples()
    assert (proof.lost, proof.doubled, proof.again) == (0, 0, 0)
    assert proof.log_books == done[0].books


@pytest.mark.full
def test_a_killed_producer_goes_on_where_its_ledger_ends(cluster: Cluster, tmp_path: Path) -> None:
    topic, ledger = "killed-producer", tmp_path / "ledger"
    # A broker that the previous test has killed can still be starting.
    wait_until(lambda: len(brokers_of(cluster)) == 3, "all brokers are there")
    arguments = ["replay", "-b", cluster.bootstrap, "--topic", topic, "--ledger", str(ledger), "--weeks", "2", *FLAGS]
    for lines in (300, 1_200):
        process = command(*arguments, "--create-topic", "--speed", "120000")
        until_grown(ledger, lines, process)
        process.kill()
        process.communicate()
    # A late one: asked to end in order.
    process = command(*arguments, "--speed", "120000", start_new_session=True)
    until_grown(ledger, 2_000, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "the same command continues" in err
    done = json.loads(ended(*arguments, "--json", code=0)[0])
    assert done["finished"]
    assert {name: done[name] for name in TWO_WEEKS} == TWO_WEEKS
    proof = json.loads(ended("verify", "-b", cluster.bootstrap, "--ledger", str(ledger), "--json", code=0)[0])
    assert proof["balanced"]
    assert proof["complete"]
    assert (proof["lost"], proof["doubled"]) == (0, 0)
    contents = read_ledger(ledger)
    assert contents.resumed == 3
    assert len({(entry.order_id, entry.kind) for entry in contents.entries}) == len(contents.entries)


def test_a_ledger_of_something_else_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    topic, ledger = "other-ledgers", tmp_path / "ledger"
    arguments = ["replay", "-b", cluster.bootstrap, "--ledger", str(ledger), "--orders", "20"]
    ended(*arguments, "--topic", topic, "--create-topic", code=0)
    assert "complete" in ended(*arguments, "--topic", topic, code=0)[1]
    assert "another replay (seed 0)" in ended(*arguments, "--topic", topic, "--seed", "1", code=1)[1]
    topics.create(topics.admin_client(cluster.bootstrap, {}), "another")
    assert "belongs to topic other-ledgers" in ended(*arguments, "--topic", "another", code=1)[1]
    admin = topics.admin_client(cluster.bootstrap, {})
    admin.delete_topics([topic])[topic].result(120)
    for check in ([*arguments, "--topic", topic, "--create-topic"], ["verify", *arguments[1:5]]):
        assert "deleted and created again" in ended(*check, code=1)[1]


def test_topics_that_would_lose_orders_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    admin = topics.admin_client(cluster.bootstrap, {})
    arguments = ["replay", "-b", cluster.bootstrap, "--ledger", str(tmp_path / "ledger"), "--orders", "20"]
    for name, config, words in (
        ("short", {"retention.ms": "604800000"}, "--config retention.ms=-1"),
        ("compacted", {"cleanup.policy": "compact"}, "one order per household"),
    ):
        topics.create(admin, name, config=config)
        assert words in ended(*arguments, "--topic", name, code=1)[1]
    assert "--create-topic" in ended(*arguments, "--topic", "missing", code=1)[1]


def test_good_orders_that_the_topic_is_too_small_for_are_named(cluster: Cluster, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    topics.create(topics.admin_client(cluster.bootstrap, {}), "small", config={"max.message.bytes": "2000"})
    arguments = ["-b", cluster.bootstrap, "--ledger", str(ledger)]
    _, err = ended("replay", *arguments, "--topic", "small", "--orders", "300", code=1)
    assert "refused: larger than max.message.bytes" in err
    assert "max.message.bytes=1048588" in err
    proof = json.loads(ended("verify", *arguments, "--json", code=0)[0])
    assert proof["refused"] == len(list(read_ledger(ledger).refused())) > 0
    assert proof["acknowledged"]["orders"] + proof["refused"] == 300


def test_nobody_there(tmp_path: Path) -> None:
    _, err = ended("replay", "-b", "127.0.0.1:1", "--ledger", str(tmp_path / "ledger"), code=1)
    assert "cannot reach a broker at 127.0.0.1:1" in err
    assert "no such ledger" in ended("verify", "--ledger", str(tmp_path / "none"), code=1)[1]


@pytest.mark.full
def test_brokers_gone_for_long_end_the_replay_and_it_goes_on_when_they_are_back(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with Cluster(tmp_path / "cluster") as cluster:
        arguments = ["replay", "-b", cluster.bootstrap, "--ledger", str(ledger), "--weeks", "1", *FLAGS]
        process = command(*arguments, "--create-topic", "--speed", "120000", "--give-up-after", "5")
        until_grown(ledger, 300)
        cluster.kill()
        _, err = process.communicate(timeout=240)
        assert process.returncode == 1
        assert "no acknowledgement for 5 s" in err
        assert "it continues where the ledger ends" in err
        cluster.start()
        ended(*arguments, code=0)
        proof = verify(ledger, cluster.bootstrap)
        assert proof.balanced, proof.examples()
        assert proof.is_complete
