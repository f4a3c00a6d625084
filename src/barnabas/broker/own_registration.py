"""What the metadata says before this process has registered is about its last life.

A broker that starts again finds itself in the image as the leader it was. If it acted on that, it would lead in an
epoch that it led before, with a log that may have lost its end since: its followers would cut off what they have
committed. The controller decides about such leaderships when it registers the new incarnation, so the replicas are told
nothing before the image shows that registration, and then everything at once (as Kafka's broker installs its metadata
publishers only when the controller has acknowledged that it is caught up, KIP-631).

Clients have to wait for the same: what such a broker does not know yet it would call absent, and they would forget
partitions that exist. So its host opens the listeners for clients only then (`Door`); before, they are refused and ask
another broker. Kafka opens them a moment later, when the broker is unfenced; but then the first who hear of that find
them closed.

A process whose own controller is the active one, and that is the only broker, need not wait: what it lacks nobody has,
and it may have no room left to write a registration down.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.store import Subscriber


def is_current(image: MetadataImage, node_id: int, broker_epoch: int, is_controller_active: bool) -> bool:
    """Whether the image knows what was decided up to the registration of this incarnation."""
    own = image.brokers.get(node_id)
    if own is None:
        return False
    return own.epoch == broker_epoch or (len(image.brokers) == 1 and is_controller_active)


class AfterOwnRegistration:
    """Passes images on to `subscriber` once they show this incarnation."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        is_controller_active: Callable[[], bool],
        subscriber: Subscriber,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._is_controller_active = is_controller_active
        self._subscriber = subscriber
        self._is_open = False

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not self._is_open:
            if not is_current(image, self._node_id, self._broker_epoch(), self._is_controller_active()):
                return
            self._is_open = True
            delta = MetadataDelta.between(EMPTY_IMAGE, image)
        self._subscriber(delta, image)

    def look(self, image: MetadataImage) -> None:
        """The controller has acknowledged the registration: the image may show it already."""
        if not self._is_open:
            self.on_image(MetadataDelta(image), image)


class Door:
    """Says once, by `on_open`, that clients may come; it does not take that back."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], is_controller_active: Callable[[], bool]) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._is_controller_active = is_controller_active
        self._on_open: Callable[[], None] | None = None

    def start(self, image: MetadataImage, on_open: Callable[[], None]) -> None:
        self._on_open = on_open
        self.look(image)

    def close(self) -> None:
        """Clients that are not in yet stay out."""
        self._on_open = None

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.look(image)

    def look(self, image: MetadataImage) -> None:
        if self._on_open is None:
            return
        if is_current(image, self._node_id, self._broker_epoch(), self._is_controller_active()):
            on_open, self._on_open = self._on_open, None
            on_open()
