"""SASL_SSL on all listeners: the log-in passes inside TLS, for clients and between nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.clients.servers import BarnabasServer
from tests.support.tls_stores import Stores
from tests.system.test_log_in import client_properties, secured
from tests.system.test_tls import round_trip

import kafka_jars


def test_a_node_and_its_clients_log_in_over_tls(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    stores.pem("broker")
    probed, port, controller_port = kafka_jars.free_ports(3)
    over_plaintext = secured(port, controller_port)
    properties = {key.replace("sasl_plaintext", "sasl_ssl"): value for key, value in over_plaintext.items()}
    properties |= {
        "listeners": f"PLAINTEXT://localhost:{probed},SASL_SSL://localhost:{port},CONTROLLER://localhost:{controller_port}",
        "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
        "listener.security.protocol.map": "CONTROLLER:SASL_SSL,SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "SASL_SSL",
        "connections.max.reauth.ms": "3000",
        **stores.settings("PEM", "broker"),
    }
    server = BarnabasServer(tmp_path / "server", port=probed, properties=properties)
    server.start()
    try:
        over_tls: dict[str, Any] = stores.librdkafka(None) | {"security.protocol": "SASL_SSL"}
        client = client_properties(f"localhost:{port}", "PLAIN") | over_tls
        assert round_trip(client, "secured") == [b"a", b"b", b"c"]
        wrong = client | {"sasl.password": "guess"}
        with pytest.raises(KafkaException):
            AdminClient(wrong).list_topics(timeout=3)
        with pytest.raises(KafkaException):
            AdminClient(client | {"security.protocol": "SASL_PLAINTEXT"}).list_topics(timeout=3)
    finally:
        server.stop()
    assert "marker-Secret" not in server.log_path.read_text()
