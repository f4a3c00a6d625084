"""The rows of many rules. There is no other side: a broker is compared with itself without rules.

produce     two brokers run, one without an authorizer and one with 1,000 rules; the same client measures them in
            turns
in process  questions and changes among 100,000 rules, by `rules_model.py`
broker      the same changes as requests, and starts of a broker with these rules and without them
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import report
import wire
from barnabas.cli.acl_requests import creation_of
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource, AclRule
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from client import percentile
from rules_model import rules
from secure_broker import RULES, SecureBroker
from security_requests import UNBATCHED
from targets import Barnabas, addresses, resident_mb
from workloads import Experiment, Goal, Metric

_HERE = Path(__file__).resolve().parent
_SIDE = "barnabas"
#: The largest number of rules that one request can change.
_AT_ONCE = 10_000
_CREATE_ACLS_VERSION = 1
_TOPIC = "measured"
_TIMEOUT_S = 600
_SETTLE_S = 1.0

SECURITY_RULES = Experiment(
    "security_rules",
    (
        Metric(
            "rules_unbatched",
            "unbatched with {few:,} rules, as a share of our own rate without an authorizer",
            "%",
            Goal(at_least=97.0, absolute=True),
        ),
        Metric(
            "rules_question",
            "a question that was not asked before, {rules:,} rules, in the process",
            "µs",
            Goal(at_most=3.0, absolute=True),
        ),
        Metric("rules_known", "the same question again", "µs"),
        Metric(
            "rules_added",
            "a rule added to {rules:,}: decided, replayed, followed, in the process",
            "ms",
            Goal(at_most=1.0, absolute=True),
        ),
        Metric("rules_removed", "the rule removed", "ms", Goal(at_most=1.0, absolute=True)),
        Metric("rules_change_p50", "a CreateAcls request of one rule to a broker with {rules:,}, p50", "ms"),
        Metric("rules_change_p99", "that, p99", "ms"),
        Metric("rules_start_without", "start of a broker without rules", "s"),
        Metric("rules_start_with", "start with {rules:,} rules", "s"),
        Metric("rules_start_more", "the difference", "s", Goal(at_most=0.3, absolute=True)),
        Metric("rules_memory_more", "memory of {rules:,} rules after a start", "MB"),
    ),
    {
        "rounds": 3,
        "unbatched": 100_000,
        "pairs": 6,
        "few": 1_000,
        "rules": 100_000,
        "questions": 20_000,
        "changes": 30,
        "requests": 500,
        "starts": 5,
    },
    {"rounds": 1, "unbatched": 20_000, "pairs": 2, "rules": 10_000, "changes": 5, "requests": 100, "starts": 2},
)


def run(experiment: Experiment, data: Path, values: report.Values) -> None:
    metrics = {metric.name: metric for metric in experiment.metrics}
    for index in range(experiment.options["rounds"]):
        measured = {"rules_unbatched": _share_percent(experiment, data / f"rules-share-{index}")}
        measured |= in_process(experiment, index)
        measured |= _with_a_broker(experiment, data / f"rules-{index}")
        for key, value in measured.items():
            report.record(values, metrics[key], _SIDE, value)


# -- produce


def _share_percent(experiment: Experiment, directory: Path) -> float:
    """Returns the rate of a broker with rules as a share of the rate of one without, measured in turns: the median of
    pairs of runs, one directly after the other.
    """
    few = experiment.options["few"]
    brokers = [SecureBroker(_SIDE, directory / "open", {}), SecureBroker(_SIDE, directory / "rules", RULES)]
    shares = []
    try:
        for broker in brokers:
            broker.start()
        brokers[1].allow(_TOPIC, few)
        for index in range(experiment.options["pairs"]):
            rates = [0.0, 0.0]
            for place in (0, 1) if index % 2 == 0 else (1, 0):
                rates[place] = _rate(brokers[place], f"{_TOPIC}-{index}", experiment.options["unbatched"])
            shares.append(100 * rates[1] / rates[0])
    except BaseException:
        print("\n".join(broker.target.log_tail() for broker in brokers), file=sys.stderr)
        raise
    finally:
        for broker in brokers:
            broker.target.stop()
    return statistics.median(shares)


def _rate(broker: SecureBroker, topic: str, records: int) -> float:
    broker.create(topic)
    given = {"size_bytes": 100, "records": records, "warm_up": records // 4, "settings": UNBATCHED, "is_created": True}
    return broker.run("produce", "plaintext", topic, given)["records_per_s"]


# -- in the process


def in_process(experiment: Experiment, seed: int) -> dict[str, float]:
    options = {name: experiment.options[name] for name in ("rules", "questions", "changes")}
    command = [sys.executable, str(_HERE / "rules_model.py"), json.dumps({**options, "seed": seed})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    names = {"question_us": "rules_question", "known_us": "rules_known"}
    names |= {"added_ms": "rules_added", "removed_ms": "rules_removed"}
    return {metric: found[name] for name, metric in names.items()}


# -- a broker


def _with_a_broker(experiment: Experiment, directory: Path) -> dict[str, float]:
    """Fills one broker with rules and measures changes; then starts it and another one in turns."""
    options = experiment.options
    sides = {name: Barnabas(directory / name, {**RULES, **addresses()}) for name in ("without", "with")}
    starts_s: dict[str, list[float]] = {name: [] for name in sides}
    memory_mb: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for name, broker in sides.items():
            broker.prepare()
            broker.launch()
            broker.wait()
            link = wire.Link(broker.port)
            if code := link.create_topic(_TOPIC, 1, 1):
                raise RuntimeError(f"CreateTopics was answered with error {code}")
            if name == "with":
                measured = _filled(link, options["rules"], options["requests"])
            link.close()
            broker.end()
        for _ in range(options["starts"]):
            for name, broker in sides.items():
                started_s, resident = _start(broker)
                starts_s[name].append(started_s)
                memory_mb[name].append(resident)
    except BaseException:
        print("\n".join(broker.log_tail() for broker in sides.values()), file=sys.stderr)
        raise
    finally:
        for broker in sides.values():
            broker.kill()
        shutil.rmtree(directory, ignore_errors=True)
    without, with_rules = (statistics.median(starts_s[name]) for name in sides)
    measured |= {"rules_start_without": without, "rules_start_with": with_rules}
    measured["rules_start_more"] = with_rules - without
    measured["rules_memory_more"] = statistics.median(memory_mb["with"]) - statistics.median(memory_mb["without"])
    return measured


def _filled(link: wire.Link, count: int, requests: int) -> dict[str, float]:
    """Adds the rules, and then one rule per request."""
    all_rules = rules(count)
    for begin in range(0, count, _AT_ONCE):
        _create(link, all_rules[begin : begin + _AT_ONCE])
    times_ms = []
    for index in range(requests):
        rule = AclRule(
            AclResource.TOPIC, f"new-{index}", AclPattern.LITERAL, AclOperation.READ, "User:x", "*", AclPermission.ALLOW
        )
        begun = time.perf_counter()
        _create(link, [rule])
        times_ms.append((time.perf_counter() - begun) * 1_000)
    return {"rules_change_p50": percentile(times_ms, 0.5), "rules_change_p99": percentile(times_ms, 0.99)}


def _create(link: wire.Link, added: Sequence[AclRule]) -> None:
    request = CreateAclsRequest(creations=[creation_of(rule) for rule in added])
    answer = link.call(request, _CREATE_ACLS_VERSION, CreateAclsResponse)
    if any(each.error_code for each in answer.results):
        raise RuntimeError(f"CreateAcls was refused: {answer.results[0]}")


def _start(broker: Barnabas) -> tuple[float, float]:
    """Starts a broker and stops it. Returns the seconds until a client finds its topic, and its memory in MB."""
    launched_at = time.monotonic()
    broker.launch()
    wire.await_ready(broker.port, broker.process, {_TOPIC: 1}, 0, _TIMEOUT_S)
    started_s = time.monotonic() - launched_at
    time.sleep(_SETTLE_S)
    found = resident_mb(broker.pid)
    broker.end()
    return started_s, found
