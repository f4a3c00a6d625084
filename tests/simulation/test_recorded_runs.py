"""Runs of the simulator as histories: rebuilt, each state equals the table at its version, and the run is unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.histories import contents

from barnabas.cli.simulate_history import DecidedStates, journal_of, run_recorded
from barnabas.embedded.failures import Failure
from barnabas.history.reader import History
from barnabas.history.recorder import Recorder
from barnabas.monitor.table import ClusterTable
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.faults import FaultKind
from barnabas.simulation.scenario import Run, Settings, run
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work_features import WorkFeature


def settings(seed: int, *, brokers: int = 3, zookeeper: bool = False, faults_s: int = 12) -> Settings:
    """Returns a short run with kills, and with an operator who moves replicas and makes and deletes topics."""
    return Settings(
        seed=seed,
        layout=Layout(brokers=brokers, zookeeper=zookeeper),
        faults_s=faults_s,
        draws_properties=True,
        kinds=(FaultKind.KILL, FaultKind.STOP, FaultKind.PARTITION),
        features=(WorkFeature.BULK,),
        counts_rare_events=False,
    )


@pytest.mark.parametrize("seed", [3, pytest.param(5, marks=pytest.mark.full), pytest.param(8, marks=pytest.mark.full)])
def test_every_version_of_a_run_can_be_rebuilt(seed: int, tmp_path: Path) -> None:
    table = ClusterTable()
    recorder = Recorder(tmp_path / "h.db", table)
    live = {}
    table.subscribe(lambda _: live.update({recorder.seq: contents(table)}))
    simulated = Run(settings(seed))
    simulated.watch.use([DecidedStates(table), *simulated.checkers])
    outcome = simulated.execute()
    assert not outcome.failed
    recorder.explain_events(journal_of(simulated.cluster))
    recorder.close()
    image = DecidedMetadata(simulated.cluster).image()
    decided = {
        (topic.name, number): (partition.leader, partition.leader_epoch, partition.replicas, set(partition.isr))
        for topic in image.topics()
        for number, partition in enumerate(topic.partitions)
    }
    with History.open(tmp_path / "h.db") as history:
        assert len(live) > 20
        assert {seq: contents(history.after(seq)) for seq in live} == live
        last = history.at(history.span()[1])
        assert decided == {
            (state.topic, state.partition): (state.leader, state.leader_epoch, state.replicas, set(state.isr))
            for state in last.values()
        }
        changes = [change for change in history.events() if change.before is not None]
        unexplained = [str(change.subject) for change in changes if change.cause is None and change.after is not None]
        assert len(changes) > 10
        assert not unexplained, "the journal of a simulated cluster has each change"


@pytest.mark.parametrize("zookeeper", [False, pytest.param(True, marks=pytest.mark.full)])
def test_recording_does_not_change_a_run(tmp_path: Path, zookeeper: bool) -> None:
    brokers = 3 if zookeeper else 1
    of_run = settings(4, brokers=brokers, zookeeper=zookeeper, faults_s=2)
    outcome = run_recorded(of_run, tmp_path / "h.db")
    assert outcome.trace_hash == run(of_run).trace_hash
    with History.open(tmp_path / "h.db") as history:
        assert history.cluster_id is not None
        assert "topic-created" in {change.kind for change in history.events()}
        assert len(history.at(history.span()[1]).brokers) == brokers
    with pytest.raises(Failure, match="the file exists"):
        run_recorded(of_run, tmp_path / "h.db")
