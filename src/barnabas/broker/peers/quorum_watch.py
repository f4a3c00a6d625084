"""The log lines about the quorum leader: one when a leader is known, and one every ten seconds while there is none."""

from __future__ import annotations

from typing import Final

from barnabas.common.config import BrokerConfig
from barnabas.common.host import Host, Timer
from barnabas.common.reports import INTERVAL_MS, LimitedReports
from barnabas.raft.node import RaftNode

_CHECK_MS: Final = 3_000
#: A leader is logged after it has led for this time, so that only the last of several elections in a row is logged.
_SETTLED_MS: Final = 200
_NO_NODE: Final = -1
_NO_LEADER: Final = "no leader"


class QuorumWatch:
    """Writes the log lines of one node about the quorum leader."""

    def __init__(self, host: Host, config: BrokerConfig, raft: RaftNode) -> None:
        self._host = host
        self._config = config
        self._raft = raft
        self._reports = LimitedReports(host.faults, host.clock)
        self._timer: Timer | None = None
        self._log_timer: Timer | None = None
        #: The time since which this node knows no leader.
        self._since_ms: int | None = None
        #: The (leader, epoch) that the log last named.
        self._logged = (_NO_NODE, _NO_NODE)

    def start(self) -> None:
        self._check_leader()
        self.on_leader()

    def stop(self) -> None:
        for timer in (self._timer, self._log_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._log_timer = None

    def on_leader(self) -> None:
        """Schedules a log line if a new leader is known."""
        if self._log_timer is None and self._raft.leader_id >= 0 and self._present != self._logged:
            self._log_timer = self._host.timers.call_later(_SETTLED_MS, self._log_leader)

    @property
    def _present(self) -> tuple[int, int]:
        return self._raft.leader_id, self._raft.epoch

    def _log_leader(self) -> None:
        """Logs the leader: at most one line in ten seconds, the last of which names the current leader."""
        self._log_timer = None
        leader_id, epoch = self._present
        if leader_id < 0 or (leader_id, epoch) == self._logged:
            return
        self._logged = (leader_id, epoch)
        who = "this node" if leader_id == self._config.node_id else f"node {leader_id}"
        message = f"{who} leads the metadata quorum in epoch {epoch}"
        if not self._reports.over(_NO_LEADER, message):
            self._host.faults.inform(message)
        self._since_ms = None
        self._log_timer = self._host.timers.call_later(INTERVAL_MS, self._log_next_leader)

    def _log_next_leader(self) -> None:
        self._log_timer = None
        self.on_leader()

    def _check_leader(self) -> None:
        now_ms = self._host.clock.now_ms()
        if self._raft.leader_id >= 0:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = now_ms
        else:
            self._reports.report(
                _NO_LEADER,
                f"no leader of the metadata quorum is known for {(now_ms - self._since_ms) // 1000} s; still trying "
                f"{self._addresses()}",
            )
        if self._raft.leader_id >= 0:
            self._reports.over(_NO_LEADER, f"the metadata quorum has a leader again, node {self._raft.leader_id}")
        self._timer = self._host.timers.call_later(_CHECK_MS, self._check_leader)

    def _addresses(self) -> str:
        own_id = self._config.node_id
        voters = [f"{voter.node_id}@{voter.host}:{voter.port}" for voter in sorted(self._config.voters)]
        others = [voter for voter in voters if not voter.startswith(f"{own_id}@")]
        servers = [f"{address.host}:{address.port}" for address in self._config.bootstrap_controllers]
        return ", ".join(others or servers) or "(this node votes alone)"
