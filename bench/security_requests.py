"""The rows of requests with security: the same work in the clear, over TLS, and over TLS after a log-in; rules; quotas;
new clients.

In each round each broker is started twice with empty folders: without an authorizer, and with one and its rules. New
clients are made by `security_clients.py`, a client without a library.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import report
import wire
from barnabas.metadata import quota_entities as quotas
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record
from bystanders import waits_ms
from client_process import Client
from secure_broker import PASSWORD, RULES, USER, SecureBroker, set_quota
from targets import cpu_s
from workloads import Experiment, Goal, Metric

_TITLES = {"plaintext": "in the clear", "ssl": "over TLS", "sasl_ssl": "over TLS after SCRAM"}
UNBATCHED = {"batch.num.messages": 1, "linger.ms": 0}
#: The quota of the rows with a quota, which no client reaches.
_BYTES_PER_S = 1e12
_PRODUCE_VERSION = 7
_QUIET_TOPIC = "bystander"


def _requests(name: str, title: str) -> tuple[Metric, ...]:
    return (
        Metric(f"security_{name}_unbatched", f"produce {title}, one record per batch", "records/s", Goal(at_least=3.0)),
        Metric(f"security_{name}_batched", f"produce {title}, 1 kB records in batches", "MB/s", Goal(at_least=1.0)),
        Metric(f"security_{name}_consume", f"consume {title}, 1 kB records", "MB/s", Goal(at_least=1.0)),
        Metric(f"security_{name}_p50", f"one in flight {title}, p50", "ms", Goal(at_most=0.8)),
        Metric(f"security_{name}_p99", f"one in flight {title}, p99", "ms", Goal(at_most=1.0)),
    )


SECURITY_REQUESTS = Experiment(
    "security_requests",
    (
        *(metric for name, title in _TITLES.items() for metric in _requests(name, title)),
        Metric("security_quota", "unbatched, with a quota that is not reached", "records/s", Goal(at_least=3.0)),
        Metric("security_rules", "unbatched, with an authorizer and {rules:,} rules", "records/s", Goal(at_least=3.0)),
        Metric("security_connections", "connections per second, each with a request", "1/s", Goal(at_least=2.0)),
        Metric("security_handshakes", "TLS handshakes per second, each with a request", "1/s", Goal(at_least=2.0)),
        Metric("security_log_ins", "log-ins by SCRAM-SHA-256 per second, without TLS", "1/s", Goal(at_least=2.0)),
        *(
            Metric(f"security_{name}_cpu_ms", f"the broker's CPU time of one {title}", "ms", Goal(at_most=0.5))
            for name, title in (("connections", "connection"), ("handshakes", "TLS handshake"), ("log_ins", "log-in"))
        ),
        Metric("security_storm_s", "{storm:,} clients by TLS and SCRAM at the same time, until all are in", "s"),
        Metric("security_storm_p99", "a producer's p99 meanwhile", "ms", Goal(at_most=0.5)),
        Metric("security_storm_close", "its longest wait while all of them close at the same time", "ms"),
        Metric("security_storm_aside_s", "the same with clients that leave the processors to the others", "s"),
        Metric("security_storm_aside_p99", "the producer's p99 meanwhile", "ms", Goal(at_most=0.5)),
        Metric("security_storm_aside_close", "the longest wait while these close at the same time", "ms"),
    ),
    {
        "rounds": 3,
        "unbatched": 100_000,
        "batched": 300_000,
        "single": 5_000,
        "rules": 1_000,
        "clients": 3_000,
        "processes": 3,
        "storm": 1_000,
    },
    {"rounds": 1, "unbatched": 10_000, "batched": 30_000, "single": 1_000, "clients": 300, "storm": 200},
)


def run(experiment: Experiment, data: Path, targets: Sequence[str], values: report.Values) -> None:
    """Runs all rounds; the order of the brokers alternates from round to round."""
    metrics = {metric.name: metric for metric in experiment.metrics}
    for index in range(experiment.options["rounds"]):
        for name in targets if index % 2 == 0 else targets[::-1]:
            for kind, more in (("open", {}), ("rules", RULES)):
                life = SecureBroker(name, data / f"security-{name}-{kind}-{index}", more)
                try:
                    life.start()
                    life.create(_QUIET_TOPIC)
                    measured = _without_rules(life, experiment.options) if kind == "open" else _rules(life, experiment)
                    for key, value in measured.items():
                        report.record(values, metrics[key], name, value)
                except BaseException:
                    print(f"{name}'s log ends:\n{life.target.log_tail()}", file=sys.stderr)
                    raise
                finally:
                    life.target.stop()


def _without_rules(life: SecureBroker, options: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for protocol in _TITLES:
        prefix = f"security_{protocol}"
        found[f"{prefix}_unbatched"] = _unbatched(life, protocol, f"{protocol}-unbatched", options)
        batched = {"size_bytes": 1_000, "records": options["batched"], "warm_up": options["batched"] // 10}
        topic = f"{protocol}-batched"
        found[f"{prefix}_batched"] = life.run("produce", protocol, topic, batched)["mb_per_s"]
        found[f"{prefix}_consume"] = life.run("consume", protocol, topic, batched)["mb_per_s"]
        single = {"size_bytes": 100, "records": options["single"], "warm_up": options["single"] // 2}
        times = life.run("one_in_flight", protocol, f"{protocol}-single", single)
        found[f"{prefix}_p50"], found[f"{prefix}_p99"] = times["p50_ms"], times["p99_ms"]
    found |= _new_clients(life, options)
    unreached = {quotas.PRODUCER_BYTE_RATE: _BYTES_PER_S, quotas.CONSUMER_BYTE_RATE: _BYTES_PER_S}
    set_quota(life.ports["plaintext"], quotas.USER, None, unreached)
    found["security_quota"] = _unbatched(life, "plaintext", "quota", options)
    return found


def _rules(life: SecureBroker, experiment: Experiment) -> dict[str, float]:
    """Measures a client that one rule allows; the others are about other users and topics."""
    life.create("rules")
    life.allow("rules", experiment.options["rules"])
    return {"security_rules": _unbatched(life, "plaintext", "rules", experiment.options, is_created=True)}


def _unbatched(
    life: SecureBroker, protocol: str, topic: str, options: Mapping[str, Any], *, is_created: bool = False
) -> float:
    records = options["unbatched"]
    given = {"size_bytes": 100, "records": records, "warm_up": records // 4, "settings": UNBATCHED}
    return life.run("produce", protocol, topic, {**given, "is_created": is_created})["records_per_s"]


def _new_clients(life: SecureBroker, options: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    kinds = (
        ("connections", "plaintext", False, False),
        ("handshakes", "ssl", True, False),
        ("log_ins", "sasl_plaintext", False, True),
    )
    given = {"authority": str(life.authority.certificate), "user": USER, "password": PASSWORD}
    for name, protocol, tls, logs_in in kinds:
        port = str(life.ports[protocol])
        each = {**given, "tls": tls, "logs_in": logs_in}
        each |= {"clients": options["clients"], "processes": options["processes"]}
        before_s = cpu_s(life.target.pid)
        measured = Client("one_by_one", port, each, script="security_clients.py").finish()
        found[f"security_{name}"] = measured["per_s"]
        found[f"security_{name}_cpu_ms"] = (cpu_s(life.target.pid) - before_s) * 1_000 / options["clients"]
    records = bytes(encode_batch([Record(0, 1_700_000_000_000, b"k", b"bystander", [])]))
    rows = [ProduceRequest.PartitionProduceData(index=0, records=records)]
    topics = [ProduceRequest.TopicProduceData(name=_QUIET_TOPIC, partition_data=rows)]
    frame = wire.framed(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), _PRODUCE_VERSION)
    for name, niceness in (("storm", 0), ("storm_aside", 19)):
        storm = Client(
            "storm",
            str(life.ports["sasl_ssl"]),
            {**given, "clients": options["storm"], "niceness": niceness},
            script="security_clients.py",
        )
        try:
            storm.await_ready()
            storm.tell("begin")
            waits = waits_ms(life.ports["plaintext"], frame, storm.is_silent)
            storm.tell("close")
            last_waits = waits_ms(life.ports["plaintext"], frame, storm.is_running)
            found[f"security_{name}_s"] = storm.finish()["s"]
        finally:
            storm.kill()
        found[f"security_{name}_p99"] = sorted(waits)[int(len(waits) * 0.99)]
        found[f"security_{name}_close"] = max(last_waits)
    return found
