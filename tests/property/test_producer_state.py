"""Producer state against a log that keeps everything: the same verdicts, and the same state after every restart."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import RecordsRejected
from barnabas.common.types import TopicPartition
from barnabas.records.batch import BatchHeader, EndTxnMarker
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.producer_snapshots import encode_snapshot
from barnabas.storage.producers import ProducerStateManager

NOW_MS = 1_800_000_000_000
PARTITION = TopicPartition("t", 0)

#: Few producers, epochs and sequences, so that they meet often.
sends = st.tuples(st.just("send"), st.integers(0, 1), st.integers(0, 2), st.integers(0, 4), st.integers(1, 2))
marks = st.tuples(st.just("mark"), st.integers(0, 1), st.integers(0, 2), st.booleans(), st.just(0))
others = st.sampled_from([("snapshot", 0, 0, 0, 0), ("restart", 0, 0, 0, 0), ("replicate", 0, 0, 0, 0)])


class World:
    """The log as the list of its batches; the model of each verdict is read off that list."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_dirs("/log")
        self.state = ProducerStateManager(self.disk, "/log", PARTITION)
        self.log: list[tuple[BatchHeader, EndTxnMarker | None]] = []
        self.end = 0
        self.high_watermark = 0

    def of(self, producer_id: int) -> list[tuple[BatchHeader, EndTxnMarker | None]]:
        return [entry for entry in self.log if entry[0].producer_id == producer_id]

    def expected(self, header: BatchHeader) -> int | str | None:
        """Returns the model's verdict. None: accepted. An offset: a duplicate of the batch there. A text: refused."""
        mine = self.of(header.producer_id)
        if not mine:
            return None
        epoch = mine[-1][0].producer_epoch
        run = []
        for past, marker in reversed(mine):
            if past.producer_epoch != epoch:
                break
            if marker is None:
                run.append(past)
        if header.producer_epoch == epoch:
            for past in run[:5]:
                if (past.base_sequence, past.record_count) == (header.base_sequence, header.record_count):
                    return past.base_offset
            in_order = header.base_sequence == (run[0].last_sequence + 1 if run else 0)
            return None if in_order else "sequence"
        if header.producer_epoch < epoch:
            return "epoch"
        return None if header.base_sequence == 0 else "sequence"

    def open_transactions(self) -> list[int]:
        open_at: dict[int, int] = {}
        for header, marker in self.log:
            if marker is None:
                open_at.setdefault(header.producer_id, header.base_offset)
            else:
                open_at.pop(header.producer_id, None)
        return sorted(open_at.values())

    def send(self, producer_id: int, epoch: int, sequence: int, count: int) -> None:
        header = BatchHeader(0, 100, 0, 2, 0, 0x10, count - 1, NOW_MS, NOW_MS, producer_id, epoch, sequence, count)
        expected = self.expected(header)
        try:
            repeated = self.state.check(header)
        except RecordsRejected:
            assert isinstance(expected, str)
            return
        assert expected == (None if repeated is None else repeated.first_offset)
        if repeated is None:
            self.append(header._replace(base_offset=self.end), None)

    def mark(self, producer_id: int, epoch: int, commit: bool) -> None:
        header = BatchHeader(self.end, 66, 0, 2, 0, 0x30, 0, NOW_MS, NOW_MS, producer_id, epoch, -1, 1)
        mine = self.of(producer_id)
        try:
            self.state.check_marker(header, EndTxnMarker(commit, 0))
        except RecordsRejected:
            assert mine
            assert epoch < mine[-1][0].producer_epoch
            return
        self.append(header, EndTxnMarker(commit, 0))

    def append(self, header: BatchHeader, marker: EndTxnMarker | None) -> None:
        self.log.append((header, marker))
        self.end = header.next_offset
        self.replay(self.state, header, marker)

    @staticmethod
    def replay(state: ProducerStateManager, header: BatchHeader, marker: EndTxnMarker | None) -> None:
        if marker is None:
            state.update(header)
        else:
            state.apply_marker(header, marker, NOW_MS)
        state.map_end_offset = header.next_offset

    def restart(self) -> None:
        """Reloads the newest snapshot and the later part of the log: the same producers as before."""
        fresh = ProducerStateManager(self.disk, "/log", PARTITION)
        fresh.reload(0, self.end, NOW_MS)
        for header, marker in self.log:
            if header.base_offset >= fresh.map_end_offset:
                self.replay(fresh, header, marker)
        old = self.state.producers
        assert fresh.producers.keys() == old.keys()
        for key, entry in fresh.producers.items():
            assert encode_snapshot([entry]) == encode_snapshot([old[key]])
        assert fresh.first_undecided_offset == self.state.first_undecided_offset


@settings(max_examples=200)
@given(st.lists(sends | sends | marks | others, max_size=40))
def test_verdicts_and_restarts(steps: list[tuple[str, int, int, int, int]]) -> None:
    world = World()
    for kind, producer_id, epoch, argument, count in steps:
        match kind:
            case "send":
                world.send(producer_id, epoch, argument, count)
            case "mark":
                world.mark(producer_id, epoch, bool(argument))
            case "snapshot":
                world.state.take_snapshot()
            case "restart":
                world.restart()
            case "replicate":
                world.high_watermark = world.end
                world.state.on_high_watermark(world.end)
        undecided = world.open_transactions()
        assert world.state.first_undecided_offset == (undecided[0] if undecided else None)
        unstable = world.state.first_unstable_offset
        assert unstable is None or unstable <= (undecided[0] if undecided else world.end)
        if world.high_watermark == world.end:
            assert unstable == world.state.first_undecided_offset
