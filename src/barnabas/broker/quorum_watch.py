"""Says, every few seconds, that the metadata quorum has no leader: a node that waits for one must not be
silent."""

from __future__ import annotations

from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host, Timer
from barnabas.raft.node import RaftNode

_LOOK_MS: Final = 3_000


class QuorumWatch:
    def __init__(self, host: Host, config: BrokerConfig, raft: RaftNode) -> None:
        self._host = host
        self._config = config
        self._raft = raft
        self._timer: Timer | None = None
        #: Since when nobody leads, as far as this node knows.
        self._since_ms: int | None = None

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now_ms = self._host.clock.now_ms()
        if self._raft.leader_id >= 0:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = now_ms
        else:
            self._host.faults.report(
                f"no leader of the metadata quorum is known for {(now_ms - self._since_ms) // 1000} s; still trying "
                f"{self._addresses()}"
            )
        self._timer = self._host.timers.call_later(_LOOK_MS, self._look)

    def _addresses(self) -> str:
        own_id = self._config.node_id
        voters = [f"{voter.node_id}@{voter.host}:{voter.port}" for voter in sorted(self._config.voters)]
        others = [voter for voter in voters if not voter.startswith(f"{own_id}@")]
        servers = [f"{address.host}:{address.port}" for address in self._config.bootstrap_controllers]
        return ", ".join(others or servers) or "(this node votes alone)"
