"""Config changes: the checks by the broker that receives the request, before the controller decides.

Only this broker knows its properties file, so it validates a change of its own configs against all of them. Logger
levels belong to its process and never reach the controller. The controller decides everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.broker.configs import listener_changes, loggers
from barnabas.broker.configs.config_describe import parse_broker_id
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.config import BrokerConfig
from barnabas.common.config_keys import (
    CLUSTER_LEVEL_LISTENER_KEYS,
    LISTENER_KEYS,
    ConfigType,
    ResourceType,
    parse_text,
)
from barnabas.common.errors import ConfigError, ErrorCode, RequestFailed
from barnabas.common.topic_names import topic_name_problem
from barnabas.controller.requests.configs import check_count
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

_OPERATIONS: Final = {APPEND: "append", SUBTRACT: "subtract"}
#: Dynamic rates that are not among the broker's declared keys (KIP-73, KIP-113).
_THROTTLE_RATES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
_THREAD_COUNTS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


class ConfigChange(NamedTuple):
    """A change of one key; `operation` is SET, DELETE, APPEND or SUBTRACT."""

    key: str
    operation: int
    value: str | None


class ResourceChanges(NamedTuple):
    """The changes that one request makes to one resource."""

    resource_type: int
    name: str
    changes: Sequence[ConfigChange]


#: The error code and message for one resource.
Outcome = tuple[ErrorCode, str | None]
AlterRequest = AlterConfigsRequest | IncrementalAlterConfigsRequest


def alter(
    context: RequestContext,
    services: Services,
    request: AlterRequest,
    resources: Sequence[ResourceChanges],
    response_type: type[AlterConfigsResponse | IncrementalAlterConfigsResponse],
    *,
    replace: bool = False,
) -> None:
    """Applies an AlterConfigs request of either kind; `resources` are its changes by resource. The response is sent
    once all are decided. A request on the controller's listener, in an envelope or not, is decided by the controller
    alone.
    """

    def answer(results: Sequence[Outcome]) -> None:
        rows: list[Any] = [
            response_type.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.name,
            )
            for resource, (code, message) in zip(resources, results, strict=True)
        ]
        context.reply(response_type(responses=rows))

    if context.listener in services.config.controller_listener_names:
        decide = services.quorum.controller.alter_configs
        decide(resources, request.validate_only, answer, replace=replace, actor=context.principal)
        return
    outcomes: list[Outcome | None] = []
    twice = repeated(resources)
    for resource in resources:
        try:
            if (resource.resource_type, resource.name) in twice:
                raise RequestFailed(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if check(services.config, services.metadata.image, resource, replace=replace):
                outcomes.append(None)
                continue
            if not request.validate_only:
                change_loggers(resource.changes)
            outcomes.append((ErrorCode.NONE, None))
        except RequestFailed as failure:
            outcomes.append((failure.code, failure.message))
    left = [place for place, outcome in enumerate(outcomes) if outcome is None]
    if not left:
        answer([outcome for outcome in outcomes if outcome is not None])
        return

    def decided(results: Sequence[Outcome]) -> None:
        rest = iter(results)
        answer([next(rest) if outcome is None else outcome for outcome in outcomes])

    _pass_on(context, services, request, left, [resources[place] for place in left], decided, replace=replace)


def _pass_on(
    context: RequestContext,
    services: Services,
    request: AlterRequest,
    places: Sequence[int],
    changes: Sequence[ResourceChanges],
    decided: Callable[[Sequence[Outcome]], None],
    *,
    replace: bool,
) -> None:
    """Passes the part of the request that concerns these resources on to the cluster side."""
    part: AlterRequest
    if isinstance(request, AlterConfigsRequest):
        part = AlterConfigsRequest(
            validate_only=request.validate_only, resources=[request.resources[place] for place in places]
        )
    else:
        part = IncrementalAlterConfigsRequest(
            validate_only=request.validate_only, resources=[request.resources[place] for place in places]
        )

    def answered(results: Sequence[Outcome] | None) -> None:
        missing = (ErrorCode.REQUEST_TIMED_OUT, "No controller answered in time.")
        decided([missing] * len(places) if results is None else results)

    services.side.change_configs(context, part, changes, answered, replace=replace)


def repeated(resources: Sequence[ResourceChanges]) -> set[tuple[int, str]]:
    """Returns the resources that a request contains more than once; they are not changed."""
    counts = Counter((resource.resource_type, resource.name) for resource in resources)
    return {resource for resource, count in counts.items() if count > 1}


def check(config: BrokerConfig, image: MetadataImage, resource: ResourceChanges, *, replace: bool) -> bool:
    """Validates the changes of one resource. Returns True if the controller has to decide, False if they are for
    `change_loggers`. Raises RequestFailed if this broker refuses them.

    With `replace` (AlterConfigs) keys that are not named return to their defaults.
    """
    check_count(resource.changes)
    keys = [change.key for change in resource.changes]
    if len(set(keys)) != len(keys):
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [change.key for change in resource.changes if change.operation != DELETE and change.value is None]
    if nulls:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    if resource.resource_type == ResourceType.BROKER_LOGGER and not replace:
        _check_loggers(config, resource)
        return False
    if resource.resource_type == ResourceType.TOPIC and resource.name:
        problem = topic_name_problem(resource.name)
        if problem is not None:
            raise RequestFailed(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if resource.resource_type == ResourceType.BROKER:
        _check_broker(config, image, resource, replace=replace)
    elif resource.resource_type not in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    elif resource.resource_type == ResourceType.CLIENT_METRICS and not resource.name:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    return True


def change_loggers(changes: Sequence[ConfigChange]) -> None:
    """Applies changes of logger levels that `check` has accepted."""
    for change in changes:
        if change.operation == SET:
            assert change.value is not None, "a change without a value is refused before"
            loggers.set_level(change.key, change.value)
        else:
            loggers.unset_level(change.key)


def _check_loggers(config: BrokerConfig, resource: ResourceChanges) -> None:
    if parse_broker_id(resource.name, "Node id") != config.node_id:
        text = f"Unexpected node id. Expected {config.node_id}, but received {resource.name}"
        raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
    for change in resource.changes:
        operation = _OPERATIONS.get(change.operation)
        if operation is not None:
            text = f"{operation.upper()} operation is not allowed for the BROKER_LOGGER resource"
            raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
        if not loggers.exists(change.key):
            raise RequestFailed(ErrorCode.INVALID_CONFIG, f"Logger {change.key} does not exist!")
        if change.operation == SET and change.value not in loggers.LEVELS:
            raise RequestFailed(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {change.key} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(loggers.LEVELS))}",
            )
        if change.operation == DELETE and change.key == loggers.ROOT:
            text = "Removing the log level of the root logger is not allowed"
            raise RequestFailed(ErrorCode.INVALID_REQUEST, text)


def _check_broker(config: BrokerConfig, image: MetadataImage, resource: ResourceChanges, *, replace: bool) -> None:
    if resource.name:
        broker_id = parse_broker_id(resource.name, "Node id")
        if broker_id != config.node_id:
            text = f"Unexpected broker id, expected {config.node_id}, but received {resource.name}"
            raise RequestFailed(ErrorCode.INVALID_REQUEST, text)
    before: Mapping[str, str] = {} if replace else image.config_of(ResourceType.BROKER, resource.name)
    after = _applied(config, before, resource.changes)
    per_broker, cluster_default = dict(config.per_broker), dict(config.cluster_default)
    try:
        _check_broker_keys(config, after, per_broker=bool(resource.name))
        if resource.name:
            per_broker = after
        else:
            cluster_default = after
        if not config.is_zookeeper_mode:
            listener_changes.check(config, per_broker, cluster_default)
            why = listener_changes.refusal(config, per_broker, cluster_default)
            if why is not None:
                raise _refused(why)
        proposed = config.with_dynamic(per_broker, cluster_default)
        _check_thread_counts(config, proposed)
        _check_live_change(config, proposed)
        if replace or any(_concerns_stores(change.key) for change in resource.changes):
            _check_files(config, proposed)
    except ConfigError as error:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, str(error)) from None


def _applied(config: BrokerConfig, before: Mapping[str, str], changes: Sequence[ConfigChange]) -> dict[str, str]:
    after = dict(before)
    for change in changes:
        if change.operation == DELETE:
            after.pop(change.key, None)
            continue
        assert change.value is not None, "a change without a value is refused before"
        if change.operation == SET:
            after[change.key] = change.value
            continue
        key = config.base_key(change.key)
        operation = _OPERATIONS.get(change.operation)
        if operation is None:
            raise RequestFailed(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation} on {change.key}")
        if key is None or key.type is not ConfigType.LIST:
            text = f"Config value {operation} is not allowed for config key: {change.key}"
            raise RequestFailed(ErrorCode.INVALID_CONFIG, text)
        items = [item for item in after.get(change.key, key.default or "").split(",") if item]
        for item in change.value.split(","):
            if change.operation == APPEND and item not in items:
                items.append(item)
            elif change.operation == SUBTRACT and item in items:
                items.remove(item)
        after[change.key] = ",".join(items)
    return after


def _check_broker_keys(config: BrokerConfig, values: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises ConfigError if one of these keys cannot be set dynamically at this level, or cannot have this value."""
    for name in values:
        if name in config.keys:
            config.dynamic_key(name, per_broker=True)
    unprefixed = [name for name in values if name.startswith(("ssl.keystore.", "ssl.truststore.", "ssl.key."))]
    if unprefixed:
        raise ConfigError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"HashSet({', '.join(unprefixed)})"
        )
    for name, text in values.items():
        if name in config.keys:
            config.keys[name].parse(text)
        elif name in _THROTTLE_RATES:
            parse_text(name, ConfigType.LONG, text)
    if not per_broker:
        for name in values:
            if config.base_key(name) is not None:
                config.dynamic_key(name, per_broker=False)


def _check_thread_counts(current: BrokerConfig, proposed: BrokerConfig) -> None:
    """Raises ConfigError if a change would more than double, or more than halve, a number of threads."""
    for name in _THREAD_COUNTS:
        now, then = current.int_of(name), proposed.int_of(name)
        if then == now:
            continue
        why = None
        if then <= 0:
            why = "value should be at least 1"
        elif then < now / 2:
            why = f"value should be at least half the current value {now}"
        elif then > now * 2:
            why = f"value should not be greater than double the current value {now}"
        if why is not None:
            raise _refused(f"Dynamic thread count update validation failed for {name}={then}, {why}")


def _check_live_change(current: BrokerConfig, proposed: BrokerConfig) -> None:
    """Raises ConfigError for changes that are valid in a properties file but not at run time."""
    for listener in (None, *(each.name for each in current.listeners)):
        for name in CLUSTER_LEVEL_LISTENER_KEYS:
            then = proposed.value_of(name) if listener is None else proposed.value_on(listener, name)
            now = current.value_of(name) if listener is None else current.value_on(listener, name)
            if isinstance(then, int) and then <= 0 and then != now:
                raise _refused(f"Invalid {name} {then}")
    for name in LISTENER_KEYS:
        if current.is_zookeeper_mode and proposed.list_of(name) != current.list_of(name):
            raise ConfigError(f"{name} cannot be changed while the node runs")


def _concerns_stores(key: str) -> bool:
    """Returns whether a key names stores, or listeners that need them. Other changes do not depend on what the files
    contain at the moment.
    """
    return key in LISTENER_KEYS or "ssl." in key


def _check_files(current: BrokerConfig, proposed: BrokerConfig) -> None:
    """Raises ConfigError if the key stores that the change names cannot replace those in use."""
    try:
        current.check_files(proposed)
    except ConfigError as error:
        raise _refused(str(error)) from None


def _refused(text: str) -> ConfigError:
    return ConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {text} "
        "for configuration Invalid dynamic configuration"
    )
