"""The rows of clusters with TLS: three brokers that replicate over it, and the start of an embedded secure cluster.

Brokers and controllers of the first rows have TLS among themselves, and a listener in the clear for the client besides.
The embedded cluster is `barnabas up --secure` and `Cluster(secure=True)`, each in a process of its own and with an
empty directory: authority, certificates and users are created within the time.

    security_cluster.py DIRECTORY secure|open        starts an embedded cluster, prints the seconds, and stops it
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import report
from barnabas.embedded.authority import issue, make_authority
from barnabas.testing import Cluster as EmbeddedCluster
from client_process import Client
from clusters import BROKERS, Cluster, node_properties
from targets import installed_environment, kafka_jars
from workloads import Experiment, Goal, Metric

_SIDE = "barnabas"
_TIMEOUT_S = 120
_FLUSH_S = 30.0

SECURITY_CLUSTER = Experiment(
    "security_cluster",
    (
        Metric(
            "secure_cluster_1kb",
            "produce, acks=all, three replicas, TLS between brokers, 1 kB records in batches",
            "MB/s",
            Goal(at_least=1.2),
        ),
        Metric("secure_cluster_1kb_tls", "that with a client over TLS", "MB/s", Goal(at_least=1.2)),
    ),
    {"rounds": 3, "records": 250_000},
    {"rounds": 1, "records": 50_000},
)
SECURITY_START = Experiment(
    "security_start",
    (
        Metric(
            "secure_start_test",
            "`Cluster(brokers=3, secure=True)`, until clients can use it",
            "s",
            Goal(at_most=1.5, absolute=True),
        ),
        Metric("open_start_test", "`Cluster(brokers=3)` without security", "s"),
        Metric(
            "secure_start_up",
            "`barnabas up --secure --brokers 3 --detach`, the whole command",
            "s",
            Goal(at_most=1.5, absolute=True),
        ),
        Metric("open_start_up", "`barnabas up --brokers 3 --detach` without security", "s"),
    ),
    {"rounds": 3, "times": 3},
    {"rounds": 1, "times": 1},
)


# -- three brokers with TLS between them


class SecureCluster(Cluster):
    """Three brokers of one kind that use TLS among themselves, and their clients if they like."""

    def __init__(self, name: str, directory: Path) -> None:
        self.authority = make_authority(directory.with_name(f"{directory.name}-authority"))
        ports = kafka_jars.free_ports(3 * BROKERS)
        nodes = node_properties(ports[: 2 * BROKERS])
        self.tls_ports = dict(zip(nodes, ports[2 * BROKERS :], strict=True))
        super().__init__(
            name, directory, nodes={node_id: {**own, **self._tls(node_id, own)} for node_id, own in nodes.items()}
        )

    def _tls(self, node_id: int, own: Mapping[str, str]) -> dict[str, str]:
        store = issue(self.authority, f"broker-{node_id}", ["localhost", "127.0.0.1"])
        return {
            "listeners": f"{own['listeners']},SSL://127.0.0.1:{self.tls_ports[node_id]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }

    @property
    def tls_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.tls_ports.values())


def run_cluster(experiment: Experiment, data: Path, targets: Sequence[str], values: report.Values) -> None:
    """Runs all rounds; the order of the kinds alternates from round to round."""
    metrics = {metric.name: metric for metric in experiment.metrics}
    for index in range(experiment.options["rounds"]):
        for name in targets if index % 2 == 0 else targets[::-1]:
            cluster = SecureCluster(name, data / f"secure-cluster-{name}-{index}")
            try:
                cluster.prepare()
                os.sync()
                cluster.launch()
                cluster.await_usable()
                for key, value in _produced(cluster, experiment.options["records"]).items():
                    report.record(values, metrics[key], name, value)
            except Exception:
                print(cluster.log_tails(), file=sys.stderr)
                raise
            finally:
                cluster.destroy()


def _produced(cluster: SecureCluster, records: int) -> dict[str, float]:
    given = {"size_bytes": 1_000, "replicas": BROKERS, "acks": "all", "records": records, "warm_up": records // 10}
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(cluster.authority.certificate)}
    clients: dict[str, tuple[str, dict[str, str]]] = {
        "secure_cluster_1kb": (cluster.bootstrap, {}),
        "secure_cluster_1kb_tls": (cluster.tls_bootstrap, tls),
    }
    found = {}
    for metric, (bootstrap, settings) in clients.items():
        os.sync()
        client = Client("produce", bootstrap, {**given, "topic": metric, "client": settings})
        try:
            found[metric] = client.finish()["mb_per_s"]
        finally:
            client.kill()
    return found


# -- the start of an embedded cluster


def run_start(experiment: Experiment, data: Path, values: report.Values) -> None:
    metrics = {metric.name: metric for metric in experiment.metrics}
    for index in range(experiment.options["rounds"]):
        for time_of in range(experiment.options["times"]):
            for kind in ("open", "secure"):
                directory = data / f"embedded-{kind}-{index}-{time_of}"
                report.record(values, metrics[f"{kind}_start_test"], _SIDE, _as_a_test(directory, kind))
                report.record(values, metrics[f"{kind}_start_up"], _SIDE, _as_a_command(directory, kind))


def _as_a_test(directory: Path, kind: str) -> float:
    command = [sys.executable, __file__, str(directory), kind]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True, env=installed_environment()
    )
    return float(json.loads(done.stdout.splitlines()[-1])["s"])


def _as_a_command(directory: Path, kind: str) -> float:
    program = str(Path(sys.executable).parent / "barnabas")
    # The context that the command writes for later commands stays below the directory, too.
    environment = {**installed_environment(), "XDG_CONFIG_HOME": str(directory / "config")}
    options = ["--dir", str(directory / "cluster")]
    up = [program, "up", "--brokers", str(BROKERS), "--port", "0", "--detach", *options]
    try:
        begun = time.monotonic()
        done = subprocess.run(
            [*up, *(["--secure"] if kind == "secure" else [])],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
        )
        elapsed_s = time.monotonic() - begun
        if done.returncode != 0:
            raise RuntimeError(f"barnabas up failed:\n{done.stdout}{done.stderr}")
    finally:
        subprocess.run([program, "down", *options], capture_output=True, check=False, env=environment)
        shutil.rmtree(directory, ignore_errors=True)
    return elapsed_s


def start_embedded(directory: Path, *, secure: bool) -> float:
    """Starts an embedded cluster, and returns the seconds. A record is written afterwards, as a proof."""
    begun = time.monotonic()
    cluster = EmbeddedCluster(directory, brokers=BROKERS, secure=secure).start()
    elapsed_s = time.monotonic() - begun
    try:
        settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "log_level": 2, **cluster.client_settings}
        producer = Producer(settings)
        producer.produce("proof", b"proof")
        if producer.flush(_FLUSH_S):
            raise RuntimeError("the cluster has started, and acknowledges no record")
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)
    return elapsed_s


def main() -> int:
    directory, kind = sys.argv[1:]
    print(json.dumps({"s": start_embedded(Path(directory), secure=kind == "secure")}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
