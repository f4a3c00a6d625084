"""Test support for applications: a real broker in its own process, on a free port, with files in its own directory.

    from barnabas.testing import Cluster

    with Cluster() as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})

With pytest, put this into conftest.py and take `barnabas_cluster` (one for the whole run) as an argument:

    pytest_plugins = ["barnabas.testing.fixtures"]

`History` records what clients send, receive and read, and checks the recording (docs/check.md). The package imports
`embedded` and `histories`; begin reading with `controlled_cluster.py`.
"""

from __future__ import annotations

from barnabas.testing.controlled_cluster import Cluster
from barnabas.testing.history import History

__all__ = ["Cluster", "History"]
