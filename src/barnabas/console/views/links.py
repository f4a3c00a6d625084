"""The link matrix: which broker fetches from which, how far behind, and what brokers reported about their links.

A cell is about one direction: `from` fetches the partitions that `to` leads. A broker that follows nothing of another
has an empty cell, and nothing is known about that direction unless the broker reported it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from barnabas.console.cluster_view import ClusterView
from barnabas.console.views.brokers import all_brokers
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.changes import Event
from barnabas.monitor.columns import UNKNOWN, LongArray
from barnabas.monitor.table import ClusterTable

LINK_LOST: Final = "link-lost"
_SHOWN: Final = 200
#: The time for which a link is marked after the report of its end.
_RECENT_MS: Final = 60_000
#: Brokers up to which the matrix names every pair.
_BROKERS_MAX: Final = 200
_FIELDS: Final = ("kind", "broker", "peer", "directory", "side", "begin_ms", "end_ms", "time_ms", "text")


def links_view(cluster: ClusterView) -> dict[str, Any]:
    """Returns the matrix with the newest reports. A history has no reports."""
    whole = cluster.source
    reports = latest(whole.reports) if isinstance(whole, WatchedCluster) else []
    brokers = [broker.broker_id for broker in all_brokers(cluster)]
    shown = brokers[:_BROKERS_MAX]
    lost = {
        (each["broker"], each["peer"]): each
        for each in reports
        if each["kind"] == LINK_LOST and "peer" in each and is_recent(each, cluster.clock_ms())
    }
    silent = {each["broker"]: each["reason"] for each in cluster.silent()}
    return {
        "brokers": shown,
        "brokers_total": len(brokers),
        "cells": _cells(cluster.table, shown, silent, lost),
        "reports": [{name: each.get(name) for name in _FIELDS} for each in reports[:_SHOWN]],
        "has_reports": isinstance(whole, WatchedCluster) and whole.feeds.has_journal,
    }


def latest(reports: Iterable[Event]) -> list[Event]:
    """Returns the reports, the newest first. The report of an end replaces that of the beginning."""
    found: dict[tuple[Any, ...], Event] = {}
    for each in reports:
        subject = each.get("peer", each.get("directory", each.get("side")))
        key = (each["kind"], each.get("broker"), subject, each.get("begin_ms"))
        found.pop(key, None)
        found[key] = each
    return list(found.values())[::-1]


def is_recent(report: Event, now_ms: int) -> bool:
    """Whether a state lasts, or ended a short time ago."""
    return "end_ms" not in report or now_ms - int(report["end_ms"]) < _RECENT_MS


def _cells(
    table: ClusterTable, brokers: list[int], silent: Mapping[int, str | None], lost: Mapping[tuple[int, int], Event]
) -> list[dict[str, Any]]:
    """Returns a cell for each pair of which something is known."""
    counts = _pairs(table)
    found = []
    for fetcher in brokers:
        for leader in brokers:
            partitions, out_of_sync, lag = counts.get((fetcher, leader), (0, 0, UNKNOWN))
            report = lost.get((fetcher, leader))
            if fetcher == leader or not (partitions or report):
                continue
            found.append(
                {
                    "from": fetcher,
                    "to": leader,
                    "partitions": partitions,
                    "out_of_sync": out_of_sync,
                    "lag": None if lag == UNKNOWN else lag,
                    "state": _state(fetcher, leader, out_of_sync, silent, report),
                    "report": None if report is None else report["text"],
                }
            )
    return found


def _state(fetcher: int, leader: int, out_of_sync: int, silent: Mapping[int, str | None], report: Event | None) -> str:
    if report is not None:
        return "lost" if "end_ms" not in report else "was lost"
    if fetcher in silent or leader in silent:
        return "silent"
    return "behind" if out_of_sync else "ok"


def _pairs(table: ClusterTable) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Returns, by follower and leader: the partitions, those whose follower is out of sync, and the largest lag."""
    rows, states = table.rows, table.states
    leaders, replicas = states.leader[rows], states.replicas[rows]
    is_follower = (replicas != UNKNOWN) & (replicas != leaders[:, None]) & (leaders != UNKNOWN)[:, None]
    in_sync = (replicas[:, :, None] == states.isr[rows][:, None, :]).any(axis=2)
    lags: LongArray = table.volumes.lags(rows, leaders, replicas)
    pairs = np.stack([replicas[is_follower], np.broadcast_to(leaders[:, None], replicas.shape)[is_follower]], axis=1)
    if not len(pairs):
        return {}
    names, numbers = np.unique(pairs, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    counts = np.bincount(numbers, minlength=len(names))
    out = np.bincount(numbers, weights=~in_sync[is_follower], minlength=len(names)).astype(np.int64)
    largest = np.full(len(names), UNKNOWN, np.int64)
    np.maximum.at(largest, numbers, lags[is_follower])
    return {
        (int(fetcher), int(leader)): (int(counts[place]), int(out[place]), int(largest[place]))
        for place, (fetcher, leader) in enumerate(names.tolist())
    }
