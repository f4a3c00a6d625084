"""`barnabas topics create|list|describe|alter|delete`: topics, their partitions and configs."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
    TopicMetadata,
)

from barnabas.cli import output
from barnabas.cli.clients import TIMEOUT_S, admin_client, failure, result
from barnabas.cli.contexts import choice
from barnabas.cli.options import DEFAULT_BOOTSTRAP, INT16_MAX, INT32_MAX, Bootstrap, ClientProperty, Json, key_values
from barnabas.embedded.failures import Failure

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics")]
Configs = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic config; repeatable")
]

app = typer.Typer(help="Create, list, describe, alter and delete topics", no_args_is_help=True)


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", help="Number of partitions; -1 means the broker's default", min=-1, max=INT32_MAX
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            help="Number of replicas; -1 means the broker's default",
            min=-1,
            max=INT16_MAX,
        ),
    ] = -1,
    config: Configs = None,
    if_not_exists: Annotated[bool, typer.Option(help="Accept a topic that already exists")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Create topics"""
    configs = key_values(config or [], "--config")
    admin = admin_client(bootstrap, properties)
    new = [NewTopic(name, partitions, replication_factor, config=configs) for name in names]
    for name, future in admin.create_topics(new, request_timeout=TIMEOUT_S).items():
        try:
            result(future, f"cannot create topic {name}")
        except Failure as refused:
            if if_not_exists and _code(refused) == KafkaError.TOPIC_ALREADY_EXISTS:
                print(f"topic {name} already exists")
                continue
            raise
        print(f"created topic {name}")


@app.command(name="list")
def list_topics(
    pattern: Annotated[str, typer.Argument(help="Only names that match this shell pattern: 'order*'")] = "*",
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """List topics"""
    admin = admin_client(bootstrap, properties)
    names = [
        name
        for name in sorted(_topics(admin))
        if fnmatchcase(name, pattern) and (internal or not name.startswith("__"))
    ]
    found = [_summary(topic) for topic in _describe(admin, names)]
    if as_json:
        output.show_json(found)
    else:
        output.show_table(
            ["topic", "partitions", "replication factor", "topic id"],
            [(item["topic"], item["partitions"], item["replication_factor"], item["topic_id"]) for item in found],
        )


@app.command()
def describe(
    names: Names,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Show the partitions, replicas, offsets and configs of topics"""
    admin = admin_client(bootstrap, properties)
    found = []
    for topic in _describe(admin, names):
        item = _summary(topic)
        item["configs"] = _set_configs(admin, topic.name)
        item["partitions"] = _partitions(admin, topic)
        found.append(item)
    if as_json:
        output.show_json(found)
        return
    for item in found:
        configs = ", ".join(f"{key}={value}" for key, value in item["configs"].items()) or "none set"
        title = f"{item['topic']}  (id {item['topic_id']}; configs: {configs})"
        columns = ["partition", "leader", "replicas", "isr", "osr", "start offset", "end offset"]
        keys = ["partition", "leader", "replicas", "isr", "osr", "start_offset", "end_offset"]
        output.show_table(columns, [[row[key] for key in keys] for row in item["partitions"]], title=title)


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", help="New number of partitions, larger than the current one", min=1, max=INT32_MAX
        ),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Config to reset to its default; repeatable"),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Add partitions to a topic, or change its configs"""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in key_values(config or [], "--config").items()
    ]
    entries += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in delete_config or []]
    if partitions is None and not entries:
        raise Failure("nothing to alter", "give --partitions, --config or --delete-config")
    admin = admin_client(bootstrap, properties)
    _describe(admin, [name])
    choice.warn_if_production(f"alters {name}")
    if entries:
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        for changed in admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S).values():
            result(changed, f"cannot alter the configs of {name}")
        print(f"altered {output.counted(len(entries), 'config')} of {name}")
    if partitions is not None:
        added = admin.create_partitions([NewPartitions(name, partitions)], request_timeout=TIMEOUT_S)
        result(added[name], f"cannot add partitions to {name}")
        print(f"{name} now has {partitions} partitions")


@app.command()
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Delete topics with all their records; asks first at a terminal"""
    admin = admin_client(bootstrap, properties)
    choice.warn_if_production(f"deletes {', '.join(names)} with all records")
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    for name, future in admin.delete_topics(names, request_timeout=TIMEOUT_S).items():
        result(future, f"cannot delete topic {name}")
        print(f"deleted topic {name}")


def _topics(admin: AdminClient) -> dict[str, TopicMetadata]:
    try:
        topics: dict[str, TopicMetadata] = admin.list_topics(timeout=TIMEOUT_S).topics
    except KafkaException as error:
        raise failure(error, "cannot list topics") from error
    return topics


def _describe(admin: AdminClient, names: list[str]) -> list[TopicDescription]:
    if not names:
        return []
    futures = admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S)
    return [result(futures[name], f"cannot describe topic {name}") for name in names]


def _summary(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": _topic_id(topic),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": min((len(partition.replicas) for partition in topic.partitions), default=0),
    }


def _topic_id(topic: TopicDescription) -> str:
    """Returns the topic id as Kafka's tools print it: base64 for URLs."""
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


def _set_configs(admin: AdminClient, name: str) -> dict[str, str]:
    """Returns the configs that are set on the topic itself."""
    futures = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)], request_timeout=TIMEOUT_S)
    entries = [result(future, f"cannot read the configs of {name}") for future in futures.values()]
    return {
        entry.name: "(sensitive)" if entry.value is None else entry.value
        for entry in sorted(entries[0].values(), key=lambda entry: str(entry.name))
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def _partitions(admin: AdminClient, topic: TopicDescription) -> list[dict[str, Any]]:
    led = [TopicPartition(topic.name, item.id) for item in topic.partitions if item.leader is not None]
    starts = _offsets(admin, led, OffsetSpec.earliest())
    ends = _offsets(admin, led, OffsetSpec.latest())
    rows = []
    for item in topic.partitions:
        replicas = [node.id for node in item.replicas]
        isr = [node.id for node in item.isr]
        rows.append(
            {
                "partition": item.id,
                "leader": item.leader.id if item.leader is not None else None,
                "replicas": replicas,
                "isr": isr,
                "osr": [replica for replica in replicas if replica not in isr],
                "start_offset": starts.get(item.id),
                "end_offset": ends.get(item.id),
            }
        )
    return rows


def _offsets(admin: AdminClient, partitions: list[TopicPartition], spec: OffsetSpec) -> dict[int, int]:
    futures = admin.list_offsets(dict.fromkeys(partitions, spec), request_timeout=TIMEOUT_S) if partitions else {}
    return {each.partition: result(future, f"cannot list offsets of {each}").offset for each, future in futures.items()}


def _code(refused: Failure) -> int | None:
    cause = refused.__cause__
    error = cause.args[0] if isinstance(cause, KafkaException) and cause.args else None
    return error.code() if isinstance(error, KafkaError) else None
