"""Channels from this broker to the brokers of the cluster, one each, over the inter-broker listener.

Every request is a message of the protocol, also to this broker itself, so that callers need not know where its receiver
is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final, Protocol

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host
from barnabas.common.types import TopicPartition
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from barnabas.protocol.peer_security import security_on

Reply = Callable[[Message | None], None]

_BACKOFF_MS: Final = 20
_BACKOFF_MS_MAX: Final = 500


class ImageSource(Protocol):
    """The metadata with the addresses of brokers."""

    @property
    def image(self) -> MetadataImage: ...


class LocalBroker(Protocol):
    """The broker of this process."""

    def handle(self, request: Message, reply: Callable[[Message], None]) -> None: ...


class BrokerChannels:
    """The channels of one broker. `make_own` is called once, by the first request to this process's broker, and returns
    that broker."""

    def __init__(
        self,
        host: Host,
        area: ReceiveArea,
        config: BrokerConfig,
        metadata: ImageSource,
        make_own: Callable[[], LocalBroker],
        listener: str | None = None,
    ) -> None:
        """Creates the channels. `listener` is the listener to connect to, if it is not the inter-broker listener."""
        self._host = host
        self._listener = config.inter_broker_listener if listener is None else listener
        self._security = security_on(config, self._listener)
        self._area = area
        self._config = config
        self._metadata = metadata
        self._make_own = make_own
        self._channels: dict[int, Channel] = {}
        self._closed = False

    @cached_property
    def _own(self) -> LocalBroker:
        return self._make_own()

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Returns the broker that leads the partition, -1 if there is none that can be reached, None if there is no
        such partition."""
        found = self._metadata.image.partition(*partition)
        if found is None:
            return None
        return NO_LEADER if found.leader < 0 or self._address_of(found.leader) is None else found.leader

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def send_markers(self, broker_id: int, request: WriteTxnMarkersRequest, reply: Reply) -> None:
        self.send(broker_id, request, reply)

    def send(self, broker_id: int, request: Message, reply: Reply) -> None:
        """Sends a request. `reply` is called once, never within this call. It gets None if there is no response in
        time."""
        if broker_id == self._config.node_id:
            self._host.timers.call_soon(lambda: self._send_to_self(request, reply))
            return
        channel = self._channel(broker_id)
        if channel is None or self._closed:
            self._host.timers.call_soon(lambda: reply(None))
        else:
            channel.send(request, reply)

    def _send_to_self(self, request: Message, reply: Reply) -> None:
        if self._closed:
            reply(None)
        else:
            self._own.handle(request, reply)

    def _channel(self, broker_id: int) -> Channel | None:
        address = self._address_of(broker_id)
        channel = self._channels.get(broker_id)
        if channel is not None and channel.address != address:
            del self._channels[broker_id]
            self._host.timers.call_soon(channel.close)
            channel = None
        if channel is None and address is not None:
            times = ChannelTimes(
                self._config.int_of("request.timeout.ms"), backoff_ms=_BACKOFF_MS, backoff_ms_max=_BACKOFF_MS_MAX
            )
            client_id = f"broker-{self._config.node_id}"
            channel = Channel(self._host, self._area, address, client_id, times, self._security)
            self._channels[broker_id] = channel
        return channel

    def close(self) -> None:
        self._closed = True
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.close()
