"""Limits of connections count the connections that are open, whatever happens to nodes and links."""

from __future__ import annotations

import pytest

from barnabas.simulation.node import AcceptedEnd
from barnabas.simulation.scenario import Settings, run
from barnabas.simulation.simulated_cluster import Layout


def test_a_slot_that_is_never_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard S17: every run compares the counts; this one has the mistake that they are for."""

    monkeypatch.setattr(AcceptedEnd, "_release", lambda end: None)
    outcome = run(Settings(seed=1, layout=Layout(brokers=3), faults_s=10, records_per_s=1.0))
    assert outcome.failed
    assert " connections of " in outcome.problems[0], outcome.problems
