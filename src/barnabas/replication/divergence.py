"""Where two histories part, by leader epochs (KIP-101, KIP-279, KIP-595)."""

from __future__ import annotations

from barnabas.storage.log import Log


def common_end(log: Log, leader_epoch: int, end_offset: int) -> int:
    """Up to where `log` is surely the same as the leader's, which has `leader_epoch` up to `end_offset` as the last
    epoch at or below our last one. The next fetch tells whether that was far enough; -1 for an epoch that the leader
    does not know."""
    target = min(end_offset, log.log_end_offset)
    if leader_epoch >= 0 and end_offset >= 0:
        own_epoch, own_end = log.end_offset_for_epoch(leader_epoch)
        if own_epoch == leader_epoch:
            target = min(own_end, target)
        elif own_epoch >= 0:
            target = min(own_end, log.log_end_offset)
    return max(target, 0)
