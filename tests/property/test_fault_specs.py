"""Faults as commands name them: what is written is read as the same fault, for all faults."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.simulation.faults import THERE, Fault, FaultEvent, FaultKind, Trigger, fault_of, fault_spec

NODES = ("broker1", "broker3", "controller2", "zookeeper", "producer1")
TRIGGERS = st.builds(
    Trigger,
    st.sampled_from(FaultEvent),
    st.sampled_from(("", *NODES)),
    st.integers(1, 1000),
    st.integers(0, 100_000),
)


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    trigger = draw(st.none() | TRIGGERS)
    return Fault(
        draw(st.integers(0, 10**7)),
        draw(st.sampled_from(FaultKind)),
        draw(st.sampled_from(NODES if trigger is None else (*NODES, THERE))),
        draw(st.sampled_from(("", *NODES))),
        draw(st.integers(0, 10**6)),
        draw(st.integers(-(10**7), 10**7)),
        trigger,
    )


@given(faults())
def test_a_fault_that_is_written_down_is_read_again(fault: Fault) -> None:
    assert fault_of(fault_spec(fault)) == fault
