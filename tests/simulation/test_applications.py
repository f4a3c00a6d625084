"""Applications in the simulator: the samples of the documentation, and what an application can and cannot do."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import random
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from barnabas.simulation.application import (
    ApplicationSettings,
    Simulation,
    fault_kinds,
    run_application,
    shorten_application,
)
from barnabas.testing import SimulationFailed, simulate, simulated

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulated"
FAULTS = fault_kinds("kill,partition,pause")
NAMES = ["invoices", "payments", "totals"]


@pytest.fixture
def scenarios(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import scenarios

    yield scenarios
    for name in ("scenarios", *NAMES):
        sys.modules.pop(name, None)


def settings(seed: int, **options: Any) -> ApplicationSettings:
    return ApplicationSettings(seed=seed, kinds=FAULTS, **options)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_mistake_is_found_and_repeated(scenarios: ModuleType, name: str) -> None:
    scenario = getattr(scenarios, f"{name}_broken")
    runs = (run_application(scenario, settings(seed)) for seed in range(1, 101))
    found = next((outcome for outcome in runs if outcome.failed), None)
    assert found is not None
    again = run_application(scenario, found.settings)
    assert (again.trace_hash, again.problems) == (found.trace_hash, found.problems)
    short = shorten_application(scenario, found)
    assert short.failed
    assert len(short.schedule) <= len(found.schedule)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block", range(10))
def test_the_fixed_application_holds(scenarios: ModuleType, name: str, block: int) -> None:
    scenario = getattr(scenarios, f"{name}_fixed")
    for seed in range(1 + block * 100, 101 + block * 100):
        outcome = run_application(scenario, settings(seed))
        assert not outcome.failed, (seed, outcome.problems)


# Parts of the world that an application can use.


async def _echo(sim: Simulation) -> None:
    """Sends a record and reads it back, through programs."""
    await sim.create_topic("lines", 2)
    got: list[bytes] = []

    async def reader() -> None:
        consumer = AIOKafkaConsumer(
            "lines", bootstrap_servers=sim.bootstrap, group_id="readers", auto_offset_reset="earliest"
        )
        async with consumer:
            async for record in consumer:
                got.append(record.value)
                await consumer.commit()

    async def writer() -> None:
        async with AIOKafkaProducer(bootstrap_servers=sim.bootstrap) as producer:
            await producer.send_and_wait("lines", b"one", partition=1)

    sim.start("reader", reader)
    sim.start("writer", writer)
    while not got:
        await asyncio.sleep(0.1)
    (record,) = await sim.records("lines")
    assert (record.value, record.partition) == (b"one", 1)
    assert sim.history.sent[0].is_acknowledged
    assert sim.history.sent[0].client == "writer"
    assert [each.record.value for each in sim.history.received] == [b"one"]
    while not sim.history.committed:
        await asyncio.sleep(0.1)
    assert (await sim.committed("readers", "lines"))[1] == 1
    await sim.stop("reader")


def test_programs_send_and_receive() -> None:
    outcome = run_application(_echo, settings(1))
    assert not outcome.failed, outcome.trace


def test_the_same_seed_gives_the_same_run() -> None:
    hashes = {run_application(_echo, settings(seed)).trace_hash for seed in (1, 1, 2)}
    assert len(hashes) == 2


async def _clocks(sim: Simulation) -> None:
    before = time.time(), time.monotonic(), datetime.datetime.now(datetime.UTC)
    await asyncio.sleep(3600)
    after = time.time(), time.monotonic(), datetime.datetime.now(datetime.UTC)
    assert after[0] - before[0] == pytest.approx(3600, abs=0.01)
    assert after[1] - before[1] == pytest.approx(3600, abs=0.01)
    assert after[2] - before[2] == pytest.approx(datetime.timedelta(hours=1), abs=datetime.timedelta(seconds=0.01))
    sim.note(f"{random.random()} {uuid.uuid4()}")
    assert await asyncio.to_thread(Path(__file__).read_text)


def test_time_and_chance_are_virtual() -> None:
    began_s = time.monotonic()
    outcomes = [run_application(_clocks, settings(seed, brokers=1, timeout_s=7200.0)) for seed in (1, 1, 2)]
    assert not any(outcome.failed for outcome in outcomes), outcomes[0].trace
    assert time.monotonic() - began_s < 60
    first, second, other = ([note.text for note in outcome.notes if note.node == "scenario"] for outcome in outcomes)
    assert first == second != other


def test_programs_talk_by_streams() -> None:
    heard: list[bytes] = []

    async def server() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.readline())
            writer.close()

        await asyncio.start_server(serve, "till", 8080)
        await asyncio.Event().wait()

    async def scenario(sim: Simulation) -> None:
        sim.start("till", server)
        await asyncio.sleep(1)
        _, writer = await asyncio.open_connection("till", 8080)
        writer.write(b"hello\n")
        await asyncio.sleep(1)
        assert heard == [b"hello\n"]

    outcome = run_application(scenario, settings(1, brokers=1))
    assert not outcome.failed, outcome.trace


@pytest.mark.parametrize(
    ("name", "leave"),
    [
        ("threading.Thread.start", lambda: threading.Thread(target=print).start()),
        ("subprocess.Popen", lambda: subprocess.run(["true"], check=False)),
        ("socket.create_connection", lambda: socket.create_connection(("localhost", 9092))),
        ("socket.connect", lambda: socket.socket().connect(("localhost", 9092))),
        ("open(", lambda: Path("file-that-nobody-writes").write_text("x")),
    ],
)
def test_what_leaves_the_world_is_refused_with_its_name(name: str, leave: Callable[[], object]) -> None:
    async def program() -> None:
        try:
            leave()
        except Exception:
            await asyncio.sleep(1)

    async def scenario(sim: Simulation) -> None:
        sim.start("leaver", program)
        await asyncio.sleep(5)

    outcome = run_application(scenario, settings(1, brokers=1))
    assert len(outcome.problems) == 1
    assert outcome.problems[0].startswith(name)
    assert not Path("file-that-nobody-writes").exists()


@pytest.mark.parametrize("error", [ValueError("once more"), asyncio.CancelledError()])
def test_a_program_that_fails_is_started_again(error: BaseException) -> None:
    """A library can let the cancellation of one of its own tasks escape, as aiokafka does when a broker dies."""
    starts: list[float] = []

    async def program() -> None:
        starts.append(time.monotonic())
        if len(starts) < 3:
            raise error

    async def scenario(sim: Simulation) -> None:
        sim.start("stumbler", program)
        await asyncio.sleep(10)

    assert not run_application(scenario, settings(1, brokers=1)).failed
    assert [round(later - earlier, 2) for earlier, later in itertools.pairwise(starts)] == [1.0, 1.0]


def test_an_invariant_ends_the_run_where_it_breaks() -> None:
    async def scenario(sim: Simulation) -> None:
        began = time.monotonic()
        sim.invariant(lambda: time.monotonic() < began + 5)
        await asyncio.sleep(100)

    outcome = run_application(scenario, settings(1, brokers=1))
    assert outcome.failed
    assert "invariant" in outcome.problems[0]
    assert outcome.virtual_s < 30


def test_a_scenario_that_does_not_end_fails() -> None:
    async def scenario(sim: Simulation) -> None:
        await asyncio.Event().wait()

    outcome = run_application(scenario, settings(1, brokers=1, timeout_s=50.0))
    assert "is not done after 50 virtual seconds" in outcome.problems[0]


def test_an_error_without_a_message_is_shown_by_its_source() -> None:
    async def scenario(sim: Simulation) -> None:
        raise AssertionError

    outcome = run_application(scenario, settings(1, brokers=1))
    assert re.fullmatch(r"AssertionError: test_applications.py:\d+: raise AssertionError", outcome.problems[0])


# The decorator.


async def _dies_with_its_broker(sim: Simulation) -> None:
    await sim.inject_faults(20)
    ended = [note for note in sim.world.trace.notes if note.text.startswith("fault: kill")]
    assert not ended, "something was killed"


def test_a_failure_has_the_fewest_faults_and_the_time_line() -> None:
    with pytest.raises(SimulationFailed) as caught:
        simulate(_dies_with_its_broker, seeds=20, faults="kill,reset")
    text = str(caught.value)
    assert "something was killed" in text
    assert len(caught.value.outcome.schedule) == 1
    assert "fault: kill" in text
    assert "repeat with: BARNABAS_SEED=" in text


def test_one_seed_is_repeated_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds: list[int] = []

    @simulated(seeds=2, brokers=1)
    async def scenario(sim: Simulation) -> None:
        seeds.append(sim.seed)
        sim.note("here it happens")

    scenario()
    monkeypatch.setenv("BARNABAS_SEED", "17")
    scenario()
    assert seeds == [1, 2, 17]
    assert "here it happens" in capsys.readouterr().out
    assert scenario.__name__ == "scenario"


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 1 to 5"):
        simulate(_echo, brokers=6)
    with pytest.raises(ValueError, match="no such kind of fault: rain"):
        simulate(_echo, faults="rain")


def test_a_run_that_does_not_repeat_is_reported() -> None:
    state: list[int] = []

    async def scenario(sim: Simulation) -> None:
        state.append(1)
        await asyncio.sleep(len(state))
        raise AssertionError("always")

    with pytest.raises(SimulationFailed, match="gave another run"):
        simulate(scenario, seeds=1, brokers=1)
