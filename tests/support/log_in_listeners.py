"""A broker whose clients log in with and without TLS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.clients.servers import BarnabasServer
from tests.support import process_figures
from tests.support.tls_stores import Stores
from tests.system.test_log_in import secured

import kafka_jars


class Listeners:
    """A broker with a listener for each of SASL_PLAINTEXT and SASL_SSL."""

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        self.stores = Stores(folder)
        self.stores.pem("broker")
        probed, self.port, self.tls_port, controller_port = kafka_jars.free_ports(4)
        properties = secured(self.port, controller_port) | self.stores.settings("PEM", "broker")
        properties |= {
            key.replace("sasl_plaintext", "sasl_ssl"): value
            for key, value in properties.items()
            if "sasl_plaintext" in key
        }
        properties["listener.security.protocol.map"] += ",SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT"
        properties["listeners"] = (
            f"PLAINTEXT://localhost:{probed},SASL_PLAINTEXT://localhost:{self.port},"
            f"SASL_SSL://localhost:{self.tls_port},CONTROLLER://127.0.0.1:{controller_port}"
        )
        self.server = BarnabasServer(folder / "server", port=probed, properties=properties | dict(more or {}))

    def cpu_s(self) -> float:
        return process_figures.cpu_s(self.server.pid)

    def resident_bytes(self) -> int:
        return process_figures.resident_bytes(self.server.pid)

    def descriptors(self) -> int:
        return process_figures.descriptors(self.server.pid)
