"""The 36 recorded steps, repeated: by three brokers of Kafka 3.9.1 on our ZooKeeper server, and by three of ours on
our server and on Apache's. Znodes and writes are those recorded, and a program that watches a state shows the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.support import golden_deviations, golden_monitor, golden_writes
from tests.support.golden_monitor import GoldenMonitor
from tests.support.golden_steps import Broker, GoldenSteps
from tests.support.golden_writes import Differences, Place, Run
from tests.support.zookeeper_mode import OurBroker
from tests.support.zookeeper_process import OurZooKeeper

from kafka39_jars import KafkaBroker
from zookeeper_jars import ApacheZooKeeper

Server = OurZooKeeper | ApacheZooKeeper
ZOOKEEPER: Final = {"tickTime": "2000", "snapCount": "1000000", "forceSync": "no"}
#: The journal is a topic of its own.
OURS: Final = {"barnabas.cluster.events.enable": "false"}
SERVERS: Final = [pytest.param(OurZooKeeper, id="our-server"), pytest.param(ApacheZooKeeper, id="apache-server")]


class Exempt(NamedTuple):
    """Steps and paths that may differ, and the reason."""

    step: str
    path: str
    reason: str


#: The paths that differ from run to run, with Apache's server too.
EXEMPT: Final = (
    Exempt("(2[5-9]|3).*", "/latest_producer_id_block", "any broker may ask for the first block"),
    Exempt(
        "(2[6-9]|3).*",
        "/(brokers|config)/topics/__consumer_offsets.*",
        "its placement is random, and two brokers may race to create it",
    ),
    Exempt(
        "3[2-5].*",
        "/(brokers|config)/topics/solo.*",
        "a producer of the recording, still alive, made the deleted topic again",
    ),
)


def exempt(place: Place) -> bool:
    return any(re.fullmatch(row.step, place.step) and re.fullmatch(row.path, place.path) for row in EXEMPT)


def check(what: str, found: Differences) -> None:
    left = {place: pair for place, pair in found.items() if not exempt(place)}
    told = (f"{place.step} {place.path}\n  expected {one}\n  seen     {other}" for place, (one, other) in left.items())
    assert not left, f"{len(left)} {what} are not as expected:\n" + "\n".join(told)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_kafka_writes_to_our_server_what_was_recorded(tmp_path: Path) -> None:
    with OurZooKeeper(tmp_path / "zookeeper", properties=ZOOKEEPER) as server:

        def broker(number: int, settings: Mapping[str, str]) -> Broker:
            return KafkaBroker(tmp_path / f"b{number}", f"localhost:{server.port}", number, properties=settings)

        run = GoldenSteps(server.port, tmp_path, broker).run()
        check("znodes", golden_writes.tree_differences(run))
        check("writes", golden_writes.write_differences(run, server.data))


def our_steps(server: Server, folder: Path, monitor: GoldenMonitor) -> GoldenSteps:
    def broker(number: int, settings: Mapping[str, str]) -> Broker:
        properties = {**settings, **OURS}
        return OurBroker(folder / f"b{number}", f"localhost:{server.port}", number, properties=properties)

    return GoldenSteps(server.port, folder, broker, after_step=monitor.after_step)


def check_ours(run: Run, server: Server, monitor: GoldenMonitor) -> None:
    check("znodes", golden_deviations.tree_differences(run))
    check("writes", golden_deviations.write_differences(run, server.data))
    expected = {**golden_monitor.recorded(), **golden_monitor.DEVIATIONS}
    shown = {step: monitor.steps[step] for step in expected if step in run.trees}
    assert shown == {step: expected[step] for step in shown}


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", SERVERS)
def test_our_brokers_write_what_was_recorded_except_on_purpose(tmp_path: Path, kind: type[Server]) -> None:
    with kind(tmp_path / "zookeeper", properties=ZOOKEEPER) as server:
        monitor = GoldenMonitor(server.port, tmp_path)
        try:
            run = our_steps(server, tmp_path, monitor).run()
        finally:
            monitor.close()
        check_ours(run, server, monitor)


@pytest.mark.full
def test_our_brokers_write_what_was_recorded_in_the_first_steps(tmp_path: Path) -> None:
    with OurZooKeeper(tmp_path / "zookeeper", properties=ZOOKEEPER) as server:
        monitor = GoldenMonitor(server.port, tmp_path)
        try:
            run = our_steps(server, tmp_path, monitor).run_the_first()
        finally:
            monitor.close()
        check_ours(run, server, monitor)
        assert len(run.trees) == 7
