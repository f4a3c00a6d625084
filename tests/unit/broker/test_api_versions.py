"""ApiVersions responses, which are encoded once for each listener, version and state of the features."""

from __future__ import annotations

from typing import cast

import pytest
from tests.support.wired import WiredBroker, WiredClient

from barnabas.broker.handlers import api_versions
from barnabas.broker.requests.cluster_side import FeatureView
from barnabas.protocol.api import API_VERSIONS, BROKER_APIS
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

VERSIONS = range(5)


def asked(client: WiredClient, version: int) -> bytes:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return client.answer(request, version)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[ApiVersionsResponse]:
    """Returns the responses that are made and encoded from now on."""
    responses = []
    original = api_versions._answer

    def answer(*arguments: object) -> ApiVersionsResponse:
        responses.append(original(*arguments))  # type: ignore[arg-type]
        return responses[-1]

    monkeypatch.setattr(api_versions, "_answer", answer)
    return responses


def test_a_response_is_made_once_for_each_version(made: list[ApiVersionsResponse]) -> None:
    wired = WiredBroker()
    first = {version: asked(wired.connect(), version) for version in VERSIONS}
    assert len(made) == len(VERSIONS)
    assert {version: asked(wired.connect(), version) for version in VERSIONS} == first
    assert len(made) == len(VERSIONS)


def test_changed_features_are_shown_to_the_next_client(
    made: list[ApiVersionsResponse], monkeypatch: pytest.MonkeyPatch
) -> None:
    wired = WiredBroker()
    client = wired.connect()
    client.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4, ApiVersionsResponse)
    before = wired.broker.services.side.features()
    changed = FeatureView(before.supported, {**before.finalized, "group.version": 0}, before.epoch + 1)
    monkeypatch.setattr(wired.broker.services.side, "features", lambda: changed)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = client.call(request, 4, ApiVersionsResponse)
    assert response.finalized_features_epoch == before.epoch + 1
    assert "group.version" not in [each.name for each in cast("list", response.finalized_features)]  # type: ignore[type-arg]
    assert len(made) == 2


def test_listeners_have_responses_of_their_own(made: list[ApiVersionsResponse]) -> None:
    wired = WiredBroker()
    asked(wired.connect(), 3)
    fewer = {key: offer for key, offer in BROKER_APIS.items() if key == API_VERSIONS}
    dispatcher = wired.broker.dispatcher("PLAINTEXT")
    dispatcher.offers = dispatcher._served = fewer
    other = WiredClient(wired, dispatcher=dispatcher)
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = other.call(request, 3, ApiVersionsResponse)
    assert [each.api_key for each in response.api_keys] == list(fewer)
