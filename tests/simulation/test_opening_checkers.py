"""A broker that stays closed although its metadata show its registration is found."""

from __future__ import annotations

import pytest

from barnabas.broker.quorum_side import QuorumSide
from barnabas.simulation.scenario import Settings, run
from barnabas.simulation.simulated_cluster import Layout

#: The seed's active controller gets its registration's response after the image.
_SETTINGS = Settings(1, Layout(brokers=3), faults_s=1)


def test_a_broker_that_waits_for_the_next_image_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuorumSide, "_on_epoch", lambda self: None)
    (problem, *_) = run(_SETTINGS).problems
    assert str(problem).startswith("closed to clients: "), problem
