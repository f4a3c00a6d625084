"""Histories of a correct cluster have no findings; each kind of fault that is planted into one is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.legal_histories import TOPIC, LegalHistory, Line

from barnabas.histories import Kind, Verdict, judge

Plant = Callable[[list[Line], Random], Line | None]


def verdict_on(lines: list[Line]) -> Verdict:
    return judge([json.dumps(line) for line in lines])


@given(st.integers(0, 2**32), st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_a_correct_cluster_raises_no_alarm(seed: int, partitions: int) -> None:
    history = LegalHistory(Random(seed), partitions=partitions)
    verdict = verdict_on(history.lines)
    assert verdict.valid, [finding.text for finding in verdict.findings if not finding.note]


def polls(lines: list[Line], process: str = "") -> Iterator[tuple[int, str, list[Any]]]:
    """Yields line number, partition, records."""
    for number, line in enumerate(lines):
        if line["f"] == "poll" and line["type"] == "ok" and line["process"].startswith(process):
            for place, records in line["records"].items():
                yield number, place, records


def acks(lines: list[Line], process: str = "") -> list[Line]:
    """Returns the sends whose offset was answered."""
    return [
        line
        for line in lines
        if line["f"] == "send" and line["type"] == "ok" and line["offset"] >= 0 and line["process"].startswith(process)
    ]


def forget(lines: list[Line], value: str) -> None:
    """Removes a value from all reads."""
    for _, _, records in polls(lines):
        records[:] = [record for record in records if record[1] != value]


def lose_a_write(lines: list[Line], random: Random) -> Line | None:
    """Removes a record that has a later one in the same log."""
    tops = {place: records[-1][0] for _, place, records in polls(lines, "audit")}
    found = [ack for ack in acks(lines, "p") if ack["offset"] < tops.get(f"{TOPIC}-{ack['partition']}", -1)]
    if not found:
        return None
    chosen = random.choice(found)
    forget(lines, chosen["value"])
    return chosen


def lose_the_last_write(lines: list[Line], random: Random) -> Line | None:
    acked = {ack["value"]: ack for ack in acks(lines, "p")}
    for _, _, records in polls(lines, "audit"):
        if records[-1][1] in acked:
            value = records[-1][1]
            forget(lines, value)
            return acked[value]
    return None


def fail_a_write_that_was_read(lines: list[Line], random: Random) -> Line | None:
    found = acks(lines, "p")
    if not found:
        return None
    chosen = random.choice(found)
    chosen["type"] = "fail"
    return chosen


def abort_a_transaction_that_was_read(lines: list[Line], random: Random) -> Line | None:
    committed = [
        number for number, line in enumerate(lines) if (line["f"], line["type"]) == ("commit", "ok") and number
    ]
    for number in committed:
        process = lines[number]["process"]
        requested = next(n for n in range(number, -1, -1) if (lines[n]["f"], lines[n]["process"]) == ("begin", process))
        values = [ack["value"] for ack in acks(lines[requested:number], process)]
        if values:
            for line in lines[requested : number + 1]:
                if line["process"] == process and line["f"] == "commit":
                    line["f"] = "abort"
            return next(ack for ack in acks(lines, process) if ack["value"] == values[0])
    return None


def commit_after_the_read(lines: list[Line], random: Random) -> Line | None:
    """Moves a commit, request and answer, to the very end."""
    audit = next(number for number, line in enumerate(lines) if line["process"] == "audit")
    last = {line["process"]: number for number, line in enumerate(lines[:audit]) if line["f"] == "commit"}
    begun = {line["process"]: number for number, line in enumerate(lines[:audit]) if line["f"] == "begin"}
    for process, number in last.items():
        values = acks(lines[begun[process] : number], process)
        ends = [line for line in lines[begun[process] :] if line["process"] == process and line["f"] == "commit"]
        if values and [line["type"] for line in ends] == ["invoke", "ok"]:
            for line in ends:
                lines.remove(line)
                lines.append(line)
            return values[0]
    return None


def put_another_value_there(lines: list[Line], random: Random) -> Line | None:
    found = [(records, ack) for _, _, records in polls(lines, "audit") for ack in acks(lines) if records]
    for records, ack in found:
        for record in records:
            if record[1] == ack["value"] and record[0] == ack["offset"]:
                lines.insert(0, {"process": "p9", "type": "invoke", "f": "send", "topic": TOPIC, "value": "other"})
                record[1] = "other"
                return ack
    return None


def write_it_twice(lines: list[Line], random: Random) -> Line | None:
    found = acks(lines, "p")
    if not found:
        return None
    chosen = random.choice(found)
    place = f"{TOPIC}-{chosen['partition']}"
    lines.append({"process": "c9", "type": "ok", "f": "poll", "records": {place: [[9_999, chosen["value"]]]}})
    return chosen


def swap_two_sends(lines: list[Line], random: Random) -> Line | None:
    """Swaps two acknowledged records for all readers."""
    for process in ("p1", "p2"):
        for partition in range(2):
            mine = [ack for ack in acks(lines, process) if ack["partition"] == partition]
            if len(mine) > 1:
                first, second = mine[-2:]
                swapped = {first["value"]: second["value"], second["value"]: first["value"]}
                first["offset"], second["offset"] = second["offset"], first["offset"]
                for _, _, records in polls(lines):
                    for record in records:
                        record[1] = swapped.get(record[1], record[1])
                return second
    return None


def poll_again(lines: list[Line], random: Random) -> Line | None:
    found = [(number, place, records) for number, place, records in polls(lines) if len(records) > 1]
    if not found:
        return None
    number, place, records = random.choice(found)
    again = {**lines[number], "records": {place: copy.deepcopy(records[-1:])}}
    lines.insert(number + 1, again)
    return {"value": records[-1][1]}


def swap_within_a_poll(lines: list[Line], random: Random) -> Line | None:
    found = [records for _, _, records in polls(lines) if len(records) > 1]
    if not found:
        return None
    records = random.choice(found)
    records[0], records[1] = records[1], records[0]
    return {"value": records[1][1]}


def skip_within_a_poll(lines: list[Line], random: Random) -> Line | None:
    """Gives a record to another consumer."""
    for _, place, records in polls(lines, "audit"):
        if len(records) > 2:
            lines.append({"process": "c9", "type": "ok", "f": "poll", "records": {place: copy.deepcopy(records)}})
            return {"value": records.pop(1)[1]}
    return None


def skip_between_polls(lines: list[Line], random: Random) -> Line | None:
    for _, place, records in polls(lines, "audit"):
        if len(records) > 2:
            for each in (records[0], records[2]):
                lines.append({"process": "c9", "type": "ok", "f": "poll", "records": {place: [list(each)]}})
            return {"value": records[1][1]}
    return None


def read_what_nobody_sent(lines: list[Line], random: Random) -> Line | None:
    lines.append({"process": "c9", "type": "ok", "f": "poll", "records": {f"{TOPIC}-0": [[9_999, "who?"]]}})
    return {"value": "who?"}


PLANTS: list[tuple[Plant, Kind]] = [
    (lose_a_write, Kind.LOST_WRITE),
    (lose_the_last_write, Kind.UNSEEN),
    (fail_a_write_that_was_read, Kind.ABORTED_READ),
    (abort_a_transaction_that_was_read, Kind.ABORTED_READ),
    (commit_after_the_read, Kind.PRECOMMITTED_READ),
    (put_another_value_there, Kind.INCONSISTENT_OFFSETS),
    (write_it_twice, Kind.DUPLICATE),
    (swap_two_sends, Kind.NONMONOTONIC_SEND),
    (poll_again, Kind.NONMONOTONIC_POLL),
    (swap_within_a_poll, Kind.INT_NONMONOTONIC_POLL),
    (skip_within_a_poll, Kind.INT_POLL_SKIP),
    (skip_between_polls, Kind.POLL_SKIP),
    (read_what_nobody_sent, Kind.UNWRITTEN_READ),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=lambda each: getattr(each, "__name__", None))
def test_planted_faults_are_found(plant: Plant, kind: Kind) -> None:
    """Nearly all histories have a place for each fault."""
    planted = 0
    for seed in range(40):
        random = Random(seed)
        lines = LegalHistory(random, deletions=False).lines
        offender = plant(lines, random)
        if offender is None:
            continue
        planted += 1
        verdict = verdict_on(lines)
        found = [finding for finding in verdict.findings if finding.kind is kind and not finding.note]
        assert verdict.anomalies.get(kind), (seed, offender, [each.text for each in verdict.findings])
        assert any(offender["value"] in finding.values for finding in found), (seed, offender, found)
        assert all(0 < line <= len(lines) for finding in found for line in finding.lines)
    assert planted >= 20
