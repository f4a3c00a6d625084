"""The sources of a broker's self-reports, and the start and end of their watch; `journal.self_watch` evaluates them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from barnabas.broker.peers.peer_probes import PeerProbes
from barnabas.broker.requests.context import Services
from barnabas.common.host import LinkCondition
from barnabas.common.types import INTERNAL_TOPICS
from barnabas.journal.journal import Journal
from barnabas.journal.self_reports import SelfReport, SelfReportKind
from barnabas.journal.self_watch import SelfWatch, Silence, Sources
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.protocol.reach import SILENT
from barnabas.storage.directories import NO_BROKER_EPOCH
from barnabas.storage.health import FAILED, FULL
from barnabas.storage.log_manager import LogManager

#: The silence after which a peer is dialled.
_PROBED_MS: Final = 1_000
_KINDS: Final = {FULL: SelfReportKind.DISK_FULL, FAILED: SelfReportKind.DISK_FAILED}


class BrokerSelfWatch:
    """The watch of one broker. `unanswered` returns the time since which the controller's answer to a heartbeat is
    overdue.
    """

    def __init__(
        self, services: Services, logs: LogManager, unanswered: Callable[[], int | None], journal: Journal
    ) -> None:
        self._services = services
        self._logs = logs
        self._unanswered = unanswered
        self._probes = PeerProbes(services.host)
        sources = Sources(
            self._silences, self._disks, self._throttled_sides, self._links, logs.health.take_syncs, self._bytes_in
        )
        self._watch = SelfWatch(services.host, sources, journal.on_self_report)

    def opened(self, began_ms: int) -> None:
        """Adds the report of the start-up, whose logs are open now."""
        clock, logs = self._services.host.clock, list(self._logs)
        took_ms = clock.now_ms() - began_ms
        facts = {
            "logs": len(logs),
            "bytes": sum(log.size_bytes for log in logs),
            "clean": self._logs.previous_broker_epoch != NO_BROKER_EPOCH,
            "machine_up_ms": self._services.host.machine_up_ms(),
        }
        if logs:
            end_ms = clock.wall_ms()
            self._watch.add(SelfReport(SelfReportKind.RECOVERING, end_ms - took_ms, end_ms, took_ms, facts=facts))

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Watches while the cluster has several brokers."""
        if len(image.brokers) > 1:
            self._watch.start()
        else:
            self._watch.close()

    def close(self) -> None:
        self._watch.close()
        self._probes.close()

    def _silences(self, now_ms: int) -> Iterator[Silence]:
        """Yields the peers that do not answer. One that is silent for a second is dialled, so that the first report can
        say what its system does.
        """
        silent = set()
        for silence in self._unanswered_peers():
            if now_ms - silence.since_ms >= _PROBED_MS:
                silent.add(silence.peer)
                yield self._with_dial(silence)
            else:
                yield silence
        self._probes.keep(silent)

    def _with_dial(self, silence: Silence) -> Silence:
        services = self._services
        broker = services.metadata.image.brokers.get(silence.peer)
        endpoint = None if broker is None else broker.endpoint(services.config.inter_broker_listener)
        if endpoint is None:
            return silence  # a controller that is not a broker
        result = self._probes.result(silence.peer, (endpoint.host, endpoint.port))
        # A channel gives its dials up before the network can say that there is no such machine.
        known = "" if silence.dialled == SILENT else silence.dialled
        return silence._replace(dialled=result or known)

    def _unanswered_peers(self) -> Iterator[Silence]:
        services = self._services
        wait_ms = services.config.int_of("replica.fetch.wait.max.ms")
        leaders = set()
        for leader_id, unanswered_ms, reach in services.replicas.fetchers.unanswered():
            leaders.add(leader_id)
            yield Silence(leader_id, unanswered_ms + wait_ms, *reach)
        since_ms = self._unanswered()
        controller_id = services.access.leader_id()
        if since_ms is not None and controller_id >= 0 and controller_id not in leaders:
            yield Silence(controller_id, since_ms, *services.access.reach)

    def _links(self) -> Iterator[tuple[int, LinkCondition]]:
        """Yields the condition of the network to the leaders that this broker follows, and to the controller."""
        services = self._services
        controller_id, condition = services.access.leader_id(), services.access.condition()
        if condition is not None and controller_id >= 0:
            yield controller_id, condition
        yield from services.replicas.fetchers.conditions()

    def _bytes_in(self) -> Mapping[str, int]:
        return {
            topic: traffic.bytes_in
            for topic, traffic in self._services.replicas.traffic.topics()
            if topic not in INTERNAL_TOPICS
        }

    def _disks(self) -> Iterator[tuple[SelfReportKind, str]]:
        health = self._logs.health
        for path in health.unwritable() if health.is_any_unwritable else ():
            yield _KINDS.get(health.cause_of(path), SelfReportKind.DISK_SLOW), path
        for path in self._logs.roots.offline:
            yield SelfReportKind.DISK_FAILED, path

    def _throttled_sides(self, now_ms: int) -> Iterable[str]:
        quotas = self._services.replicas.quotas
        return [
            side
            for side, quota in (("leader", quotas.leader), ("follower", quotas.follower))
            if quota and quota.throttle.wait_ms(now_ms) > 0
        ]


def make_self_watch(
    services: Services, logs: LogManager, unanswered: Callable[[], int | None], journal: Journal
) -> BrokerSelfWatch | None:
    """Returns the watch of a broker; None for a node that is not a broker, or in a cluster that keeps no journal."""
    config = services.config
    if not config.is_broker or not config.bool_of("barnabas.cluster.events.enable"):
        return None
    return BrokerSelfWatch(services, logs, unanswered, journal)
