"""The point where two logs diverge, by leader epochs (KIP-101, KIP-279, KIP-595). `Fetcher` truncates a follower's log
to this point.
"""

from __future__ import annotations

from barnabas.storage.log import Log


def common_end(log: Log, leader_epoch: int, end_offset: int) -> int:
    """Returns the offset up to which `log` is known to equal the leader's log.

    The leader has `leader_epoch`, the last epoch at or below the last one in `log`, up to `end_offset`; -1 if it has
    none. If truncation to the result is not enough, the next fetch finds another divergence.
    """
    target = min(end_offset, log.log_end_offset)
    if leader_epoch >= 0 and end_offset >= 0:
        own_epoch, own_end = log.end_offset_for_epoch(leader_epoch)
        if own_epoch == leader_epoch:
            target = min(own_end, target)
        elif own_epoch >= 0:
            target = min(own_end, log.log_end_offset)
    return max(target, 0)
