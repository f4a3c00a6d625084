"""Whatever becomes of the controllers, who asks for a change is answered, or loses the connection, within its time."""

from __future__ import annotations

import pytest
from tests.support.admin_world import AdminWorld


def run(seed: int) -> AdminWorld:
    world = AdminWorld(seed)
    world.begin()
    world.ask_for(40_000)
    world.heal()
    world.world.run_for(45_000_000)
    return world


@pytest.mark.parametrize("seed", range(8))
def test_every_request_is_answered_in_time(seed: int) -> None:
    world = run(seed)
    assert not world.overdue()
    answered = [asked for asked in world.asked if asked.answer is not None]
    assert len(answered) > len(world.asked) // 4
