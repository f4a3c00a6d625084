"""The queries of clients at the end of a run: wrong answers of each kind are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.handlers import describe_cluster
from barnabas.coordinators.groups.administration import Administration
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.simulation.scenario import Run, Settings
from barnabas.simulation.simulated_cluster import Layout

Plant = Callable[[pytest.MonkeyPatch], None]
CALM = Settings(seed=1, layout=Layout(brokers=3), kinds=(), operations=(), faults_s=2, records_per_s=0.5)


def test_every_answer_is_compared() -> None:
    run = Run(CALM)
    assert not run.execute().failed
    assert run.descriptions is not None
    # Six questions to each broker, and one to each controller.
    assert run.descriptions.compared == 3 * 7


def _controllers_are_left_out(plant: pytest.MonkeyPatch) -> None:
    real: Any = describe_cluster._controllers

    def fewer(*arguments: Any) -> Any:
        response = real(*arguments)
        del response.brokers[0]
        return response

    plant.setattr(describe_cluster, "_controllers", fewer)


def _groups_are_left_out(plant: pytest.MonkeyPatch) -> None:
    real = Administration.list_groups

    def fewer(self: Administration, request: ListGroupsRequest, *more: Any) -> None:
        real(self, ListGroupsRequest(states_filter=[*request.states_filter, "Empty"]), *more)

    plant.setattr(Administration, "list_groups", fewer)


@pytest.mark.parametrize(
    ("mistake", "found"), [(_controllers_are_left_out, "the controllers"), (_groups_are_left_out, "ListGroups")]
)
def test_wrong_answers_are_found(mistake: Plant, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    outcome = Run(CALM).execute()
    assert outcome.problems
    assert outcome.problems[0].startswith("a description differs from the state: ")
    assert found in outcome.problems[0]
