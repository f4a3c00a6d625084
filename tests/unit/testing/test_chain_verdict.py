"""The verdict on chains finds the faults that it is for, over the histories of several processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.chain_survival import judge_chain, merge


class Story:
    """Lines of a history, one file per process, in the order of their times."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._time = 0
        self._paths: list[Path] = []

    def note(self, process: str, type_: str, f: str, **fields: Any) -> None:
        self._time += 1
        path = self._directory / f"{process}.jsonl"
        if path not in self._paths:
            # The order of the files differs from that of the times.
            self._paths.insert(0, path)
        line = {"time": self._time, "process": process, "type": type_, "f": f, **fields}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def carry(self, link: str, value: str, offset: int) -> None:
        """Writes one transaction with one record; the test chooses its end."""
        self.note(link, "ok", "begin")
        sent = {"topic": "output", "partition": 0, "value": f"{value}@{link}:{offset}"}
        self.note(link, "invoke", "send", **sent)
        self.note(link, "ok", "send", **sent, offset=offset)

    def commit(self, link: str) -> None:
        self.note(link, "invoke", "commit")
        self.note(link, "ok", "commit")

    def drained(self, *values: tuple[int, str]) -> None:
        self.note("drain", "ok", "poll", records={"output-0": [list(each) for each in values]})
        self.note("drain", "ok", "drained", partitions=["output-0"])

    def judge(self, *written: str) -> None:
        judge_chain(merge(self._paths), written, "drain")


def test_an_attempt_that_was_killed_and_one_that_came_through_are_right(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.carry("one", "a", 0)
    story.carry("two", "a", 2)
    story.commit("two")
    story.drained((2, "a@two:2"))
    story.judge("a")


def test_a_record_that_came_through_twice_is_found(tmp_path: Path) -> None:
    story = Story(tmp_path)
    for link, offset in (("one", 0), ("two", 2)):
        story.carry(link, "a", offset)
        story.commit(link)
    story.drained((0, "a@one:0"), (2, "a@two:2"))
    with pytest.raises(AssertionError, match="too often"):
        story.judge("a")


def test_a_record_that_did_not_come_through_is_found(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.carry("one", "a", 0)
    story.commit("one")
    story.drained((0, "a@one:0"))
    with pytest.raises(AssertionError, match="missing"):
        story.judge("a", "b")


def test_a_record_of_a_transaction_that_nobody_committed_is_found(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.carry("one", "a", 0)
    story.drained((0, "a@one:0"))
    with pytest.raises(AssertionError, match="precommitted-read"):
        story.judge("a")


def test_a_committed_record_that_is_gone_is_found(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.carry("one", "a", 0)
    story.commit("one")
    story.carry("one", "b", 2)
    story.commit("one")
    story.drained((2, "b@one:2"))
    with pytest.raises(AssertionError, match="lost-write"):
        story.judge("a", "b")


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"time": 2}\n{"time": 1}\n{"time": 3')
    assert [json.loads(line)["time"] for line in merge([path, tmp_path / "none.jsonl"])] == [1, 2]
