"""The files of deploy/: they can be parsed, their expressions are PromQL, and brokers serve every metric in them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from tests.support.metrics import Metrics
from tests.support.watched import T0, look, partition
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, produce

from barnabas.monitor.broker_connection import Security
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.metrics_server import MetricsServer

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "barnabas.rules.yml"
MONITOR_RULES = DEPLOY / "prometheus" / "monitor.rules.yml"
DASHBOARD = DEPLOY / "grafana" / "barnabas.json"
MONITOR_DASHBOARD = DEPLOY / "grafana" / "monitor.json"
DASHBOARDS = [DASHBOARD, MONITOR_DASHBOARD]
#: Prometheus makes this metric for each target.
PROMETHEUS_OWN = {"up"}
#: Grafana puts these in.
VARIABLES = {"$__rate_interval": "5m", "$job": "barnabas", "$topic": "orders"}


def rules(path: Path = RULES) -> list[dict[str, Any]]:
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def dashboard(path: Path = DASHBOARD) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def panels(path: Path = DASHBOARD) -> list[dict[str, Any]]:
    return [panel for panel in dashboard(path)["panels"] if panel["type"] != "row"]


def expressions(rules_file: Path = RULES, dashboard_file: Path = DASHBOARD) -> Iterator[tuple[str, str]]:
    """Yields (place, PromQL)."""
    for rule in rules(rules_file):
        yield rule["alert"], rule["expr"]
    for panel in panels(dashboard_file):
        for target in panel["targets"]:
            yield panel["title"], with_variables(target["expr"])
    for annotation in dashboard(dashboard_file)["annotations"]["list"]:
        yield annotation["name"], with_variables(annotation["expr"])


def parametrized(found: Iterator[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("where", "expression"), [pytest.param(*each, id=each[0]) for each in found])


def with_variables(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def metrics_in(expression: str) -> set[str]:
    found: set[str] = set()

    def note(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.add(str(node.name))
        return True

    promql_parser.walk(promql_parser.parse(expression), note)
    return found


@pytest.fixture(scope="module")
def served() -> set[str]:
    wired = WiredBroker()
    wired.create_topic("orders")
    produce(wired, wired.connect(), batch_of(b"a"))
    return Metrics.of(wired.broker).names | PROMETHEUS_OWN


@parametrized(expressions())
def test_expressions_are_promql_of_metrics_that_brokers_serve(where: str, expression: str, served: set[str]) -> None:
    named = metrics_in(expression)
    assert named, where
    assert named <= served, where


@pytest.fixture(scope="module")
def served_by_monitor() -> set[str]:
    feeds = ClusterFeeds([], Security(), FeedOptions(), clock_ms=lambda: T0)
    server = MetricsServer(feeds, lambda: T0)
    feeds.table.apply(look(partition("orders-0")))
    text = asyncio.run(server.body(is_gzip=False)).decode()
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


@parametrized(expressions(MONITOR_RULES, MONITOR_DASHBOARD))
def test_expressions_are_promql_of_metrics_that_the_monitor_serves(
    where: str, expression: str, served_by_monitor: set[str]
) -> None:
    named = metrics_in(expression)
    assert named, where
    assert named <= served_by_monitor, where


def test_the_checks_find_what_is_wrong(served: set[str]) -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        metrics_in("sum by (job (up)")
    assert metrics_in("rate(no_such_metric_total[5m]) > 0 and on (job) up") == {"no_such_metric_total", "up"}
    assert "no_such_metric_total" not in served


def test_every_state_of_the_monitor_has_an_alert() -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    assert severities["KafkaPartitionOffline"] == "critical"
    assert severities["KafkaPartitionUnderMinIsr"] == "error"
    assert severities["KafkaPartitionAtMinIsr"] == "warning"
    assert severities["KafkaPartitionUnderReplicated"] == "notice"
    assert {
        "KafkaNoActiveController",
        "KafkaManyActiveControllers",
        "KafkaUncleanLeaderElection",
        "KafkaExporterDown",
        "KafkaLogDirectoryOffline",
    } <= severities.keys()


def test_annotations_name_labels_that_are_there() -> None:
    """A rule that sums by job has only that label left."""
    for rule in (*rules(), *rules(MONITOR_RULES)):
        texts = " ".join(rule["annotations"].values())
        if " by (job) " in rule["expr"]:
            assert set(re.findall(r"\$labels\.(\w+)", texts)) <= {"job"}, rule["alert"]
        assert rule["annotations"]["summary"]


def test_the_configuration_loads_the_rules() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    assert config["rule_files"] == [RULES.name, MONITOR_RULES.name]
    job, of_monitor = config["scrape_configs"]
    assert of_monitor["job_name"] != job["job_name"], "the rules count by job"
    # The alert on `up` names the job.
    assert any(f'job="{job["job_name"]}"' in rule["expr"] for rule in rules())


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_dashboard_is_one_that_grafana_can_load(path: Path) -> None:
    loaded = dashboard(path)
    numbers = [panel["id"] for panel in loaded["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = {variable["name"] for variable in loaded["templating"]["list"]}
    assert variables == {"datasource", "job", "topic"}
    for panel in panels(path):
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        assert 0 <= place["x"] <= 24 - place["w"]
    places = [
        (x, y)
        for panel in loaded["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places), "panels overlap"
    for variable in loaded["templating"]["list"]:
        query = variable.get("definition", "")
        assert variable["type"] == "datasource" or re.fullmatch(r"label_values\(\w+(\{.*\})?, \w+\)", query)
