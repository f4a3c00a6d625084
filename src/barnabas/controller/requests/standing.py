"""Decisions that take several turns of the event loop: whether one that was made on one image is right on a later one.

A decision is right as long as nothing has changed that it read. Everything else can change: leaders, ISRs, other
topics.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.errors import RequestFailed
from barnabas.controller.requests.topics import Permit, names_alike
from barnabas.metadata.image import BROKER_RESOURCE, ConfigResource, MetadataImage, Overrides
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest

#: Takes the image that a decision was made on and a later one; returns whether the decision is right on the later one.
Stands = Callable[[MetadataImage, MetadataImage], bool]


def once(permit: Permit | None) -> Permit | None:
    """Returns a permit that counts each topic once, although the decision can be made several times."""
    if permit is None:
        return None
    answers: dict[str, RequestFailed | None] = {}

    def ask(topic: str, partitions: int) -> None:
        if topic not in answers:
            try:
                permit(topic, partitions)
                answers[topic] = None
            except RequestFailed as error:
                answers[topic] = error
        refusal = answers[topic]
        if refusal is not None:
            raise refusal

    return ask


def creation_stands(request: CreateTopicsRequest, before: MetadataImage, now: MetadataImage) -> bool:
    """Returns whether the decision to create these topics, made on `before`, is also right on `now`."""
    names = [topic.name for topic in request.topics]
    return (
        _same_ground(before, now)
        and all((name in before.topics_by_name) == (name in now.topics_by_name) for name in names)
        and names_alike(before, names) == names_alike(now, names)
    )


def growth_stands(request: CreatePartitionsRequest, before: MetadataImage, now: MetadataImage) -> bool:
    """Returns whether the decision to add partitions to these topics, made on `before`, is also right on `now`."""
    return _same_ground(before, now) and all(
        before.topics_by_name.get(topic.name) is now.topics_by_name.get(topic.name) for topic in request.topics
    )


def _same_ground(before: MetadataImage, now: MetadataImage) -> bool:
    """Returns whether placement and default configs would not differ. Leaders of other partitions do not count: an
    election strategy that reads them chooses a leader that is valid in any case.
    """
    return (
        before.brokers is now.brokers
        and before.features == now.features
        and (before.configs is now.configs or _broker_configs(before) == _broker_configs(now))
    )


def _broker_configs(image: MetadataImage) -> dict[ConfigResource, Overrides]:
    return {resource: values for resource, values in image.configs.items() if resource[0] == BROKER_RESOURCE}


def scram_alteration_stands(before: MetadataImage, now: MetadataImage) -> bool:
    return before.security.scram is now.security.scram and before.features == now.features


def token_decision_stands(before: MetadataImage, now: MetadataImage) -> bool:
    return before.security.tokens is now.security.tokens and before.features == now.features
