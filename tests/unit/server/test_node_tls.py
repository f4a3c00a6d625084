"""The modules of TLS are imported in a thread, by brokers that may need them later."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio, sys
from barnabas.common.config import BrokerConfig
from barnabas.server.host import ServerHost
from barnabas.server.node_tls import NodeTls

async def main():
    config = BrokerConfig.from_properties({
        "process.roles": sys.argv[1],
        "node.id": "1",
        "listeners": ",".join(sys.argv[2:]),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": "/tmp/unused",
    })
    tls = NodeTls(config, ServerHost(asyncio.get_running_loop()).links)
    assert "barnabas.tls.node_contexts" not in sys.modules
    thread = tls.import_aside()
    if thread is not None:
        thread.join(60)
    print("barnabas.tls.node_contexts" in sys.modules)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "roles, listeners, is_imported",
    [
        ("broker,controller", ["PLAINTEXT://127.0.0.1:9092", "CONTROLLER://127.0.0.1:9093"], True),
        ("controller", ["CONTROLLER://127.0.0.1:9093"], False),
    ],
)
def test_a_broker_without_tls_imports_its_modules_in_a_thread(
    roles: str, listeners: list[str], is_imported: bool
) -> None:
    command = [sys.executable, "-c", _PROGRAM, roles, *listeners]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == f"{is_imported}\n", done.stderr
