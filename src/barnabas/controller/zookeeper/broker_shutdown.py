"""ControlledShutdown: the leaderships of a broker move to others before its session ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests.partitions import Located, find
from barnabas.controller.requests.result import Cause, ControllerEvent, Result
from barnabas.controller.zookeeper.active_controller import ActiveController
from barnabas.controller.zookeeper.core import Core, located
from barnabas.controller.zookeeper.new_partitions import has_state
from barnabas.controller.zookeeper.replica_changes import controlled_shutdown
from barnabas.controller.zookeeper.slices import Job, portions
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from barnabas.protocol.messages.records_metadata import BrokerRegistrationChangeRecord

_NO_EPOCH = -1


def shut_down(
    active: ActiveController,
    request: ControlledShutdownRequest,
    reply: Callable[[ControlledShutdownResponse], None],
) -> None:
    """Moves the leaderships that can be moved, and answers with the partitions that the broker still leads: it asks
    again, or stops nevertheless. If all other brokers shut down too, the answer names no partition, because nobody will
    lead them.
    """
    core, broker_id = active.core, request.broker_id

    def refused(code: ErrorCode) -> None:
        reply(ControlledShutdownResponse(error_code=code))

    broker = core.image.brokers.get(broker_id)
    if broker is None:
        refused(ErrorCode.BROKER_NOT_AVAILABLE)
        return
    if request.broker_epoch != _NO_EPOCH and request.broker_epoch < broker.epoch:
        refused(ErrorCode.STALE_BROKER_EPOCH)
        return
    cause = Cause(ControllerEvent.CONTROLLED_SHUTDOWN, f"broker {broker_id}")
    if not broker.in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
        )
        core.records.take([change], cause=cause)
    answer = active.answers.add(reply, refused)

    def written(_: frozenset[str]) -> None:
        core.slices.begin(_stop_followers(core, broker_id, lambda: answer.give(_remaining(core, broker_id))))

    # Clients wait for the partitions that the broker leads; those that it follows come after them.
    affected = sorted(
        find(core.view(), lambda each: broker_id in each.isr), key=lambda each: each[2].leader != broker_id
    )
    core.decide_in_slices(
        affected,
        lambda view, partitions: Result(controlled_shutdown(view, broker_id, partitions), None, cause),
        lambda: core.records.after_all(written),
    )


def _replicated_on(core: Core, broker_id: int, wanted: Callable[[PartitionImage], bool]) -> Iterator[Located]:
    """Yields the partitions with a replica on the broker and on others."""
    view = core.view()
    view.image = core.records.committed
    return find(view, lambda each: len(each.replicas) > 1 and broker_id in each.replicas and wanted(each))


def _stop_followers(core: Core, broker_id: int, done: Callable[[], None]) -> Job:
    """Stops the fetching of the broker's follower replicas, so that these do not join an ISR again."""
    followed = [*_replicated_on(core, broker_id, lambda each: each.leader != broker_id and has_state(each))]
    for number, portion in enumerate(portions(followed)):
        if number:
            yield
        places = [(topic.topic_id, index) for topic, index, _ in portion]
        batch = core.batch()
        for topic, index, partition in located(core.records.committed, places):
            if partition.leader != broker_id and broker_id in partition.replicas:
                batch.stop(broker_id, topic.name, index, partition.leader_epoch, delete=False)
        core.send(batch)
    done()


def _remaining(core: Core, broker_id: int) -> ControlledShutdownResponse:
    if all(broker.in_controlled_shutdown for broker in core.records.committed.brokers.values()):
        return ControlledShutdownResponse()
    led = _replicated_on(core, broker_id, lambda each: each.leader == broker_id)
    row = ControlledShutdownResponse.RemainingPartition
    return ControlledShutdownResponse(
        remaining_partitions=[row(topic_name=topic.name, partition_index=index) for topic, index, _ in led]
    )
