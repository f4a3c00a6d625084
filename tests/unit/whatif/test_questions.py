"""The parser of questions."""

from __future__ import annotations

import pytest

from barnabas.whatif.questions import BadQuestion, parse_question


@pytest.mark.parametrize(
    "text",
    [
        "kill 1 2",
        "rack b",
        "disk 2:/data/a 3:C:/x",
        "restart 2",
        "drain 2 3",
        "min-isr orders=3 a=b=1",
        "restart-all",
    ],
)
def test_a_question_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_question(text.split())) == text


def test_an_object_that_is_named_twice_counts_once() -> None:
    assert str(parse_question(["kill", "2", "2"])) == "kill 2"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing is not a question"),
        ("destroy 1", "destroy is not a question; the questions are kill, rack"),
        ("kill", "kill needs the ids of brokers"),
        ("kill x", "x is not a broker id"),
        ("kill -1", "-1 is not a broker id"),
        ("kill ²", "² is not a broker id"),
        ("disk 2", "2 is not a log directory; write BROKER:PATH"),
        ("disk 2:", "2: is not a log directory"),
        ("min-isr orders", "orders is not a min ISR; write TOPIC=N"),
        ("min-isr orders=0", "orders=0 is not a min ISR"),
        ("restart-all 1", "restart-all takes no brokers"),
    ],
)
def test_an_invalid_question_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadQuestion, match=reason):
        parse_question(text.split())
