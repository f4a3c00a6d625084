"""The rows of the table "Cluster": what is measured, its amount, and its goal.

Steps of one life run one after the other against the same three brokers, which start with empty folders.
"""

from __future__ import annotations

from typing import Any

import group_rows
from workloads import Goal, Metric, Step

_ORDERS: dict[str, Any] = {"size_bytes": 100, "replicas": 3, "acks": "all"}
_BATCHED = (("100b", "100 B", 100, 1_500_000), ("1kb", "1 kB", 1_000, 250_000), ("10kb", "10 kB", 10_000, 25_000))


def _batched() -> list[Step]:
    steps = []
    for name, title, size_bytes, records in _BATCHED:
        rate, unit = ("records_per_s", "records/s") if size_bytes == 100 else ("mb_per_s", "MB/s")
        metric = Metric(
            f"cluster_batched_{name}", f"produce, acks=all, {title} records in batches", unit, Goal(at_least=1.5)
        )
        steps.append(
            Step(
                metric.name,
                "produce",
                {rate: metric},
                {**_ORDERS, "size_bytes": size_bytes, "records": records, "warm_up": records // 10},
                {"records": records // 5, "warm_up": records // 25},
            )
        )
    return steps


_REQUESTS = (
    Step(
        "cluster_start",
        None,
        {
            "s": Metric(
                "cluster_start",
                "from nothing to three brokers that clients can use",
                "s",
                Goal(at_most=1.0, absolute=True),
            )
        },
    ),
    Step(
        "cluster_rss_idle",
        None,
        {
            "mb": Metric(
                "cluster_rss_idle",
                "resident memory of the largest broker, idle",
                "MB",
                Goal(at_most=70.0, absolute=True),
            )
        },
        {"settle_s": 5.0},
        {"settle_s": 1.0},
    ),
    Step(
        "cluster_acks_all",
        "one_in_flight",
        {
            "p50_ms": Metric("cluster_acks_all_p50", "one in flight, acks=all, p50", "ms", Goal(at_most=0.5)),
            "p99_ms": Metric("cluster_acks_all_p99", "one in flight, acks=all, p99", "ms", Goal(at_most=0.5)),
        },
        {**_ORDERS, "records": 5_000, "warm_up": 3_000},
        {"records": 1_000, "warm_up": 500},
    ),
    Step(
        "cluster_acks_1",
        "one_in_flight",
        {"p50_ms": Metric("cluster_acks_1_p50", "one in flight, acks=1, p50", "ms")},
        {**_ORDERS, "acks": "1", "records": 5_000, "warm_up": 3_000},
        {"records": 1_000, "warm_up": 500},
    ),
    Step(
        "cluster_unbatched",
        "produce",
        {
            "records_per_s": Metric(
                "cluster_unbatched", "produce, acks=all, one record per batch", "records/s", Goal(at_least=4.0)
            )
        },
        {
            **_ORDERS,
            "records": 15_000,
            "warm_up": 5_000,
            "settings": {"batch.num.messages": 1, "linger.ms": 0},
        },
        {"records": 4_000, "warm_up": 1_000},
    ),
    *_batched(),
    Step(
        "cluster_rss_loaded",
        None,
        {
            "mb": Metric(
                "cluster_rss_loaded",
                "resident memory of the largest broker, after that",
                "MB",
                Goal(at_most=100.0, absolute=True),
            )
        },
    ),
)

_FAULTS = (
    Step(
        "cluster_crash",
        None,
        {
            "first_ack_s": Metric(
                "cluster_crash",
                "leader killed with -9: until the next record is acknowledged (acks=all)",
                "s",
                Goal(at_most=0.5, absolute=True),
            ),
            "elect_s": Metric("cluster_crash_elect", "of that: until a survivor's metadata shows a new leader", "s"),
            "refresh_s": Metric("cluster_crash_refresh", "of that: until the client has found it", "s"),
        },
        {"times": 3, "interval_s": 0.004},
        {"times": 1},
    ),
    Step(
        "cluster_stop",
        None,
        {
            "pause_s": Metric(
                "cluster_stop",
                "leader shut down cleanly: longest time without an acknowledgement",
                "s",
                Goal(at_most=0.1, absolute=True),
            )
        },
        {"times": 3, "interval_s": 0.004},
        {"times": 1},
    ),
    Step(
        "cluster_controller",
        None,
        {
            "s": Metric(
                "cluster_controller",
                "active controller killed with -9: until CreateTopics is answered",
                "s",
                Goal(at_most=1.0, absolute=True),
            )
        },
        {"times": 3},
        {"times": 1},
    ),
    Step(
        "cluster_rolling",
        None,
        {
            "s": Metric(
                "cluster_rolling",
                "restart of one broker after the other, 1,000 partitions (quick: 100), until all are in sync",
                "s",
                Goal(at_most=10.0, absolute=True),
            )
        },
        {"partitions": 1_000},
        {"partitions": 100},
    ),
)

_LAGGING = (
    Step(
        "cluster_paused",
        None,
        {
            "first_ack_s": Metric(
                "cluster_paused",
                "leader paused (SIGSTOP): until the next record is acknowledged (acks=all)",
                "s",
                Goal(at_most=1.0),
            ),
            "elect_s": Metric("cluster_paused_elect", "of that: until a survivor's metadata shows a new leader", "s"),
        },
        {"times": 3, "interval_s": 0.004},
        {"times": 1},
    ),
    Step(
        "cluster_catch_up",
        None,
        {
            "mb_per_s": Metric(
                "cluster_catch_up", "a follower 10 GB behind (quick: 1 GB) catches up", "MB/s", Goal(at_least=1.0)
            ),
            "p99_ms": Metric("cluster_catch_up_p99", "meanwhile to another topic: one record every 4 ms, p99", "ms"),
            "p99_ratio": Metric(
                "cluster_catch_up_p99_ratio", "that p99 over the one just before", "×", Goal(at_most=2.0, absolute=True)
            ),
        },
        {"megabytes": 10_000, "interval_s": 0.004},
        {"megabytes": 1_000},
    ),
)

_PARTITIONS = (
    Step(
        "cluster_create",
        None,
        {
            "s": Metric(
                "cluster_create",
                "10,000 partitions created (quick: 1,000), until all brokers report all of them",
                "s",
                Goal(at_most=10.0, absolute=True),
            )
        },
        {"topics": 10, "partitions_per_topic": 1_000},
        {"partitions_per_topic": 100},
    ),
    Step(
        "cluster_leaderships",
        None,
        {
            "s": Metric(
                "cluster_leaderships",
                "broker with 5,000 leaderships (quick: 500) killed with -9: until a survivor reports new leaders",
                "s",
                Goal(at_most=1.0, absolute=True),
            )
        },
        {"topics": 10, "partitions_per_topic": 1_000},
        {"partitions_per_topic": 100},
        after="cluster_create",
    ),
)

#: Steps that each need a start of three brokers with empty folders.
_TRANSACTIONS = (
    Step(
        "cluster_transactions",
        "transactions",
        {
            "per_s": Metric(
                "cluster_transactions", "transactions of 100 records in 3 partitions", "per s", Goal(at_least=1.5)
            ),
            "p50_ms": Metric(
                "cluster_transactions_p50", "a transaction of 100 records, from begin to commit, p50", "ms"
            ),
            "p99_ms": Metric(
                "cluster_transactions_p99",
                "a transaction of 100 records, from begin to commit, p99",
                "ms",
                Goal(at_most=0.7),
            ),
        },
        {"size_bytes": 100, "replicas": 3, "partitions": 3, "records": 100, "transactions": 1_000, "warm_up": 300},
        {"transactions": 200, "warm_up": 50},
    ),
)

LIVES: dict[str, tuple[Step, ...]] = {
    "requests": _REQUESTS,
    "transactions": _TRANSACTIONS,
    "faults": _FAULTS,
    "lagging": _LAGGING,
    "partitions": _PARTITIONS,
    "groups as shipped": group_rows.SHIPPED_STEPS,
    "groups": group_rows.HASTY_STEPS,
}
#: Properties of the brokers of a life, in addition to the common ones.
LIFE_PROPERTIES = {"groups": group_rows.PROPERTIES}
CLUSTER_STEPS: tuple[Step, ...] = tuple(step for steps in LIVES.values() for step in steps)
