"""Changes of a broker's listeners at run time: refusals in the words of Apache Kafka 4.1.0, and what follows them.

The words were recorded; tests/system/test_listener_changes.py compares more of them with a running Kafka.
"""

from __future__ import annotations

import pytest
from tests.support.wired import WiredBroker

from barnabas.broker.throttling.connection_limits import Slot
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError, ErrorCode
from barnabas.metadata.registrations import Endpoint
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

BASE = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
EXTRA = f"{BASE},EXTRA://localhost:9094"
THIRD = f"{EXTRA},THIRD://localhost:9095"
MAP = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT,THIRD:PLAINTEXT,SEC:SASL_PLAINTEXT,TLS:SSL"
GIVEN = {"listeners": EXTRA, "listener_security_protocol_map": MAP}
ADVERTISED = {**GIVEN, "advertised_listeners": "PLAINTEXT://localhost:9092"}
_WRAPPED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
_KRAFT = "appearing in the 'listeners' configuration when running the KRaft controller role"


def alter(wired: WiredBroker, broker: str = "1", **changes: str | None) -> tuple[int, str | None]:
    """Returns the error code and message of the response to these changes; None deletes a key."""
    rows = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key.replace("_", "."), config_operation=1 if value is None else 0, value=value
        )
        for key, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name=broker, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    response = wired.connect().call(request, 1, IncrementalAlterConfigsResponse)
    wired.host.time.run_for(100)
    return response.responses[0].error_code, response.responses[0].error_message


def names(wired: WiredBroker) -> list[str]:
    return [each.name for each in wired.broker.config.listeners]


def advertised(wired: WiredBroker) -> list[str]:
    """Returns the listeners with which the broker is registered, sorted."""
    return sorted(each.name for each in wired.broker.metadata.image.brokers[1].endpoints)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"advertised_listeners": "PLAINTEXT://localhost:9092"},
            "Cannot update these configs dynamically: Set(advertised.listeners)",
        ),
        (
            {"listeners": "CONTROLLER://localhost:9093,EXTRA://localhost:9094"},
            "requirement failed: inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are EXTRA",
        ),
        (
            {"listeners": "PLAINTEXT://localhost:9092,EXTRA://localhost:9094"},
            f"requirement failed: controller.listener.names must contain at least one value {_KRAFT}",
        ),
        (
            {"listeners": BASE},
            _WRAPPED.format(
                "Advertised listeners 'Set(ListenerName(PLAINTEXT), ListenerName(EXTRA))' must be a subset of "
                "listeners 'Set(ListenerName(PLAINTEXT), ListenerName(CONTROLLER))'"
            ),
        ),
        (
            {"listeners": f"{EXTRA},NOBODY://localhost:1"},
            f"Error creating broker listeners from '{EXTRA},NOBODY://localhost:1': No security protocol defined for "
            "listener NOBODY",
        ),
        (
            {"listeners": f"{EXTRA},THIRD"},
            f"Error creating broker listeners from '{EXTRA},THIRD': Unable to parse THIRD to a broker endpoint",
        ),
        (
            {"listeners": f"{EXTRA},THIRD://localhost:9094"},
            f"requirement failed: Each listener must have a different port, listeners: {EXTRA},THIRD://localhost:9094",
        ),
        (
            {"listeners": f"{EXTRA},EXTRA://localhost:9095"},
            f"requirement failed: Each listener must have a different name, listeners: {EXTRA},EXTRA://localhost:9095",
        ),
        (
            {"listeners": f"{EXTRA},THIRD://0.0.0.0:9095"},
            "requirement failed: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable "
            "IP address.",
        ),
        (
            {"listener_security_protocol_map": f"{MAP},X:NOPE"},
            "Invalid security protocol `NOPE` defined in listener.security.protocol.map",
        ),
        (
            {"listener_security_protocol_map": MAP.replace("EXTRA:PLAINTEXT", "EXTRA:SASL_SSL")},
            _WRAPPED.format("Security protocol cannot be updated for existing listener ListenerName(EXTRA)"),
        ),
        (
            {"listeners": THIRD, "listener_name_extra_sasl_enabled_mechanisms": "PLAIN"},
            _WRAPPED.format(
                "Configs cannot be updated dynamically for existing listener ListenerName(EXTRA), restart broker or "
                "create a new listener for update"
            ),
        ),
    ],
)
def test_a_refusal_has_the_words_of_kafka(changes: dict[str, str], message: str) -> None:
    wired = WiredBroker(None, **GIVEN)
    assert alter(wired, **changes) == (ErrorCode.INVALID_REQUEST, message)
    assert names(wired) == ["PLAINTEXT", "CONTROLLER", "EXTRA"]


def test_stores_on_the_disk_are_checked_for_the_changes_that_concern_them() -> None:
    """A certificate file that was replaced by a wrong one blocked every change of the broker's configuration."""
    wired = WiredBroker(None, **GIVEN)

    def refuse(proposed: BrokerConfig) -> None:
        raise ConfigError("the file is wrong")

    wired.broker.config.use_files(refuse, lambda: None)
    assert alter(wired, log_retention_ms="1000") == (0, None)
    assert alter(wired, "", log_retention_ms="1000") == (0, None)
    refused = ErrorCode.INVALID_REQUEST, _WRAPPED.format("the file is wrong")
    assert alter(wired, listener_name_extra_ssl_keystore_location="/etc/node.pem") == refused
    assert alter(wired, ssl_client_auth="required") == refused
    assert alter(wired, listeners=THIRD) == refused


def test_the_cluster_as_a_whole_has_no_listeners() -> None:
    wired = WiredBroker(None, **GIVEN)
    text = "Cannot update these configs at default cluster level, broker id must be specified: Set(listeners)"
    assert alter(wired, "", listeners=THIRD) == (ErrorCode.INVALID_REQUEST, text)


def test_a_new_listener_needs_what_it_serves_with() -> None:
    wired = WiredBroker(None, **GIVEN)
    code, message = alter(
        wired, listeners=f"{EXTRA},SEC://localhost:9095", listener_name_sec_sasl_enabled_mechanisms="PLAIN"
    )
    assert (code, names(wired)) == (ErrorCode.INVALID_REQUEST, ["PLAINTEXT", "CONTROLLER", "EXTRA"])
    assert message is not None
    assert message.startswith("listener.name.sec.plain.sasl.jaas.config must be set")


def test_a_listener_that_was_added_is_advertised_in_the_same_incarnation_and_after_a_restart() -> None:
    wired = WiredBroker(None, **GIVEN)
    before = wired.broker.metadata.image.brokers[1]
    assert alter(wired, listeners=THIRD) == (0, None)
    assert names(wired) == ["PLAINTEXT", "CONTROLLER", "EXTRA", "THIRD"]
    after = wired.broker.metadata.image.brokers[1]
    assert after.endpoints[-1] == Endpoint("THIRD", "localhost", 9095, 0)
    assert (after.epoch, after.incarnation_id, after.fenced) == (before.epoch, before.incarnation_id, False)
    wired.restart()
    assert names(wired)[-1] == "THIRD"
    assert advertised(wired) == ["EXTRA", "PLAINTEXT", "THIRD"]


def test_only_listeners_that_are_not_advertised_can_be_removed() -> None:
    wired = WiredBroker(None, **ADVERTISED)
    assert alter(wired, listeners=f"{BASE},THIRD://localhost:9095") == (0, None)
    assert names(wired) == ["PLAINTEXT", "CONTROLLER", "THIRD"]
    assert advertised(wired) == ["PLAINTEXT"]
    assert alter(wired, listeners=None) == (0, None)
    assert names(wired) == ["PLAINTEXT", "CONTROLLER", "EXTRA"]


def test_listeners_that_no_longer_fit_the_file_have_no_effect_and_are_reported() -> None:
    wired = WiredBroker(None, **GIVEN)
    assert alter(wired, listeners=THIRD) == (0, None)
    wired.properties["listener.security.protocol.map"] = MAP.replace(",THIRD:PLAINTEXT", "")
    wired.restart()
    assert names(wired) == ["PLAINTEXT", "CONTROLLER", "EXTRA"]
    (report,) = [each for each, _ in wired.host.faults.reported if "listeners stay" in each]
    assert "No security protocol defined for listener THIRD" in report
    wired.create_topic("works")


def test_limits_count_a_listener_that_was_added_and_no_longer_one_that_was_removed() -> None:
    wired = WiredBroker(None, **ADVERTISED, max_connections="2")
    broker = wired.broker
    assert alter(wired, listeners=f"{BASE},THIRD://localhost:9095", listener_name_third_max_connections="1") == (
        0,
        None,
    )
    limits = broker.add_listener("THIRD")
    slot = limits.take("THIRD", "10.0.0.1", 0)
    assert isinstance(slot, Slot)
    assert not limits.has_slot("THIRD"), "its own limit"
    broker.remove_listener("EXTRA")
    assert sorted(broker.connection_limits) == ["CONTROLLER", "PLAINTEXT", "THIRD"]
    broker.remove_listener("THIRD")
    assert [each.name for each in limits.listeners()] == ["PLAINTEXT"]
    assert limits.total == 1
    slot.release()
    assert limits.total == 0
    assert not limits.is_protected("PLAINTEXT"), "the only listener has no privilege"
