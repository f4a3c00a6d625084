"""The Fetch request that differs from the previous one of its connection only in epoch and offset: the common case.

A follower, or a consumer of one busy partition, continues its session and names one partition. The bytes of its last
request are kept for comparison, with the decoded message, in which only the two numbers are replaced. Neither header
nor body of such a request is decoded. Every other request is decoded as usual.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.broker.requests.in_flight import InFlight
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.replication.fetch_items import Reader

#: The first version with topic ids: from then on, the fields of a request for one partition have fixed positions.
_VERSION_MIN: Final = 13
#: Before this version, requests begin with the replica id.
_REPLICA_STATE_SINCE: Final = 15
_REPLICA_ID_BYTES: Final = 4
#: The positions of the session epoch after the replica id, and of the fetch offset after the session epoch.
_EPOCH_AT: Final = 17
_OFFSET_AT: Final = 30
_EPOCH: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")


class RepeatedFetch:
    """A connection's last Fetch request (an `in_flight.RepeatedRequest`)."""

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_epoch_at",
        "_is_current",
        "_offset_at",
        "_requested",
        "_start",
        "header",
        "message",
        "reader",
    )

    def __init__(
        self, request: InFlight, message: FetchRequest, reader: Reader, frame: memoryview, position: int
    ) -> None:
        """`position` is where the body begins in the frame. The message satisfies `is_repeatable`."""
        version = request.api_version
        self.message = message
        self.reader = reader
        self.header = (request.api_key, version, request.client_id, position)
        self._requested = message.topics[0].partitions[0]
        self._epoch_at = position + _EPOCH_AT + (_REPLICA_ID_BYTES if version < _REPLICA_STATE_SINCE else 0)
        self._offset_at = self._epoch_at + _OFFSET_AT
        #: All of the frame but the correlation id, the session epoch and the fetch offset.
        self._start = bytes(frame[:4])
        self._before = bytes(frame[8 : self._epoch_at])
        self._between = bytes(frame[self._epoch_at + _EPOCH.size : self._offset_at])
        self._after = bytes(frame[self._offset_at + _OFFSET.size :])
        self._is_current = False

    def matches(self, frame: memoryview) -> bool:
        """Returns whether this frame is such a request. If so, `message` is the one of this frame from now on."""
        epoch_at, offset_at = self._epoch_at, self._offset_at
        if (
            frame[8:epoch_at] != self._before
            or frame[offset_at + 8 :] != self._after
            or frame[epoch_at + 4 : offset_at] != self._between
            or frame[:4] != self._start
        ):
            return False
        (epoch,) = _EPOCH.unpack_from(frame, epoch_at)
        if epoch <= 0:
            return False
        self.message.session_epoch = epoch
        (self._requested.fetch_offset,) = _OFFSET.unpack_from(frame, offset_at)
        self._is_current = True
        return True

    def take(self) -> bool:
        """Returns, once per matching frame, whether the request that is being served is such a request."""
        is_current, self._is_current = self._is_current, False
        return is_current


def is_repeatable(message: FetchRequest, version: int) -> bool:
    """Returns whether the next request of the connection possibly differs in epoch and offset only."""
    return (
        version >= _VERSION_MIN
        and message.session_epoch > 0
        and not message.forgotten_topics_data
        and len(message.topics) == 1
        and len(message.topics[0].partitions) == 1
    )
