"""Clients above a quota: answers with the time to pause, muted connections, and rates that hold whatever clients do."""

from __future__ import annotations

import re

import pytest
from tests.support.metrics import scraped
from tests.support.secured import ALICE, SecuredBroker
from tests.support.wired import WiredBroker, WiredClient

from barnabas.broker.producing.produce_shortcut import ProduceShortcut
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.records.batch import Record, encode_batch
from barnabas.simulation.host import EPOCH_WALL_MS

TOPIC = "orders"
QUOTA = 10_000
BROKER = "User:broker"
METADATA_TOPIC_ID = bytes(15) + b"\1"
BATCH = bytes(encode_batch([Record(0, EPOCH_WALL_MS, None, bytes(1_000), [])]))


@pytest.fixture
def wired() -> WiredBroker:
    made = WiredBroker()
    made.create_topic(TOPIC)
    return made


def set_quota(wired: WiredBroker, key: str, value: float | None, *, client_id: str | None = "app") -> None:
    entity = [AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=client_id)]
    op = AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
    request = AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData(entity=entity, ops=[op])])
    answer = WiredClient(wired, "admin").call(request, 1, AlterClientQuotasResponse)
    assert [row.error_code for row in answer.entries] == [0]


def produce(*, acks: int = 1) -> ProduceRequest:
    row = ProduceRequest.PartitionProduceData(index=0, records=BATCH)
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[row])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def fetch(offset: int = 0, *, session: tuple[int, int] = (0, -1), max_wait_ms: int = 0) -> FetchRequest:
    row = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[row])],
    )


def end_offset(wired: WiredBroker) -> int:
    return wired.broker.replicas.leader(TOPIC, 0).log.log_end_offset


def flood(wired: WiredBroker, clients: list[WiredClient], seconds: int, *, acks: int = 1, depth: int = 8) -> int:
    """Lets clients that ignore every throttle time send as fast as they are read. Returns the appended bytes."""
    begin = end_offset(wired)
    unanswered = dict.fromkeys(range(len(clients)), 0)
    for _ in range(seconds * 20):
        for place, client in enumerate(clients):
            unanswered[place] -= len(client.received())
            while unanswered[place] < depth and (acks or client.link.reading):
                client.send(produce(acks=acks), 9)
                unanswered[place] += acks != 0
        wired.host.time.run_for(50)
    return (end_offset(wired) - begin) * len(BATCH)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_producer_above_its_quota_is_answered_at_once_and_then_muted(wired: WiredBroker, version: int) -> None:
    """Guard S19."""
    set_quota(wired, "producer_byte_rate", QUOTA)
    client = WiredClient(wired, "app")
    times = []
    for _ in range(100):
        client.send(produce(), version)
        ((_, answer),) = client.received()
        assert isinstance(answer, ProduceResponse)
        times.append(answer.throttle_time_ms)
        if answer.throttle_time_ms:
            break
    assert times[-1] > 0
    assert not client.link.reading
    end = end_offset(wired)
    client.send(produce(), version)
    wired.host.time.run_for(times[-1] - 1)
    assert (end_offset(wired), client.received()) == (end, [])
    wired.host.time.run_for(2)
    assert end_offset(wired) == end + 1
    assert len(client.received()) == 1


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_client_that_ignores_throttling_stays_within_its_quota(wired: WiredBroker, acks: int) -> None:
    """Guard S19: eight connections of one client id share its rate, with pipelined requests that are read already."""
    set_quota(wired, "producer_byte_rate", QUOTA)
    clients = [WiredClient(wired, "app") for _ in range(8)]
    flood(wired, clients, 11, acks=acks)
    rate = flood(wired, clients, 60, acks=acks) / 60
    assert QUOTA * 0.85 < rate < QUOTA * 1.1


def test_other_clients_are_not_throttled(wired: WiredBroker) -> None:
    set_quota(wired, "producer_byte_rate", QUOTA)
    flood(wired, [WiredClient(wired, "app")], 11)
    other = WiredClient(wired, "other")
    for _ in range(100):
        assert other.call(produce(), 9, ProduceResponse).throttle_time_ms == 0


def test_a_default_gives_each_client_id_a_rate_of_its_own(wired: WiredBroker) -> None:
    set_quota(wired, "producer_byte_rate", QUOTA, client_id=None)
    clients = [WiredClient(wired, f"app-{n}") for n in range(3)]
    flood(wired, clients, 11)
    rate = flood(wired, clients, 30) / 30
    assert 3 * QUOTA * 0.85 < rate < 3 * QUOTA * 1.1


def test_a_shortcut_of_before_the_quota_respects_it_and_ends_with_no_throttle_time(wired: WiredBroker) -> None:
    """Guard S19."""
    client = WiredClient(wired, "app")
    for _ in range(3):
        client.call(produce(), 9, ProduceResponse)
    assert client.core.shortcut is not None
    set_quota(wired, "producer_byte_rate", QUOTA)
    times = [client.call(produce(), 9, ProduceResponse, within_ms=60_000).throttle_time_ms for _ in range(130)]
    assert max(times) > 0
    set_quota(wired, "producer_byte_rate", None)
    assert wired.broker.services.throttles is None
    times = [client.call(produce(), 9, ProduceResponse, within_ms=60_000).throttle_time_ms for _ in range(5)]
    assert times == [0] * 5


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_shortcut_below_a_quota_counts_and_the_one_above_it_gives_the_throttle_time(
    wired: WiredBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard S19."""
    served = []
    serve = ProduceShortcut.serve

    def counted(shortcut: ProduceShortcut, frame: memoryview) -> bool:
        served.append(serve(shortcut, frame))
        return served[-1]

    monkeypatch.setattr(ProduceShortcut, "serve", counted)
    set_quota(wired, "producer_byte_rate", QUOTA)
    client = WiredClient(wired, "app")
    answers: list[ProduceResponse] = []
    while not answers or not answers[-1].throttle_time_ms:
        client.send(produce(), version)
        ((_, answer),) = client.received()
        assert isinstance(answer, ProduceResponse)
        answers.append(answer)
    assert served == [True] * (len(answers) - 1)
    # The whole request counts, as on the general path.
    assert 75 < len(answers) < 100
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(len(answers)))
    assert not client.link.reading
    wired.host.time.run_for(answers[-1].throttle_time_ms)
    assert client.link.reading


def test_a_quota_of_cpu_time_is_measured_for_each_request(wired: WiredBroker) -> None:
    set_quota(wired, "request_percentage", 1_000.0)
    client = WiredClient(wired, "app")
    for _ in range(3):
        client.call(produce(), 9, ProduceResponse)
    throttles = wired.broker.services.throttles
    assert throttles is not None
    assert throttles.measures_cpu
    assert client.core.shortcut is not None
    assert not client.core.shortcut.serve(memoryview(b""))


def test_a_consumer_above_its_quota_gets_an_empty_answer_and_then_the_same_records(wired: WiredBroker) -> None:
    producer, client = WiredClient(wired, "producer"), WiredClient(wired, "app")
    for _ in range(20):
        producer.call(produce(), 9, ProduceResponse)
    set_quota(wired, "consumer_byte_rate", 2_000)
    first = client.call(fetch(), 12, FetchResponse)
    assert (first.throttle_time_ms, first.session_id) == (0, 0)
    data = first.responses[0].partitions[0].records
    assert data is not None
    second = client.call(fetch(), 12, FetchResponse)
    assert second.throttle_time_ms > 0
    assert second.responses == []
    assert not client.link.reading
    third = client.call(fetch(), 12, FetchResponse, within_ms=60_000)
    if third.throttle_time_ms:  # The first answer counts for a whole window more than its pause.
        third = client.call(fetch(), 12, FetchResponse, within_ms=60_000)
    assert (third.throttle_time_ms, third.responses[0].partitions[0].records) == (0, data)


def test_a_fetch_session_goes_on_after_an_empty_answer(wired: WiredBroker) -> None:
    producer, client = WiredClient(wired, "producer"), WiredClient(wired, "app")
    producer.call(produce(), 9, ProduceResponse)
    opened = client.call(fetch(session=(0, 0)), 12, FetchResponse)
    for _ in range(6):
        producer.call(produce(), 9, ProduceResponse)
    set_quota(wired, "consumer_byte_rate", 500)
    read = []
    for epoch in range(1, 8):
        request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=opened.session_id, session_epoch=epoch)
        answer = client.call(request, 12, FetchResponse, within_ms=60_000)
        assert answer.error_code == ErrorCode.NONE
        assert answer.session_id == opened.session_id
        read.append((answer.throttle_time_ms > 0, sum(len(topic.partitions) for topic in answer.responses)))
    assert (True, 0) in read
    assert any(count for _, count in read[read.index((True, 0)) :])


def test_followers_are_exempt(wired: WiredBroker) -> None:
    producer = WiredClient(wired, "producer")
    for _ in range(50):
        producer.call(produce(), 9, ProduceResponse)
    set_quota(wired, "consumer_byte_rate", 1)
    wired.host.request_cpu_ns = 10_000_000_000
    set_quota(wired, "request_percentage", 1)
    follower = WiredClient(wired, "app")
    request = fetch()
    request.replica_id = 1
    answers = [follower.call(request, 12, FetchResponse) for _ in range(3)]
    assert [answer.throttle_time_ms for answer in answers] == [0, 0, 0]
    assert follower.link.reading


def test_cpu_time_is_read_and_limited_only_while_there_is_a_quota_of_it(wired: WiredBroker) -> None:
    client = WiredClient(wired, "app")
    set_quota(wired, "producer_byte_rate", 1e12)
    wired.host.request_cpu_ns = 5_000_000
    client.call(MetadataRequest(topics=None), 9, MetadataResponse)
    assert wired.host.cpu_ns() == 5_000_000, "nothing had read it"
    set_quota(wired, "request_percentage", 1)
    times = [
        client.call(MetadataRequest(topics=None), 9, MetadataResponse, within_ms=60_000).throttle_time_ms
        for _ in range(60)
    ]
    assert 0 < max(times) <= 1_000, "at most one window"
    versions = client.call(ApiVersionsRequest(), 0, ApiVersionsResponse, within_ms=60_000)
    assert versions.api_keys


def test_requests_read_in_steps_and_older_versions_get_no_throttle_time_without_a_field_for_it(
    wired: WiredBroker,
) -> None:
    set_quota(wired, "request_percentage", 1)
    wired.host.request_cpu_ns = 500_000_000
    client = WiredClient(wired, "app")
    client.call(MetadataRequest(topics=[]), 0, MetadataResponse)
    assert not client.link.reading


def test_the_later_turns_of_a_long_request_count(wired: WiredBroker) -> None:
    """Guard S19: only the first turn counted, so long requests took any CPU time."""
    set_quota(wired, "request_percentage", 1e9)
    wired.host.request_cpu_ns = 1_000_000
    client = WiredClient(wired, "app")
    throttles = wired.broker.services.throttles
    assert throttles is not None

    def used(count: int) -> float:
        """Returns the CPU time that a request for so many topics adds to the rate of its client."""

        def rate() -> float:
            shared = throttles.request.shared.values()
            return sum(each.rate.per_second(wired.host.clock.now_ms()) for each in shared)

        topics = [MetadataRequest.MetadataRequestTopic(name=f"topic-{n}") for n in range(count)]
        before = rate()
        client.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9, MetadataResponse)
        return rate() - before

    short, long = used(1), used(20_000)
    assert short > 0
    assert long > 10 * short


def test_requests_of_nodes_are_exempt_and_those_that_a_client_may_not_send_are_not() -> None:
    """Guard S19: clients could send requests of nodes without end, and the metadata log's followers paused."""
    secured = SecuredBroker()
    entity = [AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=None)]
    op = AlterClientQuotasRequest.OpData(key="request_percentage", value=1.0, remove=False)
    entry = AlterClientQuotasRequest.EntryData(entity=entity, ops=[op])
    answer = secured.connect().call(AlterClientQuotasRequest(entries=[entry]), 1, AlterClientQuotasResponse)
    assert [row.error_code for row in answer.entries] == [0]
    secured.host.request_cpu_ns = 1_000_000_000
    markers = WriteTxnMarkersRequest(markers=[])
    partition = FetchRequest.FetchPartition(partition=0, current_leader_epoch=1, last_fetched_epoch=1)
    topic = FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])
    log = FetchRequest(max_wait_ms=0, replica_state=FetchRequest.ReplicaState(replica_id=9), topics=[topic])
    for principal, is_served in ((BROKER, True), (ALICE, False)):
        client = secured.connect_as(principal)
        client.call(markers, 1, WriteTxnMarkersResponse)
        assert client.link.reading == is_served, "WriteTxnMarkers"
        node = secured.connect_as(principal, listener="CONTROLLER")
        fetched = node.call(log, 17, FetchResponse, within_ms=60_000)
        assert (fetched.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED) != is_served
        assert node.link.reading == is_served, "Fetch of the metadata log"


def test_a_muted_connection_that_closes_leaves_nothing_behind(wired: WiredBroker) -> None:
    set_quota(wired, "producer_byte_rate", 1)
    client = WiredClient(wired, "app")
    for _ in range(3):
        client.send(produce(), 9)
    assert not client.link.reading
    client.core.closed()
    end = end_offset(wired)
    wired.host.time.run_for(100_000)
    assert end_offset(wired) == end


def test_rates_of_clients_without_traffic_are_dropped(wired: WiredBroker) -> None:
    """Guard S19: A peer that takes a new client id for each request costs memory only while its traffic counts."""
    set_quota(wired, "producer_byte_rate", 1e9, client_id=None)
    throttles = wired.broker.services.throttles
    assert throttles is not None
    for n in range(1_000):
        WiredClient(wired, f"one-{n}").call(produce(), 9, ProduceResponse)
    assert len(throttles.produce.shared) == 1_000
    wired.host.time.run_for(12_000)
    for n in range(1_000):
        WiredClient(wired, f"two-{n}").call(produce(), 9, ProduceResponse)
    assert len(throttles.produce.shared) <= 1_001


def test_a_changed_quota_holds_for_the_next_request(wired: WiredBroker) -> None:
    set_quota(wired, "producer_byte_rate", 1e9)
    client = WiredClient(wired, "app")
    for _ in range(30):
        assert client.call(produce(), 9, ProduceResponse).throttle_time_ms == 0
    set_quota(wired, "producer_byte_rate", 1_000)
    assert client.call(produce(), 9, ProduceResponse).throttle_time_ms > 0


def test_rates_and_throttle_times_are_shown_by_user_and_client_id(wired: WiredBroker) -> None:
    """The names are Kafka's, and there are none without quotas."""
    assert "kafka_server_produce" not in scraped(wired.broker)
    set_quota(wired, "producer_byte_rate", QUOTA)
    set_quota(wired, "controller_mutation_rate", 5.0, client_id="admin")
    flood(wired, [WiredClient(wired, "app")], 8)
    shown = scraped(wired.broker)
    rate = re.search(r'^kafka_server_produce_byte_rate\{user="",client_id="app"\} (\S+)$', shown, re.MULTILINE)
    assert rate is not None
    assert QUOTA * 0.8 < float(rate[1]) < QUOTA * 1.2
    time = re.search(r'^kafka_server_produce_throttle_time\{user="",client_id="app"\} (\S+)$', shown, re.MULTILINE)
    assert time is not None
    assert float(time[1]) > 0
