"""Many tabs of one browser: which streams keep a connection, and how the others take turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.console_server import RunningConsole

from barnabas.console.live_screens import Message, OverviewScreen
from barnabas.console.streams import KEPT_MAX, STREAMS_MAX
from barnabas.testing.phantom import PhantomCluster

Messages = list[tuple[str, str, Any]]


@pytest.fixture
def full(console: RunningConsole) -> Iterator[ExitStack]:
    """Provides as many streams of one browser as keep a connection."""
    console.session()
    with ExitStack() as streams:
        for number in range(KEPT_MAX):
            assert next(streams.enter_context(console.live("topic", name=f"topic-0000{number}")))[1] == "hello"
        console.until(lambda: _open(console) == KEPT_MAX, "the streams are open")
        yield streams


def _open(console: RunningConsole) -> int:
    assert console.console is not None
    return console.console.streams.open


def _turn(console: RunningConsole, screen: str, turn: str = "", **parameters: Any) -> Messages:
    """Returns all messages of a stream that ends by itself."""
    with console.live(screen, turn=turn, **parameters) as messages:
        found = list(messages)
    assert found[-1][1] == "turn"
    return found


def _isrs(messages: Messages) -> list[list[int]]:
    return [row["isr"] for _, event, data in messages if event == "data" for row in data["data"]["partitions"]]


def test_a_stream_without_a_connection_continues_at_its_next_turn(
    console: RunningConsole, phantom: PhantomCluster, full: ExitStack
) -> None:
    first = _turn(console, "topic", name="topic-00007")
    assert [event for _, event, _ in first] == ["hello", "data", "status", "turn"]
    second = _turn(console, "topic", first[-1][2]["turn"], name="topic-00007")
    assert [event for _, event, _ in second] == ["turn"], "nothing has changed"
    phantom.change(lambda state: state.shrink_isr("topic-00007", 2, 3))
    seen = second

    def is_seen() -> bool:
        nonlocal seen
        seen = _turn(console, "topic", seen[-1][2]["turn"], name="topic-00007")
        return any(3 not in isr for isr in _isrs(seen))

    console.until(is_seen, "the change is not sent")
    assert _open(console) == KEPT_MAX
    full.close()
    console.until(lambda: _open(console) == 0, "the streams are closed")
    with console.live("topic", turn=seen[-1][2]["turn"], name="topic-00007") as messages:
        phantom.change(lambda state: state.expand_isr("topic-00007", 2, 3))
        assert any(_isrs([each]) and all(3 in isr for isr in _isrs([each])) for each in messages)
        assert _open(console) == 1, "it keeps a connection now"


def test_a_turn_is_taken_once_and_by_its_browser(console: RunningConsole, full: ExitStack) -> None:
    turn = _turn(console, "overview")[-1][2]["turn"]
    cookie, console.cookie = console.cookie, ""
    with console.live("overview", turn=turn) as messages:
        assert next(messages)[1] == "hello", "another browser begins"
    console.cookie = cookie
    assert _turn(console, "overview", turn)[0][1] == "turn"
    assert _turn(console, "overview", turn)[0][1] == "hello"


def test_the_sizes_that_a_screen_shows_are_asked_for_between_its_turns_and_not_after_the_last(
    console: RunningConsole, full: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert console.console is not None
    watched = next(iter(console.console.screens.values())).watched
    row = watched.table.row_of("topic-00009", 1)
    monkeypatch.setattr("barnabas.console.streams._WAIT_S", 0.5)
    _turn(console, "topic", name="topic-00009")
    assert row in watched.focused()
    console.until(lambda: row not in watched.focused(), "it is still asked for", within_s=5)


def test_a_tail_gets_a_connection_and_a_stream_takes_turns_for_it(console: RunningConsole) -> None:
    session = console.session()
    assert session["token"]
    assert console.console is not None
    streams = console.console.streams
    with ExitStack() as stack:
        opened = [stack.enter_context(console.live("overview")) for _ in range(KEPT_MAX)]
        for messages in opened:
            assert next(messages)[1] == "hello"
        console.until(lambda: _open(console) == KEPT_MAX, "the streams are open")
        (mine,) = [each for each in console.console.sessions._sessions.values() if each.token == session["token"]]
        on_loop = console._loop.call_soon_threadsafe
        on_loop(lambda: streams.connect_always(mine.token))
        assert [event for _, event, _ in opened[0]][-1] == "turn", "the oldest one ends"
        console.until(lambda: _open(console) == KEPT_MAX, "one has ended")
        for _ in range(KEPT_MAX):
            on_loop(lambda: streams.connect_always(mine.token))
        console.until(lambda: _open(console) == KEPT_MAX + 1, "tails remain, whatever their number")


def test_a_page_that_lacks_the_last_event_gets_it(console: RunningConsole, phantom: PhantomCluster) -> None:
    before = console.ask("overview").json
    phantom.change(lambda state: state.elect("topic-00004", 1, 3))
    console.until(lambda: "topic-00004-1" in str(console.get("overview")["changes"]), "the event is there")
    present = console.ask("overview").json
    boot, version, event = present["boot"], present["version"], present["event"]
    assert event > before["event"]
    with console.live("overview", after=f"{boot}.{version}.{event - 1}") as messages:
        assert [next(messages)[1] for _ in range(2)] == ["hello", "data"]


def test_there_is_a_limit_of_all_streams(
    console: RunningConsole, full: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.console.streams.STREAMS_MAX", KEPT_MAX + 1)
    assert STREAMS_MAX > KEPT_MAX + 1
    turn = _turn(console, "overview")[-1][2]["turn"]
    assert console.ask("live", screen="overview").code == "rate"
    assert _turn(console, "overview", turn)[-1][1] == "turn", "one that takes turns has its place"


def test_one_browser_leaves_room_for_others(
    console: RunningConsole, full: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.console.streams.BROWSER_MAX", KEPT_MAX + 1)
    turn = _turn(console, "overview")[-1][2]["turn"]
    answer = console.ask("live", screen="overview")
    assert (answer.code, answer.json["error"]["text"]) == (
        "rate",
        f"this browser already has {KEPT_MAX + 1} live pages",
    )
    assert _turn(console, "overview", turn)[-1][1] == "turn", "one that takes turns has its place"
    console.cookie = ""
    console.session()
    with console.live("overview") as messages:
        assert next(messages)[1] == "hello", "another browser has room"


def test_one_stream_with_a_connection_tells_the_others_of_its_browser_of_a_change(
    console: RunningConsole, phantom: PhantomCluster
) -> None:
    console.session()
    with ExitStack() as stack:
        first, *rest = [stack.enter_context(console.live("overview")) for _ in range(KEPT_MAX)]
        for messages in (first, *rest):
            assert next(messages)[1] == "hello"
        console.until(lambda: _open(console) == KEPT_MAX, "the streams are open")
        phantom.change(lambda state: state.shrink_isr("topic-00007", 2, 3))
        for messages in (first, *rest):
            assert "others" not in _until_data(messages, in_sync=False), "there are none"
        turn = _turn(console, "overview")[-1][2]
        assert (turn["pause_ms"], turn["cluster"]) == (1_000, "phantom")
        phantom.change(lambda state: state.expand_isr("topic-00007", 2, 3))
        told = [_until_data(messages, in_sync=True) for messages in (first, *rest)]
        assert told[0][-2:] == ["others", "data"], "before its own data"
        assert not any("others" in each for each in told[1:])
        token = turn["turn"]
        found = _turn(console, "overview", token)
        assert "data" in [event for _, event, _ in found], "what was told is there"


def _until_data(messages: Any, *, in_sync: bool) -> list[str]:
    """Reads a stream of the overview until it shows whether all replicas are in sync. Returns the names of messages."""
    found = []
    for _, event, data in messages:
        found.append(event)
        if event == "data" and (data["data"]["severity"] == "ok") is in_sync:
            return found
    raise AssertionError("the stream ended")


def test_a_stream_that_nobody_tells_asks_sooner(console: RunningConsole) -> None:
    session = console.session()
    assert console.console is not None
    streams = console.console.streams
    (mine,) = [each for each in console.console.sessions._sessions.values() if each.token == session["token"]]
    for _ in range(KEPT_MAX):
        console._loop.call_soon_threadsafe(lambda: streams.connect_always(mine.token))
    console.until(lambda: _open(console) == KEPT_MAX, "the tails are open")
    assert _turn(console, "overview")[-1][2]["pause_ms"] == 250


def test_a_change_during_a_turn_is_asked_for_soon(
    console: RunningConsole, full: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert console.console is not None
    watched = console.console.screens["phantom"].watched
    before = OverviewScreen.news

    def news(screen: OverviewScreen) -> list[Message]:
        found = before(screen)
        watched.wake()
        return found

    assert _turn(console, "overview")[-1][2]["pause_ms"] == 1_000
    monkeypatch.setattr(OverviewScreen, "news", news)
    assert _turn(console, "overview")[-1][2]["pause_ms"] == 50
