"""Reads of a fetch across its partitions.

Clients and followers use the same code; they differ in how far they may read (`Isolation`). A fetch that finds less
than its `min_bytes` waits (`delayed_fetch`), counts what its partitions gain, and reads again when that is enough.

Data that is not in memory keeps its share of the limits and is loaded in the background, one partition of a fetch after
the other (`ColdFetch`); the results of the other partitions stay as they are. A loaded partition passes the same checks
as one that is requested now, because leadership, epoch and the log's offsets may have changed in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.common.errors import ErrorCode, RecordsRejected, RequestFailed, StorageFault
from barnabas.replication.cold_reads import Waiting
from barnabas.replication.fetch_items import NO_REPLICA, FetchItem, FetchPlan, FetchResult
from barnabas.replication.partition import Isolation, Partition, Role
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.cold_read import ColdRead


class FetchRound:
    """A pass over all items of a fetch, with its results."""

    __slots__ = ("can_wait", "cold", "is_urgent", "items", "plan", "remaining_bytes", "results", "size_bytes")

    def __init__(self, items: Sequence[FetchItem], plan: FetchPlan) -> None:
        self.items = items
        self.plan = plan
        #: The rest of the plan's `max_bytes`.
        self.remaining_bytes = plan.max_bytes
        self.results: list[FetchResult] = []
        #: The partitions to be loaded before the response is complete.
        self.cold: list[ColdItem] = []
        self.size_bytes = 0
        #: Whether the response must not wait for data: it has an error or a divergence, or more data follows.
        self.is_urgent = False
        #: Whether waiting makes sense for some partition. A missing or forbidden partition is a reason neither to wait
        #: nor to respond immediately: clients that keep asking for it do so at the pace of the other partitions.
        self.can_wait = False


#: How often a partition is read again because its log was truncated or compacted while it was loaded.
_ATTEMPTS_MAX = 5
_UNKNOWN_ERRORS = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
_LEADER_HINT_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def read_more(replicas: ReplicaManager, items: Sequence[FetchItem], outcome: FetchRound) -> None:
    """Reads the next items of the round within its limits. Unless the plan forbids it, the first batch found can exceed
    them, so that every reader makes progress."""
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
        outcome.can_wait = True
        if result.error is not ErrorCode.NONE or result.diverging is not None or result.is_urgent:
            outcome.is_urgent = True


class ColdItem:
    """A partition of a round that is being loaded."""

    __slots__ = ("attempts", "budget", "item", "min_one_batch", "offset", "place", "read")

    def __init__(self, place: int, item: FetchItem, read: ColdRead, budget: int, min_one_batch: bool) -> None:
        #: Index in the round's results.
        self.place = place
        self.item = item
        self.read = read
        self.budget = budget
        self.min_one_batch = min_one_batch
        self.offset = item.offset
        self.attempts = 1


def _take_cold(outcome: FetchRound, item: FetchItem, read: ColdRead, remaining: int, min_one_batch: bool) -> int:
    """Reserves the item's place in the results and its share of the limit. Returns that share in bytes."""
    budget = min(item.max_bytes, remaining)
    outcome.cold.append(ColdItem(len(outcome.results), item, read, budget, min_one_batch))
    outcome.results.append(FetchResult())
    return min(budget, read.size_bytes_max)


class ColdFetch:
    """Loads the cold partitions of a round one after the other. `on_loaded` is called in a separate event, whenever
    `take` has something to do, or with an unexpected error."""

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
        """Starts to load the first partition that is still missing."""
        self._waiting = self._replicas.cold_reads.load(self._outcome.cold[0].read, self._on_loaded)

    def cancel(self) -> None:
        """Stops waiting; a read that runs is discarded when it ends."""
        if self._waiting is not None:
            self._waiting.cancel()

    def take(self) -> bool:
        """Puts the loaded partition into the results. Returns True if none is missing; else loads the next one."""
        cold = self._outcome.cold
        if not self._take(cold[0]):
            del cold[0]
        if cold:
            self.load()
        return not cold

    def _take(self, cold: ColdItem) -> bool:
        """Puts one partition into the results. Returns True if the log has changed meanwhile, so that it must be loaded
        again.
        """
        item, outcome = cold.item, self._outcome
        if item.offset != cold.offset:
            return False  # The session was used again, and this fetch is answered with an error.
        result = _read_one(self._replicas, item, self._plan, cold.budget, cold.min_one_batch, cold.read)
        if isinstance(result, ColdRead):
            if cold.attempts == _ATTEMPTS_MAX:
                # The log changes faster than it can be read: the reader retries.
                result = FetchResult(ErrorCode.OFFSET_NOT_AVAILABLE)
            else:
                cold.attempts += 1
                cold.read = result
                return True
        partition = item.partition
        if partition is not None and partition.readable_end(self._plan.isolation) > cold.read.wanted.up_to:
            outcome.is_urgent = True  # More data arrived while nothing watched the partition.
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
    """Returns the result of one partition, or the data that must be loaded for it. `loaded` is an earlier read of this
    partition that has completed.
    """
    result = FetchResult()
    if item.topic is None:
        result.error = ErrorCode.UNKNOWN_TOPIC_ID
        result.aborted = ()
        return result
    if item.is_denied:
        result.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.aborted = ()
        item.partition = None
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
            result.aborted = ()  # Kafka responds before it reads any replica, with the schema's default.
    except RecordsRejected as rejected:
        # The batch is damaged: a reader that got its bytes would ask for the rest forever.
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
        result.preferred = replicas.environment.preferred(partition, item.offset, plan.rack, plan.listener)
    if result.preferred == NO_REPLICA:
        if item.last_fetched_epoch >= 0:
            result.diverging = _divergence(partition, item)
        if plan.replica_id >= 0:
            if loaded is None and result.diverging is None:
                _note_follower(partition, item, plan)
            item.is_throttled = loaded is None and replicas.quotas.holds_back(partition, plan.replica_id)
            # Without a session the last response to the follower is unknown: it would never wait.
            behind = item.session is not None and item.answered_high_watermark < partition.high_watermark
            result.is_urgent = behind and replicas.environment.pushes_high_watermark
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
    """Raises RequestFailed if topic id, leader epoch or assignment differ from the request's."""
    if item.topic_id and item.topic_id != partition.topic_id:
        raise RequestFailed(ErrorCode.INCONSISTENT_TOPIC_ID)
    code = partition.check_epoch(item.current_leader_epoch)
    if code is not ErrorCode.NONE:
        raise RequestFailed(code)
    if plan.replica_id >= 0 and (partition.leadership is None or plan.replica_id not in partition.leadership.followers):
        # With the current epoch, the replica possibly knows an assignment that this broker does not have yet.
        knows_epoch = item.current_leader_epoch >= 0
        raise RequestFailed(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if item.offset > partition.log.log_end_offset:
        _check_range(partition, item, plan)


def _check_range(partition: Partition, item: FetchItem, plan: FetchPlan) -> None:
    """Raises RequestFailed if another replica possibly has the offset, which is above the LEO: OFFSET_OUT_OF_RANGE
    would make the consumer reset its position (KIP-392)."""
    if partition.role is Role.FOLLOWER:
        raise RequestFailed(ErrorCode.OFFSET_NOT_AVAILABLE)
    # A leader that is cut off from the controllers does not know its successor; nor does a consumer that got its
    # metadata from that leader. With a leader epoch the consumer would know, and `check_epoch` would have refused it.
    names_epoch = plan.replica_id >= 0 or item.current_leader_epoch >= 0
    if not names_epoch and not partition.is_followed:
        raise RequestFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _divergence(partition: Partition, item: FetchItem) -> tuple[int, int] | None:
    """Returns (epoch, end offset) where the reader's log, whose last epoch it sent, diverges from this one."""
    epoch, end_offset = partition.log.end_offset_for_epoch(item.last_fetched_epoch)
    if end_offset < 0:
        raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
    is_other = epoch < item.last_fetched_epoch or end_offset < item.offset
    return (epoch, end_offset) if is_other else None


def _note_follower(partition: Partition, item: FetchItem, plan: FetchPlan) -> None:
    """Records the follower's position before the read, so that the response contains the HW it advanced."""
    log = partition.log
    if not plan.is_first_read or not log.log_start_offset <= item.offset <= log.log_end_offset:
        return
    replica_id, epoch = plan.replica_id, plan.reader.replica_epoch
    if not partition.on_follower_fetch(replica_id, epoch, item.offset, item.log_start_offset):
        raise RequestFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
