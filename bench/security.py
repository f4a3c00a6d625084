"""The experiments of security: what they are, how each runs, and their table.

security_requests   requests of one broker in the clear, over TLS and after a log-in; new clients
security_rules      our own rate with rules; questions, changes and starts with 100,000 of them
security_quotas     the rates under byte quotas
security_memory     an idle broker with security, and with idle TLS connections
security_cluster    three brokers with TLS between them
security_start      the start of an embedded secure cluster
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import report
import security_cluster
import security_memory
import security_quotas
import security_requests
import security_rules
from security_cluster import SECURITY_CLUSTER, SECURITY_START
from security_memory import SECURITY_MEMORY
from security_quotas import SECURITY_QUOTAS
from security_requests import SECURITY_REQUESTS
from security_rules import SECURITY_RULES
from workloads import Experiment

SECURITY = (SECURITY_REQUESTS, SECURITY_RULES, SECURITY_QUOTAS, SECURITY_MEMORY, SECURITY_CLUSTER, SECURITY_START)
#: The experiments that measure Apache Kafka, too.
COMPARED = frozenset(each.name for each in (SECURITY_REQUESTS, SECURITY_QUOTAS, SECURITY_MEMORY, SECURITY_CLUSTER))


def table(alone: Mapping[str, Experiment]) -> report.Table:
    """Returns the table of all experiments. `alone`: the experiments by name, in the size of the run."""
    sized = [alone[each.name] for each in SECURITY]
    rounds = ", ".join(f"{each.name} {each.options['rounds']}" for each in sized)
    return report.Table(
        "Security",
        f"Rounds: {rounds}. One broker with a listener for each security protocol, the same certificate (P-256) and "
        f"the same client; new clients come from {alone[SECURITY_REQUESTS.name].options['processes']} processes. "
        "Rules are compared with our own broker without rules.",
        [metric for each in sized for metric in each.metrics],
    )


def runs(data: Path, targets: Sequence[str], values: report.Values) -> dict[str, Callable[[Experiment], None]]:
    """Returns what runs each experiment, by name."""
    return {
        SECURITY_REQUESTS.name: lambda each: security_requests.run(each, data, targets, values),
        SECURITY_RULES.name: lambda each: security_rules.run(each, data, values),
        SECURITY_QUOTAS.name: lambda each: security_quotas.run(each, data, targets, values),
        SECURITY_MEMORY.name: lambda each: security_memory.run(each, data, targets, values),
        SECURITY_CLUSTER.name: lambda each: security_cluster.run_cluster(each, data, targets, values),
        SECURITY_START.name: lambda each: security_cluster.run_start(each, data, values),
    }
