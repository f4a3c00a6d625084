"""The reading routes: each parses its parameters, and answers from the screens of a cluster."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from barnabas.console.csv_text import CSV, csv_text, file_name
from barnabas.console.parameters import Parameters
from barnabas.console.problems import Problem
from barnabas.console.screens import Screens
from barnabas.console.views.brokers import broker_view, brokers_view, quorum_view
from barnabas.console.views.configs import cluster_configs
from barnabas.console.views.directories import directory_moves_view, directory_plan
from barnabas.console.views.groups import SORTS as GROUP_SORTS
from barnabas.console.views.groups import GroupsQuestion, group_view, groups_json, groups_view
from barnabas.console.views.map_columns import FILLS
from barnabas.console.views.moves import move_plan, moves_view
from barnabas.console.views.overview import overview as overview_view
from barnabas.console.views.partition import lanes_view, partition_view
from barnabas.console.views.policies import policies_view
from barnabas.console.views.timeline import TimelineQuestion
from barnabas.console.views.timeline import timeline as timeline_view
from barnabas.console.views.topic import PARTITIONS_MAX, every_partition, topic_view
from barnabas.console.views.topics import LIMIT_MAX, SORTS, Ranks, TopicsQuestion
from barnabas.console.visit import Handler, Visit, file_response
from barnabas.console.what_if import ASKS, question_of, what_if
from barnabas.monitor.severity import Severity

_SEVERITIES: Final = tuple(severity.name.lower() for severity in Severity)
_FOUND_MAX: Final = 20
#: Partitions whose states before the console's start are kept.
_LANES_KEPT: Final = 1_000
_BROKER_MAX: Final = (1 << 31) - 1
_TOPIC_COLUMNS: Final = (
    "topic",
    "partitions",
    "replication",
    "min_isr",
    "severity",
    "out_of_sync",
    "leaderless",
    "size_bytes",
    "messages",
    "rate",
    "groups",
    "lag",
    "cleanup_policy",
    "retention_ms",
    "retention_bytes",
)
_RETENTIONS: Final = ("retention_ms", "retention_bytes")
_PARTITION_COLUMNS: Final = (
    "topic",
    "partition",
    "state",
    "leader",
    "preferred",
    "leader_epoch",
    "replicas",
    "isr",
    "osr",
    "elr",
    "min_isr",
    "size_bytes",
    "start_offset",
    "high_watermark",
)

_GROUP_COLUMNS: Final = ("group", "state", "kind", "protocol", "members", "topics", "lag", "lag_s", "coordinator")
_OFFSET_COLUMNS: Final = ("topic", "partition", "committed", "end_offset", "lag", "lag_s", "member")


async def overview(visit: Visit) -> Response:
    screens = visit.screens
    return visit.answer(screens.once("overview", lambda: overview_view(screens.cluster)))


async def replica_map(visit: Visit) -> Response:
    parameters = visit.parameters
    fill = parameters.choice("fill", FILLS) if parameters.has("fill") else None
    body = visit.screens.map.body(known_layout=parameters.maybe_number("layout"), fill=fill)
    return Response(body, media_type="application/octet-stream")


async def topics(visit: Visit) -> Response:
    question, screens = topics_question(visit.parameters), visit.screens
    ranks = await _ranks(screens, question)
    if visit.parameters.choice("format", ("json", "csv"), "json") == "csv":
        rows = list(screens.topics.every(question, ranks))
        policies = (await policies_view(screens.cluster, [row["topic"] for row in rows]))["policies"]
        text = csv_text(_TOPIC_COLUMNS, (row | _policy_cells(policies.get(row["topic"], {})) for row in rows))
        return file_response(text, file_name(screens.cluster.name, "topics.csv"), CSV)
    return visit.answer(screens.topics.answer(question, ranks))


async def _ranks(screens: Screens, question: TopicsQuestion) -> Ranks:
    """Returns the ranks of topics by their policies, for the order that needs them."""
    return await screens.policy_ranks() if question.sort == "policy" else {}


def _policy_cells(policy: dict[str, Any]) -> dict[str, Any]:
    return {"cleanup_policy": policy.get("cleanup")} | {key: policy.get(key) for key in _RETENTIONS}


async def topic_policies(visit: Visit) -> Response:
    """Returns the policies of the topics that `topics` answers for the same question."""
    question, screens = topics_question(visit.parameters), visit.live
    require_filled(screens)
    ranks = await _ranks(screens, question)
    rows = screens.topics.answer(question, ranks)["rows"]
    return visit.answer(await policies_view(screens.cluster, [row["topic"] for row in rows]))


async def topic(visit: Visit) -> Response:
    parameters, screens = visit.parameters, visit.screens
    name = parameters.text("name")
    require_filled(screens)
    as_csv = parameters.choice("format", ("json", "csv"), "json") == "csv"
    if as_csv:
        text = csv_text(_PARTITION_COLUMNS, await every_partition(screens.cluster, screens.topics, name))
        return file_response(text, file_name(screens.cluster.name, f"{name}.csv"), CSV)
    found = await topic_view(
        screens.cluster,
        screens.topics,
        name,
        offset=parameters.number("offset", 0),
        limit=parameters.number("limit", PARTITIONS_MAX, least=1, most=PARTITIONS_MAX),
        with_configs=parameters.flag("configs", default=True),
    )
    return visit.answer(found)


async def partition(visit: Visit) -> Response:
    parameters, screens = visit.parameters, visit.screens
    require_filled(screens)
    name, number = parameters.text("topic"), parameters.number("partition")
    await _load_lanes(visit, name, number)
    return visit.answer(await partition_view(screens.cluster, name, number))


async def _load_lanes(visit: Visit, topic: str, partition: int) -> None:
    """Loads the states of a partition from the history, where there is one."""
    cluster = visit.screens.cluster
    recording = visit.console.recordings.get(cluster.name)
    if recording is not None and cluster.table.row_of(topic, partition) is not None:
        until_ms = cluster.begun_ms if cluster.at_ms is None else cluster.at_ms
        cluster.older[topic, partition] = await recording.past.lanes(topic, partition, until_ms)
        while len(cluster.older) > _LANES_KEPT:
            del cluster.older[next(iter(cluster.older))]


async def brokers(visit: Visit) -> Response:
    screens = visit.screens
    return visit.answer(screens.once("brokers", lambda: brokers_view(screens.cluster)))


async def broker(visit: Visit) -> Response:
    screens = visit.screens
    require_filled(screens)
    return visit.answer(await broker_view(screens.cluster, visit.parameters.number("id")))


async def defaults_of_brokers(visit: Visit) -> Response:
    """Returns the dynamic defaults of all brokers."""
    require_filled(visit.live)
    return visit.answer(await cluster_configs(visit.live.cluster))


async def quorum(visit: Visit) -> Response:
    return visit.answer(await quorum_view(visit.screens.cluster))


async def timeline(visit: Visit) -> Response:
    return visit.answer(timeline_view(visit.screens.cluster.occurrences, timeline_question(visit.parameters)))


async def history(visit: Visit) -> Response:
    """Returns the extent of the recording; null without a history."""
    recording = visit.console.recordings.get(visit.live.cluster.name)
    if recording is None:
        return visit.answer_of_console(None)
    live = visit.live.cluster.occurrences
    try:
        found = await recording.past.about(live, visit.parameters.number("from", 0), visit.scope)
    except Problem as problem:
        found = {"first_ms": None, "last_ms": None, "gaps": [], "minutes": [], "text": problem.text}
    return visit.answer_of_console(found | {"recording": recording.is_recording, "problem": recording.problem})


async def whatif(visit: Visit) -> Response:
    parameters, screens = visit.parameters, visit.screens
    require_filled(screens)
    kind = parameters.choice("ask", tuple(ASKS))
    question = question_of(kind, _objects(parameters, kind))
    found = await what_if(screens.cluster, kind, question, with_states=parameters.flag("states"))
    if not visit.scope.sees_all_topics:
        found["notes"].append("topics that no pattern of this user allows are not considered")
    return visit.answer(found)


async def moves(visit: Visit) -> Response:
    """Shows the reassignments that run."""
    screens = visit.live
    require_filled(screens)
    found, between = await asyncio.gather(
        moves_view(screens.watched, screens.progress), directory_moves_view(screens.watched, screens.directories)
    )
    return visit.answer(found | {"directories": between})


async def plan_of_moves(visit: Visit) -> Response:
    """Proposes replicas of topics on some brokers."""
    parameters, screens = visit.parameters, visit.live
    require_filled(screens)
    topics = [name for name in parameters.text("topics").split(",") if name]
    return visit.answer(move_plan(screens.cluster, topics, parameters.numbers("brokers"), parameters.number("seed", 0)))


async def plan_of_directories(visit: Visit) -> Response:
    """Proposes to move replicas of a broker to another of its log directories."""
    parameters, screens = visit.parameters, visit.live
    require_filled(screens)
    topics = [name for name in parameters.text("topics", "").split(",") if name]
    source, target = parameters.text("from", ""), parameters.text("to")
    return visit.answer(await directory_plan(screens.cluster, parameters.number("broker"), source, target, topics))


def _objects(parameters: Parameters, kind: str) -> list[str]:
    """Returns the subjects of a question: brokers, racks, log directories, or a topic with a value."""
    if kind == "restart-all":
        return []
    if kind == "lose-rack":
        return parameters.text("rack").split(",")
    if kind == "min-isr":
        return [f"{parameters.text('topic')}={parameters.number('value', least=1, most=1_000)}"]
    if kind == "lose-disk":
        return [f"{parameters.number('broker', most=_BROKER_MAX)}:{parameters.text('path')}"]
    return list(map(str, parameters.numbers("broker")))


async def search(visit: Visit) -> Response:
    """Finds topics, groups and brokers whose names have a text."""
    text, screens = visit.parameters.text("q", ""), visit.screens
    groups = (name for name in sorted(screens.cluster.groups) if text.lower() in name.lower())
    found = {
        "topics": screens.topics.names_like(text, _FOUND_MAX),
        "groups": [name for name, _ in zip(groups, range(_FOUND_MAX), strict=False)],
        "brokers": [broker_id for broker_id in sorted(screens.cluster.table.brokers) if text in str(broker_id)],
    }
    return visit.answer(found)


async def lanes(visit: Visit) -> Response:
    parameters, screens = visit.parameters, visit.screens
    require_filled(screens)
    found = lanes_view(
        screens.cluster,
        parameters.text("topic"),
        from_ms=parameters.maybe_number("from"),
        to_ms=parameters.maybe_number("to"),
        limit=parameters.number("limit", 50, least=1, most=500),
    )
    return visit.answer(found)


async def groups(visit: Visit) -> Response:
    parameters, screens = visit.parameters, visit.screens
    question = GroupsQuestion(
        q=parameters.text("q", ""),
        sort=parameters.choice("sort", GROUP_SORTS, "name"),
        desc=parameters.flag("desc"),
        offset=parameters.number("offset", 0),
        limit=parameters.number("limit", 100, least=1, most=LIMIT_MAX),
    )
    if parameters.choice("format", ("json", "csv"), "json") == "csv":
        text = csv_text(_GROUP_COLUMNS, groups_json(screens.cluster, screens.rates, question))
        return file_response(text, file_name(screens.cluster.name, "groups.csv"), CSV)
    return visit.answer(groups_view(screens.cluster, screens.rates, question))


async def group(visit: Visit) -> Response:
    parameters, screens = visit.parameters, visit.screens
    require_filled(screens)
    name = parameters.text("name")
    found = await group_view(screens.cluster, screens.rates, name)
    if parameters.choice("format", ("json", "csv"), "json") == "csv":
        text = csv_text(_OFFSET_COLUMNS, found["partitions"])
        return file_response(text, file_name(screens.cluster.name, f"{name}.csv"), CSV)
    return visit.answer(found)


def require_filled(screens: Screens) -> None:
    """Raises Problem before the first poll is complete: until then the topics and brokers are unknown."""
    if not screens.cluster.is_filled:
        problem = screens.cluster.problem
        raise Problem("unreachable", f"no broker answers: {problem}" if problem else "the first poll is not complete")


def topics_question(parameters: Parameters) -> TopicsQuestion:
    return TopicsQuestion(
        q=parameters.text("q", ""),
        states=parameters.several("state", _SEVERITIES),
        internal=parameters.flag("internal", default=True),
        sort=parameters.choice("sort", SORTS, "name"),
        desc=parameters.flag("desc"),
        offset=parameters.number("offset", 0),
        limit=parameters.number("limit", 100, least=1, most=LIMIT_MAX),
    )


def timeline_question(parameters: Parameters) -> TimelineQuestion:
    return TimelineQuestion(
        from_ms=parameters.maybe_number("from"),
        to_ms=parameters.maybe_number("to"),
        q=parameters.text("q", ""),
        kinds=parameters.several("kind"),
        causes=parameters.several("cause"),
        severities=parameters.several("severity", _SEVERITIES),
        topic=parameters.text("topic", "") or None,
        partition=parameters.maybe_number("partition"),
        broker=parameters.maybe_number("broker"),
        before=parameters.maybe_number("before"),
        limit=parameters.number("limit", 200, least=1, most=1_000),
    )


HANDLERS: Final[dict[str, Handler]] = {
    "overview": overview,
    "map": replica_map,
    "topics": topics,
    "topic_policies": topic_policies,
    "topic": topic,
    "partition": partition,
    "brokers": brokers,
    "broker": broker,
    "cluster_configs": defaults_of_brokers,
    "quorum": quorum,
    "timeline": timeline,
    "search": search,
    "history": history,
    "whatif": whatif,
    "lanes": lanes,
    "moves": moves,
    "move_plan": plan_of_moves,
    "directory_plan": plan_of_directories,
    "groups": groups,
    "group": group,
}
