"""The wait of a restarted broker until the metadata shows its new registration.

A restarted broker finds itself in the image with the leaderships of its previous run. If it acted on them, it would
lead in an epoch that it has led before, with a log that may have lost its end since: its followers would truncate
records that they have committed. The controller decides about these leaderships when it registers the new incarnation.
The replicas therefore receive no image until one shows that registration, and then the whole image (Kafka's broker
installs its metadata publishers only when the controller has acknowledged that it is caught up, KIP-631).

Clients have to wait too: this broker would report partitions as unknown that it has not learnt of yet, and clients
would drop them. So its host opens the client listeners only then (`ClientGate`); until then connections are refused and
clients use another broker. Kafka opens them a little later, when the broker is unfenced, but then the first clients
that see it unfenced find its listeners closed.

If the active controller is in this process and there is no other broker, there is no wait: no other node has newer
metadata, and the disk may be too full to write a registration.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.store import Subscriber


def is_current(image: MetadataImage, node_id: int, broker_epoch: int, is_controller_active: bool) -> bool:
    """Returns whether the image includes all decisions up to the registration of this incarnation."""
    own = image.brokers.get(node_id)
    if own is None:
        return False
    return own.epoch == broker_epoch or (len(image.brokers) == 1 and is_controller_active)


class OwnRegistrationFilter:
    """A filter that passes images to `subscriber` once they show this incarnation."""

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

    def check(self, image: MetadataImage) -> None:
        """Checks `image` again after the controller's response: it can already show the registration."""
        if not self._is_open:
            self.on_image(MetadataDelta(image), image)


class ClientGate:
    """Calls `on_open` once, when client listeners can open; this is never revoked."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], is_controller_active: Callable[[], bool]) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._is_controller_active = is_controller_active
        self._on_open: Callable[[], None] | None = None

    def start(self, image: MetadataImage, on_open: Callable[[], None] | None) -> None:
        self._on_open = on_open
        self.check(image)

    def close(self) -> None:
        """Prevents a later `on_open`: client listeners that are not open yet stay closed."""
        self._on_open = None

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.check(image)

    def is_due(self, image: MetadataImage) -> bool:
        """Returns whether client listeners can open now and have not been opened."""
        return self._on_open is not None and is_current(
            image, self._node_id, self._broker_epoch(), self._is_controller_active()
        )

    def check(self, image: MetadataImage) -> None:
        if self.is_due(image):
            on_open, self._on_open = self._on_open, None
            assert on_open is not None, "it is due"
            on_open()
