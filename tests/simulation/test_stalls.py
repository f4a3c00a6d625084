"""A bound for each kind of fault on the time without an acknowledgement while a majority is connected, and on the time
after it until every replica is in its ISR again. docs/replication.md has the table."""

from __future__ import annotations

import pytest
from tests.support.stalls import StallWorld

#: The longest time without an acknowledgement, in ms, for each kind. Kafka's defaults: sessions of 9 s, a fetch timeout
#: of the voters of 2 s, `replica.lag.time.max.ms` of 30 s that is checked every 15 s.
SESSION, ELECTION, LAG = 9_000, 3_500, 45_000
BOUNDS = {
    "kill": 600,
    "split": SESSION + ELECTION,
    "island": SESSION + ELECTION,
    "mute": SESSION + ELECTION,
    "deaf": SESSION + ELECTION,
    "pause": SESSION + ELECTION,
    "power": SESSION + ELECTION,
    "flap": 4_000,
    # A single link of a leader: only `replica.lag.time.max.ms` shows it.
    "bridge": LAG + 1_000,
    "one-way": LAG + 1_000,
    "one-way back": LAG + 1_000,
}
WHOLE_MS = 3_000


def check(kind: str, seed: int, duration_ms: int, *, controller: bool) -> None:
    world = StallWorld(seed)
    active = world.active
    world.strike(kind, active if controller else active % 3 + 1, duration_ms)
    assert max(world.stalls_ms()) <= BOUNDS[kind], world.stalls_ms()
    assert world.whole_after_ms <= WHOLE_MS


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("kind", "controller"),
    [(kind, bound < LAG) for kind, bound in BOUNDS.items()]
    + [pytest.param(kind, False, marks=pytest.mark.full) for kind, bound in BOUNDS.items() if bound < LAG],
)
def test_a_fault_stalls_no_partition_for_longer_than_its_bound(kind: str, controller: bool) -> None:
    check(kind, 1, 60_000 if BOUNDS[kind] > LAG else 20_000, controller=controller)


@pytest.mark.parametrize("duration_ms", [150, 4_000])
@pytest.mark.parametrize("controller", [False, True])
def test_a_machine_whose_power_is_back_soon_is_not_kept_out_by_its_old_session(
    duration_ms: int, controller: bool
) -> None:
    """No connection of the old process is closed, so the controller considers it connected until it probes it."""
    world = StallWorld(1)
    active = world.active
    world.strike("power", active if controller else active % 3 + 1, duration_ms)
    assert max(world.stalls_ms()) <= duration_ms + 500, world.stalls_ms()
    assert world.whole_after_ms <= WHOLE_MS


@pytest.mark.parametrize("pause_ms", [50, 1_000])
def test_a_death_soon_after_a_broken_connection_is_noticed_like_any_other(pause_ms: int) -> None:
    """A broker connected to the controller again with its next heartbeat, after up to 2 s. Its death before that was
    noticed only when its session ended.
    """
    world = StallWorld(1)
    victim = world.active % 3 + 1
    world.cluster.network.reset_between(f"broker{world.active}", f"broker{victim}")
    world.run_for(pause_ms)
    world.strike("kill", victim, 12_000)
    assert max(world.stalls_ms()) <= BOUNDS["kill"], world.stalls_ms()


@pytest.mark.parametrize("duration_ms", [pytest.param(8_000, marks=pytest.mark.full), 20_000, 60_000])
def test_after_a_silent_cut_all_are_in_sync_soon_whatever_its_length(duration_ms: int) -> None:
    """Connections from before the cut are not used again: the system would send on them again only after as long a
    time.
    """
    check("island", 2, duration_ms, controller=False)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", BOUNDS)
def test_more_of_them(kind: str, seed: int) -> None:
    for duration_ms in (8_000, 20_000, 60_000):
        for controller in (True, False):
            check(kind, seed, duration_ms, controller=controller)
