"""Offsets as Spark keeps them: a round trip, an order that never changes, and refusals of foreign ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import ConfigError
from barnabas.common.types import TopicPartition
from barnabas.spark.checkpoint import Position, Progress, from_json, spans
from barnabas.spark.losses import LossCause, LostRange

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 20))
positions = st.builds(Position, st.integers(0, 1 << 60), st.integers(-1, 99), st.none() | st.integers(0, 1 << 60))
losses = st.builds(
    LostRange,
    st.just("a"),
    st.integers(0, 9),
    st.integers(0, 99),
    st.none() | st.integers(0, 999),
    st.sampled_from(LossCause),
    st.booleans(),
    st.just("id"),
)


@settings(deadline=None)
@given(st.dictionaries(partitions, positions), st.lists(losses, max_size=3))
def test_there_and_back(found: dict[TopicPartition, Position], lost: list[LostRange]) -> None:
    progress = Progress(found, {each.topic: f"id-{each.topic}" for each in found}, tuple(lost))
    text = json.dumps(progress.to_json())
    assert from_json(json.loads(text)) == progress
    turned = Progress(dict(reversed(found.items())), progress.topic_ids, progress.lost)
    assert json.dumps(turned.to_json()) == text


@pytest.mark.parametrize(
    "value, said",
    [
        ({"t": {"0": 5}}, "not written by this source"),
        ({"version": 2, "topics": {}}, "version 2, but this source reads version 1"),
        ({"version": 1, "topics": {"t": {"partitions": {}}}}, "not written by this source"),
        ({"version": 1, "topics": {"t": {"id": "", "partitions": {"x": {"offset": 1, "epoch": 1}}}}}, "not written"),
    ],
)
def test_foreign_checkpoints_are_refused(value: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_json(value)


def test_a_span_begins_at_the_end_of_the_last_one_or_at_the_given_offset() -> None:
    first, second, third = (TopicPartition("t", index) for index in range(3))
    start = Progress({first: Position(5, 1), second: Position(9, 1)}, {"t": "id"})
    end = Progress({first: Position(8, 2), second: Position(7, 2, 4), third: Position(3, 2, 0)}, {"t": "id"})
    assert list(spans(start, end)) == [(first, 5, 8, 2), (second, 4, 7, 2), (third, 0, 3, 2)]
    assert list(spans(start, start)) == []
