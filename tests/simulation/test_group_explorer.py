"""The world of one coordinator in memory: its promises hold, and each of some mistakes is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.group_explorer import GroupExplorer

from barnabas.coordinators.groups import offset_requests
from barnabas.coordinators.groups.administration import Administration
from barnabas.coordinators.groups.consumer.draft import Change, Draft
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchResponse
from barnabas.simulation.history import Violation

Plant = Callable[[pytest.MonkeyPatch], None]


def test_every_promise_holds() -> None:
    for seed in range(1, 26):
        GroupExplorer(seed).run()


def _tombstones_are_forgotten(plant: pytest.MonkeyPatch) -> None:
    real = Draft.delete

    def forgetful(draft: Draft) -> Change:
        before = len(draft.records)
        yield from real(draft)
        del draft.records[before:]

    plant.setattr(Draft, "delete", forgetful)


def _filters_of_lists_are_ignored(plant: pytest.MonkeyPatch) -> None:
    real = Administration.list_groups

    def unfiltered(self: Administration, request: ListGroupsRequest, *more: Any) -> None:
        real(self, ListGroupsRequest(types_filter=request.types_filter), *more)

    plant.setattr(Administration, "list_groups", unfiltered)


def _old_requests_are_answered_before_the_work(plant: pytest.MonkeyPatch) -> None:
    def early(
        fetched: Any, fetch: Any, api_version: int, reply: Callable[[OffsetFetchResponse], None]
    ) -> Iterator[None]:
        reply(OffsetFetchResponse())
        yield

    plant.setattr(offset_requests, "_answer_alone", early)


@pytest.mark.parametrize(
    ("mistake", "found"),
    [
        (_tombstones_are_forgotten, "differs from its log"),
        (_filters_of_lists_are_ignored, "ListGroups"),
        (_old_requests_are_answered_before_the_work, "OffsetFetch version"),
    ],
)
def test_mistakes_are_found(mistake: Plant, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(Violation, match=found):
        for seed in range(1, 41):
            GroupExplorer(seed).run()
