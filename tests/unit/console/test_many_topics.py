"""Actions on many topics at once, and the policies of topics, against a phantom cluster."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_server import Answer, RunningConsole, target_of

from barnabas.common.errors import ErrorCode
from barnabas.console.actions.many_topics import TOPICS_MAX
from barnabas.console.security.rights import ROUTES, Role
from barnabas.console.state import ConsoleOptions
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState

FIRST, SECOND, THIRD = "topic-00000", "topic-00001", "topic-00002"
TOPIC_RESOURCE = 2
RECORDS = 50


@pytest.fixture
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=250, partitions=4) as running:

        def fill(state: PhantomState) -> None:
            for index in range(4):
                state.produce(FIRST, index, RECORDS)
            state.commit("readers", FIRST, 0, 10)

        running.change(fill)
        yield running


#: The time after which a broker that does not answer is silent, for tests of such brokers.
HASTY = pytest.mark.parametrize("console", [0.5], indirect=True, ids=["hasty"])


@pytest.fixture
def console(phantom: PhantomCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningConsole]:
    timeout_s = getattr(request, "param", 3.0)
    options = ConsoleOptions(interval_s=0.1, timeout_s=timeout_s, budget_share=1.0, audit=tmp_path / "audit.jsonl")
    with RunningConsole([target_of(phantom)], options) as running:
        running.filled()
        running.until(
            lambda: running.get("topic", name=FIRST)["partitions"][0]["messages"] == RECORDS, "the offsets", 60
        )
        yield running


def _rows(answer: Answer) -> dict[str, tuple[bool, str]]:
    """Returns what the answer says about each topic."""
    found = answer.json
    rows = found["results"] if "results" in found else found["error"]["results"]
    return {row["subject"]: (row["ok"], row["text"]) for row in rows}


def _altered(phantom: PhantomCluster, name: str) -> dict[str, str]:
    return phantom.change(lambda state: dict(state.altered.get((TOPIC_RESOURCE, name), {})))


def _audit(console: RunningConsole) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = console.get("audit")["entries"]
    return found


def test_a_deletion_says_what_it_deletes_and_asks_for_the_number(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    console.until(lambda: console.get("groups")["total"] == 1, "the group is read", within_s=60)
    names = [FIRST, SECOND]
    plan = console.post("actions/delete-topics", {"topics": names, "dry_run": True})
    assert plan.json["plan"] == ["deletes 2 topics, permanently"]
    rows = _rows(plan)
    assert rows[FIRST] == (True, "deletes 4 partitions and 20,000 bytes by replica; groups have offsets there: readers")
    assert rows[SECOND] == (True, "deletes 4 partitions and 0 bytes by replica")
    assert _audit(console) == [], "a plan changes nothing"
    for confirm in (None, "1", 2, FIRST):
        assert console.post("actions/delete-topics", {"topics": names, "confirm": confirm}).code == "bad-request"
    assert FIRST in phantom.change(lambda state: list(state.topics))
    done = console.post("actions/delete-topics", {"topics": names, "confirm": "2"})
    assert done.json["ok"] is True
    assert done.json["text"] == "deleted 2 topics"
    assert not {*names} & {*phantom.change(lambda state: list(state.topics))}
    entry = _audit(console)[0]
    assert (entry["action"], entry["result"], entry["text"]) == ("delete-topics", "ok", "deleted 2 topics")
    assert entry["arguments"]["topics"] == names


def test_a_part_that_fails_is_named_by_topic_and_in_the_audit(console: RunningConsole, phantom: PhantomCluster) -> None:
    phantom.change(lambda state: state.refusing.update({SECOND: ErrorCode.TOPIC_AUTHORIZATION_FAILED}))
    names = [FIRST, SECOND, "no-such-topic", THIRD]
    done = console.post("actions/delete-topics", {"topics": names, "confirm": "4"})
    assert done.status == 200
    assert done.json["ok"] is False
    rows = _rows(done)
    assert [rows[name][0] for name in names] == [True, False, False, True]
    assert rows[SECOND][1] == "TOPIC_AUTHORIZATION_FAILED"
    assert rows["no-such-topic"][1] == "there is no such topic"
    assert done.json["text"].startswith("deleted 2 topics; 2 of 4 failed: topic-00001: TOPIC_AUTHORIZATION_FAILED; ")
    entry = _audit(console)[0]
    assert entry["result"] == "partial"
    assert "no-such-topic: there is no such topic" in entry["text"]
    topics = phantom.change(lambda state: list(state.topics))
    assert SECOND in topics
    assert FIRST not in topics


def test_if_every_topic_fails_the_whole_is_refused_with_each_reason(console: RunningConsole) -> None:
    body = {"topics": ["one", "two"], "confirm": "2"}
    for is_dry in (True, False):
        answer = console.post("actions/delete-topics", body | {"dry_run": is_dry})
        assert answer.code == "refused"
        assert _rows(answer) == dict.fromkeys(("one", "two"), (False, "there is no such topic"))
    assert [entry["result"] for entry in _audit(console)] == ["refused", "begun"]


def test_internal_topics_are_left_alone(phantom: PhantomCluster, console: RunningConsole) -> None:
    phantom.change(lambda state: state.create_topic("__private", 1))
    console.until(lambda: console.ask("topic", name="__private").status == 200, "the topic is there")
    body = {"topics": ["__private", FIRST], "confirm": "2"}
    rows = _rows(console.post("actions/delete-records-of-topics", body))
    assert rows["__private"][0] is False
    assert "internal" in rows["__private"][1]
    assert rows[FIRST][0] is True


def test_all_records_are_deleted_where_the_policy_allows_it(console: RunningConsole, phantom: PhantomCluster) -> None:
    def prepare(state: PhantomState) -> None:
        state.altered[TOPIC_RESOURCE, SECOND] = {"cleanup.policy": "compact"}
        state.altered[TOPIC_RESOURCE, THIRD] = {"cleanup.policy": "compact,delete"}

    phantom.change(prepare)
    body = {"topics": [FIRST, SECOND, THIRD], "confirm": "3"}
    plan = console.post("actions/delete-records-of-topics", body | {"dry_run": True})
    rows = _rows(plan)
    assert rows[FIRST] == (True, "deletes about 200 records of 4 partitions")
    assert rows[SECOND] == (False, "brokers delete no records of a topic whose cleanup.policy is compact")
    assert rows[THIRD][0] is True
    assert plan.json["plan"] == ["deletes all records of 2 topics; that cannot be undone"]
    assert plan.json["warnings"] == ["1 topic will not be changed"]
    phantom.change(lambda state: state.refusing.update({THIRD: ErrorCode.POLICY_VIOLATION}))
    done = console.post("actions/delete-records-of-topics", body)
    rows = _rows(done)
    assert rows[FIRST] == (True, "")
    assert rows[THIRD] == (False, "4 of 4 partitions: refused (POLICY_VIOLATION)")
    starts = phantom.change(lambda state: [each.start_offset for each in state.topics[FIRST].partitions])
    assert starts == [RECORDS] * 4


def test_configurations_are_set_and_removed_with_their_values_before(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    phantom.change(lambda state: state.altered.update({(TOPIC_RESOURCE, SECOND): {"retention.ms": "5"}}))
    body = {"topics": [FIRST, SECOND], "set": {"retention.ms": "60000"}}
    rows = _rows(console.post("actions/alter-configs-of-topics", body | {"dry_run": True}))
    assert rows[FIRST] == (True, "retention.ms: 604800000 -> 60000")
    assert rows[SECOND] == (True, "retention.ms: 5 -> 60000")
    assert _altered(phantom, FIRST) == {}, "a plan changes nothing"
    assert console.post("actions/alter-configs-of-topics", body).json["ok"] is True
    assert _altered(phantom, FIRST) == _altered(phantom, SECOND) == {"retention.ms": "60000"}
    body = {"topics": [FIRST], "remove": ["retention.ms"]}
    rows = _rows(console.post("actions/alter-configs-of-topics", body | {"dry_run": True}))
    assert rows[FIRST] == (True, "retention.ms: 60000 -> the default")
    assert console.post("actions/alter-configs-of-topics", body).json["ok"] is True
    assert _altered(phantom, FIRST) == {}
    secret = {"topics": [FIRST], "set": {"my.password": "swordfish"}}
    assert console.post("actions/alter-configs-of-topics", secret).status == 200
    assert "swordfish" not in json.dumps(_audit(console))


def test_partitions_are_added_to_the_topics_with_fewer(console: RunningConsole, phantom: PhantomCluster) -> None:
    phantom.change(lambda state: state.add_partitions(SECOND, 6))
    console.until(lambda: console.get("topic", name=SECOND)["total"] == 6, "the partitions are there")
    names = [FIRST, SECOND, THIRD]
    body = {"topics": names, "partitions": 6}
    plan = console.post("actions/add-partitions-to-topics", body | {"dry_run": True})
    rows = _rows(plan)
    assert rows[FIRST] == rows[THIRD] == (True, "adds 2 partitions, it has 4")
    assert rows[SECOND] == (False, "it has 6 partitions already")
    assert "records with keys go to other partitions than before" in plan.json["warnings"]
    done = console.post("actions/add-partitions-to-topics", body)
    assert done.json["text"].startswith("added partitions to 2 topics, up to 6; 1 of 3 failed: topic-00001")
    assert phantom.change(lambda state: [len(state.topics[name].partitions) for name in names]) == [6, 6, 6]


def test_more_topics_than_one_request_has_are_all_changed(console: RunningConsole, phantom: PhantomCluster) -> None:
    names = [f"topic-{number:05}" for number in range(250)]
    done = console.post("actions/alter-configs-of-topics", {"topics": names, "set": {"retention.ms": "1000"}})
    assert done.json["text"] == "changed retention.ms of 250 topics"
    assert all(_altered(phantom, name) == {"retention.ms": "1000"} for name in (names[0], names[100], names[249]))


@HASTY
def test_after_a_request_without_an_answer_the_rest_is_not_tried(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    """The state of topics is that of the last poll, while no broker answers."""
    names = [f"topic-{number:05}" for number in range(250)]
    for broker in (1, 2, 3):
        phantom.silence(broker)
    console.until(lambda: console.ask("overview").json["problem"] is not None, "no broker answers")
    answer = console.post("actions/delete-topics", {"topics": names, "confirm": "250"})
    rows = _rows(answer)
    assert "no broker answers" in rows[names[0]][1]
    assert "no broker answers" in rows[names[99]][1]
    assert rows[names[100]][1].startswith("not tried")
    assert rows[names[249]][1].startswith("not tried")


def test_names_that_are_no_list_of_names_are_refused(console: RunningConsole) -> None:
    others = {"confirm": "1", "partitions": 5, "set": {"retention.ms": "1"}}
    for route in ("delete-topics", "delete-records-of-topics", "alter-configs-of-topics", "add-partitions-to-topics"):
        for topics in (None, [], [""], FIRST, [1], {FIRST: 1}):
            answer = console.post(f"actions/{route}", {"topics": topics, **others})
            assert answer.code == "bad-request", (route, topics)


def test_one_request_has_a_limit_and_counts_each_name_once(console: RunningConsole) -> None:
    body = {"topics": [f"topic-{number}" for number in range(TOPICS_MAX + 1)], "confirm": str(TOPICS_MAX + 1)}
    assert console.post("actions/delete-topics", body).code == "bad-request"
    twice = console.post("actions/delete-topics", {"topics": [FIRST, FIRST], "confirm": "1"})
    assert list(_rows(twice)) == [FIRST]


def test_what_cannot_be_undone_is_for_administrators() -> None:
    roles = {route.name: route.role for route in ROUTES}
    assert roles["delete_topics"] == roles["delete_topic"] == Role.ADMIN
    assert roles["delete_records_of_topics"] == roles["delete_records"] == Role.ADMIN
    assert roles["alter_configs_of_topics"] == roles["alter_configs"] == Role.OPERATOR
    assert roles["add_partitions_to_topics"] == roles["add_partitions"] == Role.OPERATOR


def test_policies_are_those_of_the_topics_of_the_same_question(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    def prepare(state: PhantomState) -> None:
        state.altered[TOPIC_RESOURCE, SECOND] = {"cleanup.policy": "compact, delete", "retention.bytes": "1000"}
        state.altered[TOPIC_RESOURCE, THIRD] = {"retention.ms": "soon"}

    phantom.change(prepare)
    question = {"q": "topic-0000*", "sort": "name", "offset": 1, "limit": 3}
    found = console.get("topic-policies", **question)
    assert found["problem"] is None
    assert list(found["policies"]) == [row["topic"] for row in console.get("topics", **question)["rows"]]
    assert found["policies"][SECOND] == {
        "cleanup": ["compact", "delete"],
        "retention_ms": 604_800_000,
        "retention_bytes": 1_000,
    }
    assert found["policies"][THIRD]["retention_ms"] is None
    assert found["policies"]["topic-00003"]["cleanup"] == ["delete"]
    assert console.ask("topic-policies", at=1).code == "past"
    rows = {row["topic"]: row for row in csv.DictReader(io.StringIO(console.ask("topics", format="csv").body.decode()))}
    assert len(rows) == 250
    assert rows[SECOND]["cleanup_policy"] == "compact delete"
    assert rows["topic-00249"]["retention_ms"] == "604800000"
    # A spreadsheet takes the text -1 for a formula, and the number for what it is.
    assert rows["topic-00249"]["retention_bytes"] == "-1"


def test_topics_are_sorted_by_their_policies(console: RunningConsole, phantom: PhantomCluster) -> None:
    policies = {
        "topic-00000": {"retention.ms": "-1"},
        "topic-00001": {"cleanup.policy": "compact"},
        "topic-00002": {"retention.bytes": "10"},
        "topic-00003": {"retention.ms": "60000"},
    }
    phantom.change(lambda state: state.altered.update({(TOPIC_RESOURCE, name): own for name, own in policies.items()}))
    wanted = [
        "topic-00001",
        "topic-00003",
        "topic-00002",
        *[f"topic-{each:05}" for each in range(4, 10)],
        "topic-00000",
    ]
    question = {"q": "topic-0000*", "sort": "policy"}
    assert [row["topic"] for row in console.get("topics", **question)["rows"]] == wanted
    assert list(console.get("topic-policies", **question)["policies"]) == wanted
    assert console.get("topics", **question, desc=1)["rows"][0]["topic"] == "topic-00000"
    asked = phantom.requests[DescribeConfigsRequest.NAME]
    lines = console.ask("topics", **question, format="csv").body.decode().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == wanted
    assert phantom.requests[DescribeConfigsRequest.NAME] == asked + 1, (
        "the order is kept, the file asks for what it has"
    )


@HASTY
def test_without_an_answer_the_policies_are_unknown_and_the_file_is_there(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    for broker in (1, 2, 3):
        phantom.silence(broker)
    console.until(lambda: console.ask("overview").json["problem"] is not None, "no broker answers")
    found = console.get("topic-policies", limit=5)
    assert found["policies"] == {}
    assert found["problem"]
    text = console.ask("topics", format="csv").body.decode()
    assert len(text.splitlines()) == 251
    assert text.splitlines()[1].endswith(",,,")
    assert console.get("topics", sort="policy", limit=1)["rows"][0]["topic"] == "topic-00000"
