"""The bench's rows of security: the rate of a staircase, the model of many rules, the nodes of a cluster with TLS."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import rules_model
import security
import security_rules
from quota_clients import slope
from security import SECURITY
from security_cluster import SecureCluster


def staircase(step_s: float, step_bytes: int, from_s: float, until_s: float) -> list[tuple[float, int]]:
    """Returns samples of a client that sends `step_bytes` at once every `step_s` seconds."""
    times = [from_s + index * 0.05 for index in range(round((until_s - from_s) / 0.05))]
    return [(at, int(at // step_s) * step_bytes) for at in times]


@pytest.mark.parametrize("begin_s", [0.0, 3.0, 5.5, 10.9])
def test_the_rate_of_a_staircase_hardly_depends_on_the_step_in_which_it_begins(begin_s: float) -> None:
    samples = staircase(11.0, 110_000_000, begin_s, begin_s + 44.0)
    assert slope(samples) == pytest.approx(10e6, rel=0.07)
    whole = (samples[-1][1] - samples[0][1]) / 44.0
    assert abs(slope(samples) - 10e6) <= abs(whole - 10e6) + 0.7e6


def test_the_rate_of_an_even_client_is_exact() -> None:
    assert slope([(0.05 * index, 500 * index) for index in range(100)]) == pytest.approx(10_000)


def test_every_user_of_the_model_has_rules_that_decide_the_questions() -> None:
    model = rules_model.Model(count=200, seed=1)
    assert len(model.authorizer.index) == 200
    asked = rules_model.questions(users=20, count=300, chance=random.Random(1))
    assert len({(each.client, each.topic) for each in asked}) == 300, "no question is asked twice"
    rules_model.ask(model.authorizer, asked)
    assert model.authorizer.counts == [200, 100]


def test_a_measured_change_is_one_and_is_taken_back() -> None:
    model = rules_model.Model(count=50, seed=1)
    before = dict(model.authorizer.index.rules)
    version = model.authorizer.version
    rules_model.change_ms(model, 0, [])
    assert model.authorizer.index.rules == before
    assert model.authorizer.version == version + 2


def test_the_model_measures_all_that_its_rows_need() -> None:
    options = {"rules": 100, "questions": 50, "changes": 2}
    experiment = security_rules.SECURITY_RULES.sized(quick=True)
    experiment.options.update(options)
    assert set(security_rules.in_process(experiment, 1)) == {
        "rules_question",
        "rules_known",
        "rules_added",
        "rules_removed",
    }


def test_every_experiment_of_security_can_be_run_in_each_size() -> None:
    metrics = [metric.name for experiment in SECURITY for metric in experiment.metrics]
    assert len(metrics) == len(set(metrics))
    assert {each.name for each in SECURITY} == set(security.runs(Path("/none"), [], {}))
    for experiment in SECURITY:
        assert experiment.quick.keys() <= experiment.options.keys()
        for quick in (True, False):
            sized = experiment.sized(quick=quick)
            assert not any("{" in metric.title for metric in sized.metrics)


def test_brokers_with_tls_share_no_port_and_use_it_among_themselves(tmp_path: Path) -> None:
    cluster = SecureCluster("barnabas", tmp_path / "cluster")
    assert len({*cluster.tls_ports.values(), *(node.port for node in cluster.nodes.values())}) == 6
    for node_id, node in cluster.nodes.items():
        node.prepare()
        entries = dict(
            line.split("=", 1) for line in (tmp_path / f"cluster/{node_id}/server.properties").read_text().splitlines()
        )
        protocols = dict(pair.split(":") for pair in entries["listener.security.protocol.map"].split(","))
        assert protocols[entries["inter.broker.listener.name"]] == protocols["CONTROLLER"] == "SSL"
        assert f"SSL://127.0.0.1:{cluster.tls_ports[node_id]}" in entries["listeners"].split(",")
        assert entries["listeners"].startswith(f"PLAINTEXT://127.0.0.1:{node.port},")
