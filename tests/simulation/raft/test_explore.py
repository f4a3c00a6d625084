"""Worlds of all kinds, by seed: no condition is ever broken, and after the faults the quorum works again.

The message of a failing seed contains its events; `World(Plan.of(seed)).run()` repeats it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World

_CHUNK = 25


def explore(seeds: range) -> None:
    for seed in seeds:
        world = World(Plan.of(seed))
        try:
            world.run()
        except Exception as error:
            timeline = "\n".join(world.timeline[-40:])
            raise AssertionError(f"{world.plan}\n{timeline}\n{error}") from error


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", range(0, 100, _CHUNK))
def test_no_seed_breaks_the_quorum(first: int) -> None:
    explore(range(first, first + _CHUNK))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1_000, 11_000, 500))
def test_ten_thousand_seeds_do_not_break_the_quorum(first: int) -> None:
    explore(range(first, first + 500))


@pytest.mark.parametrize("seed", [16, 577, 760, 110, 2509, 8647, 3023, 3072, 3146, 314, 3069, 3138, 3317, 4134, 5427])
def test_seeds_that_once_broke_it(seed: int) -> None:
    """16: a leader whose log begins with a snapshot answered with a wrong end of an older epoch. 577: a log was
    truncated to the snapshot before it, and lost that snapshot's epoch. 760, 110: a snapshot was loaded that the log
    had passed. 2509: a leader wrote its own removal and was deposed before any other voter had it; with the longest log
    of all it did not become a candidate. 8647: the power failed while the end of a rolled segment was not synced, but
    the next segment was on the disk; the log was opened with a gap. 3023, 3072, 3146: a voter with a full disk, which
    had just started, fetched from a leader that did not know yet what was committed, and failed. 314, 3069: a leader
    with a full disk was asked to change the voters, and failed. 3138: a voter with a full disk failed where it had to
    truncate its log. 3317: the checker saw a gap where a log began after a snapshot that its listeners had passed.
    4134: a new voter that did not have the record of that yet refused pre-votes forever after its leader was gone.
    5427: a voter had no space for the first batch of an epoch, and did not vote after a restart, because its checkpoint
    named that epoch.
    """
    explore(range(seed, seed + 1))


def trace_of(seed: int) -> str:
    world = World(Plan.of(seed)).run()
    text = "\n".join([*world.timeline, str(world.heap.count), repr(world.checker.committed)])
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_seed_gives_the_same_world_in_every_process() -> None:
    code = "from tests.simulation.raft.test_explore import trace_of; print(trace_of(7), trace_of(16))"
    traces = set()
    for hash_seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(["src", "."])}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        traces.add(done.stdout)
    assert len(traces) == 1
    assert traces == {f"{trace_of(7)} {trace_of(16)}\n"}


@pytest.mark.full
def test_worlds_have_all_kinds_of_trouble() -> None:
    """A world in which nothing happens proves nothing."""
    text = ""
    elections = commits = 0
    for seed in range(40):
        world = World(Plan.of(seed)).run()
        text += "\n".join(world.timeline)
        elections += len(world.checker.leaders)
        commits += len(world.checker.promised)
    for word in ("crashes: kept", "crashes: lost", "crashes: torn", "pauses", "apart", "one way", "loses its disk"):
        assert word in text, word
    for word in ("answers 0 NONE", "resigns as leader", "loss 0.3"):
        assert word in text, word
    assert elections > 120
    assert commits > 1000
