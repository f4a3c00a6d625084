"""The problems of a partition, and the lag of its replicas."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.watched import details, partition, table_of

from barnabas.monitor import lines
from barnabas.monitor.partition_state import ReplicaDetail
from barnabas.monitor.severity import Severity
from barnabas.monitor.table_json import json_pieces


@pytest.mark.parametrize(
    ("state", "severity", "word"),
    [
        (partition(), Severity.OK, "in sync"),
        (partition(isr=(1, 2), replicas=(1, 2, 3, 4), min_isr=1), Severity.NOTICE, "under-replicated"),
        (partition(isr=(1, 3)), Severity.WARNING, "at min ISR"),
        (partition(isr=(1,)), Severity.ERROR, "under min ISR"),
        (partition(leader=-1, isr=(1,)), Severity.CRITICAL, "offline"),
        (partition(leader=-1, isr=()), Severity.CRITICAL, "offline"),
        (partition(silent=(1,)), Severity.CRITICAL, "leader silent"),
        # A broker that does not answer does not count, whatever the metadata says.
        (partition(silent=(3,)), Severity.WARNING, "at min ISR"),
        (partition(silent=(2, 3)), Severity.ERROR, "under min ISR"),
        # Complete, so well: there is nothing that could be missing, or nothing is.
        (partition(replicas=(1,), isr=(1,), min_isr=1), Severity.OK, "in sync"),
        (partition(min_isr=3), Severity.OK, "in sync"),
        # min.insync.replicas counts at most as many as there are replicas.
        (partition(replicas=(1, 2), isr=(1, 2), min_isr=5), Severity.OK, "in sync"),
        (partition(replicas=(1, 2), isr=(1,), min_isr=5), Severity.ERROR, "under min ISR"),
        # Without min.insync.replicas, Kafka's default applies.
        (partition(isr=(1,), min_isr=None), Severity.WARNING, "at min ISR"),
    ],
)
def test_severities(state: object, severity: Severity, word: str) -> None:
    assert (state.severity, state.state) == (severity, word)  # type: ignore[attr-defined]


def test_lag_is_what_a_replica_lacks_of_the_leaders_log() -> None:
    state = partition(details=details(b1=1000, b2=1000, b3=400))
    assert [state.lag_of(replica) for replica in (1, 2, 3)] == [0, 0, 600]
    assert state.size_bytes == 100_000


def test_a_follower_read_after_the_leader_is_not_ahead() -> None:
    assert partition(details=details(b1=1000, b2=1003)).lag_of(2) == 0


def test_values_that_no_broker_reports_are_unknown() -> None:
    state = partition(details={1: ReplicaDetail(10, 5), 3: ReplicaDetail(None, 5, 7)})
    assert (state.lag_of(2), state.lag_of(3)) == (None, 7)
    assert partition().size_bytes is None
    assert partition(leader=-1, details=details(b2=30, b3=20)).size_bytes == 3_000


def test_the_worst_come_first_and_are_counted() -> None:
    found = table_of(
        partition("a-0"), partition("b-0", isr=(1,)), partition("b-1", leader=-1), partition("c-0", isr=(1, 2))
    )
    assert [str(state.key) for state in found.values(found.by_severity())] == ["b-1", "b-0", "c-0", "a-0"]
    assert found.severity is Severity.CRITICAL
    assert found.counts() == {
        Severity.OK: 1,
        Severity.NOTICE: 0,
        Severity.WARNING: 1,
        Severity.ERROR: 1,
        Severity.CRITICAL: 1,
    }
    assert "0 partitions: all in sync" in lines.headline(table_of())


def test_rows_name_all_that_there_is() -> None:
    state = partition(leader=2, isr=(2, 1), details=details(b1=12, b2=12, b3=2))
    assert lines.row(state) == ("orders-0", "at min ISR", "2", "1,2,3", "2,1", "3", "1,3", "1.2 kB", "1:0 3:10")
    nobody = partition(leader=-1, isr=(), details=details(b1=5, b3=9))
    assert lines.row(nobody) == (
        "orders-0",
        "offline",
        "none",
        "1,2,3",
        "none",
        "1,2,3",
        "1,2,3",
        "900 B",
        "1@5 2@? 3@9",
    )


def test_the_headline_names_silent_brokers_and_a_missing_controller() -> None:
    line = lines.headline(table_of(partition(isr=(1,)), controller=-1, problems={2: "no response in time"}))
    assert "no active controller" in line
    assert "brokers 1,2,3 (2 silent)" in line
    assert "1 partition: 1 under min ISR" in line


def test_exit_codes_grow_with_severity_and_leave_one_and_two_free() -> None:
    codes = [lines.EXIT_CODES[severity] for severity in Severity]
    assert codes == sorted(codes)
    assert codes[0] == 0
    assert not {1, 2} & set(codes)


def test_the_json_of_a_look_is_as_documented() -> None:
    """docs/monitor.md names every field of it."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "monitor.md").read_text()
    documented = text[text.index('{"type": "snapshot"') : text.index("Unknown values are null")]
    found = json.loads("".join(json_pieces(table_of(partition(details=details(b1=5))))))
    (state,) = found["partitions"]
    names = {*found, *found["counts"], *found["brokers"][0], *state, *state["replica_details"][0]}
    assert set(re.findall(r'"([^"]+)"', documented)) - {"snapshot", "ok", "critical"} == names
    assert found["counts"] == {"in sync": 1, "under-replicated": 0, "at min ISR": 0, "under min ISR": 0, "offline": 0}
