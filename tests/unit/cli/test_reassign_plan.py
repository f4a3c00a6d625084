"""Plans of reassignments: Kafka's JSON in and out, and proposals that spread leaders, replicas and racks."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.elect import read_partitions
from barnabas.cli.reassign_plan import Target, propose, read_plan, read_topics, to_json
from barnabas.embedded.failures import Failure


def written(directory: Path, document: object) -> Path:
    path = directory / "file.json"
    path.write_text(json.dumps(document))
    return path


def row(topic: str, partition: int, *replicas: int, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "replicas": list(replicas), **more}


def test_a_plan_is_read(tmp_path: Path) -> None:
    rows = [row("a", 0, 1, 2), row("a", 1, 2, log_dirs=["/data"])]
    assert read_plan(written(tmp_path, {"version": 1, "partitions": rows})) == {
        ("a", 0): Target((1, 2), ("any", "any")),
        ("a", 1): Target((2,), ("/data",)),
    }


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(to_json({("b", 0): [3], ("a", 1): [2, 1]}))
    assert read_plan(path) == {("a", 1): Target((2, 1), ("any", "any")), ("b", 0): Target((3,), ("any",))}


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row("a", 0, 1), row("a", 0, 2)],
        [row("a", 0)],
        [row("a", 0, 1, 1)],
        [row("a", 0, 1, 2, log_dirs=["any"])],
        [{"topic": "a"}],
    ],
    ids=["empty", "twice", "no replicas", "replica twice", "log dirs", "incomplete"],
)
def test_a_plan_that_cannot_be(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(Failure, match=r"file\.json"):
        read_plan(written(tmp_path, {"partitions": rows}))


def test_topics_and_partitions_are_read(tmp_path: Path) -> None:
    assert read_topics(written(tmp_path, {"topics": [{"topic": "a"}, {"topic": "b"}]})) == ["a", "b"]
    found = read_partitions(written(tmp_path, {"partitions": [{"topic": "a", "partition": 2}]}))
    assert found == [TopicPartition("a", 2)]
    documents: list[dict[str, Any]] = [{}, {"topics": []}, {"topics": [{"topic": "a"}, {"topic": "a"}]}]
    for document in documents:
        with pytest.raises(Failure):
            read_topics(written(tmp_path, document))
    twice = [{"topic": "a", "partition": 2}] * 2
    incomplete: list[dict[str, Any]] = [{}, {"partitions": []}, {"partitions": twice}]
    for wrong in incomplete:
        with pytest.raises(Failure):
            read_partitions(written(tmp_path, wrong))


@given(
    brokers=st.integers(1, 7),
    factor=st.integers(1, 4),
    partitions=st.integers(1, 40),
    racks=st.one_of(st.none(), st.integers(1, 4)),
    seed=st.integers(0, 1000),
)
def test_proposals_spread(brokers: int, factor: int, partitions: int, racks: int | None, seed: int) -> None:
    where = {broker: None if racks is None else f"rack{broker % racks}" for broker in range(brokers)}
    if factor > brokers:
        with pytest.raises(Failure):
            propose(where, partitions, factor, random.Random(seed))
        return
    placed = propose(where, partitions, factor, random.Random(seed))
    assert len(placed) == partitions
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in range(brokers)) <= 1
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        if racks is not None:
            used = {where[replica] for replica in replicas}
            assert len(used) == min(factor, len(set(where.values())))
