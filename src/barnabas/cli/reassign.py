"""`barnabas reassign generate|execute|verify|cancel`: moves replicas to other brokers and directories, with the
arguments and the JSON of Kafka's kafka-reassign-partitions tool.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeVar

import typer
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas.cli.clients import TIMEOUT_S, admin_client, result
from barnabas.cli.contexts import choice
from barnabas.cli.controller_requests import ask_controller
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty
from barnabas.cli.raw_requests import Wire
from barnabas.cli.reassign_plan import ANY_DIRECTORY, Partition, Plan, propose, read_plan, read_topics, to_json
from barnabas.common.errors import ErrorCode
from barnabas.embedded.failures import Failure
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

M = TypeVar("M", bound=Message)

PlanFile = Annotated[
    Path,
    typer.Option(
        "--reassignment-json-file", help="File with the plan, as `generate` prints it", exists=True, dir_okay=False
    ),
]
PreserveThrottles = Annotated[bool, typer.Option("--preserve-throttles", help="Keep the throttles")]
_BROKER_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"
_DIRECTORY_PAUSE_S: Final = 0.1
#: The version of AlterPartitionReassignments from which a changed replication factor can be refused (KIP-860).
_CHECKS_FACTORS: Final = 1

app = typer.Typer(help="Move replicas to other brokers or log directories", no_args_is_help=True)


class BrokerAddress(NamedTuple):
    host: str
    port: int
    rack: str | None


class _Cluster:
    """Sends the requests of `barnabas reassign` to the cluster."""

    def __init__(self, bootstrap: str, properties: list[str] | None) -> None:
        self.admin: AdminClient = admin_client(bootstrap, properties)
        described = result(self.admin.describe_cluster(request_timeout=TIMEOUT_S), "cannot describe the cluster")
        self.nodes = {node.id: BrokerAddress(node.host, node.port, node.rack) for node in described.nodes}

    def replicas(self, topics: Iterable[str]) -> dict[Partition, list[int]]:
        futures = self.admin.describe_topics(TopicCollection(sorted(set(topics))), request_timeout=TIMEOUT_S)
        return {
            (name, row.id): [node.id for node in row.replicas]
            for name, future in futures.items()
            for row in result(future, f"cannot describe topic {name}").partitions
        }

    def call(self, request: Message, version: int, expected: type[M], broker_id: int) -> M:
        node = self.nodes.get(broker_id)
        if node is None:
            raise Failure(f"broker {broker_id} is not available")
        with Wire(node.host, node.port) as connection:
            return connection.call(request, version, expected)

    def ongoing(self) -> dict[Partition, ListPartitionReassignmentsResponse.OngoingPartitionReassignment]:
        request = ListPartitionReassignmentsRequest(topics=None)
        answer = ask_controller(self.admin, request, 0, ListPartitionReassignmentsResponse)
        _require(answer.error_code, answer.error_message, "cannot list reassignments")
        return {(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions}

    def alter(
        self, targets: Mapping[Partition, Sequence[int] | None], *, factor_may_change: bool = True
    ) -> dict[Partition, str]:
        """Starts reassignments; those without a target are cancelled. Returns the ones that failed, with the reason."""
        if not factor_may_change and not self._checks_factors():
            refused = self._changed_factors(targets)
            rest = {partition: ids for partition, ids in targets.items() if partition not in refused}
            return refused | (self.alter(rest) if rest else {})
        by_topic: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for (topic, index), ids in sorted(targets.items()):
            row = AlterPartitionReassignmentsRequest.ReassignablePartition(
                partition_index=index, replicas=None if ids is None else list(ids)
            )
            by_topic.setdefault(topic, []).append(row)
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=factor_may_change,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=rows)
                for name, rows in by_topic.items()
            ],
        )
        version = 0 if factor_may_change else _CHECKS_FACTORS
        answer = ask_controller(self.admin, request, version, AlterPartitionReassignmentsResponse)
        _require(answer.error_code, answer.error_message, "cannot alter reassignments")
        return {
            (topic.name, row.partition_index): f"{row.error_message} ({ErrorCode(row.error_code).name})"
            for topic in answer.responses
            for row in topic.partitions
            if row.error_code
        }

    def _checks_factors(self) -> bool:
        """Returns whether the controller can refuse a changed replication factor: in ZooKeeper mode, and before Kafka
        4.1, brokers lack version 1 of the request.
        """
        answer = ask_controller(self.admin, ApiVersionsRequest(), 0, ApiVersionsResponse)
        _require(answer.error_code, None, "cannot ask for the versions of APIs")
        return any(
            row.api_key == AlterPartitionReassignmentsRequest.API_KEY and row.max_version >= _CHECKS_FACTORS
            for row in answer.api_keys
        )

    def _changed_factors(self, targets: Mapping[Partition, Sequence[int] | None]) -> dict[Partition, str]:
        """Returns an error for each target with another number of replicas, in the words of Kafka 4.1's controller."""
        ongoing = self.ongoing()
        current = self.replicas(topic for topic, _ in targets)
        refused = {}
        for partition, ids in targets.items():
            removing = ongoing[partition].removing_replicas if partition in ongoing else ()
            before = len(set(current.get(partition, ())) - set(removing))
            if ids is not None and before != len(ids):
                text = f"The replication factor is changed from {before} to {len(ids)}"
                refused[partition] = f"{text} ({ErrorCode.INVALID_REPLICATION_FACTOR.name})"
        return refused

    def configure(self, kind: ResourceType, name: str, values: Mapping[str, str | None]) -> None:
        """Sets the configs of an entity; removes those without a value."""
        entries = [
            ConfigEntry(
                key,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S).values():
            result(future, f"cannot set {', '.join(values)} of {kind.name.lower()} {name}")


def _require(code: int, text: str | None, what: str) -> None:
    if code:
        raise Failure(f"{what}: {text or ErrorCode(code).name}")


def _names(partitions: Iterable[Partition]) -> str:
    return ",".join(f"{topic}-{index}" for topic, index in sorted(partitions))


def _check(failed: Mapping[Partition, str], what: str) -> None:
    if failed:
        lines = [f"{topic}-{index}: {why}" for (topic, index), why in sorted(failed.items())]
        raise Failure(f"{what} {len(failed)} partition(s)", "\n".join(lines))


@app.command()
def generate(
    topics_file: Annotated[
        Path, typer.Option("--topics-to-move-json-file", exists=True, help='{"topics": [{"topic": "orders"}]}')
    ],
    broker_list: Annotated[str, typer.Option("--broker-list", help="Ids of the brokers to use: 1,2,3")],
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Propose a plan that moves topics to some brokers; nothing is moved"""
    cluster = _Cluster(bootstrap, properties)
    try:
        chosen = sorted({int(text) for text in broker_list.split(",")})
    except ValueError as error:
        raise Failure(f"--broker-list {broker_list}: expected ids separated by commas") from error
    unknown = [broker_id for broker_id in chosen if broker_id not in cluster.nodes]
    if unknown:
        raise Failure(f"no such brokers: {unknown}")
    racks = {broker_id: None if disable_rack_aware else cluster.nodes[broker_id].rack for broker_id in chosen}
    if any(racks.values()) and not all(racks.values()):
        raise Failure("not all brokers have a rack", "add --disable-rack-aware to ignore racks")
    current = cluster.replicas(read_topics(topics_file))
    print(f"Current partition replica assignment\n{to_json(current)}\n")
    proposed: dict[Partition, Sequence[int]] = {}
    for topic in sorted({name for name, _ in current}):
        indexes = sorted(index for name, index in current if name == topic)
        placed = propose(racks, len(indexes), len(current[topic, indexes[0]]), random.Random())
        proposed.update({(topic, index): ids for index, ids in zip(indexes, placed, strict=True)})
    print(f"Proposed partition reassignment configuration\n{to_json(proposed)}")


@app.command()
def execute(
    plan_file: PlanFile,
    throttle: Annotated[
        int, typer.Option("--throttle", help="Throttle between brokers in bytes/s; -1 means none")
    ] = -1,
    directory_throttle: Annotated[
        int,
        typer.Option(
            "--replica-alter-log-dirs-throttle", help="Throttle between log directories in bytes/s; -1 means none"
        ),
    ] = -1,
    additional: Annotated[
        bool, typer.Option("--additional", help="Start even if other reassignments are in progress")
    ] = False,
    fixed_factor: Annotated[
        bool, typer.Option("--disallow-replication-factor-change", help="Refuse to change the number of replicas")
    ] = False,
    timeout_ms: Annotated[
        int, typer.Option("--timeout", help="How long to try to set log directories, in ms")
    ] = 10_000,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Start the reassignments of a plan; `verify` reports when they are done and removes throttles"""
    plan = read_plan(plan_file)
    cluster = _Cluster(bootstrap, properties)
    if cluster.ongoing() and not additional:
        raise Failure("a reassignment is in progress", "wait for it, cancel it, or add --additional")
    unknown = sorted({replica for target in plan.values() for replica in target.replicas} - set(cluster.nodes))
    if unknown:
        raise Failure(f"no such brokers: {unknown}")
    current = cluster.replicas(topic for topic, _ in plan)
    missing = [partition for partition in plan if partition not in current]
    if missing:
        raise Failure(f"no such partitions: {_names(missing)}")
    choice.warn_if_production(f"moves replicas of {_names(plan)}")
    affected = {partition: current[partition] for partition in plan}
    print(f"Current partition replica assignment\n\n{to_json(affected)}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    _throttle(cluster, plan, affected, throttle, directory_throttle)
    targets = {partition: target.replicas for partition, target in plan.items()}
    # The broker remembers the directory and uses it when it creates the replica, so it is set before the move.
    _place(cluster, plan, time.monotonic())
    _check(cluster.alter(targets, factor_may_change=not fixed_factor), "cannot start the reassignment of")
    print(f"Successfully started partition reassignment(s) for {_names(plan)}")
    left = _place(cluster, plan, time.monotonic() + timeout_ms / 1_000)
    _check(left, "cannot set the log directory of replicas of")


def _throttle(
    cluster: _Cluster, plan: Plan, current: Mapping[Partition, Sequence[int]], rate: int, directory_rate: int
) -> None:
    brokers: dict[int, dict[str, str | None]] = {}
    if rate >= 0:
        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        for (topic, index), target in sorted(plan.items()):
            before = current[topic, index]
            leaders.setdefault(topic, []).extend(f"{index}:{replica}" for replica in before)
            added = [replica for replica in target.replicas if replica not in before]
            followers.setdefault(topic, []).extend(f"{index}:{replica}" for replica in added)
            for replica in (*before, *target.replicas):
                brokers.setdefault(replica, {}).update(dict.fromkeys(_BROKER_RATES, str(rate)))
        for topic in leaders:
            values = {_LEADERS: ",".join(leaders[topic]), _FOLLOWERS: ",".join(followers[topic])}
            cluster.configure(ResourceType.TOPIC, topic, {key: value for key, value in values.items() if value})
    if directory_rate >= 0:
        for target in plan.values():
            for replica, path in zip(target.replicas, target.log_dirs, strict=True):
                if path != ANY_DIRECTORY:
                    brokers.setdefault(replica, {})[_DIRECTORY_RATE] = str(directory_rate)
    for broker_id in sorted(brokers):
        cluster.configure(ResourceType.BROKER, str(broker_id), brokers[broker_id])
    if brokers:
        print(
            f"throttled brokers {','.join(map(str, sorted(brokers)))}; `verify` removes the throttle when all "
            "reassignments are done"
        )


def _place(cluster: _Cluster, plan: Plan, deadline: float) -> dict[Partition, str]:
    """Sets the directories of replicas on their brokers, with retries until they accept them or the time is up. Returns
    the failures.
    """
    wanted = {
        (partition, replica): path
        for partition, target in plan.items()
        for replica, path in zip(target.replicas, target.log_dirs, strict=True)
        if path != ANY_DIRECTORY
    }
    failed: dict[Partition, str] = {}
    while wanted:
        failed = {}
        for (partition, replica), path in list(wanted.items()):
            code = _move_to_directory(cluster, replica, partition, path)
            if code is ErrorCode.NONE:
                del wanted[partition, replica]
            else:
                failed[partition] = f"broker {replica}, {path}: {code.name}"
        if time.monotonic() >= deadline:
            break
        time.sleep(_DIRECTORY_PAUSE_S)
    return failed if wanted else {}


def _move_to_directory(cluster: _Cluster, broker_id: int, partition: Partition, path: str) -> ErrorCode:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=partition[0], partitions=[partition[1]])
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[topic])]
    )
    answer = cluster.call(request, 2, AlterReplicaLogDirsResponse, broker_id)
    return ErrorCode(answer.results[0].partitions[0].error_code)


@app.command()
def verify(
    plan_file: PlanFile,
    preserve_throttles: PreserveThrottles = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Show the progress of a plan, and remove its throttles when no reassignment is in progress any more"""
    plan = read_plan(plan_file)
    cluster = _Cluster(bootstrap, properties)
    ongoing = cluster.ongoing()
    current = cluster.replicas(topic for topic, _ in plan)
    print("Status of partition reassignment:")
    for (topic, index), target in sorted(plan.items()):
        name, found = f"{topic}-{index}", current.get((topic, index), [])
        if (topic, index) in ongoing:
            print(f"Reassignment of partition {name} is still in progress.")
        elif tuple(found) == target.replicas:
            print(f"Reassignment of partition {name} is completed.")
        else:
            has, wants = (",".join(map(str, ids)) for ids in (found, target.replicas))
            print(f"There is no active reassignment of partition {name}, but replica set is {has} rather than {wants}.")
    moving = _show_directories(cluster, plan)
    if not preserve_throttles and not ongoing and not moving:
        _unthrottle(cluster, {topic for topic, _ in plan})


def _show_directories(cluster: _Cluster, plan: Plan) -> bool:
    """Prints the state of each directory move. Returns whether any replica is still moving."""
    moving = False
    for partition, target in sorted(plan.items()):
        for replica, path in zip(target.replicas, target.log_dirs, strict=True):
            if path == ANY_DIRECTORY or replica not in cluster.nodes:
                continue
            where = _directories(cluster, replica, partition)
            name = f"{partition[0]}-{partition[1]}-{replica}"
            if where.get(path) is False:
                print(f"Reassignment of replica {name} completed successfully.")
            elif where.get(path):
                moving = True
                print(f"Reassignment of replica {name} is still in progress.")
            else:
                print(f"Partition {name} is not found in log dir {path} but in {sorted(where)}.")
    return moving


def _directories(cluster: _Cluster, broker_id: int, partition: Partition) -> dict[str, bool]:
    """Returns the directories of a replica, each with whether the replica is still being moved there."""
    topic = DescribeLogDirsRequest.DescribableLogDirTopic(topic=partition[0], partitions=[partition[1]])
    answer = cluster.call(DescribeLogDirsRequest(topics=[topic]), 4, DescribeLogDirsResponse, broker_id)
    return {
        found.log_dir: row.is_future_key
        for found in answer.results
        for each in found.topics
        for row in each.partitions
        if (each.name, row.partition_index) == partition
    }


def _unthrottle(cluster: _Cluster, topics: Iterable[str]) -> None:
    brokers = sorted(cluster.nodes)
    print(f"\nClearing broker-level throttles on brokers {','.join(map(str, brokers))}")
    for broker_id in brokers:
        values: dict[str, str | None] = dict.fromkeys((*_BROKER_RATES, _DIRECTORY_RATE))
        cluster.configure(ResourceType.BROKER, str(broker_id), values)
    print(f"Clearing topic-level throttles on topics {','.join(sorted(topics))}")
    for topic in sorted(topics):
        cluster.configure(ResourceType.TOPIC, topic, dict.fromkeys((_LEADERS, _FOLLOWERS)))


@app.command()
def cancel(
    plan_file: PlanFile,
    preserve_throttles: PreserveThrottles = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Cancel the reassignments of a plan: added replicas are removed, replaced ones stay"""
    plan = read_plan(plan_file)
    cluster = _Cluster(bootstrap, properties)
    ongoing = cluster.ongoing()
    targets: dict[Partition, Sequence[int] | None] = {each: None for each in plan if each in ongoing}
    if not targets:
        print("None of the specified partition reassignments are active.")
    else:
        _check(cluster.alter(targets), "cannot cancel the reassignment of")
        print(f"Successfully cancelled partition reassignments for: {_names(targets)}")
    if not preserve_throttles:
        _unthrottle(cluster, {topic for topic, _ in plan})
