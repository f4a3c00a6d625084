"""Fetch across partitions: reading what is asked for.

One read serves clients and followers alike; they differ in how far they may see (`Isolation`). A fetch that finds less
than its `min_bytes` waits (`delayed_fetch`), counts what its partitions gain, and reads again when it has enough.

What memory has not got keeps its share of the limits and is loaded beside the loop, one partition of a fetch after the
other (`ColdFetch`); what was read before stays as it was read. A loaded partition goes through the same checks as if it
was asked for only now: leadership, epoch, divergence and the log's ends may have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.common.errors import ErrorCode, RecordsRejected, RequestFailed, StorageFault
from barnabas.replication.cold_reads import Waiting
from barnabas.replication.fetch_items import NO_REPLICA, FetchItem, FetchPlan, FetchResult
from barnabas.replication.manager import ReplicaManager
from barnabas.replication.partition import Isolation, Partition, Role
from barnabas.storage.cold_read import ColdRead


class FetchRound:
    """The results of reading all items once."""

    __slots__ = ("answer_now", "cold", "items", "plan", "remaining_bytes", "results", "size_bytes", "some_may_come")

    def __init__(self, items: Sequence[FetchItem], plan: FetchPlan) -> None:
        self.items = items
        self.plan = plan
        #: How much of what the plan allows is left.
        self.remaining_bytes = plan.max_bytes
        self.results: list[FetchResult] = []
        #: What is to be loaded before this is an answer.
        self.cold: list[ColdItem] = []
        self.size_bytes = 0
        #: An error or a divergence, which must not wait for data, more data behind what was read, and the like.
        self.answer_now = False
        #: Whether there is a partition to wait for. One that does not exist is no reason to wait, nor to hurry: who
        #: goes on asking for it does so at the pace of the others.
        self.some_may_come = False


#: So often a partition is read anew because the log was cut or compacted while it was loaded.
_ATTEMPTS_MAX = 5
_UNKNOWN_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_LEADER_HINT_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def read_more(replicas: ReplicaManager, items: Sequence[FetchItem], outcome: FetchRound) -> None:
    """Reads the next items of the round within its limits; the first batch found may exceed them, so that a reader
    always gets on, if the plan does not forbid it."""
    plan, remaining = outcome.plan, outcome.remaining_bytes
    for item in items:
        nothing_found = plan.min_one_batch and outcome.size_bytes == 0 and not outcome.cold
        result = _read_one(replicas, item, plan, remaining, nothing_found)
        if isinstance(result, ColdRead):
            remaining -= _take_cold(outcome, item, result, remaining, nothing_found)
        else:
            outcome.results.append(result)
            remaining = max(0, remaining - len(result.data))
            _count(outcome, result)
    outcome.remaining_bytes = remaining


def _count(outcome: FetchRound, result: FetchResult) -> None:
    outcome.size_bytes += len(result.data)
    if result.error not in _UNKNOWN_ERRORS:
        outcome.some_may_come = True
        if result.error is not ErrorCode.NONE or result.diverging is not None or result.is_urgent:
            outcome.answer_now = True


class ColdItem:
    """A partition of a round that is being loaded."""

    __slots__ = ("attempts", "budget", "item", "min_one_batch", "offset", "place", "read")

    def __init__(self, place: int, item: FetchItem, read: ColdRead, budget: int, min_one_batch: bool) -> None:
        #: In the round's results.
        self.place = place
        self.item = item
        self.read = read
        self.budget = budget
        self.min_one_batch = min_one_batch
        self.offset = item.offset
        self.attempts = 1


def _take_cold(outcome: FetchRound, item: FetchItem, read: ColdRead, remaining: int, min_one_batch: bool) -> int:
    """Keep its place and its share, whose size is returned."""
    budget = min(item.max_bytes, remaining)
    outcome.cold.append(ColdItem(len(outcome.results), item, read, budget, min_one_batch))
    outcome.results.append(FetchResult())
    return min(budget, read.size_bytes_max)


class ColdFetch:
    """Loads what a round lacks, one partition after the other. `on_loaded` is called, in events of their own, whenever
    there is something for `take`, or with what nobody expected to go wrong."""

    __slots__ = ("_on_loaded", "_outcome", "_plan", "_replicas", "_waiting")

    def __init__(
        self,
        replicas: ReplicaManager,
        plan: FetchPlan,
        outcome: FetchRound,
        on_loaded: Callable[[BaseException | None], None],
    ) -> None:
        self._replicas = replicas
        self._plan = plan
        self._outcome = outcome
        self._on_loaded = on_loaded
        self._waiting: Waiting | None = None

    def load(self) -> None:
        """The first that is still lacking."""
        self._waiting = self._replicas.cold_reads.load(self._outcome.cold[0].read, self._on_loaded)

    def cancel(self) -> None:
        """Nobody waits for it any more. What runs is thrown away when it is there."""
        if self._waiting is not None:
            self._waiting.cancel()

    def take(self) -> bool:
        """Put what was loaded into the results; True when nothing is lacking any more, else the next one is loaded."""
        cold = self._outcome.cold
        if not self._take(cold[0]):
            del cold[0]
        if cold:
            self.load()
        return not cold

    def _take(self, cold: ColdItem) -> bool:
        """Put it into the results; True if it is to be loaded again, because the log has changed meanwhile."""
        item, outcome = cold.item, self._outcome
        if item.offset != cold.offset:
            return False  # its session was used again: this answer will say so
        result = _read_one(self._replicas, item, self._plan, cold.budget, cold.min_one_batch, cold.read)
        if isinstance(result, ColdRead):
            if cold.attempts == _ATTEMPTS_MAX:
                # It changes faster than it can be read. The reader will ask again.
                result = FetchResult(ErrorCode.OFFSET_NOT_AVAILABLE)
            else:
                cold.attempts += 1
                cold.read = result
                return True
        partition = item.partition
        if partition is not None and partition.readable_end(self._plan.isolation) > cold.read.wanted.up_to:
            outcome.answer_now = True  # more has come, of which nobody would tell it any more
        outcome.results[cold.place] = result
        _count(outcome, result)
        return False


def _read_one(
    replicas: ReplicaManager,
    item: FetchItem,
    plan: FetchPlan,
    remaining: int,
    min_one_batch: bool,
    loaded: ColdRead | None = None,
) -> FetchResult | ColdRead:
    """What one partition answers, or what is to be loaded for it. `loaded` is what was, when it was asked before."""
    result = FetchResult()
    if item.topic is None:
        result.error = ErrorCode.UNKNOWN_TOPIC_ID
        result.aborted = ()
        return result
    try:
        partition = replicas.leader(item.topic, item.index, or_follower=plan.any_replica)
        cold = _read_into(replicas, result, partition, item, plan, remaining, min_one_batch, loaded)
        if cold is not None:
            return cold
    except RequestFailed as failure:
        result.error = failure.code
        item.partition = None
        if failure.code in _LEADER_HINT_ERRORS:
            result.leader = replicas.leader_hint(item.topic, item.index)
        elif failure.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            result.aborted = ()  # Kafka answers this before it looks at a replica, with the schema's default
    except RecordsRejected as rejected:
        # A batch that is not whole, or no batch: a reader that got its bytes would ask for the rest for ever.
        result.error = rejected.code
        item.partition = None
    except StorageFault as fault:
        replicas.on_storage_fault(fault)
        result.error = ErrorCode.KAFKA_STORAGE_ERROR
        item.partition = None
    return result


def _read_into(
    replicas: ReplicaManager,
    result: FetchResult,
    partition: Partition,
    item: FetchItem,
    plan: FetchPlan,
    remaining: int,
    min_one_batch: bool,
    loaded: ColdRead | None,
) -> ColdRead | None:
    _check(partition, item, plan)
    item.partition = partition
    log = partition.log
    item.is_throttled = False
    if plan.rack:
        result.preferred = replicas.surroundings.preferred(partition, item.offset, plan.rack, plan.listener)
    if result.preferred == NO_REPLICA:
        if item.last_fetched_epoch >= 0:
            result.diverging = _divergence(partition, item)
        if plan.replica_id >= 0:
            if loaded is None and result.diverging is None:
                _note_follower(partition, item, plan)
            item.is_throttled = loaded is None and replicas.quotas.holds_back(partition, plan.replica_id)
            behind = item.answered_high_watermark < partition.high_watermark
            result.is_urgent = behind and replicas.surroundings.tells_high_watermark
        if result.diverging is None and not item.is_throttled and (remaining > 0 or min_one_batch):
            budget = min(item.max_bytes, remaining)
            read = None if loaded is None else log.take(loaded)
            if read is None:
                read = partition.read(item.offset, budget, plan.isolation, min_one_batch=min_one_batch)
            if isinstance(read, ColdRead):
                return read
            if read is not None:
                result.data = read.data
                if len(read.data) > 0 and read.segment is not log.segments.active:
                    result.is_urgent = True
                if plan.isolation is Isolation.READ_COMMITTED:
                    result.aborted = read.aborted
        elif item.offset < log.log_start_offset or (item.offset > log.log_end_offset and result.diverging is None):
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
    else:
        result.is_urgent = True
    if plan.isolation is Isolation.READ_COMMITTED and result.aborted is None and result.diverging is None:
        result.aborted = ()
    result.high_watermark = partition.high_watermark
    result.last_stable_offset = partition.last_stable_offset
    result.log_start_offset = log.log_start_offset
    return None


def _check(partition: Partition, item: FetchItem, plan: FetchPlan) -> None:
    """RequestFailed for who has another topic, epoch or assignment in mind."""
    if item.topic_id and item.topic_id != partition.topic_id:
        raise RequestFailed(ErrorCode.INCONSISTENT_TOPIC_ID)
    code = partition.check_epoch(item.current_leader_epoch)
    if code is not ErrorCode.NONE:
        raise RequestFailed(code)
    if plan.replica_id >= 0 and (partition.leadership is None or plan.replica_id not in partition.leadership.followers):
        # With our epoch, it may know of an assignment that we have yet to hear of.
        knows_epoch = item.current_leader_epoch >= 0
        raise RequestFailed(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.role is Role.FOLLOWER and item.offset > partition.log.log_end_offset:
        # Its leader may have it: a reader that was told that it is out of range would begin anew somewhere (KIP-392).
        raise RequestFailed(ErrorCode.OFFSET_NOT_AVAILABLE)


def _divergence(partition: Partition, item: FetchItem) -> tuple[int, int] | None:
    """(epoch, end offset) where the reader's history, of which it named the last epoch, parted from ours."""
    epoch, end_offset = partition.log.end_offset_for_epoch(item.last_fetched_epoch)
    if end_offset < 0:
        raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
    is_other = epoch < item.last_fetched_epoch or end_offset < item.offset
    return (epoch, end_offset) if is_other else None


def _note_follower(partition: Partition, item: FetchItem, plan: FetchPlan) -> None:
    """Before it is read, so that the answer already says how far its own progress moved the HW."""
    log = partition.log
    if not plan.is_first_look or not log.log_start_offset <= item.offset <= log.log_end_offset:
        return
    replica_id, epoch = plan.replica_id, plan.reader.replica_epoch
    if not partition.on_follower_fetch(replica_id, epoch, item.offset, item.log_start_offset):
        raise RequestFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
