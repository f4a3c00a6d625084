"""Work in short slices: every promise holds, slices end in the middle of work, and sizes are restored after a run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from random import Random

import pytest

from barnabas.controller.requests import partitions
from barnabas.controller.requests.result import Portion
from barnabas.simulation import scenario
from barnabas.simulation import short_slices as slices
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.scenario import Settings, drawn_slices, run
from barnabas.simulation.short_slices import SLICE_SIZES, SliceSize, draw_slices, short_slices
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.work import WorkKind


def _sizes() -> Iterator[int]:
    for size in SLICE_SIZES:
        for name in size.modules:
            yield vars(importlib.import_module(f"barnabas.{name}"))[size.name]


def test_sizes_are_their_own_again_when_a_run_is_over() -> None:
    before = list(_sizes())
    with short_slices({each: each.values[0] for each in SLICE_SIZES}):
        assert list(_sizes()) == [each.values[0] for each in SLICE_SIZES for _ in each.modules]
    assert list(_sizes()) == before


def test_all_modules_of_a_size_have_the_same_constant() -> None:
    for size in SLICE_SIZES:
        values = {vars(importlib.import_module(f"barnabas.{name}"))[size.name] for name in size.modules}
        assert len(values) == 1, size
        assert max(size.values) < values.pop(), size


def test_seeds_draw_different_sizes_and_half_of_them_none() -> None:
    drawn = [draw_slices(Random(seed)) for seed in range(200)]
    assert 60 < sum(not each for each in drawn) < 140
    assert {size for each in drawn for size in each} == set(SLICE_SIZES)
    assert drawn_slices(Settings(seed=1)) == {}


def test_a_module_without_its_constant_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_SIZES", (SliceSize("NO_SUCH_SIZE", ("common.portions",)),))
    with pytest.raises(LookupError, match="NO_SUCH_SIZE"), short_slices({}):
        pass


IN_ZOOKEEPER = Layout(brokers=3, zookeeper=True)


@pytest.mark.parametrize(
    ("layout", "work"),
    [
        (Layout(brokers=3), WorkKind.RECORDS),
        (IN_ZOOKEEPER, WorkKind.RECORDS),
        pytest.param(Layout(brokers=3), WorkKind.TRANSACTIONS, marks=pytest.mark.full),
        pytest.param(Layout(brokers=3), WorkKind.GROUPS, marks=pytest.mark.full),
    ],
)
def test_every_promise_holds_in_the_shortest_slices(
    layout: Layout, work: WorkKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario, "drawn_slices", lambda settings: {each: each.values[0] for each in SLICE_SIZES})
    cut: list[bool] = []
    real = partitions.leader_and_isr_portion

    def counted(*arguments: object) -> Portion:
        portion = real(*arguments)  # type: ignore[arg-type]
        cut.append(not portion.is_last)
        return portion

    for module in ("controller.requests.brokers", "controller.requests.partitions"):
        monkeypatch.setattr(importlib.import_module(f"barnabas.{module}"), "leader_and_isr_portion", counted)
    kill = Fault(6_000, FaultKind.KILL, "broker2", "", 2_000, 0)
    outcome = run(Settings(3, layout, faults_s=4, work=work, schedule=(kill,), operations=()))
    assert not outcome.failed, outcome.problems
    assert any(cut) or layout.zookeeper
