"""The history of a partition, as text from given events."""

from __future__ import annotations

from typing import Any

from barnabas.cli.explain_story import Event, Present, broker_lines, explain, lines_of
from barnabas.cli.journal_reader import distinct

_BEGIN_MS = 1_700_000_000_000


def event(offset: int, subject: str, kind: str, text: str, **fields: Any) -> Event:
    return {
        "id": f"{offset}:{subject}",
        "time_ms": _BEGIN_MS + offset,
        "kind": kind,
        "metadata_offset": offset,
        "text": text,
        **fields,
    }


def created(offset: int, topic_id: str = "A") -> Event:
    return event(
        offset,
        "topic:t:0",
        "topic-created",
        "User:ann created t",
        topic="t",
        topic_id=topic_id,
        first_partition=0,
        partitions=2,
        replicas=[[1, 2, 3], [2, 3, 1]],
        leaders=[1, 2],
        isrs=[[1, 2, 3], [2, 3, 1]],
    )


def state(leader: int, epoch: int, isr: list[int]) -> dict[str, Any]:
    return {"leader": leader, "leader_epoch": epoch, "isr": isr, "replicas": [1, 2, 3]}


def change(
    offset: int, before: dict[str, Any], after: dict[str, Any], text: str, topic_id: str = "A", **more: Any
) -> Event:
    kind = "leader-change" if before["leader"] != after["leader"] else "isr-change"
    fields = {"topic": "t", "topic_id": topic_id, "partition": 0, "before": before, "after": after}
    return event(offset, "t-0", kind, text, **fields, **more)


_ALL, _WITHOUT_1, _AGAIN = state(1, 0, [1, 2, 3]), state(2, 1, [2, 3]), state(2, 1, [2, 3, 1])
_FAILED = change(20, _ALL, _WITHOUT_1, "broker 1 was fenced: its process is gone")
_BACK = change(30, _WITHOUT_1, _AGAIN, "broker 1 caught up with leader 2")
_FENCED = event(20, "broker:1", "broker-fenced", "broker 1 was fenced: its process is gone", broker=1)


def test_a_partition_as_it_was_created() -> None:
    found = explain(Present("t", 1, 2, (2, 3, 1), (2, 3, 1)), [created(10)])
    assert found.leader_event == created(10)
    assert lines_of(found)[:3] == [
        "t-1: leader 2, replicas 2,3,1, in sync 2,3,1",
        "",
        "Broker 2 leads since 2023-11-14T22:13:20.010Z, when the partition was created: it was its first eligible "
        "replica.",
    ]


def test_a_failed_leader() -> None:
    found = explain(Present("t", 0, 2, (1, 2, 3), (2, 3)), [created(10), _FENCED, _FAILED])
    text = "\n".join(lines_of(found))
    assert "t-0: leader 2, replicas 1,2,3, in sync 2,3, out of sync 1" in text
    assert (
        "Broker 2 leads since 2023-11-14T22:13:20.020Z (before: leader 1), because broker 1 was fenced: its process is "
        "gone." in text
    )
    assert "Broker 1 is preferred, but not in sync." in text
    assert "Replica 1 is out of sync since 2023-11-14T22:13:20.020Z, because broker 1 was fenced" in text
    assert "Replica 3 is in sync since 2023-11-14T22:13:20.010Z, when the partition was created." in text
    assert [each["kind"] for each in found.history] == ["topic-created", "broker-fenced", "leader-change"]


def test_it_came_back() -> None:
    found = explain(Present("t", 0, 2, (1, 2, 3), (2, 3, 1)), [created(10), _FAILED, _BACK])
    assert (found.members[1], found.members[2], found.leader_event) == (_BACK, created(10), _FAILED)
    assert found.is_current
    assert "leader 1 -> 2 (epoch 0 -> 1), ISR 1,2,3 -> 2,3: broker 1 was fenced" in "\n".join(lines_of(found))


def test_nobody_leads() -> None:
    last = change(40, _AGAIN, state(-1, 2, []), "broker 2 was fenced")
    found = explain(Present("t", 0, -1, (1, 2, 3), ()), [created(10), _FAILED, _BACK, last])
    assert "No broker leads since 2023-11-14T22:13:20.040Z (before: leader 2)" in "\n".join(lines_of(found))


def test_a_journal_that_is_behind_says_so() -> None:
    found = explain(Present("t", 0, 3, (1, 2, 3), (3,)), [created(10), _FAILED])
    assert (found.leader_event, found.is_current) == (None, False)
    text = "\n".join(lines_of(found))
    assert "Broker 3 leads; no recorded event says why." in text
    assert "the journal may be behind" in text


def test_without_a_journal() -> None:
    found = explain(Present("t", 0, 1, (1, 2), (1,)), [])
    assert lines_of(found) == [
        "t-0: leader 1, replicas 1,2, in sync 1, out of sync 2",
        "",
        "Broker 1 leads; no recorded event says why.",
        "Replica 1 is in sync; no recorded event says since when.",
        "Replica 2 is out of sync; no recorded event says since when.",
    ]


def test_an_earlier_topic_of_that_name_is_another_one() -> None:
    events = [created(10), _FAILED, created(50, "B")]
    found = explain(Present("t", 0, 1, (1, 2, 3), (1, 2, 3)), events)
    assert (found.leader_event, found.history) == (created(50, "B"), [created(50, "B")])


def test_an_event_written_twice_counts_once_with_the_better_cause() -> None:
    inferred = {**_FAILED, "text": "broker 1 was fenced", "inferred": True}
    assert distinct([created(10), inferred, _FAILED, created(10)]) == [created(10), _FAILED]
    assert distinct([_FAILED, inferred]) == [_FAILED]


def test_changes_are_in_their_order_and_what_brokers_say_stays_behind_them() -> None:
    said = {"id": "n1.1.1:t-0", "time_ms": 5, "kind": "replica-truncated", "text": "", "topic": "t", "partition": 0}
    assert distinct([_BACK, said, created(10), _FAILED]) == [created(10), _FAILED, _BACK, said]


def test_since_leaves_out_what_was_before_but_not_the_reasons() -> None:
    found = explain(Present("t", 0, 2, (1, 2, 3), (2, 3, 1)), [created(10), _FAILED, _BACK])
    lines = lines_of(found, _BEGIN_MS + 25)
    assert sum(line.startswith("  2023") for line in lines) == 1
    assert any("because broker 1 was fenced" in line for line in lines)


def test_what_became_of_a_broker() -> None:
    assert broker_lines(1, [created(10), _FENCED, _FAILED]) == [
        "2023-11-14T22:13:20.020Z  broker-fenced: broker 1 was fenced: its process is gone (1 partition changed, 1 of "
        "them the leader)"
    ]
    assert broker_lines(1, [_FENCED], _BEGIN_MS + 21) == []


def test_what_became_of_a_broker_in_zookeeper_mode() -> None:
    """The changes of its partitions are decisions of their own, after that about the broker."""
    gone = "broker 1 is gone: no process listens at its address"
    events = [
        event(20, "broker:1", "broker-unregistered", gone, broker=1),
        change(21, _ALL, _WITHOUT_1, gone),
        event(29, "broker:1", "broker-registered", "broker 1 has registered in ZooKeeper", broker=1),
        _BACK,
        event(40, "broker:1", "broker-unregistered", gone, broker=1),
        change(41, _AGAIN, state(2, 2, [2, 3]), gone),
        change(42, state(2, 2, [2, 3]), state(3, 3, [3]), "broker 2 is gone: no process listens at its address"),
    ]
    assert [line.partition(": ")[2] for line in broker_lines(1, events)] == [
        f"{gone} (1 partition changed, 1 of them the leader)",
        "broker 1 has registered in ZooKeeper",
        f"{gone} (1 partition changed, 0 of them the leader)",
    ]


def test_a_leader_that_stays_in_a_higher_epoch() -> None:
    fell = change(40, _AGAIN, state(2, 2, [2, 3]), "broker 1 is gone")
    found = explain(Present("t", 0, 2, (1, 2, 3), (2, 3)), [created(10), _FAILED, _BACK, fell])
    assert lines_of(found)[-1].endswith("isr-change, leader 2 again (epoch 1 -> 2), ISR 2,3,1 -> 2,3: broker 1 is gone")


def test_an_inferred_cause_is_only_probable() -> None:
    inferred = change(20, _ALL, _WITHOUT_1, "broker 1 is no longer registered in ZooKeeper", inferred=True)
    del inferred["metadata_offset"]
    lines = lines_of(explain(Present("t", 0, 2, (1, 2, 3), (2, 3)), [created(10), inferred]))
    assert lines[2].endswith(
        "(before: leader 1), probably because broker 1 is no longer registered in ZooKeeper (inferred)."
    )
    assert lines[-1].endswith("ZooKeeper (inferred by a broker: this controller keeps no journal)")


def test_a_partition_without_a_leader_has_a_way_out() -> None:
    lost = {**state(-1, 2, []), "elr": [2]}
    events = [created(10), _FAILED, change(40, _WITHOUT_1, lost, "broker 2 was fenced: its session ended")]
    lines = lines_of(explain(Present("t", 0, -1, (1, 2, 3), ()), events))
    assert "To have a leader again, start broker 2, in the ELR: nothing is lost." in lines
    later = change(50, lost, {**lost, "elr": [], "last_known_elr": [2]}, "the directory of broker 2 failed")
    lines = lines_of(explain(Present("t", 0, -1, (1, 2, 3), ()), [*events, later]))
    assert any(line.startswith("To have a leader again, start broker 2, the last known leader, or") for line in lines)
