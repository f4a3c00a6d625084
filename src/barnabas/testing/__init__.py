"""A real broker for your tests: a process of its own on a free port, with its files in a directory of its own.

    from barnabas.testing import Cluster

    with Cluster() as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})

With pytest, put this into conftest.py and take `barnabas_cluster` (one for the whole run) as an argument:

    pytest_plugins = ["barnabas.testing.fixtures"]

`History` writes down what clients do and are told, and judges it (docs/check.md).
"""

from __future__ import annotations

from barnabas.testing.cluster import Cluster
from barnabas.testing.history import History

__all__ = ["Cluster", "History"]
