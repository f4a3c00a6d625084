"""Requests that only a mistake or an attack would send, on both listeners: each is answered, or its connection ends.

    mutated     frames of a real cluster with bytes changed, at the controller's listener (that of brokers has
                `test_request_fuzz.py`)
    extreme     of every API and version: null where it is allowed, the least and the largest numbers, the longest
                strings, arrays of 1,200 elements, unknown tagged fields and topic ids

An internal error is neither of the two. The full run has new examples each time; one that fails is printed in a form
that runs it again (`reproduce_failure`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property import test_request_fuzz as frames
from tests.property.test_longest_names import SERVED_BY_CONTROLLER, Maker
from tests.property.test_request_fuzz import BOUNDED, MUTATION, PAIRS, WHOLE, Pair, framed, mutate, new_broker, send
from tests.support.wired import WiredBroker, WiredClient

from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS, CONTROLLER_APIS, Offer
from barnabas.protocol.header import request_header_version
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.index import request_class

QUICK = settings(BOUNDED, max_examples=120)
#: A hundred times as many.
LONG = settings(WHOLE, max_examples=12_000)


def for_long(test: Callable[..., None]) -> Callable[..., None]:
    """Makes a long test, which takes up to 10 minutes of CPU."""
    marked: Callable[..., None] = pytest.mark.timeout(3_600)(pytest.mark.full(LONG(test)))
    return marked


def connect(wired: WiredBroker, apis: Mapping[int, Offer]) -> WiredClient:
    client = wired.connect()
    if apis is CONTROLLER_APIS:
        client.core = wired.broker.dispatcher("CONTROLLER").connect(client.link, "/127.0.0.1", "CONTROLLER")
    return client


def check_goes_on(wired: WiredBroker) -> None:
    """Checks that no internal error happened and both listeners serve. Requests to the controller can have changed
    anything.
    """
    assert wired.closes.errors == []
    assert [error for _, error in wired.host.faults.reported if error is not None] == []
    for apis in (BROKER_APIS, CONTROLLER_APIS):
        assert connect(wired, apis).call(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0


@cache
def bodies_of(pair: Pair) -> list[bytes]:
    """Returns recorded bodies or, if there are none, the request with its defaults."""
    found = frames.recorded().get(pair)
    if found:
        return found
    key, version = pair
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="c")
    body = codec.encode(header, request_header_version(key, version))
    codec.encode_into(request_class(key)(), version, body)
    return [bytes(body)]


MUTATED = given(
    pair=st.sampled_from(SERVED_BY_CONTROLLER),
    choice=st.integers(0, 5),
    mutations=st.lists(MUTATION, min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 1 << 12), max_size=3),
)


def mutated_at_the_controller(
    pair: Pair, choice: int, mutations: Sequence[tuple[str, int, int, int]], cuts: Sequence[int]
) -> None:
    wired = new_broker()
    client = connect(wired, CONTROLLER_APIS)
    bodies = bodies_of(pair)
    send(client, framed(mutate(bodies[choice % len(bodies)], mutations)), cuts)
    wired.host.time.run_for(5_000)
    client.core.closed()
    check_goes_on(wired)


test_mutated_frames_at_the_controller = QUICK(MUTATED(mutated_at_the_controller))
test_many_mutated_frames_at_the_controller = for_long(MUTATED(mutated_at_the_controller))


def extreme(apis: Mapping[int, Offer], pair: Pair, data: st.DataObject) -> None:
    wired = new_broker()
    client = connect(wired, apis)
    cls = request_class(pair[0])
    ids = [topic.topic_id for topic in wired.broker.metadata.image.topics()]
    client.send(Maker(data, pair[1], ids, is_extreme=True).struct(cls, cls), pair[1])
    wired.host.time.run_for(40_000)
    answers = client.received()  # checks that the answers can be decoded
    assert len(answers) <= 1
    client.core.closed()
    check_goes_on(wired)


BY_BROKERS = given(apis=st.just(BROKER_APIS), pair=st.sampled_from(PAIRS), data=st.data())
BY_CONTROLLERS = given(apis=st.just(CONTROLLER_APIS), pair=st.sampled_from(SERVED_BY_CONTROLLER), data=st.data())
test_extreme_requests = QUICK(BY_BROKERS(extreme))
test_many_extreme_requests = for_long(BY_BROKERS(extreme))
test_extreme_requests_at_the_controller = QUICK(BY_CONTROLLERS(extreme))
test_many_extreme_requests_at_the_controller = for_long(BY_CONTROLLERS(extreme))
