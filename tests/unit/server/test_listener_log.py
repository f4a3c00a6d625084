"""Log lines about connections: peer, cause and count, never a line for each bad frame."""

from __future__ import annotations

import logging
import resource

import pytest

from barnabas.common.errors import DecodeError
from barnabas.protocol import codec
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.server.listener import ListenerLog


class Clock:
    def __init__(self) -> None:
        self.at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms

    def now_s(self) -> float:
        return self.now_ms() / 1000

    def now_us(self) -> int:
        return self.at_ms * 1000

    def wall_ms(self) -> int:
        return self.at_ms


def test_a_flood_of_bad_frames_writes_a_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = ListenerLog(clock)
    for number in range(60_000):
        clock.at_ms = number
        log.closed_for_cause(f"/10.0.0.1:{number}", f"version {number} of metadata is not served", None)
    assert len(caplog.records) == 6
    assert caplog.records[0].getMessage() == (
        "closing the connection of /10.0.0.1:0: version 0 of metadata is not served"
    )
    assert "(9999 more in the last 10 s)" in caplog.records[1].getMessage()


def test_what_a_peer_writes_is_no_cause_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """A peer that named another mechanism with each connection wrote a line with each."""
    log = ListenerLog(Clock())
    for letter in "abcdefg'":
        log.closed_for_cause("/10.0.0.1:1", f"failed authentication (Unsupported SASL mechanism {letter!r})", None)
    assert [record.getMessage() for record in caplog.records] == [
        "closing the connection of /10.0.0.1:1: failed authentication (Unsupported SASL mechanism 'a')"
    ]


def test_peers_and_causes_do_not_hide_each_other(caplog: pytest.LogCaptureFixture) -> None:
    log = ListenerLog(Clock())
    log.closed_for_cause("/10.0.0.1:1", "a", None)
    log.closed_for_cause("/10.0.0.2:1", "a", None)
    log.closed_for_cause("/10.0.0.1:1", "b", None)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3


def test_a_shortage_of_descriptors_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = ListenerLog(Clock())
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    log.accepted(limit // 2)
    assert not caplog.records
    for descriptor in range(limit - 8, limit):
        log.accepted(descriptor)
    (record,) = caplog.records
    assert f"{limit - 8} of {limit} file descriptors are in use" in record.getMessage()


def test_text_that_is_not_utf_8_is_logged_as_such() -> None:
    frame = codec.encode(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="ab")]), 1)
    frame[-2:] = b"\xff\xfe"
    with pytest.raises(DecodeError, match=r"MetadataRequest v1: a string is not UTF-8: invalid start byte \(at byte"):
        codec.decode(MetadataRequest, 1, frame, 0)
