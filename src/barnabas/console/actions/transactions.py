"""The action that ends a hanging transaction by an abort marker, in the one partition where it hangs."""

from __future__ import annotations

from typing import Any, Final

from barnabas.console.actions.inputs import Inputs
from barnabas.console.actions.outcome import outcome, plan
from barnabas.console.actions.requests import ask_broker
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

_INT32: Final = (1 << 31) - 1
_INT64: Final = (1 << 63) - 1


async def abort_transaction(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Aborts the transaction that a producer has open in a partition, through the partition's leader."""
    topic, partition = inputs.text("topic"), inputs.number("partition", least=0, most=_INT32)
    producer_id = inputs.number("producer_id", least=0, most=_INT64)
    row = cluster.table.row_of(topic, partition)
    if row is None:
        raise Problem("not-found", f"there is no partition {topic}-{partition}")
    leader = int(cluster.table.states.leader[row])
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
    try:
        answer = await cluster.questions.of(
            leader, DescribeProducersRequest(topics=[wanted]), DescribeProducersResponse
        )
    except NoAnswer as error:
        raise Problem("unreachable", f"the leader of {topic}-{partition} does not answer: {error}") from error
    producers = [one for each in answer.topics for part in each.partitions for one in part.active_producers]
    producer = next((one for one in producers if one.producer_id == producer_id), None)
    if producer is None or producer.current_txn_start_offset < 0:
        raise Problem("refused", f"producer {producer_id} has no open transaction in {topic}-{partition}")
    begin = producer.current_txn_start_offset
    what = f"transaction of producer {producer_id} in {topic}-{partition} from offset {begin} on"
    if inputs.is_dry_run:
        lost = "if its producer still works, its records in this partition are lost for readers of committed records"
        return plan([f"aborts the {what}"], [lost])
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        coordinator_epoch=max(producer.coordinator_epoch, 0),
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
    )
    written = await ask_broker(cluster, leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    results = [
        (f"{topic}-{part.partition_index}", part.error_code, None)
        for each in written.markers
        for of_topic in each.topics
        for part in of_topic.partitions
    ]
    return outcome(f"aborted the {what}", results)
