"""Answers of `barnabas.whatif` about a cluster, live or at a moment, as the page shows them.

The table is copied and the answer computed in a thread, because a large cluster takes a second.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import numpy as np

from barnabas.console.cluster_view import ClusterView
from barnabas.console.problems import Problem
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.columns import UNKNOWN, Volumes
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.topics import Topic, Topics
from barnabas.whatif import Answer, BadQuestion, Question, ask, parse_question
from barnabas.whatif.from_table import ClusterFacts, situation_of
from barnabas.whatif.live import facts_of
from barnabas.whatif.outcomes import Outcome
from barnabas.whatif.past import facts_in
from barnabas.whatif.questions import LoseDisks

#: The page's name of each question -> the name that the parser of questions uses.
ASKS: Final = {
    "lose-broker": "kill",
    "lose-rack": "rack",
    "lose-disk": "disk",
    "restart": "restart",
    "drain": "drain",
    "min-isr": "min-isr",
    "restart-all": "restart-all",
}
_VERDICTS: Final = {0: "safe", 3: "degraded", 5: "degraded", 6: "unsafe"}
#: How grave the effects on a partition are; all others are a notice.
_SEVERITIES: Final = {
    "offline": Severity.CRITICAL,
    "unclean": Severity.CRITICAL,
    "under-min-isr": Severity.ERROR,
    "single-copy": Severity.WARNING,
    "at-min-isr": Severity.WARNING,
}
_SHOWN: Final = 500
_TIMEOUT_S: Final = 2.0


def question_of(kind: str, objects: list[str]) -> Question:
    """Returns the question of a request. Raises Problem for an invalid one."""
    try:
        return parse_question([ASKS[kind], *objects])
    except BadQuestion as error:
        raise Problem("bad-request", str(error)) from error


async def what_if(cluster: ClusterView, kind: str, question: Question, *, with_states: bool = False) -> dict[str, Any]:
    """Returns the answer to a question, with `with_states` also the state of each partition that would change. Raises
    Problem if the question does not fit the cluster.
    """
    facts = await _facts(cluster, question)
    table = _copied(cluster.table)

    def work() -> Answer:
        return ask(situation_of(table, facts), question)

    try:
        answer = await asyncio.to_thread(work)
    except BadQuestion as error:
        raise Problem("bad-request", str(error)) from error
    return _shown(kind, answer) | ({"states": _states(answer)} if with_states else {})


async def _facts(cluster: ClusterView, question: Question) -> ClusterFacts:
    """Returns the facts that only brokers know; missing ones become a note of the answer."""
    whole = cluster.source
    if not isinstance(whole, WatchedCluster):
        return facts_in(cluster.table)
    if cluster.problem is not None:
        return ClusterFacts(gaps=(f"no broker answers: {cluster.problem}",))
    disks = {broker for broker, _ in question.disks} if isinstance(question, LoseDisks) else set()
    target = whole.target
    return await facts_of(cluster.table, target.bootstrap, target.security, disks, timeout_s=_TIMEOUT_S)


def _copied(table: ClusterTable) -> ClusterTable:
    """Returns a copy that does not change while a thread reads it."""
    found, rows = ClusterTable(), table.rows
    places = np.full(len(table.states), UNKNOWN, np.int32)
    places[rows] = np.arange(len(rows), dtype=np.int32)
    topics = Topics()
    known = places.tolist()
    topics.fill([_topic(table, topic, known) for topic in table.topics])
    volumes = Volumes(
        table.volumes.size[rows],
        table.volumes.end_offset[rows],
        table.volumes.reported_lag[rows],
        table.volumes.start_offset[rows],
        table.volumes.high_watermark[rows],
    )
    found.fill(table.states.take(rows), volumes, topics)
    found.brokers, found.controller, found.version = dict(table.brokers), table.controller, table.version
    return found


def _topic(table: ClusterTable, topic: Topic, places: list[int]) -> Topic:
    found = Topic(topic.number, topic.identity)
    found.min_isr, found.count = topic.min_isr, topic.count
    if topic.min_isr == UNKNOWN and topic.count:
        # A history stores the min ISR per partition, not per topic.
        found.min_isr = int(table.states.min_isr[topic.rows].max())
    found.rows_by_partition = [UNKNOWN if row == UNKNOWN else places[row] for row in topic.rows_by_partition]
    return found


def _shown(kind: str, answer: Answer) -> dict[str, Any]:
    full = answer.to_json()
    lines = [f"{count:,} partitions: {effect.label}" for effect, count in answer.counts.items() if count]
    plan = answer.plan
    if plan is not None:
        lines += [str(reason) for reason in plan.reasons][:_SHOWN]
    return {
        "ask": kind,
        "question": answer.question,
        "verdict": _VERDICTS[answer.exit_code],
        "lines": lines or ["nothing changes"],
        "notes": list(answer.notes),
        "counts": [{"effect": effect.label, "partitions": count} for effect, count in answer.counts.items()],
        "partitions": [_partition(outcome) for outcome in answer.partitions[:_SHOWN]],
        "changed": len(answer.partitions),
        "total": answer.total,
        "order": None if plan is None else [step.node for step in plan.steps],
        "plan": full.get("plan"),
        "reassignment": full.get("reassignment"),
        "moved_bytes": full.get("moved_bytes"),
        "stuck": full.get("stuck"),
    }


def _states(answer: Answer) -> list[dict[str, Any]]:
    """Returns [partition, severity, leader, ISR, replicas] of each partition that would change, by topic."""
    by_topic: dict[str, list[list[Any]]] = {}
    for each in answer.partitions:
        effects = {*each.effects, *each.already}
        severity = max((_SEVERITIES.get(effect.label, Severity.NOTICE) for effect in effects), default=Severity.OK)
        row = [each.key[1], int(severity), each.leader, list(each.in_sync), list(each.after.replicas)]
        by_topic.setdefault(each.key[0], []).append(row)
    return [{"topic": topic, "partitions": rows} for topic, rows in by_topic.items()]


def _partition(outcome: Outcome) -> dict[str, Any]:
    return {
        "topic": outcome.key[0],
        "partition": outcome.key[1],
        "effects": [effect.label for effect in outcome.effects],
        "already": [effect.label for effect in outcome.already],
        "leader_before": outcome.before.leader,
        "leader_after": outcome.leader,
        "isr_before": list(outcome.before.isr),
        "isr_after": list(outcome.in_sync),
        "replicas": list(outcome.after.replicas),
        "min_isr": outcome.min_isr,
        "text": outcome.why,
    }
