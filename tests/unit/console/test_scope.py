"""Users with patterns: no route and no stream names a topic or a group that the patterns do not allow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.occurrences import Occurrence, Occurrences
from barnabas.console.problems import Problem
from barnabas.console.scoped import ScopedOccurrences
from barnabas.console.security.passwords import Hashed
from barnabas.console.security.rights import ROUTES, Role, Route
from barnabas.console.security.scope import Patterns, Scope, fits
from barnabas.console.security.scope_rules import CHANGES, OF_MANY_TOPICS, READS, check
from barnabas.console.security.users import User, UsersError, UsersFile
from barnabas.console.state import ConsoleOptions
from barnabas.monitor.severity import Severity
from barnabas.testing.phantom import PhantomCluster

PASSWORD = Hashed("00" * 16, "00" * 32)
#: Topics of the phantom cluster begin with topic-; this user sees those that begin with shop-.
SHOP = Patterns(clusters=("phantom",), topics=("shop-*",), groups=("shop-*",))
SECRETS = ("secret", "topic-0")


@pytest.fixture(scope="module")
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=12, partitions=4, journal=True) as running:
        running.change(lambda state: state.create_topic("shop-orders", 3))
        running.change(lambda state: state.create_topic("shop-returns", 3))
        running.change(lambda state: state.create_topic("secret-plans", 3))
        running.change(lambda state: state.produce("shop-orders", 0, 50))
        running.change(lambda state: state.commit("shop-readers", "shop-orders", 0, 10))
        running.change(lambda state: state.commit("shop-readers", "secret-plans", 0, 0))
        mixed = [("shop-orders", 0), ("shop-returns", 2), ("secret-plans", 1)]
        running.change(lambda state: state.assign("shop-readers", {"reader-1": mixed}))
        running.change(lambda state: state.commit("secret-readers", "shop-orders", 0, 1))
        yield running


@pytest.fixture(scope="module")
def console(phantom: PhantomCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    folder = tmp_path_factory.mktemp("scope")
    users = UsersFile(folder / "users.json")
    users.put(User("root", Role.ADMIN, PASSWORD))
    users.put(User("shop", Role.ADMIN, PASSWORD, SHOP))
    users.put(User("role", Role.VIEWER, PASSWORD))
    users.put(User("team", Role.OPERATOR, PASSWORD, Patterns(groups=("shop-*",))))
    users.put(User("sole", Role.ADMIN, PASSWORD, Patterns(clusters=("phantom",))))
    options = ConsoleOptions(
        users=users.path,
        interval_s=0.1,
        budget_share=1.0,
        history=folder / "history.db",
        role_patterns={Role.VIEWER: Patterns(topics=("shop-orders",))},
    )
    with (
        PhantomCluster(topics=1) as other,
        RunningConsole([target_of(phantom), target_of(other, "other")], options) as running,
    ):
        enter(running, "root")
        running.filled()
        running.until(lambda: running.get("groups")["total"] == 2, "the groups are read")
        # Every kind of event: of single partitions, of many of several topics, of a broker.
        phantom.change(
            lambda state: state.shrink_isr("secret-plans", 0, state.topics["secret-plans"].partitions[0].isr[-1])
        )
        phantom.change(lambda state: state.kill(3))
        running.until(lambda: bool(running.get("timeline", kind="leader-change")["events"]), "the leaders change")
        running.until(lambda: bool(running.get("timeline", topic="secret-plans")["events"]), "the ISR shrinks")
        yield running


def enter(console: RunningConsole, user: str) -> None:
    assert console.console is not None
    assert console.console.users is not None
    found = console.console.users.read()[user]
    cookie, session = console.console.sessions.begin(user, found.role, PASSWORD.digest)
    console.take_cookie(cookie)
    console.token = session.token


READING: list[tuple[str, dict[str, object]]] = [
    ("session", {}),
    ("overview", {}),
    ("map", {}),
    ("map", {"fill": "lag"}),
    ("topics", {"sort": "severity", "desc": 1}),
    ("topics", {"format": "csv"}),
    ("topic-policies", {}),
    ("topic", {"name": "shop-orders"}),
    ("partition", {"topic": "shop-orders", "partition": 0}),
    ("lanes", {"topic": "shop-orders"}),
    ("brokers", {}),
    ("broker", {"id": 1}),
    ("quorum", {}),
    ("timeline", {}),
    ("search", {"q": ""}),
    ("search", {"q": "secret"}),
    ("groups", {}),
    ("groups", {"format": "csv"}),
    ("group", {"name": "shop-readers"}),
    ("history", {}),
    ("whatif", {"ask": "lose-broker", "broker": 1}),
    ("whatif", {"ask": "restart-all"}),
    ("audit", {}),
]


@pytest.mark.parametrize(("route", "parameters"), READING, ids=str)
def test_no_answer_names_what_the_patterns_hide(
    console: RunningConsole, route: str, parameters: dict[str, object]
) -> None:
    enter(console, "root")
    if route not in ("session", "history", "audit"):
        assert console.ask(route, **parameters).status == 200
    enter(console, "shop")
    answer = console.ask(route, **parameters)
    assert answer.status == 200, answer.body
    for secret in SECRETS:
        assert secret.encode() not in answer.body, (secret, answer.body)
    assert b'"other"' not in answer.body


def test_the_same_routes_name_it_to_others(console: RunningConsole) -> None:
    """The routes of the test above show it to a user without patterns, or that test would show nothing."""
    enter(console, "root")
    names = ("map", "topics", "topic-policies", "timeline", "search", "groups", "whatif", "broker")
    shown = {route for route, parameters in READING if b"secret" in console.ask(route, **parameters).body}
    assert shown >= set(names)


def test_what_is_allowed_is_whole(console: RunningConsole) -> None:
    enter(console, "shop")
    assert console.get("topics")["total"] == 2
    assert console.get("overview")["partitions"] == 6
    assert [row["group"] for row in console.get("groups")["rows"]] == ["shop-readers"]
    assert [row["topic"] for row in console.get("group", name="shop-readers")["partitions"]] == ["shop-orders"]
    group = console.get("group", name="shop-readers")
    assert group["members"][0]["assignments"] == [
        {"topic": "shop-orders", "partition": 0},
        {"topic": "shop-returns", "partition": 2},
    ]
    assert group["assigned"] == [{"topic": "shop-orders", "partitions": 3}, {"topic": "shop-returns", "partitions": 3}]
    assert [each["name"] for each in console.session()["clusters"]] == ["phantom"]
    assert console.get("topic", name="shop-orders")["groups"][0]["group"] == "shop-readers"
    events = console.get("timeline")["events"]
    assert any(event["kind"].startswith("broker-") for event in events)
    folded = next(each for each in console.get("timeline", kind="leader-change")["events"] if each["count"] > 1)
    assert {each["topic"] for each in folded["sample"]} <= {"shop-orders", "shop-returns"}


@pytest.mark.parametrize(
    ("route", "parameters"),
    [
        ("topic", {"name": "secret-plans"}),
        ("topic", {"name": "secret-plans", "format": "csv"}),
        ("partition", {"topic": "secret-plans", "partition": 0}),
        ("lanes", {"topic": "secret-plans"}),
        ("messages", {"topic": "secret-plans"}),
        ("message", {"topic": "secret-plans", "partition": 0, "offset": 0}),
        ("group", {"name": "secret-readers"}),
    ],
    ids=str,
)
def test_what_is_hidden_is_not_there(console: RunningConsole, route: str, parameters: dict[str, object]) -> None:
    enter(console, "shop")
    assert console.ask(route, **parameters).code == "not-found"
    assert console.ask("overview", cluster="other").code == "unknown-cluster"
    enter(console, "root")
    assert console.ask(route, **parameters).code in ("", "unreachable", "rate", "internal")


@pytest.mark.parametrize(
    "screen",
    [
        "overview",
        "topic",
        *(pytest.param(each, marks=pytest.mark.full) for each in ("map", "partition", "brokers", "timeline", "groups")),
    ],
)
def test_no_stream_names_what_the_patterns_hide(console: RunningConsole, phantom: PhantomCluster, screen: str) -> None:
    enter(console, "shop")
    parameters: dict[str, Any] = {
        "topic": {"name": "secret-plans"},
        "partition": {"topic": "secret-plans", "partition": 0},
    }
    seen: list[tuple[str, Any]] = []
    with console.live(screen, **parameters.get(screen, {})) as messages:
        seen.append(next(messages)[1:])
        phantom.change(lambda state: state.produce("secret-plans", 1, 5))
        phantom.change(lambda state: state.start(3))
        phantom.change(lambda state: state.kill(3))
        for _, event, data in messages:
            seen.append((event, data))
            if len(seen) >= 3:
                break
    # The page knows the name that it asked for; that it does not exist is what the user is told.
    told = [data for event, data in seen if event != "reload"]
    assert not any(secret in json.dumps(told) for secret in SECRETS), seen


def test_a_role_can_have_patterns_too(console: RunningConsole) -> None:
    enter(console, "role")
    assert [row["topic"] for row in console.get("topics")["rows"]] == ["shop-orders"]
    assert console.ask("topic", name="shop-returns").code == "not-found"


def test_a_moment_of_the_history_hides_the_same(console: RunningConsole) -> None:
    enter(console, "shop")
    console.until(lambda: (console.get("history") or {}).get("last_ms") is not None, "something is recorded")
    at_ms = console.get("history")["last_ms"]
    for route in ("topics", "map", "overview", "timeline"):
        answer = console.ask(route, at=at_ms)
        assert answer.status == 200, answer.body
        assert not any(secret.encode() in answer.body for secret in SECRETS)
    assert console.ask("topic", name="secret-plans", at=at_ms).code == "not-found"
    assert console.get("topics", at=at_ms)["total"] == 2


#: For each change, a body that names something hidden.
HIDDEN_BODIES: dict[str, list[dict[str, Any]]] = {
    "elect": [
        {"kind": "preferred"},
        {"kind": "preferred", "partitions": []},
        {"kind": "preferred", "partitions": [{"topic": "secret-plans", "partition": 0}]},
    ],
    "create_topic": [{"name": "secret-new"}],
    "delete_topic": [{"name": "secret-plans", "confirm": "secret-plans"}],
    "alter_configs": [
        {"kind": "topic", "name": "secret-plans", "set": {"retention.ms": "1"}},
        {"kind": "broker", "name": "1", "set": {"log.retention.ms": "1"}},
    ],
    "add_partitions": [{"name": "secret-plans", "partitions": 9}],
    "delete_records": [{"topic": "secret-plans", "partitions": {"0": -1}}],
    "reset_offsets": [
        {"group": "secret-readers", "to": "latest", "partitions": [{"topic": "shop-orders", "partition": 0}]},
        {"group": "shop-readers", "to": "latest", "partitions": [{"topic": "secret-plans", "partition": 0}]},
        {"group": "shop-readers", "to": "latest"},
        # An empty list means all partitions that the group has offsets of.
        {"group": "shop-readers", "to": "latest", "partitions": []},
    ],
    "delete_group": [
        {"group": "secret-readers", "confirm": "secret-readers"},
        # The group has offsets in a topic that is hidden.
        {"group": "shop-readers", "confirm": "shop-readers"},
    ],
    "reassign": [{"partitions": [{"topic": "secret-plans", "partition": 0, "replicas": [1]}]}],
    "cancel_moves": [
        {"partitions": None},
        {"partitions": []},
        {"partitions": [{"topic": "secret-plans", "partition": 0}]},
        {
            "partitions": [
                {"topic": "shop-orders", "partition": 0},
                {"topic": "secret-plans", "partition": 0, "broker": 1},
            ]
        },
    ],
    "acknowledge": [{"partitions": None}, {"partitions": [{"topic": "secret-plans", "partition": 0}]}],
    "clone_topic": [{"source": "secret-plans", "name": "shop-new"}, {"source": "shop-orders", "name": "secret-new"}],
    "recreate_topic": [{"name": "secret-plans", "confirm": "secret-plans"}],
    "change_replication": [{"topic": "secret-plans", "replication": 2}],
    "abort_transaction": [{"topic": "secret-plans", "partition": 0, "producer_id": 1}],
    "delete_offsets": [
        {"group": "secret-readers", "topic": "shop-orders"},
        {"group": "shop-readers", "topic": "secret-plans"},
        {"group": "shop-readers", "partitions": [{"topic": "secret-plans", "partition": 0}]},
    ],
    "delete_topics": [{"topics": ["secret-plans"], "confirm": "1"}, {"topics": []}, {"topics": "shop-orders"}],
    "delete_records_of_topics": [{"topics": ["secret-plans", "topic-00000"], "confirm": "2"}],
    "alter_configs_of_topics": [{"topics": ["secret-plans"], "set": {"retention.ms": "1"}}, {"topics": [7]}],
    "add_partitions_to_topics": [{"topics": ["secret-plans"], "partitions": 9}, {"partitions": 9}],
    "produce": [{"topic": "secret-plans", "value": {"text": "x"}}],
    "produce_again": [{"topic": "secret-plans", "partition": 0, "offset": 0, "to": "shop-orders"}],
    "copy_records": [
        {"topic": "secret-plans", "to": "shop-orders"},
        {"topic": "shop-orders", "to": "secret-plans"},
    ],
}


@pytest.mark.parametrize("route", [each for each in ROUTES if each.is_change], ids=lambda each: each.path)
def test_no_change_of_what_the_patterns_hide(console: RunningConsole, route: Route) -> None:
    """A change without a rule is refused to a user with patterns, whatever its body says."""
    enter(console, "shop")
    for body in HIDDEN_BODIES.get(route.name, [{}]):
        for is_dry in (True, False):
            answer = console.request("POST", route.path, body=body | {"dry_run": is_dry})
            assert answer.code == "role", (body, answer.body)


def test_every_rule_has_a_test_and_every_route_is_known() -> None:
    assert set(CHANGES) | OF_MANY_TOPICS == set(HIDDEN_BODIES)
    assert not set(CHANGES) & OF_MANY_TOPICS
    names = {route.name for route in ROUTES}
    assert set(CHANGES) | OF_MANY_TOPICS <= names
    assert names >= READS
    for route in ROUTES:
        assert not (route.is_change and route.name in READS)


def test_two_moments_and_a_proposal_name_only_what_the_patterns_allow(console: RunningConsole) -> None:
    enter(console, "root")
    console.until(lambda: bool(console.get("history")["first_ms"]), "the recording has begun")
    first_ms = console.get("history")["first_ms"]
    assert "secret-plans" in str(console.get("compare", **{"from": first_ms}))
    enter(console, "shop")
    found = console.get("compare", **{"from": first_ms})
    assert not any(secret in json.dumps(found) for secret in SECRETS)
    assert console.ask("move-plan", topics="secret-plans", brokers="1,2").code == "not-found"
    assert console.ask("directory-plan", topics="secret-plans", broker=1, to="/data/1").code == "not-found"
    for route in ("incident-file", "incident", "moves"):
        assert console.ask(route).code == "role", route


@pytest.mark.parametrize("form", ["json", "json-file", "csv"])
def test_lists_of_rights_are_neither_shown_nor_exported_to_users_with_patterns(
    console: RunningConsole, form: str
) -> None:
    for route in ("acls", "scram-users", "quotas"):
        enter(console, "shop")
        assert console.ask(route, format=form).code == "role"
        enter(console, "role")
        assert console.ask(route, format=form).code == "role", "a viewer"
    enter(console, "shop")
    assert not any(entry["action"].startswith("export-") for entry in console.get("audit")["entries"])


def test_an_export_that_the_cluster_does_not_offer_is_refused_and_in_the_audit(console: RunningConsole) -> None:
    """A phantom cluster has no authorizer."""
    enter(console, "root")
    assert console.get("acls")["rows"] is None
    answer = console.ask("acls", format="csv")
    assert answer.code == "refused"
    assert "does not support DescribeAclsRequest" in answer.json["error"]["text"]
    entry = console.get("audit")["entries"][0]
    assert (entry["user"], entry["action"], entry["result"]) == ("root", "export-acls", "refused")
    assert console.ask("acls", format="xml").code == "bad-request"


def test_the_audit_log_has_nothing_of_a_cluster_that_is_hidden(console: RunningConsole) -> None:
    enter(console, "root")
    for cluster in ("phantom", "other"):
        body = {"partitions": [{"topic": f"of-{cluster}", "partition": 0}]}
        assert console.request("POST", f"/api/actions/acknowledge?cluster={cluster}", body=body).code == "refused"
    assert {"of-phantom", "of-other"} <= _named_in_audit(console)
    enter(console, "sole")
    assert console.ask("audit", cluster="other").code == "unknown-cluster"
    assert "of-phantom" in _named_in_audit(console)
    assert "of-other" not in _named_in_audit(console)
    assert b"of-other" not in console.ask("audit", format="csv").body


def _named_in_audit(console: RunningConsole) -> set[str]:
    entries = console.get("audit", limit=1_000)["entries"]
    return {
        row["topic"] for each in entries for row in each["arguments"].get("partitions", ()) if isinstance(row, dict)
    }


def test_events_and_moments_have_no_numbers_of_what_is_hidden(console: RunningConsole) -> None:
    enter(console, "root")
    every = [each for each in console.get("timeline")["events"] if each.get("sample")]
    whole = [each for each in every if each["count"] > 20]
    assert whole
    console.until(lambda: bool(console.get("history")["minutes"]), "something is recorded")
    enter(console, "shop")
    events = console.get("timeline")["events"]
    folded = [each for each in events if each["subject"] == "partitions of several topics"]
    assert {each["id"] for each in folded} >= {each["id"] for each in whole}
    assert all(each["count"] == max(1, len(each["sample"])) for each in folded)
    for found in (console.get("timeline"), console.get("history")):
        assert sum(count for _, count, _ in found["minutes"]) <= sum(each["count"] for each in events)
    assert "topics that no pattern" in " ".join(console.get("whatif", ask="restart", broker=1)["notes"])


@pytest.mark.parametrize(
    ("topics", "count", "expected"),
    [
        (["shop-orders", "secret-plans"], 1_200, [{"topic": "shop-orders", "partition": 0}]),
        (["secret-plans"], 1_200, []),
        (["shop-orders"] * 3 + ["secret-plans"] * 6, 9, [{"topic": "shop-orders", "partition": 0}] * 3),
        (["secret-plans"] * 9, 9, None),
    ],
)
def test_an_event_of_many_topics_has_no_number_of_partitions(
    topics: list[str], count: int, expected: list[dict[str, Any]] | None
) -> None:
    """An event of which all partitions are known and hidden does not exist; of others the page names those allowed."""
    shown = {
        "subject": f"{count:,} partitions",
        "text": "leader 3 -> 1 (1,000), 3 left the ISR, now under-replicated (200)",
        "cause": "secret-plans and others",
        "codes": ["broker-gone"],
        "count": count,
        "sample": [{"topic": each, "partition": 0} for each in topics],
    }
    base = Occurrences()
    base._keep(Occurrence(1, 5, "leader-change", None, None, Severity.WARNING, shown, troubled=count))
    scoped = ScopedOccurrences(base, Scope.of([SHOP]))
    scoped.follow()
    assert len(scoped.events) == (expected is not None)
    for event in scoped.events:
        assert event.shown["sample"] == expected
        assert event.shown["subject"] == "partitions of several topics"
        assert event.shown["text"] == "leader 3 -> 1, 3 left the ISR, now under-replicated"
        assert event.shown["cause"] == "broker-gone"
        assert event.shown["count"] == max(1, len(expected or ()))
        assert event.troubled == 0


def test_an_acknowledgement_is_seen_by_those_whose_patterns_allow_the_partition(console: RunningConsole) -> None:
    enter(console, "root")
    body = {"partitions": [{"topic": topic, "partition": 0} for topic in ("shop-orders", "secret-plans")]}
    assert console.post("actions/acknowledge", body | {"note": "mine"}).status == 200
    assert console.get("overview")["acknowledged"] == 2
    enter(console, "shop")
    found = console.get("overview")
    assert found["acknowledged"] == 1
    (noted,) = [each for each in found["worst"] if each["acknowledged"]]
    assert (noted["topic"], noted["acknowledged"]["note"]) == ("shop-orders", "mine")
    enter(console, "root")
    assert console.post("actions/acknowledge", body | {"withdraw": True}).status == 200


@pytest.mark.parametrize(
    ("route", "parameters"),
    [("messages", {}), ("messages", {"format": "csv"}), ("message", {"partition": 0, "offset": 0}), ("tail", {})],
    ids=str,
)
def test_records_of_internal_topics_are_hidden_from_users_with_patterns(
    console: RunningConsole, phantom: PhantomCluster, route: str, parameters: dict[str, object]
) -> None:
    """Committed offsets name every group and topic."""
    if "__consumer_offsets" not in phantom.change(lambda state: list(state.topics)):
        phantom.change(lambda state: state.create_topic("__consumer_offsets", 1))
    enter(console, "team")
    console.until(lambda: console.ask("topic", name="__consumer_offsets").status == 200, "the topic is there")
    assert console.ask(route, topic="__consumer_offsets", **parameters).code == "role"
    again = {"topic": "__consumer_offsets", "partition": 0, "offset": 0, "to": "shop-orders"}
    assert console.post("actions/produce-again", again).code == "role"
    assert console.post("actions/copy-records", {"topic": "__consumer_offsets", "to": "shop-orders"}).code == "role"
    if route == "messages":
        enter(console, "root")
        assert console.ask(route, topic="__consumer_offsets", **parameters).code != "role"


def test_the_log_directories_of_a_broker_count_what_the_patterns_allow(console: RunningConsole) -> None:
    enter(console, "root")
    whole = console.get("broker", id=1)
    enter(console, "shop")
    found = console.get("broker", id=1)
    assert sum(each["replicas"] for each in found["directories"]) == found["replicas_total"] > 0
    assert sum(each["replicas"] for each in whole["directories"]) > found["replicas_total"]


def test_an_allowed_change_is_allowed(console: RunningConsole) -> None:
    enter(console, "shop")
    body = {"kind": "preferred", "partitions": [{"topic": "shop-orders", "partition": 0}], "dry_run": True}
    assert console.post("actions/elect", body).json["ok"] is True


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("delete-topics", {"confirm": "4"}),
        ("delete-records-of-topics", {"confirm": "4"}),
        ("alter-configs-of-topics", {"set": {"retention.ms": "60000"}}),
        ("add-partitions-to-topics", {"partitions": 9}),
    ],
)
@pytest.mark.parametrize("is_dry", [True, False], ids=["dry", "done"])
def test_a_change_of_many_topics_leaves_alone_what_the_patterns_hide(
    console: RunningConsole, phantom: PhantomCluster, route: str, body: dict[str, Any], is_dry: bool
) -> None:
    """The cluster refuses the topic that the patterns allow, so that the other tests find it as it was."""
    names = ["secret-plans", "shop-returns", "topic-00000", "shop-none"]
    before = phantom.change(lambda state: (list(state.topics), dict(state.altered)))
    phantom.change(lambda state: state.refusing.update({"shop-returns": 29}))
    enter(console, "shop")
    try:
        answer = console.post(f"actions/{route}", {"topics": names, "dry_run": is_dry, **body})
    finally:
        phantom.change(lambda state: state.refusing.clear())
    # A deletion that the cluster refuses is not known before.
    is_planned = is_dry and route.startswith("delete")
    assert answer.status == (200 if is_planned else 409), answer.body
    rows = answer.json["results"] if is_planned else answer.json["error"]["results"]
    assert [row["subject"] for row in rows] == names
    assert [row["ok"] for row in rows] == [False, is_planned, False, False]
    assert rows[0]["text"] == rows[2]["text"] == "no pattern of this user allows this topic"
    assert is_planned or "TOPIC_AUTHORIZATION_FAILED" in rows[1]["text"]
    assert rows[3]["text"] == "there is no such topic"
    assert phantom.change(lambda state: (list(state.topics), dict(state.altered))) == before


def test_other_patterns_end_a_stream(console: RunningConsole) -> None:
    assert console.console is not None
    assert console.console.users is not None
    enter(console, "shop")
    try:
        with console.live("overview") as messages:
            assert next(messages)[1] == "hello"
            console.console.users.put(User("shop", Role.ADMIN, PASSWORD, Patterns(topics=("none",))))
            assert "bye" in [event for _, event, _ in messages]
        assert console.get("topics")["total"] == 0
    finally:
        console.console.users.put(User("shop", Role.ADMIN, PASSWORD, SHOP))


@pytest.mark.parametrize(
    ("patterns", "name", "is_allowed"),
    [
        (("*",), "anything\nelse", True),
        (("shop-*",), "shop-orders", True),
        (("shop-*",), "shop", False),
        (("shop.*",), "shopx", False),
        (("[a-z]",), "a", False),
        (("a*c", "x"), "abbbc", True),
        (("a*c", "x"), "xx", False),
        ((), "a", False),
    ],
)
def test_a_star_is_the_only_special_character(patterns: tuple[str, ...], name: str, is_allowed: bool) -> None:
    assert fits(patterns, name) is is_allowed


def test_a_name_that_is_no_text_is_refused() -> None:
    scope = Scope.of([SHOP])
    for name in (None, 5, ["shop-orders"], {"a": 1}):
        with pytest.raises(Problem):
            check(scope, "delete_topic", {"name": name})
    check(scope, "delete_topic", {"name": "shop-orders"})
    check(Scope(), "delete_topic", {"name": "secret"})


def test_the_file_of_users_keeps_patterns_and_refuses_damaged_ones(tmp_path: Path) -> None:
    users = UsersFile(tmp_path / "users.json")
    users.put(User("shop", Role.VIEWER, PASSWORD, SHOP))
    users.put(User("all", Role.VIEWER, PASSWORD))
    assert UsersFile(users.path).read()["shop"].patterns == SHOP
    assert UsersFile(users.path).read()["all"].patterns.is_everything
    users.path.write_text(users.path.read_text().replace('["shop-*"]', '"shop-*"').replace("shop-*", "x"))
    content = json.loads(users.path.read_text())
    content["users"]["shop"]["topics"] = "shop-*"
    users.path.write_text(json.dumps(content))
    with pytest.raises(UsersError):
        UsersFile(users.path).read()
