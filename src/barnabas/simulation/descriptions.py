"""Comparison of a cluster's answers about itself at the end of a run with second implementations.

Each answer is compared with the replays of the metadata and of the coordinators' logs, or with the files of the log
that it describes. Answers to filtered requests are those of the same request without filters, filtered here. Groups
and logs can change between two requests, so a difference counts if it is there three times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.runtime import ShardState
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.simulation.bare_client import CONTROLLER_PORT, BareClient
from barnabas.simulation.coordinator_dict import CoordinatorDict
from barnabas.simulation.coordinator_replay import Coordinators
from barnabas.simulation.history import Violation
from barnabas.simulation.log_files import read_batches
from barnabas.simulation.metadata_replay import MetadataLogs, state_of
from barnabas.simulation.simulated_cluster import Client, Cluster

_TRIES: Final = 3
_AGAIN_S: Final = 2.0
_BROKERS, _CONTROLLERS = 1, 2
#: The last version of OffsetFetch with one group in a request.
_ONE_GROUP: Final = 7
_EARLIEST, _LATEST = -2, -1
_STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_GROUP_FILTERS: Final[Sequence[tuple[list[str], list[str]]]] = (
    (["STABLE "], []),
    ([], ["Consumer"]),
    (["Empty"], ["classic"]),
    (["Empty", "Stable"], []),
)


class Descriptions:
    """The check. Without `logs` (in ZooKeeper mode) the metadata is that of the node's image."""

    def __init__(self, cluster: Cluster, coordinators: Coordinators, logs: MetadataLogs | None) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._logs = logs
        #: The number of answers that were compared.
        self.compared = 0

    async def check(self, client: Client) -> None:
        """Asks every node. Raises Violation if an answer stays wrong."""
        bare = BareClient(self._cluster, client)
        problem = ""
        for _ in range(_TRIES):
            problem = await self._problem(bare)
            if not problem:
                return
            await asyncio.sleep(_AGAIN_S)
        raise Violation(f"a description differs from the state: {problem}")

    async def _problem(self, bare: BareClient) -> str:
        """Returns the first answer that is wrong, or ""."""
        for name, node in self._cluster.nodes.items():
            if node.broker is None or not node.is_running:
                continue
            asked = [self._controllers] if node.broker.config.is_controller and self._logs is not None else []
            if node.broker.config.is_broker:
                asked += [self._brokers, self._groups, self._offsets, self._transactions, self._log_ends, self._sizes]
            for ask in asked:
                problem = await ask(bare, name, node.broker)
                if problem:
                    return f"{name}: {problem}"
                self.compared += 1
        return ""

    # -- metadata

    def _brokers_known(self, broker: Any) -> dict[int, bool]:
        """Returns whether each registered broker is fenced."""
        image = broker.metadata.image
        state = state_of(image) if self._logs is None else self._logs.replayed.state(image.offset + 1)
        return {key[1]: value["fenced"] for key, value in state.items() if key[0] == "broker"}

    async def _brokers(self, bare: BareClient, name: str, broker: Any) -> str:
        in_zookeeper = self._logs is None
        request = DescribeClusterRequest(endpoint_type=_BROKERS, include_fenced_brokers=not in_zookeeper)
        answer = await bare.call(name, request, DescribeClusterResponse)
        if answer is None or answer.error_code:
            return f"DescribeCluster is answered with {answer}"
        found = {row.broker_id: row.is_fenced for row in answer.brokers}
        expected = self._brokers_known(broker)
        addresses = {row.broker_id: row.host for row in answer.brokers}
        if found != expected or addresses != {each: f"broker{each}" for each in expected}:
            return f"DescribeCluster names the brokers {found} at {addresses}, registered are {expected}"
        return ""

    async def _controllers(self, bare: BareClient, name: str, broker: Any) -> str:
        request = DescribeClusterRequest(endpoint_type=_CONTROLLERS)
        answer = await bare.call(name, request, DescribeClusterResponse, port=CONTROLLER_PORT)
        if answer is None or answer.error_code:
            return f"DescribeCluster for controllers is answered with {answer}"
        nodes = [each.broker for each in self._cluster.nodes.values() if each.broker is not None]
        controllers = sorted(each.config.node_id for each in nodes if each.config.is_controller)
        active = [each.config.node_id for each in nodes if each.config.is_controller and each.side.controller.is_active]
        found = [row.broker_id for row in answer.brokers]
        if found != controllers or [answer.controller_id] != active:
            return f"DescribeCluster names the controllers {found}, active {answer.controller_id}, they are {active}"
        return ""

    # -- coordinators

    def _replays(self, broker: Any, shards: Iterable[Any]) -> list[CoordinatorDict] | None:
        """Returns the replays of the shards that a broker coordinates; None if one is missing."""
        found = []
        for shard in shards:
            replay = self._coordinators.replay_of(broker, shard)
            if replay is None or shard.state is not ShardState.ACTIVE:
                return None
            found.append(replay)
        return found

    async def _groups(self, bare: BareClient, name: str, broker: Any) -> str:
        answer = await bare.call(name, ListGroupsRequest(), ListGroupsResponse)
        if answer is None or answer.error_code:
            return f"ListGroups is answered with {answer}"
        kinds = {row.group_id: row.group_type for row in answer.groups}
        states = {row.group_id: row.group_state.lower() for row in answer.groups}
        replays = self._replays(broker, broker.groups.shards())
        if replays is not None:
            consumer = {group_id for replay in replays for group_id in replay.consumer_groups()}
            listed = {group_id for group_id, kind in kinds.items() if kind == "consumer"}
            if listed != consumer:
                return f"ListGroups names the consumer groups {sorted(listed)}, there are {sorted(consumer)}"
        for wanted_states, wanted_kinds in _GROUP_FILTERS:
            request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_kinds)
            answer = await bare.call(name, request, ListGroupsResponse)
            lower = [text.strip().lower() for text in wanted_states]
            expected = {
                group_id
                for group_id, kind in kinds.items()
                if (not lower or states[group_id] in lower)
                and (not wanted_kinds or kind in [each.lower() for each in wanted_kinds])
            }
            found = None if answer is None else {row.group_id for row in answer.groups}
            if found != expected:
                return f"ListGroups of {wanted_states} {wanted_kinds} names {found}, not {expected}"
        return ""

    async def _offsets(self, bare: BareClient, name: str, broker: Any) -> str:
        """Asks for all offsets of each group, with an old version of the request."""
        replays = self._replays(broker, broker.groups.shards())
        expected: dict[str, dict[tuple[str, int], int]] = {}
        for replay in replays or ():
            for (group_id, topic, index), committed in replay.offsets().items():
                expected.setdefault(group_id, {})[topic, index] = committed[0]
        for group_id, offsets in expected.items():
            request = OffsetFetchRequest(group_id=group_id, topics=None)
            answer = await bare.call(name, request, OffsetFetchResponse, version_max=_ONE_GROUP)
            if answer is None or answer.error_code:
                return f"OffsetFetch of {group_id} is answered with {answer}"
            found = {
                (topic.name, row.partition_index): row.committed_offset
                for topic in answer.topics
                for row in topic.partitions
            }
            if found != offsets:
                return f"OffsetFetch of {group_id} says {found}, the log says {offsets}"
        return ""

    async def _transactions(self, bare: BareClient, name: str, broker: Any) -> str:
        replays = self._replays(broker, broker.transactions.shards())
        if replays is None:
            return ""
        expected = {
            transactional_id: (_STATES[value["state"]], value["producer"])
            for replay in replays
            for transactional_id, value in replay.transactions().items()
            if value["state"] < len(_STATES)
        }
        for wanted in ([], ["CompleteCommit"], ["Empty", "CompleteAbort"]):
            answer = await bare.call(name, ListTransactionsRequest(state_filters=wanted), ListTransactionsResponse)
            if answer is None or answer.error_code:
                return f"ListTransactions is answered with {answer}"
            found = {
                row.transactional_id: (row.transaction_state, row.producer_id) for row in answer.transaction_states
            }
            chosen = {each: value for each, value in expected.items() if not wanted or value[0] in wanted}
            # An id is known before its first record.
            if {each: found.get(each) for each in chosen} != chosen or (wanted and set(found) - set(expected) - {""}):
                return f"ListTransactions of {wanted} says {found}, the log says {chosen}"
        return ""

    # -- logs

    def _led(self, broker: Any) -> list[Any]:
        return [each for each in broker.replicas.partitions() if each.leadership is not None]

    async def _log_ends(self, bare: BareClient, name: str, broker: Any) -> str:
        """Asks the leader for both ends of each log, and compares the HW with the last batch on the disk."""
        for partition in self._led(broker):
            topic, index = partition.topic_partition
            rows = [ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=_LATEST)]
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=rows)]
            )
            answer = await bare.call(name, request, ListOffsetsResponse)
            end = self._end_on_disk(name, partition.log.directory)
            row = None if answer is None else answer.topics[0].partitions[0]
            if row is None or row.error_code not in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                return f"ListOffsets of {topic}-{index} is answered with {row}"
            if row.error_code == ErrorCode.NONE and row.offset != end:
                return f"ListOffsets says that {topic}-{index} ends at {row.offset}, the file ends at {end}"
        return ""

    def _end_on_disk(self, name: str, directory: str) -> int:
        disk = self._cluster.nodes[name].disk
        with disk.without_effects():
            files = [file for file in disk.list_dir(directory) if file.endswith(".log")]
            if not files:
                return 0  # Nothing was written yet.
            last = max(files)
            batches = read_batches(disk.read(f"{directory}/{last}"))
        return batches[-1].last_offset + 1 if batches else int(last.partition(".")[0])

    async def _sizes(self, bare: BareClient, name: str, broker: Any) -> str:
        answer = await bare.call(name, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        if answer is None or answer.error_code:
            return f"DescribeLogDirs is answered with {answer}"
        found = {
            (topic.name, row.partition_index): row.partition_size
            for result in answer.results
            for topic in result.topics
            for row in topic.partitions
            if not row.is_future_key
        }
        expected = {}
        disk = self._cluster.nodes[name].disk
        with disk.without_effects():
            for partition in broker.replicas.partitions():
                directory = partition.log.directory
                sizes = [disk.size(f"{directory}/{file}") for file in disk.list_dir(directory) if file.endswith(".log")]
                expected[tuple(partition.topic_partition)] = sum(sizes)
        wrong = {place: (found.get(place), size) for place, size in expected.items() if found.get(place) != size}
        return f"DescribeLogDirs says (and the files have): {wrong}" if wrong else ""
