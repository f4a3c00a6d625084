"""Preferred and unclean elections, on request or by the controller itself.

- ElectLeaders (KIP-183, KIP-460) elects the preferred leader, or any live replica if none can lead cleanly.
- Leadership returns to preferred replicas that are in sync (`auto.leader.rebalance.enable`). As in Kafka 4, any
  imbalance is corrected. In ZooKeeper mode `leader.imbalance.per.broker.percentage` applies:
  `controller/zookeeper/imbalance.py`.
- Leaderless partitions of topics that allow it get an unclean leader; otherwise those that lost their leader before the
  topic allowed it would wait forever.

The controller's own elections are triggered by `ReplicationControl` (`kraft/replication_control.py`), and in ZooKeeper
mode by `ActiveController.rebalance` (`zookeeper/active_controller.py`).

A preferred election never makes a partition worse: if the preferred replica cannot lead, nothing changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests.partitions import Located, change_record, find, search
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import UNCLEAN_ELECTION, ControllerView
from barnabas.decisions.broker_events import can_lead, needs_election, prefers_possible_leader
from barnabas.decisions.leader_election import Election
from barnabas.metadata.image import TOPIC_RESOURCE, MetadataImage
from barnabas.metadata.topics import NO_LEADER, RECOVERING
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.protocol.messages.records_metadata import ConfigRecord, PartitionChangeRecord

#: The values of `election_type` in ElectLeaders.
PREFERRED: Final = 0
UNCLEAN: Final = 1
#: The maximum number of elections in one batch; the others follow in further batches.
ELECTIONS_PER_BATCH: Final = 1_000
#: The maximum number of partitions that one turn looks at.
_SEARCHED_PER_BATCH: Final = 2_000

_ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
_TEXTS: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}
_Answer = tuple[ErrorCode, str | None]
_DONE: Final[_Answer] = (ErrorCode.NONE, None)


def elect_leaders(view: ControllerView, request: ElectLeadersRequest, actor: str) -> Result[ElectLeadersResponse]:
    """Returns one result per requested partition; for "all partitions" those that need no election are left out, and
    they are decided in portions.
    """
    election = _ELECTIONS.get(request.election_type)
    cause = Cause(ControllerEvent.ELECT_LEADERS, actor, election.value if election is not None else "")
    if election is None:
        text = f"Unknown election type {request.election_type}"
        return Result([], refused(request, ErrorCode.INVALID_REQUEST, text), cause)
    response = ElectLeadersResponse()
    if request.topic_partitions is None:
        left = deque((name, 0) for name in view.image.topic_names())
        return _elect_everywhere(left, election, response, cause, view)
    records: list[Versioned] = []
    for requested in request.topic_partitions:
        row = ElectLeadersResponse.ReplicaElectionResult(topic=requested.topic)
        response.replica_election_results.append(row)
        decided: set[int] = set()
        for partition_id in requested.partitions:
            code, text_ = _elect(view, requested.topic, partition_id, election, records, decided)
            row.partition_result.append(_result(partition_id, code, text_))
    return Result(records, response, cause)


def _elect_everywhere(
    left: deque[tuple[str, int]],
    election: Election,
    response: ElectLeadersResponse,
    cause: Cause,
    view: ControllerView,
) -> Result[ElectLeadersResponse]:
    """Decides about a portion of all partitions. `left` has the topics that are not done, each with its first partition
    that is not; it gets shorter, and the response longer.
    """
    records: list[Versioned] = []
    budget = _SEARCHED_PER_BATCH
    while left and budget > 0 and len(records) < ELECTIONS_PER_BATCH:
        name, first = left.popleft()
        topic = view.image.topics_by_name.get(name)
        if topic is None:
            continue
        rows = response.replica_election_results
        if first == 0:
            rows.append(ElectLeadersResponse.ReplicaElectionResult(topic=name))
        end = min(len(topic.partitions), first + budget, first + ELECTIONS_PER_BATCH - len(records))
        for partition_id in range(first, end):
            code, text = _elect(view, name, partition_id, election, records, set())
            if code is not ErrorCode.ELECTION_NOT_NEEDED:
                rows[-1].partition_result.append(_result(partition_id, code, text))
        if end < len(topic.partitions):
            left.appendleft((name, end))
        budget -= max(end - first, 1)
    rest = partial(_elect_everywhere, left, election, response, cause) if left else None
    return Result(records, response, cause, rest)


def with_partitions(view: ControllerView, request: ElectLeadersRequest) -> ElectLeadersRequest:
    """Returns the request with the partitions named, if it asks for all partitions."""
    election = _ELECTIONS.get(request.election_type)
    if request.topic_partitions is not None or election is None:
        return request
    needed: dict[str, list[int]] = {}
    for topic, index, _ in find(view, lambda partition: needs_election(partition, election)):
        needed.setdefault(topic.name, []).append(index)
    return ElectLeadersRequest(
        election_type=request.election_type,
        topic_partitions=[
            ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes) for name, indexes in needed.items()
        ],
        timeout_ms=request.timeout_ms,
    )


def refused(request: ElectLeadersRequest, code: ErrorCode, text: str | None = None) -> ElectLeadersResponse:
    """Returns the same error for every requested partition."""
    response = ElectLeadersResponse(error_code=code)
    for requested in request.topic_partitions or ():
        row = ElectLeadersResponse.ReplicaElectionResult(topic=requested.topic)
        row.partition_result = [_result(partition_id, code, text) for partition_id in requested.partitions]
        response.replica_election_results.append(row)
    return response


def _result(partition_id: int, code: ErrorCode, text: str | None) -> ElectLeadersResponse.PartitionResult:
    return ElectLeadersResponse.PartitionResult(partition_id=partition_id, error_code=code, error_message=text)


def _elect(
    view: ControllerView,
    topic_name: str,
    partition_id: int,
    election: Election,
    records: list[Versioned],
    decided: set[int],
) -> _Answer:
    """Adds the election of one partition to `records`. `decided`: the topic's partitions that have got a record."""
    topic = view.image.topics_by_name.get(topic_name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}"
    if not 0 <= partition_id < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{partition_id}"
    located = (topic, partition_id, topic.partitions[partition_id])
    if partition_id in decided or not needs_election(located[2], election):
        return _answer(ErrorCode.ELECTION_NOT_NEEDED)
    record = _change(view, located, election)
    if record is None:
        preferred = election is Election.PREFERRED
        return _answer(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    decided.add(partition_id)
    records.append(record)
    return _DONE


def _answer(code: ErrorCode) -> _Answer:
    return code, _TEXTS[code]


def _change(view: ControllerView, located: Located, election: Election) -> Versioned | None:
    topic, _, partition = located
    rules = view.rules(topic.name, len(partition.replicas), can_lead(view, partition), election)
    return change_record(view, located, rules)


# Elections that the controller begins itself.


def unclean_elections_due(
    view: ControllerView, names: deque[str] | None = None, count_max: int | None = None
) -> Result[None]:
    """Elects leaders for leaderless partitions of topics that allow unclean ones, as many as fit in one batch. `names`
    are the topics to search, of which it removes those that are done."""
    records: list[Versioned] = []
    allowed: dict[str, bool] = {}
    for located in search(view, lambda partition: not partition.has_leader, names):
        name = located[0].name
        if name not in allowed:
            allowed[name] = view.unclean_election_allowed(name)
        record = _change(view, located, Election.UNCLEAN) if allowed[name] else None
        if record is not None:
            records.append(record)
            if len(records) == (count_max or ELECTIONS_PER_BATCH):
                break
    return Result(records, None, Cause(ControllerEvent.UNCLEAN_ELECTIONS_ALLOWED, "controller", _counted(records)))


def topics_with_changed_rule(image: MetadataImage, records: Iterable[Versioned]) -> Sequence[str]:
    """Returns the topics for which the records change `unclean.leader.election.enable`, so that elections may be due
    now.
    """
    changed = [record for record, _ in records if isinstance(record, ConfigRecord) and record.name == UNCLEAN_ELECTION]
    if any(record.resource_type != TOPIC_RESOURCE for record in changed):
        return image.topic_names()
    return sorted(record.resource_name for record in changed)


def rebalance(
    view: ControllerView,
    names: deque[str] | None = None,
    *,
    partitions: Iterable[Located] | None = None,
    count_max: int | None = None,
) -> Result[None]:
    """Moves leadership of these partitions, or of all, to preferred replicas that can lead: as many as fit in
    one batch, or `count_max`. `names` are the topics to search, of which it removes those that are done."""
    records: list[Versioned] = []
    if partitions is None:
        partitions = search(view, lambda partition: needs_election(partition, Election.PREFERRED), names)
    for located in partitions:
        # Partitions that cannot be rebalanced are skipped, so that each batch leaves fewer of them.
        if not prefers_possible_leader(view, located[2]):
            continue
        record = _change(view, located, Election.PREFERRED)
        if record is not None:
            records.append(record)
            if len(records) == (count_max or ELECTIONS_PER_BATCH):
                break
    return Result(records, None, Cause(ControllerEvent.LEADERS_REBALANCED, "controller", _counted(records)))


def _counted(records: Sequence[Versioned]) -> str:
    return f"{len(records)} partitions"


# Possible losses by an election.


def unclean_leaders(before: MetadataImage, records: Iterable[Versioned]) -> list[str]:
    """Describes each unclean election (guard G13): the new leader was neither in the ISR nor in the ELR, so records are
    possibly lost. The controller knows no log offsets, so it names the replicas that had them and not how many."""
    found = []
    for record, _ in records:
        if not isinstance(record, PartitionChangeRecord) or record.leader <= NO_LEADER:
            continue
        topic = before.topics_by_id.get(record.topic_id)
        if topic is None or record.partition_id >= len(topic.partitions):
            continue
        partition = topic.partitions[record.partition_id]
        again = partition.leader_recovery_state == RECOVERING and record.leader_recovery_state < 0
        if record.leader in (*partition.isr, *partition.elr, partition.leader):
            continue
        if record.leader_recovery_state != RECOVERING and not again:
            continue
        in_sync = partition.isr or partition.elr or partition.last_known_elr
        found.append(
            f"{topic.name}-{record.partition_id}: unclean leader {record.leader} after epoch {partition.leader_epoch}; "
            f"records that only {list(in_sync)} had are lost"
        )
    return found
