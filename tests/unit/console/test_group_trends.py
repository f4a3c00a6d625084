"""Trends of groups: since when they are behind, and when they will have read everything."""

from __future__ import annotations

from barnabas.console.group_trends import GroupTrends, Trend
from barnabas.monitor.delta import Delta, Partitions, Source
from barnabas.monitor.group_sweep import GroupState
from barnabas.monitor.table import ClusterTable

TOPICS = ("orders", "returns")
NOTHING = Trend(None, None)


def _table() -> ClusterTable:
    """Returns a table of two topics with one partition each, which end at 1,000."""
    table, found = ClusterTable(), Partitions()
    for number, name in enumerate(TOPICS):
        found.add_topic(name, bytes([number] * 16), is_complete=True)
        found.add(0, 1, 0, [1], [1])
    table.apply(Delta(1, Source.METADATA_LOG, partitions=found))
    table.volumes.high_watermark[:] = 1_000
    return table


def _sampled(trends: GroupTrends, swept_ms: int, **committed: int) -> None:
    trends.sample(swept_ms, {"billing": GroupState({(topic, 0): offset for topic, offset in committed.items()})})


def test_a_group_that_catches_up_is_level_when_its_lag_has_fallen_to_nothing() -> None:
    trends = GroupTrends(_table())
    assert trends.of("billing", {"orders"}) == NOTHING
    _sampled(trends, 10_000, orders=1_000)
    assert trends.of("billing", {"orders"}) == NOTHING, "all is read"
    _sampled(trends, 20_000, orders=200)
    assert trends.of("billing", {"orders"}) == (20_000, None), "its lag does not fall"
    _sampled(trends, 30_000, orders=200)
    for sweep in range(12):
        _sampled(trends, 40_000 + sweep * 1_000, orders=200 + sweep * 50)
    # The group read 550 of 800 records in 11 seconds: the other 250 take 5 seconds.
    assert trends.of("billing", {"orders"}) == (20_000, 51_000 + 5_000)
    _sampled(trends, 60_000, orders=1_000)
    assert trends.of("billing", {"orders"}) == NOTHING


def test_a_sweep_counts_once_and_a_group_that_is_gone_is_forgotten() -> None:
    trends = GroupTrends(_table())
    for _ in range(20):
        _sampled(trends, 10_000, orders=100)
    _sampled(trends, 20_000, orders=550)
    assert trends.of("billing", {"orders"}) == (10_000, 30_000)
    trends.sample(30_000, {})
    assert trends.of("billing", {"orders"}) == NOTHING


def test_only_the_topics_of_the_visitor_count() -> None:
    trends = GroupTrends(_table())
    _sampled(trends, 10_000, orders=1_000, returns=0)
    _sampled(trends, 20_000, orders=900, returns=500)
    assert trends.of("billing", {"orders"}) == (20_000, None)
    assert trends.of("billing", {"returns"}) == (10_000, 30_000)
    assert trends.of("billing", set(TOPICS)) == (10_000, 20_000 + 15_000)
