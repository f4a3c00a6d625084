"""Settings of one listener (`Settings.value_on`), and the security of connections between nodes."""

from __future__ import annotations

import pytest

from barnabas.common.settings import Settings

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.name.external.ssl.client.auth": "required",
    "ssl.client.auth": "requested",
}


def test_the_prefix_of_a_listener_wins() -> None:
    settings = Settings(PROPERTIES)
    assert settings.value_on("EXTERNAL", "ssl.client.auth") == "required"
    assert settings.value_on("OTHER", "ssl.client.auth") == "requested"


def test_an_unknown_key_has_no_value() -> None:
    with pytest.raises(KeyError):
        Settings(PROPERTIES).value_on("EXTERNAL", "ssl.no.such.key")
