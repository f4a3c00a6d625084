"""Configurations of topics and brokers with their origins. The values of sensitive keys never leave the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.console.cluster_view import ClusterView
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

TOPIC: Final = 2
BROKER: Final = 4
_DYNAMIC_TOPIC: Final = 1
_DEFAULT: Final = 5
#: The page's names of Kafka's sources.
_ORIGINS: Final = {1: "topic", 2: "broker", 3: "cluster", 4: "static", 5: "default", 6: "logger"}
_TYPES: Final = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")
_PASSWORD: Final = 9
#: The number of topics in one request: a broker answers it within some milliseconds.
_TOPICS_PER_REQUEST: Final = 200


async def topic_configs(cluster: ClusterView, topic: str) -> dict[str, Any]:
    """Returns `configs` and `configs_problem`, of which one is None."""
    try:
        answer = await cluster.questions.of_any(_request(TOPIC, topic), DescribeConfigsResponse)
    except NoAnswer as error:
        return _none(str(error))
    return _shown(answer)


async def broker_configs(cluster: ClusterView, broker_id: int) -> dict[str, Any]:
    """Returns the configurations that a broker itself reports."""
    try:
        answer = await cluster.questions.of(broker_id, _request(BROKER, str(broker_id)), DescribeConfigsResponse)
    except NoAnswer as error:
        return _none(str(error))
    return _shown(answer)


async def cluster_configs(cluster: ClusterView) -> dict[str, Any]:
    """Returns the dynamic defaults of all brokers."""
    try:
        answer = await cluster.questions.of_any(_request(BROKER, ""), DescribeConfigsResponse)
    except NoAnswer as error:
        return _none(str(error))
    return _shown(answer)


async def values_of_topics(
    cluster: ClusterView, names: Sequence[str], keys: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Returns the values of some configurations of each topic; that of a sensitive one is None. Topics that the cluster
    does not have, or does not show, are missing. Raises NoAnswer.
    """
    found: dict[str, dict[str, str | None]] = {}
    resource = DescribeConfigsRequest.DescribeConfigsResource
    for begin in range(0, len(names), _TOPICS_PER_REQUEST):
        resources = [
            resource(resource_type=TOPIC, resource_name=name, configuration_keys=list(keys))
            for name in names[begin : begin + _TOPICS_PER_REQUEST]
        ]
        answer = await cluster.questions.of_any(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        for row in answer.results:
            if not row.error_code:
                found[row.resource_name] = {
                    each.name: None if _is_secret(each) else each.value for each in row.configs if each.name in keys
                }
    return found


def _request(kind: int, name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)


def _none(problem: str) -> dict[str, Any]:
    return {"configs": None, "configs_problem": problem}


def _shown(answer: DescribeConfigsResponse) -> dict[str, Any]:
    found = next(iter(answer.results), None)
    if found is None or found.error_code:
        return _none((found.error_message if found else None) or f"error {found.error_code if found else 0}")
    configs = [_config(each) for each in sorted(found.configs, key=lambda each: each.name)]
    return {"configs": configs, "configs_problem": None}


def _config(config: DescribeConfigsResponse.DescribeConfigsResourceResult) -> dict[str, Any]:
    is_secret = _is_secret(config)
    inherited = next((each for each in config.synonyms if each.source == _DEFAULT), None)
    return {
        "name": config.name,
        "value": None if is_secret else config.value,
        "origin": _ORIGINS.get(config.config_source, "unknown"),
        "is_sensitive": is_secret,
        "is_read_only": config.read_only,
        "type": _TYPES[config.config_type] if 0 <= config.config_type < len(_TYPES) else _TYPES[0],
        "doc": config.documentation,
        "default": None if is_secret or inherited is None else inherited.value,
    }


def _is_secret(config: DescribeConfigsResponse.DescribeConfigsResourceResult) -> bool:
    return config.is_sensitive or config.config_type == _PASSWORD
