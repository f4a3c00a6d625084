"""Consumer configurations that a job can carry over (`kafka.*`): refused, used elsewhere, or without effect here.

A job that moves from Spark's own source brings keys for things that this source does not have, for example the session
of a consumer group: they are accepted and ignored. A key that is not a consumer configuration is a mistake.
"""

from __future__ import annotations

import difflib

from barnabas.common.errors import ConfigError

#: Spark's own source refuses them too.
_REFUSED = {
    "auto.offset.reset": "set the first offsets with startingOffsets",
    "key.deserializer": "keys are bytes; cast the column instead",
    "value.deserializer": "values are bytes; cast the column instead",
    "enable.auto.commit": "progress is in the checkpoint; groupId commits it to a group too",
    "interceptor.classes": "interceptors are Java classes",
}

_WITHOUT_MEANING = frozenset(
    [
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "socket.connection.setup.timeout.max.ms",
    ]
)
_HEEDED = (
    "bootstrap.servers",
    "client.id",
    "default.api.timeout.ms",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "isolation.level",
    "max.partition.fetch.bytes",
    "request.timeout.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
)


def check_rest(keys: list[str]) -> None:
    """Raises ConfigError for a key among `keys`, given without `kafka.`, that is not allowed."""
    for key in keys:
        if key in _REFUSED:
            raise ConfigError(f"option kafka.{key} is not allowed: {_REFUSED[key]}")
        if key not in _WITHOUT_MEANING:
            close = difflib.get_close_matches(key, [*_HEEDED, *_WITHOUT_MEANING], 1)
            hint = f"; did you mean kafka.{close[0]}?" if close else ""
            raise ConfigError(f"option kafka.{key} is not a consumer configuration{hint}")
