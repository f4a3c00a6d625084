"""The requests for the facts that the monitor's table does not have, and the contents of their responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumResponse
from barnabas.whatif.situation import Key

_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4
_UNCLEAN: Final = "unclean.leader.election.enable"
_STRATEGY: Final = "barnabas.leader.election.strategy"
_METADATA_DIRECTORY: Final = "metadata.log.dir"
_DIRECTORIES: Final = ("log.dirs", "log.dir")
_UNKNOWN: Final = -1
#: A voter fetches at least twice a second.
_LOST_AFTER_MS: Final = 5_000
_ELR_FEATURE: Final = "eligible.leader.replicas.version"


class Voters(NamedTuple):
    """The voters of the metadata quorum, and those of them that have not fetched from its leader for a while."""

    ids: tuple[int, ...]
    lost: frozenset[int] = frozenset()


def voters_of(response: DescribeQuorumResponse) -> Voters | None:
    """Returns the voters; None if the answer has an error. The leader counts its own last fetch as now; old versions
    have no times.
    """
    if response.error_code:
        return None
    rows = [row for topic in response.topics for row in topic.partitions if not row.error_code]
    if not rows:
        return None
    fetched_ms = {voter.replica_id: voter.last_fetch_timestamp for voter in rows[0].current_voters}
    newest_ms = max(fetched_ms.values(), default=_UNKNOWN)
    lost = {voter for voter, at_ms in fetched_ms.items() if newest_ms - at_ms > _LOST_AFTER_MS and newest_ms > 0}
    return Voters(tuple(sorted(fetched_ms)), frozenset(lost))


def features_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="barnabas-whatif", client_software_version="1")


def has_elr(response: ApiVersionsResponse) -> bool:
    """Returns whether the cluster keeps eligible leader replicas (KIP-966)."""
    return any(row.name == _ELR_FEATURE and row.max_version_level > 0 for row in response.finalized_features)


def unclean_request(topics: Iterable[str]) -> DescribeConfigsRequest:
    return _configs_request(_TOPIC_RESOURCE, topics, [_UNCLEAN])


def unclean_topics(response: DescribeConfigsResponse) -> tuple[set[str], set[str]]:
    """Returns the topics that allow unclean elections, and those whose setting the broker does not return."""
    allowed, unknown = set(), set()
    for result in response.results:
        values = {config.name: config.value for config in result.configs}
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        if result.error_code or _UNCLEAN not in values:
            unknown.add(result.resource_name)
        elif (values[_UNCLEAN] or "").strip().lower() == "true":
            allowed.add(result.resource_name)
    return allowed, unknown


def broker_request(broker_id: int) -> DescribeConfigsRequest:
    """Returns the request for the settings of a broker that decide about its failure."""
    return _configs_request(_BROKER_RESOURCE, [str(broker_id)], [_STRATEGY, _METADATA_DIRECTORY, *_DIRECTORIES])


def broker_values(response: DescribeConfigsResponse) -> dict[str, str]:
    return {
        config.name: config.value
        for result in response.results
        if not result.error_code
        for config in result.configs
        if config.value is not None
    }


def strategy_of(values: Mapping[str, str]) -> str | None:
    """Returns the election strategy; None if the broker has no such setting, like Kafka's brokers."""
    return values.get(_STRATEGY)


def metadata_directory(values: Mapping[str, str]) -> str | None:
    """Returns the directory of the metadata log: the configured one, else the first log directory."""
    configured = values.get(_METADATA_DIRECTORY, "")
    for text in (configured, *(values.get(name, "") for name in _DIRECTORIES)):
        first = text.split(",")[0].strip()
        if first:
            return first
    return None


def log_dirs_request() -> DescribeLogDirsRequest:
    """Returns the request for all log directories with all their replicas."""
    return DescribeLogDirsRequest(topics=None)


def directories_of(response: DescribeLogDirsResponse) -> dict[str, frozenset[Key]]:
    """Returns the partitions in each log directory that is online."""
    return {
        directory.log_dir: frozenset(
            (topic.name, row.partition_index)
            for topic in directory.topics
            for row in topic.partitions
            if not row.is_future_key
        )
        for directory in response.results
        if not directory.error_code
    }


def _configs_request(kind: int, names: Iterable[str], keys: list[str]) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names]
    )
