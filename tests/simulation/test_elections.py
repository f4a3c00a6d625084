"""Elections, ISRs and fenced brokers in the time line."""

from __future__ import annotations

from barnabas.simulation.checkers import Watch
from barnabas.simulation.elections import Elections
from barnabas.simulation.facts import DECIDED, BrokerFenced, ControllerElected, PartitionDecided
from barnabas.simulation.replication_checkers import Replicas
from barnabas.simulation.worlds.replicated import CONTROLLER, Replicated


def test_a_dead_leader_is_explained_with_all_consequences() -> None:
    rig = Replicated(1, 3, (), controllers=1)
    elections = Elections(rig.cluster)
    Watch(rig.cluster, [elections, Replicas(CONTROLLER, [elections])])
    rig.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
    rig.node(1).kill()
    rig.run_until(lambda: rig.image("orders").leader == 2, "another broker leads")
    rig.run_until(lambda: rig.image("orders").isr == (2, 3), "the ISR is smaller")
    notes = [note for note in rig.world.trace.notes if note.node == DECIDED]
    texts = [note.text for note in notes]
    assert f"{CONTROLLER} is the active controller in epoch 1" in texts
    first = texts.index("orders-0: leader 1, ISR 1,2,3 of 1,2,3, epoch 0")
    assert "orders-0: leader 2, ISR 2,3 of 1,2,3, epoch 1" in texts[first:]
    assert "broker 1 is fenced" in texts[first:]
    facts = [note.fact for note in notes]
    assert ControllerElected(CONTROLLER) in facts
    assert BrokerFenced(1, fenced=True) in facts
    assert PartitionDecided("orders-0", 2, 1, (2, 3), (1, 2, 3)) in facts
