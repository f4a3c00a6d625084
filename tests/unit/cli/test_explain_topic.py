"""The text about a whole topic: facts that its partitions have in common appear once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.cli.test_explain_story import _BEGIN_MS, change, created, state

from barnabas.cli.explain_story import Event, Explanation, Present, explain
from barnabas.cli.explain_topic import lines_of

#: Three brokers and six partitions: a leader was killed, came back, and was elected again.
RECORDED = Path(__file__).parents[2] / "data" / "journals" / "killed_leader.json"


def recorded() -> tuple[list[Present], list[Event]]:
    content = json.loads(RECORDED.read_text())
    presents = [
        Present(each["topic"], each["partition"], each["leader"], tuple(each["replicas"]), tuple(each["isr"]))
        for each in content["partitions"]
    ]
    return presents, content["events"]


def explained(presents: list[Present], events: list[Event]) -> list[Explanation]:
    return [explain(present, events) for present in presents]


def test_a_recorded_failure_is_described_once() -> None:
    text = "\n".join(line.replace("2026-11-22T23:14:", "") for line in lines_of(explained(*recorded())))
    assert text == RECORDED.with_suffix(".txt").read_text().rstrip("\n")


def test_no_line_is_there_twice_and_no_change_is_left_out() -> None:
    presents, events = recorded()
    lines = lines_of(explained(presents, events))
    assert len(set(lines)) == len([line for line in lines if line]) + 1
    happened = lines[lines.index("What happened:") + 1 :]
    for kind in {event["kind"] for event in events}:
        assert any(kind in line for line in happened), kind
    for event in events:
        if "partition" in event:
            assert any(event["kind"] in line and _names(line, event["partition"]) for line in happened)


def _names(line: str, partition: int) -> bool:
    label = line.split(": ")[0].split("  ")[-1]
    if label == "all partitions":
        return True
    for part in label.split(" ")[1].split(","):
        first, _, last = part.partition("-")
        if int(first) <= partition <= int(last or first):
            return True
    return False


def shrink(partition: int, offset: int, text: str) -> Event:
    event = change(offset, state(1, 0, [1, 2, 3]), state(1, 0, [1, 2]), text)
    return {**event, "id": f"{offset}:t-{partition}", "partition": partition}


def two(events: list[Event], **changes: Any) -> list[str]:
    presents = [Present("t", number, 1, (1, 2, 3), (2, 1)) for number in (0, 1)]
    presents[1] = replace(presents[1], **changes)
    return lines_of(explained(presents, [{**created(10), "leaders": [1, 1], "isrs": [[1, 2, 3]] * 2}, *events]))


def test_numbers_of_one_partition_are_merged_to_ranges() -> None:
    texts = [
        f"broker 3 fell behind: log end offset {end}, last caught up with the leader 9 ms before" for end in (5, 7)
    ]
    text = "\n".join(two([shrink(0, 20, texts[0]), shrink(1, 20, texts[1])]))
    assert text.count("fell behind") == 2
    assert "all partitions: Replica 3 is out of sync since 2023-11-14T22:13:20.020Z, because broker 3 fell" in text
    assert "log end offset 5..7, last caught up with the leader 9 ms before" in text


def test_times_within_a_second_are_merged_and_later_ones_are_not() -> None:
    near = two([shrink(0, 20, "it fell behind"), shrink(1, 1_020, "it fell behind")])
    since = "2023-11-14T22:13:20.020Z to 2023-11-14T22:13:21.020Z"
    assert f"all partitions: Replica 3 is out of sync since {since}, because it fell behind." in near
    late = "\n".join(two([shrink(0, 20, "it fell behind"), shrink(1, 1_021, "it fell behind")]))
    assert "partition 0: Replica 3 is out of sync since 2023-11-14T22:13:20.020Z" in late
    assert "partition 1: Replica 3 is out of sync since 2023-11-14T22:13:21.021Z" in late


def test_other_causes_and_other_brokers_are_kept_apart() -> None:
    text = "\n".join(two([shrink(0, 20, "broker 3 is gone"), shrink(1, 20, "broker 2 is gone")]))
    assert "partition 0: Replica 3 is out of sync since 2023-11-14T22:13:20.020Z, because broker 3 is gone." in text
    assert "partition 1: Replica 3 is out of sync since 2023-11-14T22:13:20.020Z, because broker 2 is gone." in text


def test_a_journal_that_is_behind_names_the_partitions() -> None:
    lines = two([shrink(0, 20, "a"), shrink(1, 20, "a")], isr=(1, 2, 3))
    assert "The last event about partition 1 differs from the metadata; the journal may be behind." in lines


def test_without_a_journal() -> None:
    presents = [Present("t", number, 1, (1, 2), (1, 2)) for number in range(12)]
    assert lines_of(explained(presents, [])) == [
        "t: 12 partitions",
        "  all partitions: leader 1, replicas 1,2, in sync 1,2",
        "",
        "all partitions: Broker 1 leads; no recorded event says why.",
        "all partitions: Replicas 1,2 are in sync; no recorded event says since when.",
    ]


def test_since_leaves_out_earlier_events() -> None:
    presents = [Present("t", number, 1, (1, 2, 3), (1, 2)) for number in (0, 1)]
    events = [shrink(0, 20, "a"), shrink(1, 40, "a")]
    lines = lines_of(explained(presents, events), _BEGIN_MS + 30)
    assert [line for line in lines if line.startswith("  2023")] == [
        "  2023-11-14T22:13:20.040Z  partition 1: isr-change, ISR 1,2,3 -> 1,2: a"
    ]
