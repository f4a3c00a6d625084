"""The pause of a live stream between two messages: a broker that comes or goes ends it."""

from __future__ import annotations

import asyncio
import time

import pytest

from barnabas.console.live import _wait
from barnabas.console.watched import News


@pytest.mark.parametrize("is_urgent", [True, False])
def test_only_urgent_news_end_the_pause(is_urgent: bool) -> None:
    pause_s = 0.5

    async def main() -> float:
        news = News()
        news.set()
        if is_urgent:
            news.urgent.set()
        begin_s = time.monotonic()
        assert await _wait(news, asyncio.Event(), pause_s)
        assert not news.is_set()
        assert not news.urgent.is_set(), "the next pause is a whole one"
        return time.monotonic() - begin_s

    taken_s = asyncio.run(main())
    assert (taken_s < pause_s) == is_urgent
