"""Reassignment plans: the JSON of Kafka's kafka-reassign-partitions tool, and proposals as that tool makes them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.decisions import proposals
from barnabas.embedded.failures import Failure

ANY_DIRECTORY: Final = "any"
Partition = tuple[str, int]


class Target(NamedTuple):
    replicas: tuple[int, ...]
    #: A path or "any" for each replica.
    log_dirs: tuple[str, ...]


Plan = dict[Partition, Target]


def read_plan(path: Path) -> Plan:
    """Reads a plan. Raises Failure if the file is missing or malformed, or lists something twice."""
    try:
        document = json.loads(path.read_text())
        rows = [_target(row) for row in document["partitions"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path}: not a reassignment ({error!r})") from error
    plan = dict(rows)
    if not plan:
        raise Failure(f"{path}: the list of partitions is empty")
    if len(plan) < len(rows):
        raise Failure(f"{path}: a partition is listed twice")
    for (topic, index), target in plan.items():
        if not target.replicas or len(set(target.replicas)) < len(target.replicas):
            raise Failure(f"{path}: {topic}-{index} has no replicas, or one twice")
        if len(target.log_dirs) != len(target.replicas):
            raise Failure(f"{path}: {topic}-{index} does not have as many log_dirs as replicas")
    return plan


def _target(row: Mapping[str, Any]) -> tuple[Partition, Target]:
    replicas = tuple(int(replica) for replica in row["replicas"])
    directories = tuple(str(each) for each in row.get("log_dirs") or (ANY_DIRECTORY,) * len(replicas))
    return (str(row["topic"]), int(row["partition"])), Target(replicas, directories)


def read_topics(path: Path) -> list[str]:
    try:
        names = [str(row["topic"]) for row in json.loads(path.read_text())["topics"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path}: not a list of topics ({error!r})") from error
    if not names or len(set(names)) < len(names):
        raise Failure(f"{path}: the list of topics is empty, or one is listed twice")
    return names


def to_json(replicas: Mapping[Partition, Sequence[int]]) -> str:
    """Returns the JSON that `read_plan` reads."""
    rows = [
        {"topic": topic, "partition": index, "replicas": list(ids), "log_dirs": [ANY_DIRECTORY] * len(ids)}
        for (topic, index), ids in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def propose(
    racks: Mapping[int, str | None], partition_count: int, factor: int, chance: random.Random
) -> list[list[int]]:
    """Proposes replicas for each partition of one topic on these brokers (id -> rack). Raises Failure if there are
    fewer brokers than replicas.
    """
    try:
        return proposals.propose(racks, partition_count, factor, chance.randrange)
    except ValueError as error:
        raise Failure(str(error)) from error
