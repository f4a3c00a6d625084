"""The registration of a controller, which its process asks for while the metadata lacks it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.controller_world import make_config

from barnabas.broker.peers.controller_registrar import ControllerRegistrar
from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.controller_registration import ControllerRegistrationResponse
from barnabas.simulation.host import MemoryHost


class World:
    def __init__(self) -> None:
        self.host = MemoryHost()
        self.requests: list[Message] = []
        self.replies: list[Any] = []
        self.image: Any = SimpleNamespace(controllers={}, metadata_version=20)
        self.subscribed: list[Any] = []
        store: Any = SimpleNamespace(image=self.image, subscribe=self.subscribed.append)
        controller: Any = SimpleNamespace(is_active=False, incarnation_id=b"i" * 16, endpoints=())
        access: Any = SimpleNamespace(send=self._send)
        config = make_config({"process.roles": "controller"})
        self.registrar = ControllerRegistrar(self.host, config, controller, access, store)
        self.registrar.start()
        self.own_id = config.node_id

    def _send(self, request: Message, reply: Any) -> None:
        self.requests.append(request)
        self.replies.append(reply)

    def publish(self) -> None:
        self.subscribed[0](None, self.image)


def test_one_request_at_a_time() -> None:
    world = World()
    world.publish()
    world.publish()
    assert len(world.requests) == 1
    world.replies[0](None)
    world.publish()
    assert len(world.requests) == 1, "the next attempt comes after a pause"
    world.host.time.run_for(200)
    assert len(world.requests) == 2


def test_what_was_accepted_and_is_not_in_the_metadata_is_asked_for_again_with_the_next_image() -> None:
    world = World()
    world.replies[0](ControllerRegistrationResponse(error_code=ErrorCode.NONE))
    assert len(world.requests) == 1
    world.publish()
    assert len(world.requests) == 2
    world.image.controllers[world.own_id] = SimpleNamespace(incarnation_id=b"i" * 16)
    world.replies[1](ControllerRegistrationResponse(error_code=ErrorCode.NONE))
    world.publish()
    assert len(world.requests) == 2
