"""The registration of an inactive controller with the active one (ControllerRegistration, KIP-919).

The active controller writes its own registration when it becomes active.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Host
from barnabas.controller.kraft.controller import Controller
from barnabas.metadata.features import SUPPORTED_FEATURES
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.registrations import endpoint_rows, feature_rows
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.message import Message
from barnabas.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

_PAUSE_MS: Final = 100
_PAUSE_MS_MAX: Final = 5_000


class ControllerRegistrar:
    """A registrar that sends requests while the metadata lacks this process's registration."""

    def __init__(
        self, host: Host, config: BrokerConfig, controller: Controller, access: ControllerAccess, store: MetadataStore
    ) -> None:
        self._host = host
        self._config = config
        self._controller = controller
        self._access = access
        self._store = store
        self._pause_ms = _PAUSE_MS
        self._running = False
        self._waiting = False

    def start(self) -> None:
        if self._config.is_controller:
            self._running = True
            self._store.subscribe(self._on_image)
            self._register_if_missing(self._store.image)

    def stop(self) -> None:
        self._running = False

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._register_if_missing(image)

    def _register_if_missing(self, image: MetadataImage) -> None:
        if not self._running or self._waiting or self._controller.is_active or not image.metadata_version:
            return
        registered = image.controllers.get(self._config.node_id)
        if registered is None or registered.incarnation_id != self._controller.incarnation_id:
            self._waiting = True
            self._access.send(self._request(), self._on_answer)

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self._controller.incarnation_id,
            listeners=endpoint_rows(ControllerRegistrationRequest.Listener, self._controller.endpoints),
            features=feature_rows(ControllerRegistrationRequest.Feature, SUPPORTED_FEATURES),
        )

    def _on_answer(self, response: Message | None) -> None:
        if isinstance(response, ControllerRegistrationResponse) and response.error_code == ErrorCode.NONE:
            self._waiting = False
            self._pause_ms = _PAUSE_MS
            return
        self._host.timers.call_later(self._pause_ms, self._again)
        self._pause_ms = min(2 * self._pause_ms, _PAUSE_MS_MAX)

    def _again(self) -> None:
        self._waiting = False
        self._register_if_missing(self._store.image)
