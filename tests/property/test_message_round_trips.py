"""All messages in all versions: encoded values decode to the same values, and malformed input raises only
DecodeError.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.message_values import Choices, MessageMaker

from barnabas.common.errors import DecodeError, EncodeError
from barnabas.protocol import codec
from barnabas.protocol.layout import ELEMENTS_MAX, Layout
from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.index import MESSAGES, load
from barnabas.protocol.messages.metadata import MetadataRequest

Variant = tuple[type[Message], int]
entropy = st.binary(max_size=300)
VARIED = bytes(range(256)) * 4


def variants_by_module() -> dict[str, list[Variant]]:
    """Returns all (message, version) pairs of each generated module."""
    found: dict[str, list[Variant]] = {}
    for module, name in MESSAGES:
        cls = load(module, name)
        found.setdefault(module, []).extend((cls, version) for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1))
    return found


each_module = pytest.mark.parametrize(
    "variants", [pytest.param(v, id=module) for module, v in variants_by_module().items()]
)


def structs(cls: type[Message]) -> list[type[Struct]]:
    nested = [each for each in vars(cls).values() if isinstance(each, type) and issubclass(each, Struct)]
    return [cls, *nested]


@each_module
@settings(max_examples=10, deadline=None, derandomize=True)
@given(data=entropy)
@example(data=b"")
@example(data=VARIED)
def test_every_version_decodes_what_it_encodes(variants: list[Variant], data: bytes) -> None:
    for cls, version in variants:
        message = MessageMaker(Choices(data)).make(cls, version)
        encoded = codec.encode(message, version)
        prefix = b"head"
        decoded, end = codec.decode(cls, version, memoryview(prefix + encoded + b"tail"), len(prefix))
        assert end == len(prefix) + len(encoded)
        assert decoded == message
        assert codec.encode(decoded, version) == encoded
        assert codec.decode(cls, version, bytes(encoded)) == (message, len(encoded))


def stepped(work: Generator[int, None, Any]) -> tuple[Any, int]:
    """Returns the result of the work, and the number of its steps."""
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, steps
        steps += 1


@each_module
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=entropy)
@example(data=VARIED)
def test_in_steps_comes_the_same(variants: list[Variant], data: bytes) -> None:
    for cls, version in variants:
        message = MessageMaker(Choices(data)).make(cls, version)
        encoded = codec.encode(message, version)
        out = bytearray()
        stepped(codec.encode_in_steps(message, version, out))
        assert out == encoded
        assert stepped(codec.decode_in_steps(cls, version, bytes(encoded)))[0] == (message, len(encoded))


def test_long_messages_take_many_steps() -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name=f"topic-{number}") for number in range(10_000)]
    message = MetadataRequest(topics=topics)
    assert codec.is_longer(message, 9_999)
    assert not codec.is_longer(message, 10_000)
    out = bytearray()
    assert stepped(codec.encode_in_steps(message, 12, out))[1] == 100
    (decoded, _), steps = stepped(codec.decode_in_steps(MetadataRequest, 12, bytes(out)))
    assert decoded == message
    assert steps == 100
    with pytest.raises(DecodeError):
        stepped(codec.decode_in_steps(MetadataRequest, 12, bytes(out[:-7])))


def test_few_long_texts_take_many_steps() -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="n" * 32_767) for _ in range(90)]
    out = bytearray()
    assert stepped(codec.encode_in_steps(MetadataRequest(topics=topics), 12, out))[1] == 11, "of eight names each"
    (decoded, _), steps = stepped(codec.decode_in_steps(MetadataRequest, 12, bytes(out)))
    assert decoded == MetadataRequest(topics=topics)
    assert steps == 11


def test_arrays_of_numbers_are_bounded_too() -> None:
    count = ELEMENTS_MAX + 1
    topic = b"\x00\x01t" + count.to_bytes(4, "big") + bytes(4 * count)
    with pytest.raises(DecodeError):
        codec.decode(DescribeLogDirsRequest, 1, (1).to_bytes(4, "big") + topic)


@each_module
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=entropy, cut=st.floats(0, 1, exclude_max=True))
def test_cut_off_input_is_refused(variants: list[Variant], data: bytes, cut: float) -> None:
    for cls, version in variants:
        encoded = bytes(codec.encode(MessageMaker(Choices(data)).make(cls, version), version))
        if encoded:
            with pytest.raises(DecodeError):
                codec.decode(cls, version, encoded[: int(len(encoded) * cut)])


@each_module
@settings(max_examples=5, deadline=None, derandomize=True)
@given(noise=st.binary(max_size=200), data=entropy, place=st.floats(0, 1), change=st.integers(1, 255))
def test_random_and_damaged_input_ends_in_a_message_or_a_decode_error(
    variants: list[Variant], noise: bytes, data: bytes, place: float, change: int
) -> None:
    for cls, version in variants:
        damaged = codec.encode(MessageMaker(Choices(data)).make(cls, version), version)
        if damaged:
            damaged[int(place * (len(damaged) - 1))] ^= change
        for attempt in (noise, bytes(damaged)):
            try:
                message, end = codec.decode(cls, version, attempt)
            except DecodeError:
                continue
            assert end <= len(attempt)
            # The decoded value can be encoded and decoded again.
            again = codec.encode(message, version)
            same, end = codec.decode(cls, version, again)
            assert (codec.encode(same, version), end) == (again, len(again))


HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x00\x00\x00", b"\x10\x00\x00\x00")


@pytest.mark.sampled(25)
@each_module
def test_huge_counts_are_refused_before_anything_is_allocated(variants: list[Variant]) -> None:
    for cls, version in variants:
        encoded = bytes(codec.encode(MessageMaker(Choices(VARIED)).make(cls, version), version))[:400]
        codec.decoder(cls, version)
        tracemalloc.start()
        for position in range(0, len(encoded), 1 + len(encoded) // 40):
            for huge in HUGE:
                damaged = encoded[:position] + huge + encoded[position + len(huge) :]
                with suppress(DecodeError):
                    codec.decode(cls, version, damaged)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000


@each_module
def test_every_array_element_takes_at_least_one_byte(variants: list[Variant]) -> None:
    for cls, version in variants:
        layout = Layout(cls, version)
        for struct in structs(cls):
            for field in layout.plain_fields(struct):
                if field.is_array and field.is_struct:
                    assert layout.size_min(layout.struct_class(field)) > 0, field.name


@each_module
def test_a_value_that_a_version_cannot_carry_is_refused_unless_it_may_be_dropped(variants: list[Variant]) -> None:
    for cls, version in variants:
        for field in cls.FIELDS:
            if field.is_in(version):
                continue
            set_apart = {field.attribute: other_than_default(cls, field.type, field.default)}
            message = cls(**set_apart)
            if field.ignorable:
                assert codec.encode(message, version) == codec.encode(cls(), version)
            else:
                with pytest.raises(EncodeError, match=field.name):
                    codec.encode(message, version)


def other_than_default(cls: type[Message], type_name: str, default: Any) -> Any:
    if type_name.startswith("[]"):
        return [other_than_default(cls, type_name[2:], ...)]
    if type_name[0].isupper():
        struct = getattr(cls, type_name)
        first = struct.FIELDS[0]
        return struct(**{first.attribute: other_than_default(cls, first.type, first.default)})
    candidates: dict[str, list[Any]] = {"string": ["a", "b"], "bytes": [b"a"], "records": [b"a"], "uuid": [b"u" * 16]}
    return next(value for value in candidates.get(type_name, [1, 2, 0]) if value != default)
