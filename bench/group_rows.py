"""The rows of the table "Groups": what is measured, its amount, and its goal."""

from __future__ import annotations

from workloads import Goal, Metric, Step

#: Properties in addition to those of all clusters: a group's first generation does not wait for more members, and a
#: coordinator's write does not wait for others.
PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "group.coordinator.append.linger.ms": "0"}


def _commits(name: str, title: str, options: dict[str, int], quick: dict[str, int]) -> Step:
    metrics = {
        "per_s": Metric(name, f"offset commits, one in flight, {title}", "per s", Goal(at_least=2.0)),
        "p99_ms": Metric(f"{name}_p99", f"p99 of an offset commit, {title}", "ms"),
    }
    return Step(name, None, metrics, options, quick)


#: Steps on brokers with the properties that all clusters have.
SHIPPED_STEPS: tuple[Step, ...] = (
    _commits(
        "groups_commit_shipped",
        "one partition each, as both are shipped",
        {"commits": 2_000, "warm_up": 2_000},
        {"commits": 500, "warm_up": 200},
    ),
)
#: Steps on brokers with PROPERTIES.
HASTY_STEPS: tuple[Step, ...] = (
    Step(
        "groups_idle",
        None,
        {
            "percent": Metric(
                "groups_idle",
                "CPU that 1,000 idle groups (quick: 200) add to the three brokers",
                "% of a core",
                Goal(at_most=1.0, absolute=True),
            ),
            "beating_percent": Metric(
                "groups_beating", "the same, when a member of each sends a heartbeat every 3 s", "% of a core"
            ),
        },
        {"groups": 1_000, "settle_s": 5.0, "measure_s": 15.0, "beat_s": 3.0},
        {"groups": 200, "settle_s": 1.0, "measure_s": 6.0},
    ),
    _commits(
        "groups_commit",
        "where no write of a coordinator waits for others",
        {"commits": 5_000, "warm_up": 2_000},
        {"commits": 1_000, "warm_up": 500},
    ),
    Step(
        "groups_join",
        None,
        {
            "ms": Metric(
                "groups_join",
                "rebalance of 100 members with 100 partitions (quick: 20) when one more joins",
                "ms",
                Goal(at_most=1.0),
            )
        },
        {"members": 100, "partitions": 100, "times": 10, "warm_up": 5},
        {"members": 20, "times": 3, "warm_up": 1},
    ),
    Step(
        "groups_load",
        None,
        {
            "s": Metric(
                "groups_load",
                "coordinator of 10,000 groups with 10 offsets (quick: 1,000) killed with -9: until all are served",
                "s",
                Goal(at_most=1.0, absolute=True),
            ),
            "elect_s": Metric("groups_load_elect", "of that: until a survivor's metadata shows new leaders", "s"),
            "load_s": Metric("groups_load_rest", "of that: from then on", "s"),
        },
        {"groups": 10_000, "partitions": 10, "connections": 32},
        {"groups": 1_000},
    ),
)
GROUP_STEPS = SHIPPED_STEPS + HASTY_STEPS
