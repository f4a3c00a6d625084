"""Variations of a run: the same seed with a changed schedule. Everything but the faults is drawn from the seed as
before.

A variation shifts, stretches, drops, repeats or adds faults, moves one close to another, or lets one that is tied to an
event strike at another occurrence of it. It keeps the limits of drawn schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from barnabas.simulation.faults import Fault, fault_spec, within_limits
from barnabas.simulation.scenario import Settings, fault_times_ms, generator_of, schedule_of

_CHANGES_MAX: Final = 3
_TRIES_MAX: Final = 20
_SHIFT_MS_MAX: Final = 3_000
#: The longest time by which a fault that is moved close to another one begins after it.
_CLOSE_MS_MAX: Final = 800
_STRETCHES: Final = (0.1, 0.5, 2.0, 5.0)
_DURATION_MS_MAX: Final = 56_250

_Change = Callable[[Settings, Random, list[Fault]], None]


def varied(settings: Settings, random: Random) -> Settings:
    """Returns settings with a schedule of its own, which differs from the present one if that is possible."""
    before = schedule_of(settings)
    for _ in range(_TRIES_MAX):
        faults = list(before)
        for _ in range(random.randint(1, _CHANGES_MAX)):
            change = random.choice(_CHANGES if faults else (_add,))
            change(settings, random, faults)
        begin_ms, end_ms = fault_times_ms(settings)
        placed = {fault._replace(at_ms=min(max(fault.at_ms, begin_ms), end_ms - 1)) for fault in faults}
        schedule = tuple(within_limits(sorted(placed, key=_order)))
        if schedule != before:
            return replace(settings, schedule=schedule)
    return replace(settings, schedule=before)


def _order(fault: Fault) -> tuple[int, str]:
    return fault.at_ms, fault_spec(fault)


def _shift(settings: Settings, random: Random, faults: list[Fault]) -> None:
    place = random.randrange(len(faults))
    fault = faults[place]
    faults[place] = fault._replace(at_ms=fault.at_ms + random.randint(-_SHIFT_MS_MAX, _SHIFT_MS_MAX))


def _join(settings: Settings, random: Random, faults: list[Fault]) -> None:
    place = random.randrange(len(faults))
    at_ms = random.choice(faults).at_ms + random.randint(0, _CLOSE_MS_MAX)
    faults[place] = faults[place]._replace(at_ms=at_ms)


def _stretch(settings: Settings, random: Random, faults: list[Fault]) -> None:
    place = random.randrange(len(faults))
    duration_ms = round(faults[place].duration_ms * random.choice(_STRETCHES))
    faults[place] = faults[place]._replace(duration_ms=min(max(1, duration_ms), _DURATION_MS_MAX))


def _drop(settings: Settings, random: Random, faults: list[Fault]) -> None:
    del faults[random.randrange(len(faults))]


def _repeat(settings: Settings, random: Random, faults: list[Fault]) -> None:
    begin_ms, end_ms = fault_times_ms(settings)
    faults.append(random.choice(faults)._replace(at_ms=random.randrange(begin_ms, end_ms)))


def _add(settings: Settings, random: Random, faults: list[Fault]) -> None:
    drawn: list[Fault] = []
    generator, times_ms = generator_of(settings), fault_times_ms(settings)
    for _ in range(10):
        of_nodes = [*generator.draw(random, *times_ms), *generator.draw_aimed(random, *times_ms)]
        untied = [*of_nodes, *generator.draw_of_clients(random, *times_ms)]
        drawn = list(map(generator.ties(random, times_ms[1]).tie, untied))
        if drawn:
            break
    faults += [random.choice(drawn)] if drawn else []


def _aim(settings: Settings, random: Random, faults: list[Fault]) -> None:
    """Lets a fault that is tied to an event strike at another occurrence of it; adds a fault if there is none."""
    tied = [place for place, fault in enumerate(faults) if fault.trigger is not None]
    if not tied:
        _add(settings, random, faults)
        return
    place = random.choice(tied)
    trigger = faults[place].trigger
    assert trigger is not None, "the chosen faults have triggers"
    occurrence = max(1, trigger.occurrence + random.choice((-1, 1, 3)))
    faults[place] = faults[place]._replace(trigger=trigger._replace(occurrence=occurrence))


_CHANGES: Final[Sequence[_Change]] = (_shift, _join, _stretch, _drop, _repeat, _add, _aim)
