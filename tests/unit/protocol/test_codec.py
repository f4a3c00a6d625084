"""Behaviour of the codec that the round trips do not cover."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from itertools import pairwise

import pytest

from barnabas.common.errors import DecodeError, EncodeError
from barnabas.protocol import codec, decoding
from barnabas.protocol.layout import ELEMENTS_MAX
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.header import ResponseHeader
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.wire import TAGS_MAX


def test_values_default_as_the_schema_says() -> None:
    request = FetchRequest()
    assert (request.replica_id, request.max_bytes, request.topics, request.rack_id) == (-1, 0x7FFFFFFF, [], "")
    assert (request.cluster_id, request.replica_state) == (None, None)
    assert MetadataRequest().topics == []
    assert MetadataRequest(topics=None).topics is None
    assert CreateTopicsRequest().timeout_ms == 60000


def test_lists_are_never_shared() -> None:
    given: list[FetchRequest.FetchTopic] = []
    request = FetchRequest(topics=given)
    assert request.topics is given
    FetchRequest().topics.append(FetchRequest.FetchTopic())
    assert FetchRequest().topics == []


def test_messages_are_equal_by_value_and_show_it() -> None:
    one, other = ApiVersionsRequest(client_software_name="a"), ApiVersionsRequest(client_software_name="a")
    assert one == other
    assert one != ApiVersionsRequest(client_software_name="b")
    assert one != ApiVersionsRequest(client_software_name="a", unknown_tags=((9, b""),))
    assert one != "ApiVersionsRequest"
    assert repr(one) == "ApiVersionsRequest(client_software_name='a', client_software_version='')"
    with pytest.raises(TypeError):
        hash(one)


def test_records_are_views_into_the_input() -> None:
    partition = ProduceRequest.PartitionProduceData(index=1, records=b"batch")
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    data = codec.encode(ProduceRequest(topic_data=[topic]), 7)
    request, _ = codec.decode(ProduceRequest, 7, data)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"batch"
    records[0] = ord("B")
    assert b"Batch" in data
    records.release()


@pytest.mark.parametrize("version", [-1, 14])
def test_versions_that_do_not_exist_are_refused(version: int) -> None:
    with pytest.raises(EncodeError, match="MetadataRequest has no version"):
        codec.encode(MetadataRequest(), version)
    with pytest.raises(DecodeError, match="MetadataRequest has no version"):
        codec.decode(MetadataRequest, version, b"")


@pytest.mark.parametrize(
    ("message", "version", "text"),
    [
        (MetadataRequest(topics=None), 0, "MetadataRequest v0"),
        (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=b"short")]), 12, "TopicId"),
        (MetadataRequest(allow_auto_topic_creation=False), 3, "AllowAutoTopicCreation"),
        (MetadataResponse(controller_id=2**31), 1, "MetadataResponse v1"),
        (MetadataResponse(cluster_id="x" * 32768), 9, "ClusterId"),
        (MetadataResponse(cluster_id="x" * 32768), 8, "MetadataResponse v8"),
        (MetadataResponse(cluster_id="\ud800"), 9, "MetadataResponse v9"),
        (MetadataRequest(unknown_tags=((1, b""),)), 8, "tagged fields"),
        (ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=40000)]), 3, "ApiVersionsResponse v3"),
    ],
)
def test_what_a_version_cannot_carry_is_refused(message: Message, version: int, text: str) -> None:
    with pytest.raises(EncodeError, match=text):
        codec.encode(message, version)


def test_decode_errors_name_the_field_and_the_place() -> None:
    data = codec.encode(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="orders")]), 1)
    with pytest.raises(DecodeError, match=r"MetadataRequest v1: malformed or cut off at Name \(at byte 6\)"):
        codec.decode(MetadataRequest, 1, data[:-1])


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(DecodeError, match="Topics"):
        codec.decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert codec.decode(MetadataRequest, 1, b"\xff\xff\xff\xff")[0].topics is None


def test_a_count_beyond_the_bytes_left_is_refused_at_the_count() -> None:
    with pytest.raises(DecodeError, match=r"Topics \(at byte 4\)"):
        codec.decode(MetadataRequest, 1, (101).to_bytes(4, "big") + bytes(2) * 100)
    with pytest.raises(DecodeError, match="Topics"):
        codec.decode(MetadataRequest, 9, b"\x66" + bytes.fromhex("01 00") * 100)


@pytest.mark.parametrize("byte", [1, 2, 128, 255])
def test_any_byte_but_zero_is_true(byte: int) -> None:
    alone = b"\xff\xff\xff\xff" + bytes([byte])
    assert codec.decode(MetadataRequest, 4, alone)[0].allow_auto_topic_creation is True
    in_a_run = codec.decode(MetadataRequest, 8, b"\xff\xff\xff\xff" + bytes([byte, 0, byte]))[0]
    assert in_a_run.include_cluster_authorized_operations is False
    assert in_a_run.include_topic_authorized_operations is True
    assert codec.encode(in_a_run, 8).endswith(bytes([1, 0, 1]))


def test_tagged_structs_with_defaults_only_are_not_sent() -> None:
    cls = FetchResponse.PartitionData
    absent = cls(records=b"")
    empty = cls(records=b"", current_leader=FetchResponse.LeaderIdAndEpoch())
    known = cls(records=b"", current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=3, leader_epoch=9))
    topics = [FetchResponse.FetchableTopicResponse(partitions=[absent, empty, known])]
    data = codec.encode(FetchResponse(responses=topics), 16)
    read = codec.decode(FetchResponse, 16, data)[0].responses[0].partitions
    assert [each.current_leader for each in read] == [None, None, known.current_leader]


def test_a_tagged_field_must_fill_its_size_and_come_once() -> None:
    good = codec.encode(FetchRequest(cluster_id="abc"), 12)
    assert good.endswith(bytes.fromhex("01 00 04 04 616263"))
    head = good[:-7]
    assert codec.decode(FetchRequest, 12, head + bytes.fromhex("01 00 04 04 616263"))[0].cluster_id == "abc"
    for tags in ("01 00 05 04 61626300", "01 00 03 04 616263", "02 63 00 63 00", "7f 00", "01 00 ffffffff0f"):
        with pytest.raises(DecodeError):
            codec.decode(FetchRequest, 12, head + bytes.fromhex(tags))


def test_unknown_tags_are_kept_in_the_order_of_tags() -> None:
    request = FetchRequest(cluster_id="abc", unknown_tags=((90, b"z"), (7, b"")))
    data = codec.encode(request, 12)
    assert data.endswith(bytes.fromhex("03 00 04 04 616263 07 00 5a 01 7a"))
    assert codec.decode(FetchRequest, 12, data)[0].unknown_tags == ((7, b""), (90, b"z"))


@pytest.mark.parametrize(("cls", "version"), [(FetchRequest, 12), (MetadataRequest, 9), (ProduceRequest, 9)])
def test_thousands_of_tagged_fields_in_one_place_are_refused(cls: type[Message], version: int) -> None:
    few, many = (tuple((n, b"") for n in range(100, 100 + count)) for count in (TAGS_MAX, TAGS_MAX + 1))
    assert codec.decode(cls, version, codec.encode(cls(unknown_tags=few), version))[0].unknown_tags == few  # type: ignore[call-arg, attr-defined]
    with pytest.raises(DecodeError, match="tagged fields"):
        codec.decode(cls, version, codec.encode(cls(unknown_tags=many), version))  # type: ignore[call-arg]


def test_a_message_of_too_many_elements_is_refused_before_it_fills_the_memory() -> None:
    topics = ELEMENTS_MAX + 1
    data = topics.to_bytes(4, "big") + bytes(2 * topics)
    tracemalloc.start()
    with pytest.raises(DecodeError, match="Topics"):
        codec.decode(MetadataRequest, 1, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_elements_of_nested_arrays_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ELEMENTS_MAX", 12)
    decode = decoding.compile_decoder(ListOffsetsRequest, 1)
    cls = ListOffsetsRequest
    for topics, fits in ((3, True), (4, False)):
        topic = cls.ListOffsetsTopic(partitions=[cls.ListOffsetsPartition() for _ in range(3)])
        message = cls(topics=[topic] * topics)
        if fits:
            assert decode(codec.encode(message, 1), 0)[0] == message
        else:
            with pytest.raises(DecodeError, match="Partitions"):
                decode(codec.encode(message, 1), 0)


def test_encode_into_appends() -> None:
    out = bytearray(b"size")
    codec.encode_into(ResponseHeader(correlation_id=7), 1, out)
    assert out == b"size\x00\x00\x00\x07\x00"


@pytest.mark.parametrize("nested", [False, True])
def test_elements_are_freed_in_steps(nested: bool) -> None:
    """A step frees a part of the elements, of whichever array. The message itself may still be used by others."""
    name = "".join(["a", "b"])
    cls = ListOffsetsRequest
    if nested:
        partitions = [cls.ListOffsetsPartition(partition_index=index) for index in range(3_000)]
        for each in partitions:
            each.current_leader_epoch = name  # type: ignore[assignment]
        message = cls(topics=[cls.ListOffsetsTopic(name="t", partitions=partitions)])
        del partitions, each
    else:
        message = cls(topics=[cls.ListOffsetsTopic(name=name) for _ in range(3_000)])
    before = sys.getrefcount(name)
    used = message
    work = codec.freed_in_steps(message)
    assert sum(work) > 10
    assert used == message
    assert sys.getrefcount(name) == before
    work = codec.freed_in_steps(message)
    del message, used
    left = [sys.getrefcount(name) - before + 3_000 for _ in work]
    assert left[0] > 2_500
    assert max(more - less for more, less in pairwise(left)) <= 150
    del work
    assert sys.getrefcount(name) == before - 3_000


def test_functions_are_made_once() -> None:
    assert codec.decoder(FetchRequest, 5) is codec.decoder(FetchRequest, 5)
    assert codec.encoder(FetchRequest, 5) is codec.encoder(FetchRequest, 5)


def test_importing_the_codec_imports_no_message() -> None:
    script = (
        "import sys, barnabas.protocol.codec, barnabas.protocol.header;"
        "print(*sorted(m for m in sys.modules if m.startswith('barnabas.protocol.messages.')))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["barnabas.protocol.messages.index"]
