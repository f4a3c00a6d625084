"""The meaning of the answers about voters, features, settings and log directories."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumResponse
from barnabas.whatif import fact_requests
from barnabas.whatif.fact_requests import Voters

NOW = 1_700_000_000_000


def quorum(fetched_ms: dict[int, int], error_code: int = 0) -> DescribeQuorumResponse:
    voters = [
        DescribeQuorumResponse.ReplicaState(replica_id=voter, last_fetch_timestamp=at_ms)
        for voter, at_ms in fetched_ms.items()
    ]
    partition = DescribeQuorumResponse.PartitionData(partition_index=0, current_voters=voters, error_code=error_code)
    topic = DescribeQuorumResponse.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return DescribeQuorumResponse(topics=[topic])


def test_a_voter_that_does_not_fetch_is_lost() -> None:
    found = fact_requests.voters_of(quorum({3: NOW, 1: NOW - 400, 2: NOW - 60_000, 4: -1}))
    assert found == Voters((1, 2, 3, 4), frozenset({2, 4}))


def test_without_times_no_voter_is_lost() -> None:
    assert fact_requests.voters_of(quorum({1: -1, 2: -1})) == Voters((1, 2))


def test_an_error_names_no_voters() -> None:
    assert fact_requests.voters_of(quorum({1: NOW}, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)) is None
    refused = DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert fact_requests.voters_of(refused) is None


@pytest.mark.parametrize(("level", "is_on"), [(1, True), (0, False)])
def test_elr_is_a_feature(level: int, is_on: bool) -> None:
    feature = ApiVersionsResponse.FinalizedFeatureKey(
        name="eligible.leader.replicas.version", max_version_level=level, min_version_level=level
    )
    assert fact_requests.has_elr(ApiVersionsResponse(finalized_features=[feature])) is is_on
    assert fact_requests.has_elr(ApiVersionsResponse()) is False


def configs(**values: dict[str, str | None] | int) -> DescribeConfigsResponse:
    """Returns the settings of each resource, or its error code."""
    row = DescribeConfigsResponse.DescribeConfigsResourceResult
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResponse.DescribeConfigsResult(
                resource_name=name,
                error_code=found if isinstance(found, int) else 0,
                configs=[row(name=key, value=value) for key, value in found.items()] if isinstance(found, dict) else [],
            )
            for name, found in values.items()
        ]
    )


def test_topics_allow_unclean_elections_or_their_setting_is_unknown() -> None:
    key = "unclean.leader.election.enable"
    answer = configs(
        a={key: "true"},
        b={key: "false"},
        c={},
        d=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        e=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    )
    assert fact_requests.unclean_topics(answer) == ({"a"}, {"c", "d"})


@pytest.mark.parametrize(
    ("values", "directory"),
    [
        ({"metadata.log.dir": "/m", "log.dirs": "/a,/b"}, "/m"),
        ({"metadata.log.dir": None, "log.dirs": " /a , /b", "log.dir": "/c"}, "/a"),
        ({"log.dirs": None, "log.dir": "/c"}, "/c"),
        ({}, None),
    ],
)
def test_the_metadata_log_is_in_its_own_or_the_first_directory(
    values: dict[str, str | None], directory: str | None
) -> None:
    answer = fact_requests.broker_values(configs(broker=values))
    assert fact_requests.metadata_directory(answer) == directory


def test_only_kafka_has_no_strategy() -> None:
    answer = configs(broker={"barnabas.leader.election.strategy": "least-leaders"})
    assert fact_requests.strategy_of(fact_requests.broker_values(answer)) == "least-leaders"
    assert fact_requests.strategy_of({}) is None


def test_directories_that_are_online_are_listed_with_their_replicas() -> None:
    partition, topic = DescribeLogDirsResponse.DescribeLogDirsPartition, DescribeLogDirsResponse.DescribeLogDirsTopic
    rows = [partition(partition_index=0), partition(partition_index=1, is_future_key=True)]
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    answer = DescribeLogDirsResponse(
        results=[
            result(log_dir="/a", topics=[topic(name="orders", partitions=rows)]),
            result(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
            result(log_dir="/c"),
        ]
    )
    assert fact_requests.directories_of(answer) == {"/a": frozenset({("orders", 0)}), "/c": frozenset()}
