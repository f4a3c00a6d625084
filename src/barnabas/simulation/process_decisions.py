"""Second decisions about the processes of brokers that a controller in ZooKeeper mode watches."""

from __future__ import annotations

from typing import Any, Final

from barnabas.simulation.second_decisions import UNJUDGED, SecondDecision, costly


def _stays_watched(processes: Any, broker: Any, is_known: bool = False) -> object:
    """Returns the watch of a broker that stays, because neither its registration nor its address is another one."""
    known, endpoint = processes._watched.get(broker.broker_id), broker.endpoint(processes._listener_name)
    if endpoint is None or broker.broker_id == processes._own_id:
        return known
    is_same = known is not None and known[:2] == (broker.epoch, (endpoint.host, endpoint.port))
    return known if is_same else UNJUDGED


def _watched_now(_: Any, processes: Any, broker: Any) -> object:
    return processes._watched.get(broker.broker_id)


PROCESS_DECISIONS: Final = costly(
    SecondDecision("controller.zookeeper.broker_processes:BrokerProcesses.watch", _stays_watched, shown=_watched_now),
)
