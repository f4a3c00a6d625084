"""The situation of a live cluster: one poll of the monitor, and the facts that only other requests give.

What a cluster does not support, or does not let this client see, becomes a gap of the situation, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from barnabas.decisions.strategies import ASSIGNMENT
from barnabas.monitor.broker_connection import Address, NoAnswer, Security
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.connections import Connections, Unreachable
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.look_requests import quorum_request
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.whatif import fact_requests as requests
from barnabas.whatif.from_table import ClusterFacts, situation_of
from barnabas.whatif.questions import Drain, LoseDisks, Question
from barnabas.whatif.situation import Situation

_TOPICS_PER_REQUEST: Final = 500
#: Without an active controller, the question about the quorum gets no response.
_QUORUM_TIMEOUT_S: Final = 2.0


async def situation_now(
    bootstrap: Sequence[Address],
    security: Security,
    question: Question,
    *,
    clock_ms: Callable[[], int],
    timeout_s: float = 3.0,
) -> Situation:
    """Returns the present situation of the cluster, with the facts that the question needs. Raises Unreachable."""
    options = FeedOptions(timeout_s=timeout_s, wants_all_volumes=isinstance(question, Drain))
    feeds = ClusterFeeds(bootstrap, security, options, clock_ms=clock_ms)
    await feeds.first_look()
    disks = question.disks if isinstance(question, LoseDisks) else ()
    facts = await facts_of(feeds.table, bootstrap, security, {broker for broker, _ in disks}, timeout_s=timeout_s)
    return situation_of(feeds.table, facts)


async def facts_of(
    table: ClusterTable,
    bootstrap: Sequence[Address],
    security: Security,
    brokers_with_disks: Iterable[int] = (),
    *,
    timeout_s: float = 3.0,
) -> ClusterFacts:
    """Returns the facts about the cluster of a table. The log directories are those of `brokers_with_disks`."""
    connections = Connections(bootstrap, security, timeout_s)
    connections.known = [broker.address for broker in table.brokers.values() if broker.problem is None]
    try:
        return await _Facts(table, connections).all(brokers_with_disks)
    finally:
        connections.close()


class _Facts:
    def __init__(self, table: ClusterTable, connections: Connections) -> None:
        self._table = table
        self._connections = connections
        self._gaps: list[str] = []

    async def all(self, brokers_with_disks: Iterable[int]) -> ClusterFacts:
        found = ClusterFacts()
        await self._ask_quorum(found)
        await self._ask_features(found)
        found.unclean_topics = await self._unclean_topics()
        found.strategy = await self._strategy()
        directories, metadata_directories = {}, {}
        for broker_id in sorted(brokers_with_disks):
            broker = self._table.brokers.get(broker_id)
            if broker is None or broker.problem is not None:
                continue
            connection = self._connections.aside(broker.address)
            try:
                answer = await connection.call(requests.log_dirs_request(), DescribeLogDirsResponse)
                configs = await connection.call(requests.broker_request(broker_id), DescribeConfigsResponse)
            except NoAnswer as error:
                self._gaps.append(f"broker {broker_id} does not name its log directories: {error}")
                continue
            directories[broker_id] = requests.directories_of(answer)
            metadata = requests.metadata_directory(requests.broker_values(configs))
            if metadata is not None:
                metadata_directories[broker_id] = metadata
        found.directories, found.metadata_directories = directories, metadata_directories
        found.gaps = tuple(self._gaps)
        return found

    async def _ask_quorum(self, found: ClusterFacts) -> None:
        try:
            answer = await self._connections.call_any(
                quorum_request(), DescribeQuorumResponse, timeout_s=_QUORUM_TIMEOUT_S
            )
        except Unreachable:
            found.has_quorum = self._connections.knows(DescribeQuorumRequest)
            voters = None
        else:
            voters = requests.voters_of(answer)
        if voters is not None and voters.ids:
            found.voters, found.lost_voters = voters
        elif found.has_quorum:
            self._gaps.append("the voters of the metadata quorum are not known; it is assumed to keep its majority")

    async def _ask_features(self, found: ClusterFacts) -> None:
        try:
            answer = await self._connections.call_any(requests.features_request(), ApiVersionsResponse)
        except Unreachable:
            self._gaps.append("the features of the cluster are not known; no ELR is assumed")
        else:
            found.elr_enabled = requests.has_elr(answer)

    async def _unclean_topics(self) -> frozenset[str]:
        names = self._table.topics.names()
        allowed, unknown = set[str](), set[str]()
        for first in range(0, len(names), _TOPICS_PER_REQUEST):
            some = names[first : first + _TOPICS_PER_REQUEST]
            try:
                answer = await self._connections.call_any(requests.unclean_request(some), DescribeConfigsResponse)
            except Unreachable:
                unknown.update(some)
                continue
            more, missing = requests.unclean_topics(answer)
            allowed |= more
            unknown |= missing
        if unknown:
            self._gaps.append(
                f"unclean.leader.election.enable of {len(unknown)} topics is not known, and counts as false"
            )
        return frozenset(allowed)

    async def _strategy(self) -> str:
        """Returns the election strategy of the active controller, where that is a broker; Kafka's rule for others."""
        brokers = [broker for broker in self._table.brokers.values() if broker.problem is None]
        chosen = [broker for broker in brokers if broker.broker_id == self._table.controller] or brokers[:1]
        for broker in chosen:
            try:
                answer = await self._connections.aside(broker.address).call(
                    requests.broker_request(broker.broker_id), DescribeConfigsResponse
                )
            except NoAnswer:
                return ASSIGNMENT
            found = requests.strategy_of(requests.broker_values(answer))
            if found is not None and broker.broker_id != self._table.controller:
                self._gaps.append("the election strategy of the controllers is not known; it is assumed to be Kafka's")
                return ASSIGNMENT
            return found or ASSIGNMENT
        return ASSIGNMENT
