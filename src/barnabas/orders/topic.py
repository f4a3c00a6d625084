"""The topic of the orders: its creation, what a replay must know about it, and whether it can keep orders."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from barnabas.orders.errors import OrdersError

T = TypeVar("T")
TIMEOUT_S = 15.0
#: The time for which a broker may not yet know a topic that was just created.
_NEW_TOPIC_TIMEOUT_S = 3.0
PARTITIONS = 6
REPLICAS = 3
#: The orders date from 2017: by their timestamps, the default retention of a week would delete them immediately.
CONFIG = {"retention.ms": "-1"}
#: 2018-01-01.
_NEWEST_EVENT_MS = 1_514_764_800_000


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The topic's properties, as the cluster reports them."""

    name: str
    #: The id in the notation of Kafka's tools.
    topic_id: str
    partitions: tuple[int, ...]
    replicas: int
    max_message_bytes: int
    config: dict[str, str]


def admin_client(bootstrap: str, settings: dict[str, Any]) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "client.id": "orders", "log_level": 0, **settings})


def create(
    admin: AdminClient, name: str, *, partitions: int = PARTITIONS, config: dict[str, str] | None = None
) -> None:
    """Creates the topic, with three replicas if there are three brokers. An existing topic remains unchanged.

    With three replicas, two must be in sync for an acknowledgement.
    """
    brokers = len(_metadata(admin).brokers)
    replicas = min(REPLICAS, brokers)
    settings = {**CONFIG, "min.insync.replicas": str(max(1, replicas - 1)), **(config or {})}
    future = admin.create_topics([NewTopic(name, partitions, replicas, config=settings)], request_timeout=TIMEOUT_S)[
        name
    ]
    try:
        _result(future, f"cannot create topic {name}")
    except OrdersError as refused:
        if error_of(refused.__cause__) != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    deadline = time.monotonic() + TIMEOUT_S
    while name not in _metadata(admin).topics:
        if time.monotonic() > deadline:
            raise OrdersError(f"topic {name} was created, but no broker lists it after {TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def describe(admin: AdminClient, name: str) -> TopicFacts:
    """Returns the topic's facts.

    Any broker can answer, and one may not know a new topic yet: for a few seconds, an unknown topic is requested again.

    Raises:
        OrdersError: no broker answers, or the topic does not exist.
    """
    deadline = time.monotonic() + _NEW_TOPIC_TIMEOUT_S
    while True:
        try:
            if name in _metadata(admin).topics:
                return _describe(admin, name)
        except OrdersError as refused:
            if error_of(refused.__cause__) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        if time.monotonic() > deadline:
            raise OrdersError(f"there is no topic {name}", "add --create-topic, or see `barnabas topics list`")
        time.sleep(0.1)


def _describe(admin: AdminClient, name: str) -> TopicFacts:
    future = admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_S)[name]
    found = _result(future, f"cannot describe topic {name}")
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = _result(admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource], f"cannot read {name}")
    config = {str(entry.name): str(entry.value) for entry in entries.values()}
    return TopicFacts(
        name=name,
        topic_id=str(found.topic_id).replace("+", "-").replace("/", "_"),
        partitions=tuple(sorted(partition.id for partition in found.partitions)),
        replicas=min(len(partition.replicas) for partition in found.partitions),
        max_message_bytes=int(config.get("max.message.bytes", 1_048_588)),
        config=config,
    )


def check_keeps_orders(facts: TopicFacts) -> None:
    """Checks that the topic neither deletes nor compacts: it would lose acknowledged orders.

    Raises:
        OrdersError: the topic is unsuitable; its hint is the command that corrects it.
    """
    policy, retention_ms = facts.config.get("cleanup.policy", "delete"), int(facts.config.get("retention.ms", "-1"))
    if "compact" in policy:
        raise OrdersError(
            f"topic {facts.name} has cleanup.policy={policy}: compaction keeps only one order per household",
            f"use another --topic, or: barnabas topics alter {facts.name} --config cleanup.policy=delete",
        )
    by_event_time = facts.config.get("message.timestamp.type", "CreateTime") == "CreateTime"
    if by_event_time and 0 <= retention_ms < time.time() * 1000 - _NEWEST_EVENT_MS:
        raise OrdersError(
            f"topic {facts.name} has retention.ms={retention_ms}: orders of 2017 would be deleted immediately",
            f"barnabas topics alter {facts.name} --config retention.ms=-1",
        )


def end_offsets(consumer: Consumer, name: str, partitions: Iterable[int]) -> dict[int, int]:
    """Returns the end of each partition for readers. Waits for a leader if there is none.

    Raises:
        OrdersError: a partition has had no leader for 15 seconds.
    """
    ends = {}
    deadline = time.monotonic() + TIMEOUT_S
    for number in partitions:
        while number not in ends:
            try:
                ends[number] = consumer.get_watermark_offsets(TopicPartition(name, number), timeout=TIMEOUT_S)[1]
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise OrdersError(f"cannot read the end offset of {name}-{number}: {reason(error)}") from error
                time.sleep(0.1)
    return ends


def reason(error: BaseException) -> str:
    """Returns the text of a client's exception, as the broker or librdkafka gives it, with the name of its code."""
    cause = error.args[0] if error.args else None
    if not isinstance(cause, KafkaError):
        return str(error)
    text = cause.str().removeprefix("Broker: ").removeprefix("Local: ")
    return f"{text} ({cause.name()})"


def error_of(error: BaseException | None) -> int | None:
    """Returns the error code of a client's exception."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return cause.code() if isinstance(cause, KafkaError) else None


def _metadata(admin: AdminClient) -> Any:
    try:
        return admin.list_topics(timeout=TIMEOUT_S)
    except KafkaException as error:
        raise OrdersError(
            f"the cluster did not answer: {reason(error)}",
            "start a cluster with `barnabas up --detach`, or give the address of one with --bootstrap HOST:PORT",
        ) from error


def _result(future: Future[T], what: str) -> T:
    try:
        return future.result(timeout=TIMEOUT_S + 5.0)
    except KafkaException as error:
        raise OrdersError(f"{what}: {reason(error)}") from error
    except TimeoutError as error:
        raise OrdersError(f"{what}: no answer within {TIMEOUT_S:.0f} s") from error
