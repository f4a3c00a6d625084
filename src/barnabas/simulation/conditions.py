"""The physical condition of a cluster: the trouble of each machine and each link, as the world knows it.

It is read from the simulated processes, disks and network, and neither from nodes nor from the list of faults. The
result is therefore the same whether a schedule, a test or a failed process caused a trouble.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.simulation.network_direction import Direction
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, ProcessState

#: A disk with less free space than this is full.
_SPACE_BYTES_MIN: Final = 1 << 20
#: A link whose messages need this much more time is slow; faster ones do not matter.
_SLOW_US: Final = 20 * MILLISECOND_US
#: Checkers run after events of nodes, of which there are several in a second: after a longer time without a check all
#: processes were paused, as on an idle day.
PAUSED_US: Final = 2 * SECOND_US

#: OFF: the machine has no power. DEAD: the machine runs, and refuses connections for the process that does not. SLOW:
#: the disk is slow, or the process waits for a call that began when it was. WAITS: in ZooKeeper mode, a broker that
#: cannot register, because the session of its last process is still open; only the server can end that session.
OFF, DEAD, PAUSED, BROKEN, FULL = "off", "dead", "paused", "broken", "full"
SLOW, REFUSES, WAITS, COLD, CUT = "slow", "refuses", "waits", "cold", "cut"


class Condition(NamedTuple):
    """The troubles of machines and of the links between them; healthy ones are missing."""

    troubles: dict[str, str]
    #: (machine, machine), in both orders -> CUT or SLOW.
    links: dict[tuple[str, str], str]
    #: The number of starts of each machine's process.
    starts: dict[str, int]
    #: The number of calls of each machine that its disk has refused for lack of space.
    refusals: dict[str, int]


def condition_of(cluster: Cluster) -> Condition:
    """Returns the condition of nodes, servers and clients now."""
    names = {address: name for name, address in cluster.network.addresses.items()}
    troubles = {name: trouble for name in cluster.programs if (trouble := _trouble(cluster, name))}
    for name, client in cluster.clients.items():
        process = client.machine.process
        if process is None or process.state is not ProcessState.RUNNING:
            troubles[name] = PAUSED if process is not None and process.state is ProcessState.PAUSED else DEAD
    links: dict[tuple[str, str], str] = {}
    for (source, target), direction in cluster.network.directions():
        trouble = _trouble_of_link(direction)
        if trouble:
            pair = names[source], names[target]
            for each in (pair, pair[::-1]):
                links[each] = CUT if CUT in (trouble, links.get(each)) else SLOW
    starts = {name: cluster.machine(name).incarnation for name in cluster.programs}
    refusals = {name: each.disk.space_refusals for name, each in cluster.programs.items()}
    return Condition(troubles, links, starts, refusals)


def _trouble(cluster: Cluster, name: str) -> str:
    machine = cluster.programs[name].machine
    process = machine.process
    if not machine.is_on:
        return OFF
    if process is None or process.is_dead:
        return DEAD
    if process.state is ProcessState.PAUSED:
        return PAUSED
    disk = cluster.programs[name].disk
    if disk.fail_with is not None:
        return BROKEN
    if disk.is_unwritable or disk.free_bytes < _SPACE_BYTES_MIN:
        return FULL
    if disk.is_slow or disk.slow_until_us > cluster.world.now_us:
        return SLOW
    if name in cluster.network.unwritable:
        return REFUSES
    if cluster.zookeeper is not None and name in cluster.nodes:
        registered = cluster.zookeeper.process_of(cluster.zookeeper.session_of(name))
        if registered is not None and registered is not process:
            return WAITS
    return COLD if disk.cold_chance else ""


def _trouble_of_link(direction: Direction) -> str:
    if direction.cuts:
        return CUT
    return SLOW if direction.extra_us > _SLOW_US or direction.loss_percent else ""
