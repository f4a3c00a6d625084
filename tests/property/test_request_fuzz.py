"""A connection that gets arbitrary bytes answers or ends; the broker continues, and stores only what it acknowledged.

Valid frames are those that a real cluster got (tests/data/wire), in every version of every API that is served. They
arrive whole, cut off, mutated and in pieces. The only failure is a DecodeError of that connection.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.wired import WiredBroker, WiredClient
from tests.support.wired_requests import batch_of, fetch_request, produce_request, values_of

from barnabas.common.types import uuid_from_text
from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS
from barnabas.protocol.header import request_header_version
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.records.batch import Record, encode_batch
from barnabas.records.compression import Codec
from barnabas.storage.log import Log

FRAMES = Path(__file__).parent.parent / "data" / "wire" / "frames-4.1.0.json.gz"
#: The ids of `orders` in the recording.
RECORDED_IDS = [uuid_from_text(text) for text in ("rxFLWUmqTNqasH_j2Iky4A", "1TAuSS99QTCVAtPNyre5SA")]
BOUNDED = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
#: Settings with new examples in each run; hypothesis prints how to repeat a failed one.
WHOLE = settings(BOUNDED, derandomize=False, print_blob=True)
Pair = tuple[int, int]
PAIRS = [(key, v) for key, offer in BROKER_APIS.items() for v in range(offer.version_min, offer.version_max + 1)]


#: The recorded cluster had no log-in.
WITHOUT_RECORDING = (
    (SaslHandshakeRequest(mechanism="PLAIN"), 0),
    (SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), 0),
    (SaslAuthenticateRequest(auth_bytes=b"\0user\0password"), 1),
)


@cache
def recorded() -> dict[Pair, list[bytes]]:
    """Bodies of frames (without their size) by API key and version; topic ids are those of `new_broker`."""
    topic_id = new_broker().broker.metadata.image.topics_by_name["orders"].topic_id
    found: dict[Pair, list[bytes]] = {}
    for frame in json.loads(gzip.decompress(FRAMES.read_bytes())):
        body = bytes.fromhex(frame["request_hex"])[4:]
        for theirs in RECORDED_IDS:
            body = body.replace(theirs, topic_id)
        found.setdefault((frame["api_key"], frame["version"]), []).append(body)
    for request, version in WITHOUT_RECORDING:
        key = request.API_KEY
        assert key is not None, "only requests are sent"
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="c")
        made = codec.encode(header, request_header_version(key, version))
        codec.encode_into(request, version, made)
        found.setdefault((key, version), []).append(bytes(made))
    return found


def new_broker() -> WiredBroker:
    """Returns a broker with `orders`, which requests can reach, and `canary`, whose name only the test uses."""
    wired = WiredBroker(max_incremental_fetch_session_cache_slots="5")
    wired.create_topic("orders", 2)
    wired.create_topic("canary")
    return wired


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def send(client: WiredClient, data: bytes, cuts: Sequence[int] = ()) -> None:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        client.send_raw(data[start:end])


def check_still_well(wired: WiredBroker) -> None:
    """Checks the broker after all connections have ended: no internal error happened, nothing is left, others are
    served.
    """
    wired.host.time.run_for(50)
    assert wired.closes.errors == []
    assert [error for _, error in wired.host.faults.reported if error is not None] == []
    replicas = wired.broker.replicas
    assert sum(len(partition._watchers) for partition in replicas.partitions()) == 0
    assert len(replicas.purgatory) == 0
    assert len(wired.broker.services.fetch_sessions) <= 5
    client = wired.connect()
    request = produce_request(wired, batch_of(b"sings"), 9)
    request.topic_data[0].name = "canary"
    before = replicas.leader("canary", 0).log.log_end_offset
    row = client.call(request, 9, ProduceResponse).responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset) == (0, before)
    fetch = fetch_request(wired, 0, 11)
    fetch.topics[0].topic = "canary"
    assert values_of(client.call(fetch, 11, FetchResponse)) == [b"sings"] * (before + 1)


def serve(wired: WiredBroker, data: bytes, cuts: Sequence[int] = ()) -> WiredClient:
    """Serves one connection until its end."""
    client = wired.connect()
    send(client, data, cuts)
    wired.host.time.run_for(20)
    client.core.closed()
    return client


# -- requests


def test_every_served_version_is_in_the_recording() -> None:
    assert [pair for pair in PAIRS if pair not in recorded()] == []


@pytest.mark.parametrize("api_key", sorted(BROKER_APIS))
def test_frames_that_are_cut_off_anywhere(api_key: int) -> None:
    wired = new_broker()
    for pair in PAIRS:
        if pair[0] == api_key:
            body = min(recorded()[pair], key=len)
            for length in range(len(body)):
                serve(wired, framed(body[:length]))
    check_still_well(wired)


MUTATION = st.tuples(
    st.sampled_from(["flip", "set", "insert", "delete", "count", "repeat"]),
    st.integers(0, 1 << 16),
    st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]),
    st.integers(1, 40),
)
COUNTS = [0x7FFFFFFF, 0x7FFFFFFE, 0x80000000, 0xFFFFFFFE, 0x00FFFFFF, 0x0000FFFF, 100]


def mutate(body: bytes, mutations: Sequence[tuple[str, int, int, int]]) -> bytes:
    """Mutates the body after API key and version, so that it still belongs to that API."""
    out = bytearray(body)
    for kind, place, byte, size in mutations:
        at = 4 + place % max(1, len(out) - 4)
        if kind == "flip" and at < len(out):
            out[at] ^= 1 << (size % 8)
        elif kind == "set" and at < len(out):
            out[at] = byte
        elif kind == "insert":
            out[at:at] = bytes([byte]) * size
        elif kind == "delete":
            del out[at : at + size]
        elif kind == "count":
            out[at : at + 4] = COUNTS[size % len(COUNTS)].to_bytes(4, "big")
        else:
            out[at:at] = out[at : at + size]
    return bytes(out)


MUTATED = given(
    pair=st.sampled_from(PAIRS),
    choice=st.integers(0, 5),
    mutations=st.lists(MUTATION, min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 1 << 12), max_size=3),
)


def mutated_frames(pair: Pair, choice: int, mutations: list[tuple[str, int, int, int]], cuts: list[int]) -> None:
    wired = new_broker()
    bodies = recorded()[pair]
    healthy = recorded()[(18, 0)][0]
    client = serve(wired, framed(mutate(bodies[choice % len(bodies)], mutations)) + framed(healthy), cuts)
    if not wired.closes.causes:
        assert client.link.sent or client.core.is_closed
    check_still_well(wired)


test_mutated_frames = settings(BOUNDED, max_examples=300)(MUTATED(mutated_frames))
test_many_mutated_frames = pytest.mark.full(
    pytest.mark.timeout(1800)(settings(WHOLE, max_examples=30_000)(MUTATED(mutated_frames)))
)


@pytest.mark.parametrize("api_key", [3, 18, 19, 57])
def test_a_negative_correlation_id_comes_back(api_key: int) -> None:
    """Requests that go to the controller in an envelope are included."""
    wired = new_broker()
    for pair in PAIRS:
        if pair[0] == api_key:
            body = recorded()[pair][0]
            client = wired.connect()
            send(client, framed(body[:4] + b"\x80\0\0\7" + body[8:]))
            wired.host.time.run_for(2_000)
            assert list(correlation_ids(client.link.sent)) == [0x80000007]
    check_still_well(wired)


@settings(BOUNDED, max_examples=150)
@given(
    pair=st.none() | st.sampled_from(PAIRS),
    body=st.binary(max_size=200),
    size=st.none() | st.sampled_from([-1, 0, 1, 3, 1 << 26, (1 << 31) - 1, -(1 << 31)]),
    cuts=st.lists(st.integers(0, 300), max_size=5),
)
def test_random_bytes(pair: Pair | None, body: bytes, size: int | None, cuts: list[int]) -> None:
    """Random bytes, or random bytes after an API key and version, with their own size or another one."""
    wired = new_broker()
    if pair is not None:
        body = pair[0].to_bytes(2, "big") + pair[1].to_bytes(2, "big") + body
    start = len(body) if size is None else size
    serve(wired, start.to_bytes(4, "big", signed=True) + body, cuts)
    check_still_well(wired)


@settings(BOUNDED, max_examples=100)
@given(
    pairs=st.lists(st.sampled_from(PAIRS), min_size=2, max_size=12),
    cuts=st.lists(st.integers(0, 1 << 12), max_size=12),
    mutations=st.lists(MUTATION, max_size=1),
)
def test_many_requests_in_pieces(
    pairs: list[Pair], cuts: list[int], mutations: list[tuple[str, int, int, int]]
) -> None:
    """Answers come in order, all of them unless the connection ended."""
    wired = new_broker()
    bodies = [recorded()[pair][0] for pair in pairs]
    bodies = [body[:4] + number.to_bytes(4, "big") + body[8:] for number, body in enumerate(bodies)]
    client = wired.connect()
    send(client, b"".join(framed(body) for body in bodies), cuts)
    for body in bodies:
        client.send_raw(framed(mutate(body, mutations)) if mutations else b"")
    wired.host.time.run_for(120_000)
    answered = list(correlation_ids(client.link.sent))
    expected = [number for number, (key, _) in enumerate(pairs) if key != 0 or acks_of(bodies[number]) != 0]
    assert [number for number in answered if number < len(pairs)][: len(expected)] == expected[: len(answered)]
    if not client.core.is_closed:
        assert answered[: len(expected)] == expected
    client.core.closed()
    check_still_well(wired)


def correlation_ids(data: bytes | bytearray) -> Iterator[int]:
    position = 0
    while position < len(data):
        yield int.from_bytes(data[position + 4 : position + 8], "big")
        position += 4 + int.from_bytes(data[position : position + 4], "big")
    assert position == len(data)


def acks_of(body: bytes) -> int:
    version = int.from_bytes(body[2:4], "big")
    start = 10 + max(0, int.from_bytes(body[8:10], "big", signed=True)) + (version >= 9)
    request, _ = codec.decode(ProduceRequest, version, body, start)
    return request.acks


# -- batches


def batch(codec_id: int, count: int, producer: int, sequence: int) -> bytes:
    records = [Record(0, 1_735_689_600_000 + place, b"key", b"v" * 20 * place, [("h", None)]) for place in range(count)]
    return bytes(
        encode_batch(
            records,
            codec=codec_id,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
        )
    )


#: Codec, records, producer id, sequence; then mutations, and whether the checksum is made right again.
BATCH = st.tuples(
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]),
    st.integers(1, 3),
    st.sampled_from([-1, -1, 7]),
    st.integers(0, 3),
    st.lists(MUTATION, max_size=2),
    st.booleans(),
)
#: Version, acks, and batches for (partition, batch).
PRODUCE = st.tuples(
    st.integers(3, 13),
    st.sampled_from([-1, 1, 0]),
    st.lists(st.tuples(st.integers(0, 1), BATCH), min_size=1, max_size=2),
)


def made(spec: tuple[int, int, int, int, list[tuple[str, int, int, int]], bool]) -> bytes:
    codec_id, count, producer, sequence, mutations, fix = spec
    data = bytearray(mutate(batch(codec_id, count, producer, sequence), mutations))
    if fix and len(data) > 21:
        data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


class LogModel:
    """The log as a list of what was acknowledged."""

    def __init__(self) -> None:
        self.bytes = bytearray()
        self.end_offset = 0

    def acknowledged(self, sent: bytes, base_offset: int) -> None:
        """Checks an acknowledged batch: it is appended at the end, or it repeats an earlier one of an idempotent
        producer.
        """
        size = 12 + int.from_bytes(sent[8:12], "big")
        if base_offset < self.end_offset:
            assert int.from_bytes(sent[43:51], "big", signed=True) >= 0, "appended twice"
            return
        assert base_offset == self.end_offset
        self.end_offset += 1 + int.from_bytes(sent[23:27], "big")
        self.bytes += base_offset.to_bytes(8, "big") + sent[8:12] + bytes(4) + sent[16:size]


def stored(wired: WiredBroker, log: Log) -> bytes:
    """Returns the stored bytes; a log has its files only with its first record."""
    path = f"{log.directory}/{0:020d}.log"
    return bytes(wired.host.disk.read(path)) if wired.host.disk.exists(path) else b""


def same(ours: bytes, model: bytes) -> bool:
    """Returns whether the batches are equal, except for largest timestamps (and checksums) that the broker
    corrected.
    """
    position = 0
    while len(ours) == len(model) and position + 61 <= len(ours):
        end = position + 12 + int.from_bytes(ours[position + 8 : position + 12], "big")
        one, other = bytearray(ours[position:end]), bytearray(model[position:end])
        if one[35:43] != other[35:43]:
            assert int.from_bytes(one[17:21], "big") == crc32c(one[21:])
            one[35:43] = other[35:43]
            one[17:21] = other[17:21]
        if one != other:
            return False
        position = end
    return position == len(ours) == len(model)


@settings(BOUNDED, max_examples=250)
@given(requests=st.lists(PRODUCE, min_size=1, max_size=4), alike=st.booleans())
def test_logs_hold_what_was_acknowledged_and_nothing_else(
    requests: list[tuple[int, int, list[tuple[int, tuple[int, int, int, int, list[tuple[str, int, int, int]], bool]]]]],
    alike: bool,
) -> None:
    """Requests `alike` have one version and partition, as most producers' have, and take the shortcut."""
    wired = new_broker()
    topic_id = wired.broker.metadata.image.topics_by_name["orders"].topic_id
    logs = [wired.broker.replicas.leader("orders", index).log for index in (0, 1)]
    models = [LogModel(), LogModel()]
    client = wired.connect()
    for version, acks, batches in requests:
        if alike:
            version, acks, batches = requests[0][0], requests[0][1], [(0, batches[0][1])]
        sent = dict.fromkeys(index for index, _ in batches) | {index: made(spec) for index, spec in batches}
        topic = ProduceRequest.TopicProduceData(
            partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=data) for index, data in sent.items()
            ]
        )
        if version >= 13:
            topic.topic_id = topic_id
        else:
            topic.name = "orders"
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
        if client.core.is_closed:
            client = wired.connect()
        if acks == 0:
            before = [log.log_end_offset for log in logs]
            client.send(request, version)
            for index, data in sent.items():
                if logs[index].log_end_offset > before[index]:
                    models[index].acknowledged(bytes(data or b""), before[index])
        else:
            response = client.call(request, version, ProduceResponse)
            for row in response.responses[0].partition_responses:
                if row.error_code == 0:
                    models[row.index].acknowledged(bytes(sent[row.index] or b""), row.base_offset)
        for log, model in zip(logs, models, strict=True):
            assert log.log_end_offset == model.end_offset
            assert same(stored(wired, log), bytes(model.bytes))
    client.core.closed()
    check_still_well(wired)


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_fetch_gives_back_what_is_stored(version: int) -> None:
    wired = new_broker()
    model = LogModel()
    client = wired.connect()
    for codec_id in Codec:
        data = batch(codec_id, 3, -1, -1)
        row = client.call(produce_request(wired, data, 9), 9, ProduceResponse).responses[0].partition_responses[0]
        model.acknowledged(data, row.base_offset)
    request: FetchRequest = fetch_request(wired, 0, version)
    answer = client.call(request, version, FetchResponse).responses[0].partitions[0]
    assert bytes(answer.records or b"") == bytes(model.bytes)
