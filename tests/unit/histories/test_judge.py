"""Single rules of the verdict, on histories of a few lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.histories import Kind, Malformed, Verdict, judge


def send(process: str, type_: str, value: str, **fields: Any) -> dict[str, Any]:
    return {"process": process, "type": type_, "f": "send", "topic": "orders", "value": value, **fields}


def at(process: str, value: str, partition: int, offset: int) -> dict[str, Any]:
    return send(process, "ok", value, partition=partition, offset=offset)


def poll(process: str, **records: list[list[Any]]) -> dict[str, Any]:
    """Returns a poll; `o0` means orders-0."""
    return {
        "process": process,
        "type": "ok",
        "f": "poll",
        "records": {f"orders-{place[1:]}": found for place, found in records.items()},
    }


def op(process: str, type_: str, f: str, **fields: Any) -> dict[str, Any]:
    return {"process": process, "type": type_, "f": f, **fields}


def verdict(*lines: dict[str, Any]) -> Verdict:
    return judge([json.dumps(line) for line in lines])


def test_write_write_cycles_are_legal() -> None:
    """G0: the first transaction comes first on one partition and second on the other; both are committed and read. What
    is between two records of one transaction is reported, and is no fault.
    """
    found = verdict(
        op("t1", "ok", "begin"),
        op("t2", "ok", "begin"),
        at("t1", "a", 0, 0),
        at("t2", "b", 0, 1),
        at("t2", "c", 1, 0),
        at("t1", "d", 1, 1),
        at("t1", "e", 0, 2),
        op("t1", "invoke", "commit"),
        op("t1", "ok", "commit"),
        op("t2", "invoke", "commit"),
        op("t2", "ok", "commit"),
        poll("c1", o0=[[0, "a"], [1, "b"], [2, "e"]], o1=[[0, "c"], [1, "d"]]),
    )
    assert found.valid
    assert found.notes == {Kind.INT_SEND_SKIP: 1}
    assert found.findings[0].values == ("a", "e")


def test_order_within_a_transaction() -> None:
    found = verdict(
        op("t1", "ok", "begin"),
        send("t1", "invoke", "a"),
        send("t1", "invoke", "b"),
        at("t1", "b", 0, 0),
        at("t1", "a", 0, 1),
    )
    assert found.anomalies == {Kind.INT_NONMONOTONIC_SEND: 1}
    assert found.findings[0].lines == (2, 5, 3, 4)


def test_a_transaction_of_unknown_end_that_was_shown_is_committed_as_a_whole() -> None:
    lines = (
        op("t1", "ok", "begin"),
        at("t1", "a", 0, 0),
        at("t1", "b", 0, 1),
        op("t1", "invoke", "commit"),
        op("t1", "info", "commit"),
        at("p1", "c", 0, 3),
    )
    assert verdict(*lines, poll("c1", o0=[[3, "c"]])).valid
    found = verdict(*lines, poll("c1", o0=[[0, "a"], [3, "c"]]))
    assert found.anomalies == {Kind.LOST_WRITE: 1, Kind.INT_POLL_SKIP: 1}


def test_readers_of_uncommitted_records_may_see_what_is_aborted() -> None:
    lines = [
        op("t1", "ok", "begin"),
        at("t1", "a", 0, 0),
        {**poll("c1", o0=[[0, "a"]]), "isolation": "read_uncommitted"},
        op("t1", "invoke", "abort"),
        op("t1", "ok", "abort"),
    ]
    assert verdict(*lines).valid
    del lines[2]["isolation"]
    assert verdict(*lines).anomalies == {Kind.ABORTED_READ: 1}


def test_what_is_not_promised_is_a_note() -> None:
    """Duplicates and order of a producer that is not idempotent."""
    lines = (
        send("p1", "invoke", "a", idempotent=False),
        send("p1", "invoke", "b", idempotent=False),
        at("p1", "a", 0, 1),
        at("p1", "b", 0, 0),
        poll("c1", o0=[[0, "b"], [1, "a"], [2, "a"]]),
    )
    found = verdict(*lines)
    assert found.valid
    assert found.notes == {Kind.NONMONOTONIC_SEND: 1, Kind.DUPLICATE: 1}


def test_unseen_counts_where_the_log_was_read_to_its_end() -> None:
    lines = (at("p1", "a", 0, 0), at("p1", "b", 0, 1), poll("c1", o0=[[0, "a"]]))
    found = verdict(*lines)
    assert found.valid
    assert found.notes == {Kind.UNSEEN: 1}
    assert verdict(*lines, op("c1", "ok", "drained", partitions=["orders-0"])).anomalies == {Kind.UNSEEN: 1}


def test_a_record_that_is_elsewhere_than_acked() -> None:
    found = verdict(at("p1", "a", 0, 5), poll("c1", o0=[[7, "a"]]))
    assert found.anomalies == {Kind.DUPLICATE: 1}
    assert found.findings[0].text == "'a' is at orders-0@5 and at orders-0@7"
    found = verdict(send("p1", "invoke", "a", partition=0), poll("c1", o1=[[7, "a"]]))
    assert found.anomalies == {Kind.DUPLICATE: 1}


def test_a_topic_of_the_same_name_is_another_one() -> None:
    lines = [
        at("p1", "a", 0, 0),
        poll("c1", o0=[[0, "a"]]),
        send("p1", "invoke", "under way"),
        op("admin", "invoke", "delete_topic", topic="orders"),
        op("admin", "ok", "delete_topic", topic="orders"),
        at("p1", "under way", 0, 0),
        op("admin", "ok", "create_topic", topic="orders"),
        at("p1", "b", 0, 1),
        poll("c1", o0=[[0, "under way"], [1, "b"]]),
    ]
    assert verdict(*lines).valid
    lines = [line for line in lines if not str(line["f"]).endswith("_topic")]
    assert verdict(*lines).anomalies.keys() == {
        Kind.INCONSISTENT_OFFSETS,
        Kind.NONMONOTONIC_SEND,
        Kind.NONMONOTONIC_POLL,
    }


def test_an_assignment_begins_anew() -> None:
    lines = (at("p1", "a", 0, 0), poll("c1", o0=[[0, "a"]]), poll("c1", o0=[[0, "a"]]))
    assert verdict(*lines).anomalies == {Kind.NONMONOTONIC_POLL: 1}
    for f in ("assign", "subscribe", "seek", "rebalance"):
        assert verdict(*lines[:2], op("c1", "ok", f), lines[2]).valid
    assert verdict(*lines[:2], {**lines[2], "rebalanced": True}).valid
    other = op("c1", "ok", "rebalance", partitions=["orders-1"])
    assert verdict(*lines[:2], other, lines[2]).anomalies == {Kind.NONMONOTONIC_POLL: 1}


@pytest.mark.parametrize(
    ("lines", "line", "what"),
    [
        (["{"], 1, "invalid JSON"),
        (["", "[1]"], 2, "not a JSON object"),
        (['{"type": "ok", "f": "poll"}'], 1, '"process" must be'),
        (['{"process": 1, "type": "done", "f": "poll"}'], 1, "must be one of invoke, ok, fail, info, not 'done'"),
        ([json.dumps(send("p", "ok", "a")), json.dumps(send("p", "ok", "a"))], 2, "already completed in line 1"),
        ([json.dumps(send("p", "invoke", "a")), json.dumps(send("q", "invoke", "a"))], 2, "already sent in line 1"),
        ([json.dumps({**send("p", "invoke", "a"), "value": None})], 1, '"value" is missing'),
        ([json.dumps(send("p", "invoke", "a", partition="0"))], 1, '"partition" must be an integer'),
        ([json.dumps(op("c", "ok", "poll"))], 1, '"records" must be an object'),
        ([json.dumps(op("c", "ok", "poll", records={"orders": []}))], 1, "'orders' is not a \"topic-partition\""),
        ([json.dumps(poll("c", o0=[["a", 0]]))], 1, "is not [offset, value]"),
        ([json.dumps(op("t", "ok", "commit"))], 1, "process 't' has no transaction"),
    ],
)
def test_malformed_lines_are_named(lines: list[str], line: int, what: str) -> None:
    with pytest.raises(Malformed) as raised:
        judge(lines)
    assert raised.value.line == line
    assert what in raised.value.what


def test_unknown_operations_are_passed_over() -> None:
    found = verdict(op("nemesis", "info", "kill", node=2), at("p1", "a", 0, 0))
    assert found.valid
    assert found.counts["ignored"] == 1
