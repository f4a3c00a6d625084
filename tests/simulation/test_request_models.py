"""Small worlds of rights, requests and a node's peers: promises hold, and each of some mistakes is found within a few
seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.peers_explorer import PeersExplorer
from tests.support.request_explorer import RequestExplorer
from tests.support.rights_explorer import RightsExplorer

from barnabas.broker.handlers import envelope
from barnabas.broker.peers import node_tokens
from barnabas.broker.peers.controller_access import PendingRequest
from barnabas.broker.peers.documents import Document
from barnabas.broker.requests import pieces
from barnabas.broker.requests.client_connection import Connection
from barnabas.broker.throttling.request_throttle import RequestThrottle
from barnabas.broker.zookeeper.acl_watch import AclWatch
from barnabas.metadata.acls import AclIndex
from barnabas.simulation.history import Violation

Plant = Callable[[pytest.MonkeyPatch], None]
Explorer = type[RightsExplorer] | type[PeersExplorer] | type[RequestExplorer]
_EXPLORERS = [RightsExplorer, PeersExplorer, RequestExplorer]


@pytest.mark.parametrize("explorer", _EXPLORERS)
def test_every_promise_holds(explorer: Explorer) -> None:
    for seed in range(1, 16):
        explorer(seed).run()


@pytest.mark.full
@pytest.mark.parametrize("explorer", _EXPLORERS)
def test_every_promise_holds_in_many_runs(explorer: Explorer) -> None:
    for seed in range(16, 400):
        explorer(seed).run()


def _denials_are_for_everybody(plant: pytest.MonkeyPatch) -> None:
    real = AclIndex.decide
    plant.setattr(AclIndex, "decide", lambda self, principal, *rest: real(self, principal.partition(":")[2], *rest))


def _broken_rules_are_none(plant: pytest.MonkeyPatch) -> None:
    real = AclWatch.take
    plant.setattr(
        AclWatch, "take", lambda self, pattern, entries: real(self, pattern, [] if len(entries) == 1 else entries)
    )


def _abandoned_requests_are_sent(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(PendingRequest, "abandon", lambda self: None)


def _documents_are_never_closed(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(Document, "close", lambda self: None)


def _tokens_are_replaced_at_their_end(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(node_tokens, "_renewal_ms", lambda refresh, lifetime_ms, share: lifetime_ms)


def _duplicates_are_separate(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(pieces, "_grouped_by_key", lambda rows, shape: ((row, True) for row in rows))


def _all_time_is_charged(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(RequestThrottle, "leave", lambda self: self._throttle(self._charge()))


def _long_searches_hold_the_loop(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(envelope, "_ROWS_PER_STEP", 1_000)


def _responses_are_dropped_at_a_bad_frame(plant: pytest.MonkeyPatch) -> None:
    def fail(self: Any, cause: str, error: BaseException | None) -> None:
        self.log.closed_for_cause(self.peer, cause, error)
        self.close()

    plant.setattr(Connection, "fail", fail)


@pytest.mark.parametrize(
    ("explorer", "mistake"),
    [
        (RightsExplorer, _denials_are_for_everybody),
        (RightsExplorer, _broken_rules_are_none),
        (PeersExplorer, _abandoned_requests_are_sent),
        (PeersExplorer, _documents_are_never_closed),
        (PeersExplorer, _tokens_are_replaced_at_their_end),
        (RequestExplorer, _duplicates_are_separate),
        (RequestExplorer, _all_time_is_charged),
        (RequestExplorer, _long_searches_hold_the_loop),
        (RequestExplorer, _responses_are_dropped_at_a_bad_frame),
    ],
)
def test_mistakes_are_found(explorer: Explorer, mistake: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(1, 31):
            explorer(seed).run()
