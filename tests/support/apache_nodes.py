"""A node of Apache Kafka 4.1.0 in a cluster of processes, next to nodes of Barnabas.

nodes = Nodes(folder, {1: "controller", 2: "broker", 3: "broker"}, makers={1: ApacheNode})
"""

from __future__ import annotations

import subprocess

from tests.support.process_nodes import WAIT_S, Node

import kafka_jars


class ApacheNode(Node):
    """A node that runs Apache Kafka; its directory is formatted by Kafka's own tool."""

    def launch(self, cluster_id: str | None = None) -> None:
        assert not self.is_running, f"node {self.node_id} is already running"
        if cluster_id is not None and not (self.data / "meta.properties").exists():
            done = kafka_jars.run_tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.file))
            assert done.returncode == 0, done.stdout + done.stderr
        command = [*self._prefix, *kafka_jars.java_command("kafka.Kafka", str(self.file))]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)

    def wait(self, timeout_s: float = WAIT_S) -> None:
        """Waits until the node answers on all its listeners."""
        assert self.process is not None
        for port in (self.controller_port, self.port):
            if port:
                kafka_jars.wait_until_serving(
                    port, self.process, host=self.host, log=self.log_path, timeout_s=timeout_s
                )
