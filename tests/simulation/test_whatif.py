"""`whatif` predicts what a simulated cluster then does: the leader, ISR and ELR of every partition after a kill of one
or more brokers, or after their controlled shutdown.
"""

from __future__ import annotations

import pytest
from tests.support.predicted_world import drawn, run

QUICK = range(12)
FULL = range(1_000)


@pytest.mark.parametrize("is_restart", [False, True], ids=["kill", "restart"])
def test_predictions_come_true(is_restart: bool) -> None:
    partitions = elections = 0
    for seed in QUICK:
        verdict = run(seed, is_restart=is_restart)
        assert verdict.wrong == [], f"seed {seed}: {drawn(seed, is_restart=is_restart)}"
        partitions += verdict.count
        elections += verdict.elections
    # The seeds would show nothing if nothing changed.
    assert partitions > 40
    assert elections > 15


@pytest.mark.full
@pytest.mark.parametrize("is_restart", [False, True], ids=["kill", "restart"])
def test_predictions_of_a_thousand_seeds_come_true(is_restart: bool) -> None:
    wrong = {}
    for seed in FULL:
        verdict = run(seed, is_restart=is_restart)
        if verdict.wrong:
            wrong[str(drawn(seed, is_restart=is_restart))] = verdict.wrong
    assert wrong == {}
